"""Cases of the layers of LSTM, GRU and RNN: PyTorch's cells, one position after the other, and its autograd."""

import torch

NOTHING = torch.zeros(0)


def cell(kind, x, h, c, weight, bias, shrink):
    size = weight.shape[0] // {"lstm": 4, "gru": 3}.get(kind, 1)
    one = torch.eye(weight.shape[0], dtype=x.dtype)
    if kind == "lstm":
        nought = torch.zeros(4 * size, size, dtype=x.dtype)
        h, c = torch.lstm_cell(x + h @ weight.T, (torch.zeros_like(c), c), one, nought)
        return (h if shrink is None else h @ shrink.T), c
    biases = () if bias is None else (torch.zeros_like(bias), bias)
    return getattr(torch, kind + "_cell")(x, h, one, weight, *biases), c


def kept_gates(kind, x, h, weight, bias):
    hidden = h @ weight.T + (0 if bias is None else bias)
    if kind == "lstm":
        i, f, g, o = (x + hidden).chunk(4, -1)
        return torch.cat([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], -1)
    (r, z, n), (hidden_r, hidden_z, inner) = x.chunk(3, -1), hidden.chunk(3, -1)
    r, z = torch.sigmoid(r + hidden_r), torch.sigmoid(z + hidden_z)
    return torch.cat([r, z, torch.tanh(n + r * inner), inner], -1)


def layer(kind, x, h, c, weight, bias, shrink, valid, reverse):
    steps = x.shape[0]
    all_h, gates, incoming = [None] * steps, [None] * steps, [None] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        if kind in ("lstm", "gru"):
            gates[t] = kept_gates(kind, x[t], h, weight, bias)
        incoming[t] = c
        new_h, new_c = cell(kind, x[t], h, c, weight, bias, shrink)
        if valid is not None:
            here = valid[t][:, None]
            new_h, new_c = torch.where(here, new_h, h), None if c is None else torch.where(here, new_c, c)
        all_h[t], h, c = new_h, new_h, new_c
    stack = lambda values: None if values[0] is None else torch.stack(values)  # noqa: E731
    return stack(all_h), h, c, stack(gates), stack(incoming)


def layer_cases(normal, own_case, kind, dtype, reverse, bias=False, projections=None, lengths=None):
    steps, batch, size = 3, 2, 3
    rows = {"lstm": 4, "gru": 3}.get(kind, 1) * size

    def draw(*dims, wanted=True):
        return normal(*dims).div(2).to(dtype).requires_grad_() if wanted else None

    x, h, c = draw(steps, batch, rows), draw(batch, projections or size), draw(batch, size, wanted=kind == "lstm")
    weight, b = draw(rows, projections or size), draw(rows, wanted=bias)
    shrink = draw(projections, size, wanted=projections)
    valid = torch.arange(steps)[:, None] < torch.tensor(lengths) if lengths else None
    inputs = [x, h, c, weight, b, shrink]
    plain = [None if t is None else t.detach() for t in inputs]
    results = layer(kind, *inputs, valid, reverse)
    found = [NOTHING if t is None else t.detach() for t in results]
    own_case(kind + "_layer", [*plain, valid, reverse, False], [*found[:3], NOTHING, NOTHING])
    own_case(kind + "_layer", [*plain, valid, reverse, True], found)

    gradients = [None if t is None else normal(*t.shape).to(dtype) for t in results[:3]]
    for used in ((0, 1, 2), (0,), (1, 2)):
        given = [g if i in used else None for i, g in enumerate(gradients)]
        pairs = [(t, g) for t, g in zip(results, given) if g is not None]
        leaves = [t for t in inputs if t is not None]
        results_used, gradients_used = zip(*pairs)
        slopes = iter(torch.autograd.grad(results_used, leaves, gradients_used, retain_graph=True, materialize_grads=True))
        kept = [None if t is None else t.detach() for t in (results[0], *results[3:])]
        own_case(kind + "_layer_backward", [*given, plain[1], *plain[3:], valid, *kept, reverse],
                 [NOTHING if t is None else next(slopes) for t in inputs])  # fmt: skip


def recurrent(normal, own_case):
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        bias = kind == "gru"  # the others have it in the projection
        layer_cases(normal, own_case, kind, torch.float64, reverse=False, bias=bias)
        layer_cases(normal, own_case, kind, torch.float32, reverse=True)
        layer_cases(normal, own_case, kind, torch.float64, reverse=False, lengths=[3, 1])
        layer_cases(normal, own_case, kind, torch.float64, reverse=True, bias=bias, lengths=[3, 2])
    layer_cases(normal, own_case, "lstm", torch.float64, reverse=True, projections=2)
    layer_cases(normal, own_case, "lstm", torch.float64, reverse=False, projections=2, lengths=[2, 3])
