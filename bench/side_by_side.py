"""What parity.py and bench.py share: where things are, and how a program is started on several processes."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
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


def require_python():
    """Python Accelerate is installed in the version that the comparison is about."""
    try:
        import accelerate
        import torch
    except ImportError as error:
        sys.exit(f"error: {error}. Start this with ./dev, which installs Python Accelerate into .venv-bench.")
    if accelerate.__version__ != "1.15.0" or not torch.__version__.startswith("2.13.0"):
        sys.exit(
            f"error: accelerate 1.15.0 and torch 2.13.0 are compared with, but {accelerate.__version__} and "
            f"{torch.__version__} are installed. Start this with ./dev, which installs them into .venv-bench."
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
