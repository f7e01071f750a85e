#!/usr/bin/env python3
"""Training curves of Python Accelerate 1.15.0 / torch 2.13.0 on CPU, number by number: what bench/parity.py compares with.
One process is one rank (environment: RANK, WORLD_SIZE, ...). REFERENCE_DATA: the folders of the data, separated by ":"."""
import os, sys, time
T_LAUNCH = float(os.environ.get("REF_LAUNCH_T", time.time()))
import argparse, gzip, hashlib, json, resource, statistics, struct
import xxhash
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(int(os.environ.get("REF_THREADS", "1")))
torch.set_num_interop_threads(1)
import accelerate
from accelerate import Accelerator
from accelerate.utils import set_seed, DataLoaderConfiguration, gather_object
T_IMPORT = time.time()
def find(f): return next(p for p in (os.path.join(d, f) for d in os.environ["REFERENCE_DATA"].split(":")) if os.path.exists(p))

ap = argparse.ArgumentParser()
A = ap.add_argument
A("--model", default="mlp", choices=["mlp", "cnn", "cnn_bn", "lm"]); A("--optimizer", default="sgd", choices=["sgd", "adamw"])
A("--world", type=int, default=1); A("--batch_size", type=int, default=64); A("--accumulate", type=int, default=1)
A("--precision", default="no", choices=["no", "bf16"]); A("--scheduler", default="none", choices=["none", "linear_warmup", "cosine", "step"])
A("--steps", type=int, default=200); A("--seed", type=int, default=42); A("--clip", type=float, default=0.0)
A("--split_batches", action="store_true"); A("--dataset", default=None, choices=[None, "fashion", "digits", "moby"])
A("--sampler", default="seedable", choices=["seedable", "default"]); A("--lr", type=float, default=None)
A("--det", type=int, default=1); A("--out", default="/dev/stdout"); A("--name", default=""); A("--no_eval", action="store_true")
a = ap.parse_args()
a.dataset = a.dataset or ("moby" if a.model == "lm" else "fashion")
if a.lr is None: a.lr = 1e-3 if a.optimizer == "adamw" else (0.1 if a.model == "lm" else 0.05)
if a.det: torch.use_deterministic_algorithms(True)

def chex(x):                       # == C++ printf("%a", (double)x) of glibc: shortest hex float
    h = float(x).hex()
    if "p" not in h: return h
    m, e = h.split("p"); m = m.rstrip("0").rstrip(".") if "." in m else m
    return m + "p" + e
def sha(t, n=64): return hashlib.sha256(t.detach().contiguous().cpu().numpy().tobytes()).hexdigest()[:n]
def sha_all(ps, n=16):
    h = hashlib.sha256()
    for p in ps: h.update(p.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:n]
def rng():                         # sha of the CPU generator state + the next two int64 random_() without consuming them
    s = torch.get_rng_state(); g = torch.Generator(); g.set_state(s)
    return [hashlib.sha256(s.numpy().tobytes()).hexdigest()[:16]] + [int(torch.empty((), dtype=torch.int64).random_(generator=g)) for _ in range(2)]

# ---------------------------------------------------------------- data
def idx(f):
    b = gzip.open(find(f)).read(); nd = b[3]; dims = struct.unpack(">%dI" % nd, b[4:4 + 4 * nd])
    return torch.frombuffer(bytearray(b[4 + 4 * nd:]), dtype=torch.uint8).view(dims)
