"""The training step that xla_bench.py times, in torch_xla: xla_train.cpp says the same with ivme.

usage: xla_train_torch.py MODEL STEPS FOLDER     MODEL: mlp or transformer
Prints one line of JSON, as xla_train does; FOLDER has the parameters and batches that `xla_train MODEL write` wrote.
"""

import collections
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.debug.metrics as metrics
import torch_xla.runtime

NUM_BATCHES, WIDTH, HEADS, SEQUENCE, VOCABULARY = 8, 128, 4, 64, 1000
CHECKED, WARM_UP = 10, 40


def make_mlp():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.qkv, self.proj = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.ln2, self.fc1, self.fc2 = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        parts = (part.view(b, t, HEADS, -1).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.zeros(SEQUENCE, WIDTH))
        self.b0, self.b1 = Block(), Block()
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        return self.head(self.ln(self.b1(self.b0(self.tokens(x) + self.positions))))


def load(net, path):
    values = torch.from_numpy(np.fromfile(path, np.float32))
    parameters = list(net.parameters())
    with torch.no_grad():
        for parameter, part in zip(parameters, values.split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(part.view_as(parameter))


def host_milliseconds():  # CPU time of the thread that records, and autograd's; the others are XLA's
    total = 0.0
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as comm, open(f"/proc/self/task/{task}/schedstat") as times:
            if int(task) == os.getpid() or comm.read().startswith("pt_autograd"):
                total += int(times.read().split()[0]) / 1e6
    return total


Times = collections.namedtuple("Times", "wall cpu host")


def now():
    return Times(1e3 * time.monotonic(), 1e3 * time.process_time(), host_milliseconds())


def difference(begin, end, steps=1):
    return {name: (after - before) / steps for name, before, after in zip(Times._fields, begin, end)}


def main():
    name, steps, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch_xla.runtime.initialize_cache(os.environ["XLA_PERSISTENT_CACHE_PATH"], readonly=False)
    net = make_mlp() if name == "mlp" else Transformer()
    load(net, f"{folder}/{name}.parameters")
    shape, dtype = ((64, 784), torch.float32) if name == "mlp" else ((16, SEQUENCE), torch.int64)
    raw = torch.from_numpy(np.fromfile(f"{folder}/{name}.batches", np.uint8))
    size = NUM_BATCHES * dtype.itemsize * int(np.prod(shape))
    data = raw[:size].view(dtype).view(NUM_BATCHES, *shape)
    target = raw[size:].view(torch.int64).view(NUM_BATCHES, *(shape[:1] if name == "mlp" else shape))
    device = torch_xla.device()
    net.to(device)
    if name == "mlp":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    done = 0

    def run():
        nonlocal done
        batch, done = done % NUM_BATCHES, done + 1
        output = net(data[batch].to(device))
        loss = F.cross_entropy(output.reshape(-1, output.shape[-1]), target[batch].to(device).reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        return loss.detach()

    losses, times = [], [now()]
    while done < (CHECKED if steps else 1):
        losses.append(run().item())
        times.append(now())
        if done == 1:
            first_step = time.time()
    numbers = {"losses": losses, "first": difference(*times[:2])}
    if steps:
        for _ in range(WARM_UP):
            loss = run()
        loss.item()
        begin = now()
        for _ in range(steps):
            loss = run()
        loss.item()
        numbers |= {"second": difference(*times[1:3]), "steady": difference(begin, now(), steps)}
    compiles = (metrics.metric_data("CompileTime") or (0,))[0]
    print(json.dumps({**numbers, "first_step": first_step, "compiles": compiles}), flush=True)


main()
