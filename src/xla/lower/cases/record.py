#!/usr/bin/env python3
"""Records what PyTorch computes for small calls of each aten row, into rows.json beside this file.

Needs torch. rows_test.cpp replays the calls on the CPU plugin and asks for a case of every row.
"""

import json
import math
import pathlib

import torch
from record_recurrent import recurrent
from record_windows import windows

aten = torch.ops.aten
DTYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "ui8", torch.bool: "i1",
}  # fmt: skip
generator = torch.Generator().manual_seed(1)
cases = []


def normal(*dims, dtype=torch.float32):
    return (torch.randn(dims, generator=generator) * 16).round().div(8).to(dtype)


def positive(*dims, dtype=torch.float32):
    return normal(*dims).abs().add(0.125).to(dtype)


def unit(*dims):
    return torch.rand(dims, generator=generator).mul(14).round().add(1).div(16)


def whole(low, high, *dims, dtype=torch.int64):
    return torch.randint(low, high, dims, generator=generator).to(dtype)


def number(x):
    if isinstance(x, bool):
        return int(x)
    if isinstance(x, float) and not math.isfinite(x):
        return "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
    return float(f"{x:.9g}") if isinstance(x, float) else x


def tensor(t):
    values = [float(f"{v:.17g}") if t.dtype == torch.float64 and math.isfinite(v) else number(v)
              for v in t.flatten().tolist()]  # fmt: skip
    return {"dtype": DTYPES[t.dtype], "dims": list(t.shape), "values": values}


def argument(schema, value, operands):
    kind = str(schema.type) if schema else ""
    if torch.is_tensor(value):
        operands.append(tensor(value))
        return {"operand": len(operands) - 1}
    if value is None:
        return None
    if isinstance(value, torch.dtype):
        return {"dtype": DTYPES[value]}
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, bool):
        return {"boolean": value}
    if isinstance(value, int) and "List" in kind:
        return {"integers": [value] * (schema.N or 1)}
    if isinstance(value, int):
        return {"integer": value}
    if isinstance(value, float):
        return {"real": number(value)}
    if "Tensor" in kind:
        first = len(operands)
        operands.extend(tensor(t) for t in value if t is not None)
        return {"operands": first, "defined": [int(t is not None) for t in value]}
    return {"integers": [int(v) for v in value]}


def case(name, *args, expected=None, skip=(), **options):
    base, _, overload = name.partition(".")
    op = getattr(getattr(aten, base), overload or "default")
    operands, arguments, given = [], [], list(args)
    for i, schema in enumerate(op._schema.arguments):
        value = given[i] if i < len(given) else options.get(schema.name, schema.default_value)
        arguments.append(argument(schema, value, operands))
    results = op(*args, **options) if expected is None else expected
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    outputs = [None if i in skip else tensor(torch.zeros(0, dtype=args[0].dtype) if r is None else r)
               for i, r in enumerate(results)]  # fmt: skip
    cases.append({"op": "aten::" + name, "operands": operands, "arguments": arguments, "outputs": outputs})


def own_case(name, arguments, results):
    """Of a row that is no operator of aten; results: those that another call of PyTorch gave, None: any."""
    operands = []
    plain = [argument(None, value, operands) for value in arguments]
    outputs = [None if r is None else tensor(r) for r in results]
    cases.append({"op": "ivme::" + name, "operands": operands, "arguments": plain, "outputs": outputs})


