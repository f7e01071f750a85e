"""The loop that bench.py times, and nothing else: train.cpp says the same in C++, line for line.

usage: train.py MODEL BATCH_SIZE STEPS DATA_FOLDER
"""

import array
import gzip
import os
import resource
import struct
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed


def read_idx(path, dimensions):
    with gzip.open(path) as file:  # into the tensor's own memory, without a copy
        shape = struct.unpack(f">4x{dimensions}I", file.read(4 + 4 * dimensions))
        values = torch.empty(shape, dtype=torch.uint8)
        file.readinto(memoryview(values.view(-1).numpy()))
    return values


class Images:
    def __init__(self, folder, part):
        self.pixels = read_idx(f"{folder}/{part}-images-idx3-ubyte.gz", 3)
        self.labels = read_idx(f"{folder}/{part}-labels-idx1-ubyte.gz", 1)

    def get_batch(self, indices):
        index = torch.tensor(indices)
        data = (self.pixels[index].to(torch.float32) / 255 - 0.2860) / 0.3530
        return data.unsqueeze(1), self.labels[index].to(torch.int64)


class Text:
    def __init__(self, folder):
        text = gzip.open(f"{folder}/moby200k.txt.gz").read()
        ids = {byte: i for i, byte in enumerate(sorted(set(text)))}
        self.vocabulary = len(ids)
        characters = torch.frombuffer(array.array("q", map(ids.get, text)), dtype=torch.int64)[:180000]
        blocks = (len(characters) - 1) // 64
        self.inputs = characters[: blocks * 64].view(blocks, 64)
        self.labels = characters[1 : blocks * 64 + 1].view(blocks, 64)

    def get_batch(self, indices):
        index = torch.tensor(indices)
        return self.inputs[index], self.labels[index]


class Numbers(torch.utils.data.Dataset):  # the collate function makes the batch: the fastest way in Python
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index


def make_mlp():
    layers = nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    return nn.Sequential(nn.Flatten(), *layers)


def make_cnn():
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.qkv, self.proj = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)
        self.ln2, self.fc1, self.fc2 = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        b, t, _ = x.shape
        parts = (part.view(b, t, 4, 16).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, 64))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.emb, self.b0, self.b1, self.lnf = nn.Embedding(vocabulary, 64), Block(), Block(), nn.LayerNorm(64)
        nn.init.normal_(self.emb.weight, 0.0, 0.02)

    def forward(self, x):
        return F.linear(self.lnf(self.b1(self.b0(self.emb(x)))), self.emb.weight)


def train(net, dataset, batch_size, steps):
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    model, optimizer, batches = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9),
        torch.utils.data.DataLoader(
            Numbers(len(dataset.labels)), batch_size=batch_size, shuffle=True, collate_fn=dataset.get_batch
        ),
    )
    warm_up = 10
    done, loss_sum = 0, 0.0
    while done < steps:
        for data, target in batches:
            with accelerator.accumulate(model):
                output = model(data)
                loss = F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            loss_sum += loss.item()
            done += 1
            if done == 1:
                first_step = time.time()
            if done == warm_up:
                cpu, wall = time.process_time(), time.monotonic()
            if done == steps:
                break
    per_step = 1e3 / (steps - warm_up)
    cpu, wall = (time.process_time() - cpu) * per_step, (time.monotonic() - wall) * per_step
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    line = '{"first_step": %.6f, "cpu": %.6f, "wall": %.6f, "memory": %d, "loss": %.6f}\n'
    sys.stdout.write(line % (first_step, cpu, wall, memory, loss_sum / steps))
    accelerator.end_training()


# What `accelerate launch` would have set: nothing on one process, and no socket that listens already.
if "IVME_MASTER_LISTEN_FD" in os.environ:
    os.close(int(os.environ["IVME_MASTER_LISTEN_FD"]))
if os.environ["WORLD_SIZE"] == "1":
    for variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[variable]

name, batch_size, steps, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
set_seed(42)
if name == "lm":
    text = Text(folder)
    train(LanguageModel(text.vocabulary), text, batch_size, steps)
else:
    train(make_mlp() if name == "mlp" else make_cnn(), Images(folder, "train"), batch_size, steps)