def load():
    if a.dataset == "fashion":
        X = (idx("train-images-idx3-ubyte.gz"), idx("t10k-images-idx3-ubyte.gz")); Y = (idx("train-labels-idx1-ubyte.gz"), idx("t10k-labels-idx1-ubyte.gz"))
        conv = lambda u: ((u.to(torch.float32) / 255) - 0.2860) / 0.3530
        return X, Y, conv, (28, 28)
    if a.dataset == "digits":
        rows = [[int(float(v)) for v in l.split(",")] for l in gzip.open(find("digits.csv.gz"), "rt").read().split()]
        t = torch.tensor(rows, dtype=torch.uint8); x, y = t[:, :64].reshape(-1, 8, 8), t[:, 64]
        return (x[:1437], x[1437:]), (y[:1437], y[1437:]), (lambda u: u.to(torch.float32) / 16), (8, 8)
    b = gzip.open(find("moby200k.txt.gz")).read(); vocab = sorted(set(b)); m = {c: i for i, c in enumerate(vocab)}
    t = torch.tensor([m[c] for c in b], dtype=torch.int64)
    return t, None, None, len(vocab)
class Range(torch.utils.data.Dataset):
    def __init__(s, n): s.n = n
    def __len__(s): return s.n
    def __getitem__(s, i): return i
