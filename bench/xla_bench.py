#!/usr/bin/env python3
"""Measures ivme on XLA against jax.jit: the same models, initial weights and batches, on one core.

xla_train.cpp and xla_train_jax.py take turns, so that a busy moment of the machine meets both; the table shows medians
and, in brackets, the least and the largest value. Without NAME the table is also written into docs/benchmarks.md.
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import side_by_side as sides

STEPS = {"mlp": 2000, "transformer": 200}
BEGIN, END = "<!-- ./dev bench --xla writes from here -->", "<!-- to here: --xla -->"
JAX_CACHE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


class Side:
    """One way to run the loop. `run` gives the numbers of one process, which began with what `cache` has compiled."""

    def __init__(self, name, command, environment):
        self.name, self.command, self.environment = name, command, environment

    def run(self, model, steps, data, cache):
        command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *self.command(model, steps, data)]
        command = [str(word) for word in command]
        log = cache.parent / "log"
        start = time.time()
        (code,) = sides.run_all([(command, sides.environment(**self.environment(cache)))], log, timeout=600)
        found = re.search(r"^\{\"losses\".*\}$", log.read_text(), re.MULTILINE)
        if code != 0 or not found:
            sys.exit(f"error: {' '.join(command)} failed with exit code {code}:\n{sides.tail(log)}")
        numbers = json.loads(found[0])
        numbers["start"] = numbers["first_step"] - start
        return numbers


def ivme(program, mode):
    return Side(
        f"ivme, {mode}",
        lambda model, steps, data: [program, model, mode, steps, data],
        lambda cache: {"IVME_XLA_CACHE_DIR": str(cache), "PJRT_DEVICE": "CPU"},
    )


def jax():
    return Side(
        "jax.jit",
        lambda model, steps, data: [sys.executable, sides.ROOT / "bench" / "xla_train_jax.py", model, steps, data],
        lambda cache: {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu", **JAX_CACHE},
    )


def torch_xla(python):
    return Side(
        "torch_xla",
        lambda model, steps, data: [python, sides.ROOT / "bench" / "xla_train_torch.py", model, steps, data],
        lambda cache: {"XLA_PERSISTENT_CACHE_PATH": str(cache), "PJRT_DEVICE": "CPU"},
    )


# quantity: unit, digits, and where it is in the numbers of a process that began with nothing compiled, and in those
# of one that found all compiled
QUANTITIES = {
    "first step, wall": ("s", 2, lambda cold, warm: cold["first"]["wall"] / 1e3),
    "first step, CPU": ("s", 2, lambda cold, warm: cold["first"]["cpu"] / 1e3),
    "second step, wall": ("ms", 2, lambda cold, warm: cold["second"]["wall"]),
    "second step, CPU": ("ms", 2, lambda cold, warm: cold["second"]["cpu"]),
    "later step, wall": ("ms", 3, lambda cold, warm: cold["steady"]["wall"]),
    "later step, CPU": ("ms", 3, lambda cold, warm: cold["steady"]["cpu"]),
    "later step, host's CPU": ("ms", 3, lambda cold, warm: cold["steady"]["host"]),
    "second start to first step": ("s", 2, lambda cold, warm: warm["start"]),
    "compilations in the second start": ("", 0, lambda cold, warm: warm["compiles"]),
}


def check_losses(model, losses):
    first_name, first = next(iter(losses.items()))
    for name, others in losses.items():
        if not all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(first, others, strict=True)):
            sys.exit(f"error: the first losses of {model} are {first} with {first_name} and {others} with {name}.")


def measure(all_sides, model, repetitions):
    """{quantity: {side: numbers}}. Ends the program if the sides do not train alike."""
    results = {quantity: {side.name: [] for side in all_sides} for quantity in QUANTITIES}
    with tempfile.TemporaryDirectory(prefix="ivme-bench-") as scratch:
        data = pathlib.Path(scratch)
        subprocess.run([*all_sides[0].command(model, 0, data)[:2], "write", "0", data], check=True)
        for repetition in range(-1, repetitions):  # the first, -1, only fills the caches of the file system
            losses = {}
            for side in all_sides:
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    cache = pathlib.Path(folder) / "cache"
                    cache.mkdir()
                    cold = side.run(model, STEPS[model] if repetition >= 0 else 1, data, cache)
                    warm = side.run(model, 0, data, cache)
                losses[side.name] = cold["losses"]
                if repetition >= 0:
                    for quantity, (_, _, value) in QUANTITIES.items():
                        results[quantity][side.name].append(value(cold, warm))
            check_losses(model, losses)
    return results


def rows(model, results):
    for quantity, (unit, digits, _) in QUANTITIES.items():
        cells = " | ".join(sides.cell(values, digits) for values in results[quantity].values())
        yield f"| {model} | {quantity}{', ' if unit else ''}{unit} | {cells} |"


def main():
    parser = argparse.ArgumentParser(prog="./dev bench --xla", description=__doc__.split("\n")[0])
    names = ", ".join(STEPS)
    parser.add_argument("pattern", nargs="?", default="", metavar="NAME", help=f"only models that match: {names}")
    parser.add_argument("--repetitions", type=int, default=7, metavar="N", help="of each side (7)")
    parser.add_argument("--build", type=pathlib.Path, default=sides.ROOT / "build", help="build folder (build)")
    parser.add_argument("--torch-xla", metavar="PYTHON", help="also torch_xla 2.9.0, which this Python has")
    arguments = parser.parse_args()
    chosen = [model for model in STEPS if re.search(arguments.pattern, model)]
    if not chosen or arguments.repetitions < 1:
        parser.error(f"nothing to measure; the names are: {names}")
    sides.require_packages(jax="0.10.2", jaxlib="0.10.2")
    sides.require(arguments.build)
    subprocess.run(["cmake", "--build", arguments.build, "--target", "xla_train"], check=True, stdout=sys.stderr)
    program = arguments.build / "bench" / "xla_train"
    all_sides = [ivme(program, "traced"), ivme(program, "replayed"), jax()]
    if arguments.torch_xla:
        all_sides.append(torch_xla(arguments.torch_xla))

    titles = " | ".join(side.name for side in all_sides)
    table = [f"| model | quantity | {titles} |", "|---|---|" + "---|" * len(all_sides)]
    print("\n".join(table), flush=True)
    for model in chosen:
        lines = list(rows(model, measure(all_sides, model, arguments.repetitions)))
        print("\n".join(lines), flush=True)
        table += lines
    if not arguments.pattern:
        sides.write_table(BEGIN, END, table, "./dev bench --xla", arguments.repetitions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
