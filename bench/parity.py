#!/usr/bin/env python3
"""Trains the same network with Python Accelerate and with ivme on this machine and compares every number bit for bit.

The configurations are the lines of tests/data/reference/matrix.txt. Both sides run on one thread per process.
Exit code: 0 if no bit differs, 1 if one does, 2 for wrong usage. docs/parity.md explains what is compared.
"""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import side_by_side as sides

MORE_PROCESSES = """
mlp_sgd_p4    --world 4
mlp_adamw_p4  --optimizer adamw --world 4
mlp_sgd_p8    --world 8
mlp_adamw_p8  --optimizer adamw --world 8
"""
IVME_FLAGS = {"--accumulate": "--gradient_accumulation_steps", "--precision": "--mixed_precision"}


def configurations(everything, pattern):
    text = (sides.REFERENCE / "matrix.txt").read_text() + (MORE_PROCESSES if everything else "")
    lines = (line.split("#")[0].split() for line in text.splitlines())
    return [(words[0], words[1:]) for words in lines if words and re.search(pattern, words[0])]


def value_of(arguments, flag, default):
    return arguments[arguments.index(flag) + 1] if flag in arguments else default


def run_python(name, arguments, folder, timeout):
    """One plain process per rank, as torchrun would start them. Returns the lines that rank 0 wrote."""
    world = int(value_of(arguments, "--world", "1"))
    out, log = folder / "python.jsonl", folder / "python.log"
    command = [sys.executable, str(sides.REFERENCE / "reference.py"), "--name", name, "--out", str(out), *arguments]
    data = f"{sides.fashion_mnist()}:{sides.ROOT / 'data'}"
    base = sides.environment(ACCELERATE_USE_CPU="true", REFERENCE_DATA=data)
    if world > 1:
        base.update(WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1")
        base["MASTER_PORT"] = str(sides.free_port())
    ranks = [{**base, "RANK": str(r), "LOCAL_RANK": str(r)} if world > 1 else base for r in range(world)]
    codes = sides.run_all([(command, env) for env in ranks], log, timeout)
    # Python's Gloo now and then aborts at exit, after all work is done: the file decides.
    lines = [json.loads(line) for line in open(out)] if out.exists() else []
    if not any(line["kind"] == "final" for line in lines if "kind" in line):
        raise RuntimeError(f"Python failed with exit codes {codes}:\n{sides.tail(log)}")
    return lines


def run_ivme(build, arguments, folder, timeout):
    """Returns the lines of the run record, and the SHA-256 of the trained parameters."""
    record, parameters, log = folder / "ivme.jsonl", folder / "parameters", folder / "ivme.log"
    flags, words = [], iter(arguments)
    model, world = value_of(arguments, "--model", "mlp"), value_of(arguments, "--world", "1")
    for word in words:
        if word == "--world" or (word == "--model" and model == "lm"):
            next(words)
        else:
            flags.append(IVME_FLAGS.get(word, word))
    program = build / "examples" / ("char_lm" if model == "lm" else "fashion_mnist")
    if model != "lm" and "--dataset" not in arguments:
        flags += ["--data", str(sides.fashion_mnist())]
    if "--steps" in flags:
        flags[flags.index("--steps")] = "--max_batches"
    else:
        flags += ["--max_batches", "200"]
    launch = [str(build / "ivme"), "launch", "--cpu", "--num_processes", world, "--num_cpu_threads_per_process", "1"]
    command = [*launch, str(program), *flags, "--record", str(record), "--record_micro"]
    (code,) = sides.run_all([([*command, "--save_parameters", str(parameters)], sides.environment())], log, timeout)
    if code != 0:
        raise RuntimeError(f"ivme failed with exit code {code}:\n{sides.tail(log)}")
    return [json.loads(line) for line in open(record)], hashlib.sha256(parameters.read_bytes()).hexdigest()


def differences(python, record, parameters):
    """Yields a sentence for each number that is not the same on both sides, in the order in which they arise."""
    micro = [line for line in python if "kind" not in line]
    updates = [(i, line) for i, line in enumerate(micro) if line.get("sync", 1)]
    final = {line["kind"]: line for line in python if "kind" in line}
    ours = {kind: [line for line in record if line["kind"] == kind] for kind in ("micro", "step", "final")}

    def unequal(what, theirs, mine):
        if theirs != mine:
            yield f"{what}: Python {theirs}, ivme {mine}"

    yield from unequal("number of micro-batches", len(micro), len(ours["micro"]))
    yield from unequal("number of updates", len(updates), len(ours["step"]))
    for i, (a, b) in enumerate(zip(micro, ours["micro"])):
        yield from unequal(f"losses of micro-batch {i}", a["loss"], b["loss_ranks"])
    before = 0
    for (i, a), b in zip(updates, ours["step"]):
        order = sum(int(line["order"], 16) for line in micro[before : i + 1]) % 2**64
        before = i + 1
        yield from unequal(f"sample order of update {b['step']}", f"{order:016x}", b["order"])
        yield from unequal(f"samples after update {b['step']}", a["seen"], b["samples"])
        yield from unequal(f"learning rate of update {b['step']}", a["lr"], b["lr"])
        if "gn" in a:
            yield from unequal(f"gradient norm of update {b['step']}", float.fromhex(a["gn"]), b["grad_norm"])
    yield from unequal("final parameters (SHA-256)", final["final"]["all_sha"], parameters[:16])
    metrics = ours["final"][0]["metrics"] if ours["final"] else {}
    yield from unequal("test loss", final["eval"]["loss"], metrics.get("loss"))
    yield from unequal("test accuracy", final["eval"]["acc"], metrics.get("accuracy"))


def compare(build, name, arguments, timeout):
    """Returns the micro-batches compared, the number of clip norms among them, and the differences."""
    with tempfile.TemporaryDirectory(prefix="ivme-parity-") as folder:
        python = run_python(name, arguments, pathlib.Path(folder), timeout)
        record, parameters = run_ivme(build, arguments, pathlib.Path(folder), timeout)
    micro = [line for line in python if "kind" not in line]
    return len(micro), sum("gn" in line for line in micro), list(differences(python, record, parameters))


def main():
    parser = argparse.ArgumentParser(prog="./dev parity", description=__doc__.split("\n")[0])
    parser.add_argument("pattern", nargs="?", default="", metavar="NAME", help="only names in which this regex is found")
    parser.add_argument("--all", action="store_true", help="mlp with 4 and with 8 processes too")
    parser.add_argument("--build", type=pathlib.Path, default=sides.ROOT / "build", help="build folder (build)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one run may take (600)")
    arguments = parser.parse_args()
    sides.require_packages(accelerate="1.15.0", torch="2.13.0")
    sides.require(arguments.build, "fashion_mnist", "char_lm")
    chosen = configurations(arguments.all, arguments.pattern)
    if not chosen:
        parser.error(f"no configuration's name matches '{arguments.pattern}'; see {sides.REFERENCE / 'matrix.txt'}")

    print("| configuration | micro-batches | clip norms | result |\n|---|---|---|---|", flush=True)
    unequal = 0
    for name, flags in chosen:
        try:
            micro, norms, found = compare(arguments.build, name, flags, arguments.timeout)
            result = f"{len(found)} differ, first {found[0]}" if found else "bit for bit"
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            micro, norms, found, result = 0, 0, True, "failed, see above"
        unequal += bool(found)
        print(f"| {name} | {micro} | {norms or ''} | {result} |", flush=True)
    print(f"\n{len(chosen) - unequal} of {len(chosen)} configurations agree bit for bit.")
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