if a.dataset == "moby":
    t, _, _, V = load(); L = 64; parts = (t[:180000], t[180000:]); ns = [(len(p) - 1) // L for p in parts]
    def make(k):
        xs, ys = parts[k][:ns[k] * L].view(-1, L), parts[k][1:ns[k] * L + 1].view(-1, L)
        return lambda ids: (xs[torch.tensor(ids)], ys[torch.tensor(ids)], torch.tensor(ids))
    EB = 32
else:
    X, Y, conv, hw = load(); ns = [len(y) for y in Y]
    def make(k):
        def col(ids):
            i = torch.tensor(ids); x = conv(X[k][i]); x = x.flatten(1) if a.model == "mlp" else x.unsqueeze(1)
            return x, Y[k][i].to(torch.int64), i
        return col
    EB = 256

# ---------------------------------------------------------------- models
def build():
    if a.model == "mlp":
        return nn.Sequential(nn.Linear(hw[0] * hw[1], 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    if a.model in ("cnn", "cnn_bn"):
        bn = a.model == "cnn_bn"; l = [nn.Conv2d(1, 16, 3, padding=1)] + ([nn.BatchNorm2d(16)] if bn else []) + [nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1)]
        l += ([nn.BatchNorm2d(32)] if bn else []) + [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * (hw[0] // 4) * (hw[1] // 4), 128), nn.ReLU()]
        l += ([nn.Dropout(0.1)] if bn else []) + [nn.Linear(128, 10)]
        return nn.Sequential(*l)
    return LM(V)
class Block(nn.Module):
    def __init__(s, d=64, h=4):
        super().__init__(); s.h = h
        s.ln1 = nn.LayerNorm(d); s.qkv = nn.Linear(d, 3 * d); s.proj = nn.Linear(d, d)
        s.ln2 = nn.LayerNorm(d); s.fc1 = nn.Linear(d, 4 * d); s.fc2 = nn.Linear(4 * d, d)
    def forward(s, x):
        b, t, d = x.shape
        q, k, v = s.qkv(s.ln1(x)).chunk(3, dim=-1)
        q, k, v = (z.view(b, t, s.h, d // s.h).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + s.proj(y)
        return x + s.fc2(F.gelu(s.fc1(s.ln2(x))))
class LM(nn.Module):
    def __init__(s, v, d=64):
        super().__init__()
        s.emb = nn.Embedding(v, d); nn.init.normal_(s.emb.weight, 0.0, 0.02)   # second draw: the default N(0,1) init was drawn before
        s.b0 = Block(d); s.b1 = Block(d); s.lnf = nn.LayerNorm(d)
    def forward(s, x): return F.linear(s.lnf(s.b1(s.b0(s.emb(x)))), s.emb.weight)
def loss_fn(out, y, red="mean"):
    if a.model != "lm": return F.cross_entropy(out, y, reduction=red)
    l = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1), reduction=red)
    return l if red == "mean" else l.view(y.shape).mean(1)

# ---------------------------------------------------------------- set up
acc = Accelerator(cpu=True, mixed_precision=a.precision, gradient_accumulation_steps=a.accumulate,
                  dataloader_config=DataLoaderConfiguration(split_batches=a.split_batches, use_seedable_sampler=a.sampler == "seedable"))
P, r = acc.num_processes, acc.process_index; assert P == a.world, (P, a.world)
set_seed(a.seed); R = {"seeded": rng()}
model = build(); R["model"] = rng()
plain = model
if a.optimizer == "sgd": opt = torch.optim.SGD(model.parameters(), lr=a.lr, momentum=0.9)
else: opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.01)
T = a.steps // a.accumulate * (1 if a.split_batches else P); W = T // 10
LS = torch.optim.lr_scheduler
sched = {"none": lambda: LS.LambdaLR(opt, lambda s: 1.0), "cosine": lambda: LS.CosineAnnealingLR(opt, T_max=T), "step": lambda: LS.StepLR(opt, step_size=T // 4, gamma=0.5),
         "linear_warmup": lambda: LS.LambdaLR(opt, lambda s: s / max(1, W) if s < W else max(0.0, (T - s) / max(1, T - W)))}[a.scheduler]()
train = torch.utils.data.DataLoader(Range(ns[0]), batch_size=a.batch_size, shuffle=True, collate_fn=make(0))
test = torch.utils.data.DataLoader(Range(ns[1]), batch_size=EB, shuffle=False, collate_fn=make(1))
R["built"] = rng()
model, opt, train, test, sched = acc.prepare(model, opt, train, test, sched); R["prepared"] = rng()
names = [n for n, _ in plain.named_parameters()]; params = [p for _, p in plain.named_parameters()]
init = [[n, list(p.shape), sha(p, 16)] for n, p in zip(names, params)]
T_PREP = time.time()

# ---------------------------------------------------------------- train
log, first, cpu, wall, grad0 = [], [], [], [], None
k = ups = seen = 0; t_first = None; CHECK = {1, 2, 3, 5, 10, 20, 50, 100, 150, 200}; epoch = 0
model.train()
while k < a.steps:
    c0, w0 = time.process_time(), time.time()
    for x, y, ids in train:
        if k == 0: R["first_batch"] = rng()
        if k < 3: first.append(ids.tolist())
        with acc.accumulate(model):
            lr = opt.param_groups[0]["lr"]
            loss = loss_fn(model(x), y)
            acc.backward(loss)
            gn = None
            if acc.sync_gradients and grad0 is None: grad0 = [[n, sha(p.grad, 16), chex(p.grad.norm())] for n, p in zip(names, params)]
            if acc.sync_gradients and a.clip: gn = acc.clip_grad_norm_(model.parameters(), a.clip)
            opt.step(); sched.step(); opt.zero_grad()
        e = {"loss": chex(loss.detach().float()), "bs": len(ids), "lr": lr, "ep": epoch, "end": int(acc.gradient_state.end_of_dataloader), "sync": int(acc.sync_gradients),
             "order": sum(xxhash.xxh64_intdigest(struct.pack("<q", i)) for i in ids.tolist())}
        if gn is not None: e["gn"] = chex(gn)
        if acc.sync_gradients:
            ups += 1
            if ups in CHECK: e["psha"] = sha_all(params)
        log.append(e); k += 1
        if t_first is None: t_first = time.time()
        c1, w1 = time.process_time(), time.time(); cpu.append(c1 - c0); wall.append(w1 - w0); c0, w0 = time.process_time(), time.time()
        if k >= a.steps: break
    epoch += 1
R["trained"] = rng()

# ---------------------------------------------------------------- eval
ev = None
if not a.no_eval:
    model.eval(); preds, labs, ls = [], [], []
    with torch.no_grad():
        for x, y, _ in test:
            out = model(x); l = loss_fn(out, y, "none")
            p_, y_, l_ = acc.gather_for_metrics((out.argmax(-1), y, l)); preds.append(p_); labs.append(y_); ls.append(l_)
    preds, labs, ls = torch.cat(preds), torch.cat(labs), torch.cat(ls); tot = 0.0
    for v in ls.tolist(): tot += v           # sequential double sum of the float32 per-sample losses, in dataset order
    ev = {"kind": "eval", "n": len(ls), "correct": int((preds == labs).sum()), "total": labs.numel(), "acc": int((preds == labs).sum()) / labs.numel(), "loss": tot / len(ls), "loss_hex": chex(tot / len(ls)), "losses_sha": sha(ls, 16), "preds_sha_int64": sha(preds, 16)}
final = [{"name": n, "shape": list(p.shape), "sha256": sha(p), "norm": chex(p.detach().double().norm()), "head": [chex(v) for v in p.detach().flatten()[:4]]} for n, p in zip(names, params)]
bufs = [{"name": n, "sha256": sha(b), "head": [chex(v) for v in b.flatten()[:4].float()]} for n, b in plain.named_buffers()]
me = {"rank": r, "log": log, "first": first, "rng": R, "fsha": sha_all(params), "bufsha": sha_all([b for _, b in plain.named_buffers()]), "grad0": sha_all([torch.tensor(0.)]) if grad0 is None else grad0[0][1],
      "perf": {"cpu_ms": round(statistics.median(cpu[5:] or cpu) * 1e3, 3), "wall_ms": round(statistics.median(wall[5:] or wall) * 1e3, 3), "import_s": round(T_IMPORT - T_LAUNCH, 2), "prepare_s": round(T_PREP - T_LAUNCH, 2),
               "first_step_s": round(t_first - T_LAUNCH, 2), "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}}
allr = gather_object([me]) if P > 1 else [me]
if r == 0:
    o = open(a.out, "w"); w = lambda d: o.write(json.dumps(d, separators=(",", ":")) + "\n")
    w({"kind": "config", "name": a.name, **{k_: v for k_, v in vars(a).items() if k_ not in ("out", "name")}, "T": T, "W": W, "n_train": ns[0], "n_test": ns[1], "eval_batch_size": EB, "params": sum(p.numel() for p in params),
       "torch": torch.__version__, "accelerate": accelerate.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "mkldnn": torch.backends.mkldnn.is_available(), "threads": torch.get_num_threads()})
    w({"kind": "rng", "ranks_equal": all(q["rng"] == R for q in allr), "stages": R})
    w({"kind": "init", "params": init}); w({"kind": "first_grad", "params": grad0})
    for s in range(len(first)): w({"kind": "batch", "k": s, "ids": [q["first"][s] for q in allr]})
    for i in range(len(log)):
        d = {"k": i, "loss": [q["log"][i]["loss"] for q in allr], "lr": log[i]["lr"], "order": "%016x" % (sum(q["log"][i]["order"] for q in allr) % 2**64)}
        seen += sum(q["log"][i]["bs"] for q in allr); d["seen"] = seen
        for q in ("ep", "end"):
            if log[i][q]: d[q] = log[i][q]
        if a.accumulate > 1: d["sync"] = log[i]["sync"]
        for q in ("gn", "psha"):
            if q in log[i]: d[q] = log[i][q]
        w(d)
        assert all(q["log"][i]["lr"] == log[i]["lr"] and q["log"][i]["sync"] == log[i]["sync"] for q in allr)
    if ev: w(ev)
    w({"kind": "final", "all_sha": me["fsha"], "ranks_equal": all(q["fsha"] == me["fsha"] for q in allr), "buffers_equal": all(q["bufsha"] == me["bufsha"] for q in allr), "updates": ups, "params": final, "buffers": bufs})
    w({"kind": "perf", "ranks": [q["perf"] for q in allr]}); o.close()
if P > 1: acc.end_training(); torch.distributed.destroy_process_group() if torch.distributed.is_initialized() else None