def arithmetic():
    a, b = normal(2, 3), positive(3)
    for name in ("add", "sub", "rsub"):
        case(name + ".Tensor", a, b, alpha=0.5)
        case(name + ".Scalar", a, 1.5, 2)
    case("add.Tensor", a, normal(2, 1, dtype=torch.float64))
    case("add.Tensor", normal(3, dtype=torch.bfloat16), normal(3, dtype=torch.float16))
    case("add.Tensor", whole(-9, 9, 3), torch.tensor(1.5))
    for name in ("mul", "div", "floor_divide", "fmod", "remainder"):
        tensors = name if name == "floor_divide" else name + ".Tensor"
        case(tensors, a, b)
        case(tensors, whole(-9, 9, 6), whole(1, 5, 6))
        case(name + ".Scalar", a, 0.75)
        case(name + ".Scalar", whole(-9, 9, 5), 2)
    case("remainder.Scalar_Tensor", 5, b)
    for mode in (None, "trunc", "floor"):
        case("div.Tensor_mode", a, b, rounding_mode=mode)
        case("div.Tensor_mode", whole(-9, 9, 6), whole(1, 5, 6), rounding_mode=mode)
        case("div.Scalar_mode", a, 0.75, rounding_mode=mode)
    for exponent in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.75):
        case("pow.Tensor_Scalar", positive(4), exponent)
    case("pow.Tensor_Scalar", whole(-3, 4, 4), 3)
    case("pow.Tensor_Tensor", positive(4), normal(4))
    case("pow.Scalar", 2.0, normal(4))
    for name in ("maximum", "minimum", "max.other", "min.other", "atan2", "hypot", "logaddexp"):
        case(name, a, normal(2, 3))
    case("xlogy.Tensor", torch.tensor([0.0, 0.5, 2.0, 0.0, 1.0]), torch.tensor([0.0, 3.0, 0.25, 1.0, math.nan]))
    for weight in (0.25, 0.75):
        case("lerp.Scalar", a, normal(2, 3), weight)
    case("lerp.Tensor", a, normal(2, 3), unit(2, 3))
    case("addcmul", a, normal(2, 3), b, value=-0.5)
    case("addcdiv", a, normal(2, 3), b, value=-0.5)


def comparison():
    a, b = normal(2, 4), normal(4)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        case(name + ".Tensor", a, b)
        case(name + ".Scalar", a, float(a[0, 1]))
        case(name + ".Tensor", whole(0, 3, 6), whole(0, 3, 6, dtype=torch.int32))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        case(name + ".Tensor", whole(0, 16, 5), whole(0, 16, 5))
        case(name + ".Tensor", whole(0, 2, 5).bool(), whole(0, 2, 5).bool())
        case(name + ".Scalar", whole(0, 16, 5), 6)
    for name in ("logical_and", "logical_or", "logical_xor"):
        case(name, whole(0, 2, 6), normal(6).round())
    case("logical_not", whole(0, 2, 5))
    case("bitwise_not", whole(-5, 5, 5))
    mask = a > 0
    case("where.self", mask, a, b)
    case("where.ScalarSelf", mask, 2.0, a)
    case("where.ScalarOther", mask, a, 2.0)
    case("where.Scalar", mask, 1.0, 2.0)
    case("masked_fill.Scalar", a, mask, -math.inf)
    case("masked_fill.Tensor", a, mask, torch.tensor(3.0))
    case("clamp", a, -0.5, 0.5)
    case("clamp", a, None, 0.5)
    case("clamp.Tensor", a, b, None)
    for name in ("clamp_min", "clamp_max"):
        case(name, a, 0.25)
        case(name + ".Tensor", a, b)


def unary():
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, -2.5, 2.5, 3.5])
    names = """neg abs sign sgn square exp exp2 expm1 sin cos tanh sigmoid erf erfc floor ceil round trunc
               frac
               isnan isinf isposinf isneginf isfinite nan_to_num atan sinh cosh zero"""
    for name in names.split():
        case(name, special[:5] if name in ("isnan", "isinf") else special if name != "frac" else special[3:])
        case(name, normal(6))
    for name in ("sqrt", "rsqrt", "reciprocal", "log", "log1p", "log2", "log10"):
        case(name, positive(6))
        case(name, whole(1, 9, 4))
    case("tan", normal(6))
    case("asin", normal(6).div(3).clamp(-1, 1))
    case("acos", normal(6).div(3).clamp(-1, 1))
    case("fill.Scalar", normal(3), 1.5)
    case("fill.Tensor", normal(3), torch.tensor(2.5))


def activation():
    x, g = normal(10), normal(10)
    names = """relu silu mish hardsigmoid hardswish leaky_relu elu hardtanh softplus softshrink hardshrink
               gelu"""
    for name in names.split():
        case(name, x)
    case("gelu", x, approximate="tanh")
    case("silu", normal(10, dtype=torch.bfloat16))
    case("threshold", x, 0.5, 9.0)
    case("threshold_backward", g, x, 0)
    for name in ("tanh", "sigmoid", "gelu", "silu", "mish", "hardsigmoid", "hardswish"):
        case(name + "_backward", g, x)
    case("gelu_backward", g, x, approximate="tanh")
    case("leaky_relu_backward", g, x, 0.25, False)
    case("elu_backward", g, 0.5, 2.0, 1.5, False, x)
    case("elu_backward", g, 0.5, 2.0, 1.5, True, x)
    case("hardtanh_backward", g, x, -1, 1)
    case("softshrink_backward", g, x, 0.5)
    case("hardshrink_backward", g, x, 0.5)
    case("softplus_backward", g, x, 2, 3)
    case("log_sigmoid_forward", x, skip=(1,))
    case("log_sigmoid_backward", g, x, torch.exp(-x.abs()))
    case("_prelu_kernel", x, normal(10))
    case("_prelu_kernel_backward", g, x, normal(10))
    case("glu", x, 0)
    case("glu_backward", normal(5), x, 0)


