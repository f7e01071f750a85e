"""The training step that xla_bench.py times, in jax: xla_train.cpp says the same with ivme.

usage: xla_train_jax.py MODEL STEPS FOLDER     MODEL: mlp or transformer
Prints one line of JSON, as xla_train does; FOLDER has the parameters and batches that `xla_train MODEL write` wrote.
"""

import collections
import functools
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

NUM_BATCHES, WIDTH, HEADS, SEQUENCE, VOCABULARY = 8, 128, 4, 64, 1000
CHECKED, WARM_UP = 10, 40

# --- models: parameters in the order of torch's, and the logits


class Parameters:
    def __init__(self, path):
        self.values, self.taken = np.fromfile(path, np.float32), 0

    def __call__(self, *shape):
        begin, self.taken = self.taken, self.taken + int(np.prod(shape))
        return self.values[begin : self.taken].reshape(shape)

    def pair(self, outputs, inputs):
        return {"w": self(outputs, inputs), "b": self(outputs)}

    def norm(self):
        return {"w": self(WIDTH), "b": self(WIDTH)}


def linear(p, x):
    return x @ p["w"].T + p["b"]


def layer_norm(p, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["w"] + p["b"]


def mlp_parameters(take):
    return [take.pair(256, 784), take.pair(256, 256), take.pair(10, 256)]


def mlp(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(linear(layer, x))
    return linear(layers[-1], x)


def transformer_parameters(take):
    def block():
        return {
            "ln1": take.norm(),
            "qkv": take.pair(3 * WIDTH, WIDTH),
            "proj": take.pair(WIDTH, WIDTH),
            "ln2": take.norm(),
            "fc1": take.pair(4 * WIDTH, WIDTH),
            "fc2": take.pair(WIDTH, 4 * WIDTH),
        }

    positions = take(SEQUENCE, WIDTH)  # torch lists a module's own parameters before its children's
    return {
        "positions": positions,
        "tokens": take(VOCABULARY, WIDTH),
        "blocks": [block(), block()],
        "ln": take.norm(),
        "head": take.pair(VOCABULARY, WIDTH),
    }


def attention(p, x):
    q, k, v = jnp.split(linear(p["qkv"], x), 3, -1)
    q, k, v = (part.reshape(*x.shape[:2], HEADS, WIDTH // HEADS) for part in (q, k, v))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return linear(p["proj"], y.reshape(x.shape))


def transformer(p, tokens):
    x = p["tokens"][tokens] + p["positions"]
    for block in p["blocks"]:
        x = x + attention(block, layer_norm(block["ln1"], x))
        h = jax.nn.gelu(linear(block["fc1"], layer_norm(block["ln2"], x)), approximate=False)
        x = x + linear(block["fc2"], h)
    return linear(p["head"], layer_norm(p["ln"], x))


def cross_entropy(logits, target):
    picked = jnp.take_along_axis(logits, target[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


# --- optimizers: the state beside the parameters, and one update


def sgd_state(parameters):
    return jax.tree.map(np.zeros_like, parameters)


def sgd(parameters, momentum, gradients, lr=0.05):
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - lr * m, parameters, momentum), momentum


def adamw_state(parameters):
    return {"step": np.int32(0), "m": sgd_state(parameters), "v": sgd_state(parameters)}


def adamw(parameters, state, gradients, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01):
    step = state["step"] + 1
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["m"], gradients)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["v"], gradients)
    c1, c2 = 1 - b1**step, 1 - b2**step

    def update(p, m, v):
        return p * (1 - lr * weight_decay) - lr * (m / c1) / (jnp.sqrt(v / c2) + eps)

    return jax.tree.map(update, parameters, m, v), {"step": step, "m": m, "v": v}


MODELS = {  # parameters, logits, state, update, shape and dtype of the data, shape of the targets
    "mlp": (mlp_parameters, mlp, sgd_state, sgd, (64, 784), np.float32, (64,)),
    "transformer": (transformer_parameters, transformer, adamw_state, adamw, (16, SEQUENCE), np.int64, (16, SEQUENCE)),
}


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def train_step(logits_of, update, parameters, state, data, target):
    loss, gradients = jax.value_and_grad(lambda p: cross_entropy(logits_of(p, data), target))(parameters)
    return *update(parameters, state, gradients), loss


# --- measuring

Times = collections.namedtuple("Times", "wall cpu host")


def now():  # milliseconds; host: of the one thread that dispatches
    return Times(*(1e3 * clock() for clock in (time.monotonic, time.process_time, time.thread_time)))


def difference(begin, end, steps=1):
    return {name: (after - before) / steps for name, before, after in zip(Times._fields, begin, end)}


def read(path, shape, dtype, offset=0):
    count = NUM_BATCHES * int(np.prod(shape))
    return np.fromfile(path, dtype, count, offset=offset).reshape(NUM_BATCHES, *shape)


def main():
    name, steps, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    make, logits_of, state_of, update, shape, dtype, target_shape = MODELS[name]
    parameters = make(Parameters(f"{folder}/{name}.parameters"))
    data = read(f"{folder}/{name}.batches", shape, dtype)
    target = read(f"{folder}/{name}.batches", target_shape, np.int64, data.nbytes).astype(np.int32)
    if dtype == np.int64:
        data = data.astype(np.int32)
    parameters, state = jax.device_put((parameters, state_of(parameters)))
    misses = collections.Counter()
    jax.monitoring.register_event_listener(lambda event, **_: misses.update([event]))

    done = 0

    def run():
        nonlocal parameters, state, done
        batch, done = done % NUM_BATCHES, done + 1
        parameters, state, loss = train_step(logits_of, update, parameters, state, data[batch], target[batch])
        return loss

    losses, times = [], [now()]
    while done < (CHECKED if steps else 1):
        losses.append(float(run()))
        times.append(now())
        if done == 1:
            first_step = time.time()
    numbers = {"losses": losses, "first": difference(*times[:2])}
    if steps:
        for _ in range(WARM_UP):
            loss = run()
        loss.block_until_ready()
        begin = now()
        for _ in range(steps):
            loss = run()
        loss.block_until_ready()
        numbers |= {"second": difference(*times[1:3]), "steady": difference(begin, now(), steps)}
    compiles = misses["/jax/compilation_cache/cache_misses"]
    print(json.dumps({**numbers, "first_step": first_step, "compiles": compiles}))


main()
