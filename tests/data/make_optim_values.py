"""Records what Python's torch.optim and lr_scheduler compute, for src/optim/*_test.cpp.

    python tests/data/make_optim_values.py

writes optim_values.json beside itself (torch 2.13.0 on an x86 CPU with AVX2). Tensors are the hex digits of
their elements' bits, learning rates decimal numbers that read back to the same double.
"""

import json
import math
import os
import subprocess
import sys

SIZES = [7, 33, 261]  # odd: the tail of a vectorised loop takes another path
STEPS = 20
WITHOUT_GRADIENT = {(2, 4), (2, 5)}  # (parameter, step)

OPTIMIZERS = [
    ("SGD", "float32", {"lr": 0.05}),
    ("SGD", "float32", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", "float32", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
    ("SGD", "float32", {"lr": 0.05, "weight_decay": 0.1}),
    ("SGD", "float32", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("SGD", "float32", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.02, "maximize": True}),
    ("SGD", "float32", {"lr": 0.05, "maximize": True}),
    ("SGD", "float64", {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    ("SGD", "bfloat16", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    ("Adam", "float32", {"lr": 0.001}),
    ("Adam", "float32", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", "float32", {"lr": 0.01, "weight_decay": 0.1, "maximize": True, "betas": [0.8, 0.95]}),
    ("Adam", "float64", {"lr": 0.001}),
    ("Adam", "bfloat16", {"lr": 0.01}),
    ("AdamW", "float32", {"lr": 0.001}),
    ("AdamW", "float32", {"lr": 0.03, "weight_decay": 0.3, "eps": 1e-6, "betas": [0.8, 0.95]}),
    ("AdamW", "float32", {"lr": 0.001, "weight_decay": 0.0}),
    ("AdamW", "float32", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("AdamW", "float64", {"lr": 0.001, "amsgrad": True}),
    ("AdamW", "bfloat16", {"lr": 0.01}),
]


def number(salt, i):
    """A float32 that needs no rounding, of very uneven size; the same formula is in the test."""
    x = (salt * 2654435761 + i * 40503 + 12345) % 2**32
    x ^= x >> 13
    x = x * 0x5BD1E995 % 2**32
    x ^= x >> 15
    return ((x & 0xFFFFFF) - 0x800000) / 2.0**23 * 2.0 ** -(x >> 24 & 7)


def tensor(salt, size, dtype):
    import torch

    return torch.tensor([number(salt, i) for i in range(size)], dtype=torch.float64).to(dtype)


def bits(tensor):
    import torch

    width = tensor.element_size() * 2
    as_int = tensor.detach().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])
    return "".join(f"{v % 16**width:0{width}x}" for v in as_int.tolist())


def optimizer_values():
    import torch

    cases = []
    for name, dtype_name, options in OPTIMIZERS:
        dtype = getattr(torch, dtype_name)
        parameters = [torch.nn.Parameter(tensor(p, n, dtype)) for p, n in enumerate(SIZES)]
        optimizer = getattr(torch.optim, name)(parameters, **options)
        for step in range(1, STEPS + 1):
            for p, parameter in enumerate(parameters):
                skip = (p, step) in WITHOUT_GRADIENT
                parameter.grad = None if skip else tensor(100 * step + p, SIZES[p], dtype)
            optimizer.step()
        cases.append({"name": name, "dtype": dtype_name, "options": options, "after": [bits(p) for p in parameters]})
    return cases


def warmup(W, e, after):
    return float(e) / float(max(1, W)) if e < W else after()


def linear(W, T):
    return lambda e: warmup(W, e, lambda: max(0.0, float(T - e) / float(max(1, T - W))))


def cosine(W, T, cycles=0.5):
    def factor(e):
        progress = float(e - W) / float(max(1, T - W))
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * float(cycles) * 2.0 * progress)))

    return lambda e: warmup(W, e, lambda: factor(e))


def schedule_values():
    import torch
    from torch.optim import lr_scheduler as s

    def of_lambda(f):
        return lambda o: s.LambdaLR(o, f)

    schedules = [
        ("constant", {}, 3, of_lambda(lambda e: 1)),
        ("constant_with_warmup", {"warmup_steps": 7}, 20, of_lambda(lambda e: warmup(7, e, lambda: 1.0))),
        ("linear_with_warmup", {"warmup_steps": 20, "total_steps": 200}, 220, of_lambda(linear(20, 200))),
        ("linear_with_warmup", {"warmup_steps": 0, "total_steps": 30}, 35, of_lambda(linear(0, 30))),
        ("linear_with_warmup", {"warmup_steps": 1, "total_steps": 1}, 4, of_lambda(linear(1, 1))),
        ("cosine_with_warmup", {"warmup_steps": 20, "total_steps": 200}, 220, of_lambda(cosine(20, 200))),
        ("cosine_with_warmup", {"warmup_steps": 3, "total_steps": 90, "cycles": 2.5}, 90, of_lambda(cosine(3, 90, 2.5))),
        ("cosine_annealing", {"total_steps": 100}, 350, lambda o: s.CosineAnnealingLR(o, 100)),
        ("cosine_annealing", {"total_steps": 37, "min_lr": 1e-4}, 160, lambda o: s.CosineAnnealingLR(o, 37, 1e-4)),
        ("cosine_annealing", {"total_steps": 1}, 8, lambda o: s.CosineAnnealingLR(o, 1)),
        ("step_decay", {"step_size": 50, "gamma": 0.5}, 220, lambda o: s.StepLR(o, 50, 0.5)),
        ("step_decay", {"step_size": 20}, 65, lambda o: s.StepLR(o, 20)),
        ("step_decay", {"step_size": 1, "gamma": 0.95}, 40, lambda o: s.StepLR(o, 1, 0.95)),
        ("multi_step", {"milestones": [0, 3, 10, 10, 30], "gamma": 0.3}, 40,
         lambda o: s.MultiStepLR(o, [0, 3, 10, 10, 30], 0.3)),
        ("lambda", {}, 20, of_lambda(lambda e: 1 - e / 16)),
    ]
    cases = []
    for name, options, steps, make in schedules:
        groups = [{"params": [torch.zeros(1)], "lr": 0.05}, {"params": [torch.zeros(1)], "lr": 3e-4}]
        optimizer = torch.optim.SGD(groups)
        schedule = make(optimizer)
        rates = [list(schedule.get_last_lr())]
        for _ in range(steps):
            optimizer.step()
            schedule.step()
            rates.append(list(schedule.get_last_lr()))
        cases.append({"name": name, "options": options, "lr": [list(r) for r in zip(*rates)]})
    return cases


def main():
    if "--optimizers" in sys.argv:
        print(json.dumps(optimizer_values()))
        return
    recorded = {"schedules": schedule_values(), "optimizers": {}}
    for capability in ["AVX2", "DEFAULT"]:
        environment = dict(os.environ, ATEN_CPU_CAPABILITY=capability.lower())
        output = subprocess.run([sys.executable, __file__, "--optimizers"], env=environment, check=True, stdout=-1)
        recorded["optimizers"][capability] = json.loads(output.stdout)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optim_values.json")
    with open(path, "w") as file:
        json.dump(recorded, file, separators=(",", ":"))
        file.write("\n")


main()