def reduction():
    x = normal(2, 3, 4)
    for name in ("sum", "mean", "prod", "max", "min", "all", "any", "argmax", "argmin"):
        case(name, x)
    for name in ("sum.dim_IntList", "mean.dim", "amax", "amin"):
        case(name, x, [0, -1], True)
        case(name, normal(3, 4, dtype=torch.bfloat16), [1], False)
    case("sum", whole(0, 2, 5).bool())
    case("sum.dim_IntList", x, [1], dtype=torch.float64)
    ties = x.round()
    ties[0, 1, 2] = math.nan
    for name in ("max.dim", "min.dim", "argmax", "argmin", "all.dim", "any.dim", "prod.dim_int"):
        case(name, ties, 1, True)
        case(name, ties, -1)
    case("amax", ties, [2])
    case("argmax", x, None, True)
    case("aminmax", x, dim=1)
    case("all.dims", x > -1, [0, 2])
    case("any.dims", x > 1, [0, 2])
    case("all.dims", x.round(), [])
    case("any.dims", x > 1, None)
    for name in ("var.correction", "std.correction", "var_mean.correction", "std_mean.correction"):
        case(name, x, [1], correction=0, keepdim=True)
        case(name, x + 100)
    for p in (0, 1, 2, 3.5, math.inf, -math.inf):
        case("norm.ScalarOpt_dim", x, p, [1], False)
        case("linalg_vector_norm", x, p)
    case("norm.Scalar", x, 2)
    case("norm.ScalarOpt_dtype", x, 2, dtype=torch.float64)
    case("norm.ScalarOpt_dim_dtype", x, 2, [0], True, dtype=torch.float64)


def scan():
    x = normal(2, 5)
    case("cumsum", x, 1)
    case("cumsum", whole(0, 9, 7).to(torch.int32), 0)
    case("cumprod", x, -1)
    mixed = torch.tensor([2.0, math.nan, -0.0, 0.0, -math.inf, math.inf, 2.0, -1.0])
    for descending in (False, True):
        case("sort.stable", mixed, stable=True, dim=0, descending=descending)
    case("topk", x, 3)
    case("topk", x, 1, 0, False)


def softmax_and_losses():
    x = normal(2, 3, 2)
    for d in (1, -1):
        case("_softmax", x, d, False)
        case("_log_softmax", x, d, False)
        case("_softmax_backward_data", normal(2, 3, 2), torch.softmax(x, d), d, torch.float32)
        case("_log_softmax_backward_data", normal(2, 3, 2), torch.log_softmax(x, d), d, torch.float32)
    case("logsumexp", x, [0, 1])
    target = torch.tensor([2, 0, -100, 1])
    images = ("nll_loss2d", normal(2, 3, 1, 2), target.view(2, 1, 2))
    for name, scores, wanted in (("nll_loss", normal(4, 3), target), images):
        for reduction, weight in ((0, None), (1, None), (1, positive(3)), (2, positive(3))):
            loss, total = getattr(aten, name + "_forward")(scores, wanted, weight, reduction, -100)
            case(name + "_forward", scores, wanted, weight, reduction, -100)
            case(name + "_backward", normal(*loss.shape), scores, wanted, weight, reduction, -100, total)
    a, b = normal(2, 3), normal(2, 3)
    for reduction in (0, 1, 2):
        g = normal(2, 3) if reduction == 0 else normal()
        case("mse_loss", a, b, reduction)
        case("mse_loss_backward", g, a, b, reduction)
        for name in ("smooth_l1_loss", "huber_loss"):
            case(name, a, b, reduction, 0.75)
            case(name + "_backward", g, a, b, reduction, 0.75)
        case("binary_cross_entropy", unit(2, 3), unit(2, 3), None, reduction)
        case("binary_cross_entropy_backward", g, unit(2, 3), unit(2, 3), positive(2, 3), reduction)
        case("binary_cross_entropy_with_logits", a, unit(2, 3), None, positive(3), reduction)


