"""What parity.py, bench.py and xla_bench.py share: where things are, starting programs, tables of numbers."""

import datetime
import importlib.metadata
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
REFERENCE = ROOT / "tests" / "data" / "reference"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def fashion_mnist():
    installed = pathlib.Path("/usr/share/datasets/fashion-mnist")
    unpacked = ROOT / ".deps" / installed.relative_to("/")
    for folder in (installed, unpacked):
        if folder.is_dir():
            return folder
    sys.exit(f"error: Fashion-MNIST is in neither {installed} nor {unpacked}. Run ./dev setup.")


def require(build, *programs):
    """The paths of the tool and of these examples in the build folder; ends the program if one is missing."""
    paths = [build / "ivme", *(build / "examples" / name for name in programs)]
    for path in paths:
        if not path.is_file():
            sys.exit(f"error: {path} is missing. Run ./dev build, or name the build folder with --build DIR.")
    return paths


def require_packages(**versions):
    """These packages are installed in the versions that the comparison is about."""
    for name, wanted in versions.items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = "none"
        if installed.split("+")[0] != wanted:
            sys.exit(
                f"error: {name} {wanted} is compared with, but {installed} is installed. "
                "Start this with ./dev, which installs it into .venv-bench."
            )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**extra):
    """The caller's environment without what would steer Accelerate or ivme, and with one thread."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELERATE_", "IVME_"))}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        kept.pop(name, None)
    return {**kept, **ONE_THREAD, **extra}


def run_all(commands, log, timeout):
    """Runs (command, environment) pairs at once and waits; returns their exit codes. None of them outlives the call."""
    processes = []
    try:
        with open(log, "w") as output:
            for command, env in commands:
                processes.append(
                    subprocess.Popen(
                        command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                    )
                )
        return [process.wait(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def tail(log, lines=15):
    return "\n".join(pathlib.Path(log).read_text(errors="replace").splitlines()[-lines:])


def cell(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def processor():
    models = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{models[0] if models else 'unknown CPU'}, {len(os.sched_getaffinity(0))} cores"


def write_table(begin, end, table, command, repetitions):
    """Into docs/benchmarks.md, between these two lines of it."""
    text = DOCUMENT.read_text()
    facts = f"{processor()}. {datetime.date.today()}, `{command}`, {repetitions} repetitions."
    before, after = text[: text.index(begin) + len(begin)], text[text.index(end) :]
    DOCUMENT.write_text("\n".join([before, facts, "", *table, after]))
    print(f"\nwritten into {DOCUMENT.relative_to(ROOT)}")
