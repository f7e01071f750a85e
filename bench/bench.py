#!/usr/bin/env python3
"""Measures ivme against Python Accelerate: the same loop, started by the same launcher, one thread per process.

train.cpp and train.py take turns, so that a busy moment of the machine meets both; the table shows medians and, in
brackets, the least and the largest value. Without NAME the table is also written into docs/benchmarks.md.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import side_by_side as sides

# name: model, processes, batch size per process, steps
RUNS = {
    "mlp, 1 process": ("mlp", 1, 64, 600),
    "mlp, 2 processes": ("mlp", 2, 64, 600),
    "cnn, 1 process": ("cnn", 1, 64, 150),
    "cnn, 2 processes": ("cnn", 2, 32, 150),
    "lm, 1 process": ("lm", 1, 16, 150),
    "lm, 2 processes": ("lm", 2, 8, 150),
}
QUANTITIES = {  # name: unit, digits, how the processes of a run become one number
    "cpu": ("CPU per step and process, ms", 2, statistics.mean),
    "wall": ("wall time per step, ms", 2, max),
    "first_step": ("launch to first step, s", 2, max),
    "memory": ("peak memory of a process, MiB", 0, max),
}
BEGIN, END = "<!-- ./dev bench writes from here -->", "<!-- to here -->"


def measure(build, program, model, processes, batch_size, steps):
    """One run: for each quantity one number, and the mean loss."""
    folder = sides.ROOT / "data" if model == "lm" else sides.fashion_mnist()
    launch = [build / "ivme", "launch", "--cpu", "--num_processes", processes, "--num_cpu_threads_per_process", 1, "--tee"]
    command = [str(word) for word in (*launch, *program, model, batch_size, steps, folder)]
    with tempfile.TemporaryDirectory(prefix="ivme-bench-") as scratch:
        log = pathlib.Path(scratch) / "log"
        start = time.time()
        (code,) = sides.run_all([(command, sides.environment())], log, timeout=600)
        ranks = [json.loads(found) for found in re.findall(r"\{\"first_step\".*\}", log.read_text())]
        # A Python rank now and then aborts after its last line, when Gloo's threads end: its numbers stand.
        aborted_at_exit = code == 134 and program[0] == sys.executable
        if len(ranks) != processes or (code != 0 and not aborted_at_exit):
            sys.exit(f"error: {' '.join(command)} failed with exit code {code}:\n{sides.tail(log)}")
    for rank in ranks:
        rank["first_step"] -= start
        rank["memory"] /= 1 << 20
    numbers = {name: join(rank[name] for rank in ranks) for name, (_, _, join) in QUANTITIES.items()}
    return numbers, statistics.mean(rank["loss"] for rank in ranks)


def compare(build, run, repetitions):
    """{quantity: (ivme's numbers, Python's numbers)}. Ends the program if the two sides did not do the same work."""
    programs = [build / "bench" / "bench_train"], [sys.executable, sides.ROOT / "bench" / "train.py"]
    results = {name: ([], []) for name in QUANTITIES}
    for repetition in range(-1, repetitions):  # the first, -1, only fills the caches of the file system
        losses = []
        for side, program in enumerate(programs):
            numbers, loss = measure(build, program, *run)
            losses.append(loss)
            if repetition >= 0:
                for name, value in numbers.items():
                    results[name][side].append(value)
        if not math.isclose(*losses, rel_tol=1e-3):
            sys.exit(f"error: the mean losses are {losses}: both sides should have trained the same way.")
    return results


def rows(name, results):
    for quantity, (unit, digits, _) in QUANTITIES.items():
        ivme, python = results[quantity]
        ratio = statistics.median(ivme) / statistics.median(python)
        yield f"| {name} | {unit} | {sides.cell(ivme, digits)} | {sides.cell(python, digits)} | {ratio:.2f} |"


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.split("\n")[0])
    parser.add_argument("pattern", nargs="?", default="", metavar="NAME", help="only names in which this regex is found")
    parser.add_argument("--repetitions", type=int, default=7, metavar="N", help="of each side (7)")
    parser.add_argument("--build", type=pathlib.Path, default=sides.ROOT / "build", help="build folder (build)")
    arguments = parser.parse_args()
    chosen = {name: run for name, run in RUNS.items() if re.search(arguments.pattern, name)}
    if not chosen or arguments.repetitions < 1:
        parser.error(f"nothing to measure; the names are: {'; '.join(RUNS)}")
    sides.require_packages(accelerate="1.15.0", torch="2.13.0")
    sides.require(arguments.build)
    subprocess.run(["cmake", "--build", arguments.build, "--target", "bench_train"], check=True, stdout=sys.stderr)

    table = ["| loop | quantity | ivme | Python Accelerate | ivme / Python |", "|---|---|---|---|---|"]
    print("\n".join(table), flush=True)
    for name, run in chosen.items():
        lines = list(rows(name, compare(arguments.build, run, arguments.repetitions)))
        print("\n".join(lines), flush=True)
        table += lines
    if not arguments.pattern:
        sides.write_table(BEGIN, END, table, "./dev bench", arguments.repetitions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