def matrix():
    case("mm", normal(2, 3), normal(3, 4))
    case("mm", normal(2, 3, dtype=torch.bfloat16), normal(3, 4, dtype=torch.bfloat16))
    case("bmm", normal(2, 2, 3), normal(2, 3, 2))
    case("mv", normal(2, 3), normal(3))
    case("dot", normal(4), normal(4))
    case("addmm", normal(4), normal(2, 3), normal(3, 4))
    case("addmm", torch.full((2, 4), math.nan), normal(2, 3), normal(3, 4), beta=0, alpha=0.5)
    case("baddbmm", normal(2, 2, 2), normal(2, 2, 3), normal(2, 3, 2), beta=0.5, alpha=2)
    case("addmv", normal(2), normal(2, 3), normal(3))
    case("addr", normal(2, 3), normal(2), normal(3))


def convolution():
    settings = ((1, 1, 1, 0, 1), (2, 2, 2, 1, 1), (2, 1, 1, 2, 2), (3, 1, 2, 1, 1))
    for rank, groups, stride, padding, dilation in settings:
        s, p, d = [stride] * rank, [padding] * rank, [dilation] * rank
        x, w, b = normal(1, 2, *[5, 4, 4][:rank]), normal(4, 2 // groups, *[3, 2, 2][:rank]), normal(4)
        tail = (s, p, d, False, [0] * rank, groups)
        y = aten.convolution(x, w, b, *tail)
        case("convolution_overrideable", x, w, b, *tail, expected=y)
        g, everything = normal(*y.shape), [True] * 3
        expected = aten.convolution_backward(g, x, w, [4], *tail, everything)
        case("convolution_backward_overrideable", g, x, w, *tail, everything, expected=expected)
        w, tail = normal(2, 4 // groups, *[3, 2, 2][:rank]), (s, p, d, True, [stride - 1] * rank, groups)
        y = aten.convolution(x, w, b, *tail)
        case("convolution_overrideable", x, w, b, *tail, expected=y)
        g = normal(*y.shape)
        expected = aten.convolution_backward(g, x, w, [4], *tail, everything)
        case("convolution_backward_overrideable", g, x, w, *tail, everything, expected=expected)


def normalization():
    x, w, b, g = normal(2, 3, 4), normal(4), normal(4), normal(2, 3, 4)
    case("native_layer_norm", x, [4], w, b, 1e-5)
    _, mean, inverse = aten.native_layer_norm(x, [4], w, b, 1e-5)
    case("native_layer_norm_backward", g, x, [4], mean, inverse, w, b, [True] * 3)
    case("native_layer_norm_backward", g, x, [4], mean, inverse, None, None, [True, False, False])
    x, w, b, g = normal(2, 4, 3), normal(4), normal(4), normal(2, 4, 3)
    running = (normal(4), positive(4))
    for training in (True, False):
        copies = [r.clone() for r in running]
        out, mean, inverse = aten.native_batch_norm(x, w, b, *copies, training, 0.1, 1e-5)
        case("native_batch_norm", x, w, b, *running, training, 0.1, 1e-5, expected=(out, mean, inverse))
        case("native_batch_norm_backward", g, x, w, *running, mean, inverse, training, 1e-5, [True] * 3)
    case("native_group_norm", x, w, b, 2, 4, 3, 2, 1e-5)
    _, mean, inverse = aten.native_group_norm(x, w, b, 2, 4, 3, 2, 1e-5)
    case("native_group_norm_backward", g, x, mean, inverse, w, 2, 4, 3, 2, [True] * 3)


def pooling():
    x = normal(1, 2, 5, 4)
    settings = (([2], [], [0], [1], False), ([3, 2], [2], [1], [1, 2], True))
    for kernel, stride, padding, dilation, ceil in settings:
        y, indices = aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil)
        case("max_pool2d_with_indices", x, kernel, stride, padding, dilation, ceil)
        tail = (x, kernel, stride or kernel, padding, dilation, ceil, indices)
        case("max_pool2d_with_indices_backward", normal(*y.shape), *tail)
        for include, divisor in ((True, None), (False, None), (True, 5)):
            y = aten.avg_pool2d(x, kernel, stride, padding, ceil, include, divisor)
            case("avg_pool2d", x, kernel, stride, padding, ceil, include, divisor)
            tail = (x, kernel, stride or kernel, padding, ceil, include, divisor)
            case("avg_pool2d_backward", normal(*y.shape), *tail)
    x = normal(1, 1, 3, 4, 3)
    y, indices = aten.max_pool3d_with_indices(x, [2], [1], [0])
    case("max_pool3d_with_indices", x, [2], [1], [0])
    case("max_pool3d_with_indices_backward", normal(*y.shape), x, [2], [1], [0], [1], False, indices)
    case("avg_pool3d", x, [2], [2], [1])
    y = aten.avg_pool3d(x, [2], [2], [1])
    case("avg_pool3d_backward", normal(*y.shape), x, [2], [2], [1], False, True, None)


def resampling():
    x = normal(1, 1, 3, 4)
    for size in ([6, 8], [5, 3]):
        for name in ("upsample_nearest2d", "_upsample_nearest_exact2d"):
            case(name, x, size)
            case(name + "_backward", normal(1, 1, *size), size, [1, 1, 3, 4])
        for corners in (False, True):
            case("upsample_bilinear2d", x, size, corners)
            case("upsample_bilinear2d_backward", normal(1, 1, *size), size, [1, 1, 3, 4], corners)
    case("upsample_nearest1d", x[0], [7])
    case("upsample_nearest1d_backward", normal(1, 3, 7), [7], [1, 3, 4])
    case("upsample_linear1d", x[0], [7], False)
    case("upsample_linear1d_backward", normal(1, 3, 7), [7], [1, 3, 4], False)
    for name in ("reflection_pad", "replication_pad"):
        case(name + "1d", x[0], [2, 1])
        case(name + "1d_backward", normal(1, 3, 7), x[0], [2, 1])
        case(name + "2d", x, [2, 1, 0, 2])
        case(name + "2d_backward", normal(1, 1, 5, 7), x, [2, 1, 0, 2])
    for size in ([1, 1], [2, 3]):
        case("_adaptive_avg_pool2d", x, size)
        case("_adaptive_avg_pool2d_backward", normal(1, 1, *size), x)


def indexing():
    x, i, j = normal(3, 4, 2), torch.tensor([[0, -1], [2, 1]]), torch.tensor([3, 0])
    for indices in ([i], [None, j], [i, j], [j - 3, None, torch.tensor([1, 0])]):
        case("index.Tensor", x, indices)
        case("_unsafe_index.Tensor", x, indices)
        case("index_put", x, indices, normal(*aten.index(x, indices).shape), True)
    case("_index_put_impl", x, [None, j], normal(3, 2, 2), True, True)
    case("index_put", x, [torch.tensor([2, 0])], normal(2, 4, 2), False)
    case("index_select", x, 1, torch.tensor([3, 3, 0]))
    case("index_add", x, 1, torch.tensor([3, 3, 0]), normal(3, 3, 2), alpha=0.5)
    case("index_copy", x, 1, torch.tensor([3, 0]), normal(3, 2, 2))
    case("index_fill.int_Scalar", x, 0, torch.tensor([1]), 2.5)
    case("index_fill.int_Tensor", x, 0, torch.tensor([1]), torch.tensor(2.5))
    y, k = normal(3, 4), torch.tensor([[0, 2, 1], [2, 0, 0]])
    case("gather", y, 0, k)
    case("scatter_add", y, 0, k, normal(3, 4))
    unique = torch.tensor([[1, 3], [0, 2]])
    case("scatter.src", y, 1, unique, normal(3, 4))
    case("scatter.value", y, 1, unique, 2.5)
    case("scatter.reduce", y, 1, unique, normal(3, 4), reduce="multiply")
    for name in ("sum", "prod", "amax", "amin"):
        for include in (True, False):
            case("scatter_reduce.two", y, 0, k, normal(3, 4), name, include_self=include)
    case("embedding", y, i % 3)
    for padding, scaled in ((-1, False), (1, True)):
        case("embedding_dense_backward", normal(2, 2, 4), i % 3, 3, padding, scaled)


def shape():
    x = normal(2, 3, 4)
    case("cat", [x, normal(2, 1, 4)], 1)
    case("cat", [torch.zeros(0), normal(2), whole(0, 3, 2)], 0)
    case("constant_pad_nd", x, [1, 2, -1, 0], 0.5)
    case("flip", x, [0, -1])
    case("roll", x, [1, -1], [0, 2])
    case("roll", x, [5])
    case("tril", x, 1)
    case("triu", x, -1)
    case("slice_backward", normal(2, 2, 4), [2, 3, 4], 1, 0, 9, 2)
    case("select_backward", normal(2, 4), [2, 3, 4], 1, -1)
    case("unfold_backward", normal(2, 2, 4, 2), [2, 3, 4], 1, 2, 1)
    case("unfold_backward", normal(2, 3, 2, 1), [2, 3, 4], 2, 1, 2)
    case("copy", x, normal(4))
    case("repeat", normal(2, 1), [2, 1, 3])
    case("native_dropout_backward", normal(4), whole(0, 2, 4).bool(), 2.0)


def special():
    a = normal(2, 3)
    holes = torch.tensor([math.nan, 1.0, -2.0, math.nan, -0.0, 0.0])
    for name in ("fmax", "fmin", "copysign.Tensor", "heaviside"):
        case(name, holes[1:3] if name == "copysign.Tensor" else holes, torch.tensor(0.5))
        case(name, a, normal(2, 3))
    case("copysign.Tensor", positive(4), torch.tensor([0.0, -0.0, -1.0, 2.0]))
    case("fmax", whole(-9, 9, 6), whole(-9, 9, 6))
    case("logaddexp2", a, normal(2, 3))
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        case(name + ".Tensor", whole(-9, 9, 5), whole(0, 5, 5))
        case(name + ".Tensor", whole(0, 200, 5, dtype=torch.uint8), whole(0, 5, 5, dtype=torch.uint8))
    case("__lshift__.Scalar", whole(-9, 9, 5, dtype=torch.int32), 2)
    case("__rshift__.Scalar", whole(-9, 9, 5, dtype=torch.int32), 2)
    for name in ("lgamma", "digamma"):
        case(name, torch.cat([positive(5), torch.tensor([1.0, 2.0, 10.5, 100.0])]))
        case(name, positive(4, dtype=torch.float64))
    case("lgamma", torch.tensor([-0.5, -1.5, 0.0, -2.0]))
    case("erfinv", torch.tensor([-1.0, -0.75, 0.0, 0.25, 0.99, 1.0, 1.5]))
    case("asinh", torch.tensor([-20.0, -0.5, 0.0, 1e-3, 3.0]))
    case("acosh", torch.tensor([1.0, 1.25, 20.0, 0.5]))
    case("atanh", torch.tensor([-1.0, -0.5, 0.0, 1e-3, 0.75]))
    case("sinc", torch.tensor([-1.0, -0.5, 0.0, 0.25, 3.0]))
    case("signbit", torch.tensor([math.inf, -math.inf, 0.0, -0.0, -2.5, 2.5]))
    case("signbit", whole(-3, 3, 5))
    case("signbit", normal(4, dtype=torch.bfloat16))
    for eps in (None, 0.125):
        probabilities = torch.tensor([0.0625, 0.25, 0.5, 0.9375, -0.5, 1.5])
        case("logit", probabilities, eps)
        case("logit_backward", normal(6), probabilities, eps)


def order():
    x = normal(2, 5)
    case("_logcumsumexp", x, 1)
    case("_logcumsumexp", torch.tensor([-math.inf, -math.inf, 1.0, 2.0, math.inf]), 0)
    for name in ("cummax", "cummin"):
        case(name, x, 1)
        case(name, whole(0, 4, 9), 0)
        case(name, torch.tensor([1.0, 3.0, math.nan, 2.0, math.nan, 5.0, -1.0]), 0)
        case(name, torch.tensor([-math.inf, -math.inf, 0.0, math.inf]), 0)
    distinct = torch.randperm(12, generator=generator).view(3, 4).float()
    case("kthvalue", distinct, 2, 1, True)
    case("kthvalue", distinct, 1, 0)
    case("median", distinct)
    case("median", torch.tensor([1.0, math.nan, 3.0]))
    case("median.dim", distinct, 0)
    case("median.dim", distinct, 1, True)
    case("median.dim", torch.tensor([[1.0, math.nan, 0.0], [5.0, 3.0, 4.0]]), 1)
    case("median.dim", torch.randperm(7, generator=generator), 0)


arithmetic()
comparison()
unary()
activation()
reduction()
scan()
softmax_and_losses()
matrix()
convolution()
normalization()
pooling()
resampling()
indexing()
shape()
recurrent(normal, own_case)
special()
order()
windows(normal, case)
lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
pathlib.Path(__file__).with_name("rows.json").write_text("[\n" + lines + "\n]\n")
print(len(cases), "cases")
