"""Every traced operator that is registered: values, requests, sharing, gradient, CPU against the interpreted GPU.

Oracle: the math module and Python's own operators, element by element.
"""

import math

import numpy as np
import pytest
import torch
import tritium as mx
from tritium.context import GPU_MODE
from tritium.errors import OperatorError, ParameterError, ShapeError
from tritium.kernels import Req, Spec, compiled, registered, simple_op
from tritium.kernels.declare.check_op import HostRun, directional_error, domain, run_backward, run_cpu
from tritium.kernels.declare.reduction import ReductionOp
from tritium.kernels.declare.simple_op import SimpleOp
from tritium.kernels.ir import lang
from tritium.kernels.tolerance import differs

REQUIRED = {"Activation": [{"act_type": t} for t in ("relu", "sigmoid", "tanh", "softrelu", "softsign")],
            "clip": [{"a_min": -1, "a_max": 1.5}], "smooth_l1": [{}, {"scalar": 2.0}],
            "ftml_update": [{"lr": 0.1, "t": 3}], "lamb_update_phase1": [{"t": 3, "wd": 0.01}],
            "lamb_update_phase2": [{"lr": 0.1}, {"lr": 0.1, "lower_bound": 1.0, "upper_bound": 2.0}],
            "multi_lars": [{"eta": 0.5, "eps": 1e-3}]}
LR = {"lr": 0.1, "wd": 0.01, "rescale_grad": 0.5}
# the logarithms of densities have domains of their own for each input: random_pdf_*, which are made of them, prove them
OPS = sorted({o.name: o for o in registered().values()
              if type(o) is SimpleOp and not o.name.startswith(("_test_", "_log_pdf_"))}.values(), key=lambda o: o.name)
STRAIGHT = ("_contrib_round_ste", "_contrib_sign_ste")  # declared to hand dy on: no derivative of what they compute
CASES = []
for _op in OPS:
    for _params in REQUIRED.get(_op.name, [LR if any(d.name == "lr" for d in _op.params)
                                           else {"scalar": 1.7} if _op.name.endswith("_scalar") else {}]):
        CASES.append(pytest.param(_op, _params, id=_op.name + "".join(f",{v}" for v in _params.values())))


def inputs_of(op, p, shape, dtype, rng):
    n = len(op.arguments(p)) + len(op.auxiliaries(p))
    xs = [domain(op, shape, np.dtype(dtype), rng) for _ in range(n)]
    return xs


def run_gpu(op, p, inputs, outputs, reqs):
    """One run of the generated Triton kernel in the interpreter."""
    if GPU_MODE != "interpret":
        pytest.skip("no GPU is interpreted" if GPU_MODE == "off" else "its arrays are in host memory")
    tensors = [torch.from_numpy(a.copy()) for a in inputs]
    outs = [torch.from_numpy(a.copy()) for a in outputs]
    specs = [tuple(Spec(a.shape, a.dtype) for a in arrays) for arrays in (inputs, outputs)]

    class Run(HostRun):
        def workspace(self, shape, dtype):
            return torch.from_numpy(np.empty(shape, dtype))

    compiled(op, p, *specs, tuple(reqs), "gpu")(Run(), tensors, outs)
    return [t.numpy() for t in outs], [t.numpy() for t in tensors]


# ---- values: an oracle for each name, of Python floats -----------------------------------------------------------------
def _sign(x):
    return (x > 0) - (x < 0)


ORACLE = {
    "exp": math.exp, "expm1": math.expm1, "log": math.log, "log2": math.log2, "log10": math.log10, "log1p": math.log1p,
    "sqrt": math.sqrt, "rsqrt": lambda x: x ** -0.5, "square": lambda x: x * x,
    "cbrt": lambda x: math.copysign(abs(x) ** (1 / 3), x),
    "reciprocal": lambda x: 1 / x, "sin": math.sin, "cos": math.cos, "tan": math.tan, "arcsin": math.asin, "arccos": math.acos,
    "arctan": math.atan, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "arcsinh": math.asinh, "arccosh": math.acosh,
    "arctanh": math.atanh, "erf": math.erf, "abs": abs, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
    "fix": math.trunc, "identity": lambda x: x, "negative": lambda x: -x, "sign": _sign,
    "round": lambda x: math.floor(abs(x) + 0.5) * _sign(x), "rint": lambda x: math.ceil(x - 0.5),
    "rcbrt": lambda x: math.copysign(abs(x) ** (-1 / 3), x), "radians": math.radians, "degrees": math.degrees,
    "logical_not": lambda x: x == 0, "relu": lambda x: max(x, 0), "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softsign": lambda x: x / (1 + abs(x)), "hard_sigmoid": lambda x: min(max(0.2 * x + 0.5, 0), 1),
    "clip": lambda x: min(max(x, -1), 1.5), "zeros_like": lambda x: 0, "ones_like": lambda x: 1, "cast_storage": lambda x: x,
    "where": lambda c, a, b: a if c != 0 else b,
}
_TWO = {
    "add": lambda a, b: a + b, "plus": lambda a, b: a + b, "sub": lambda a, b: a - b, "minus": lambda a, b: a - b,
    "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "mod": lambda a, b: a % b, "power": lambda a, b: a ** b,
    "floor_divide": lambda a, b: a // b,
    "maximum": max, "minimum": min, "hypot": math.hypot, "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b,
    "greater": lambda a, b: a > b, "greater_equal": lambda a, b: a >= b, "lesser": lambda a, b: a < b,
    "lesser_equal": lambda a, b: a <= b, "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b), "logical_xor": lambda a, b: bool(a) != bool(b),
}


def oracle(op):
    if op.name in ORACLE:
        return ORACLE[op.name]
    base = op.name.removeprefix("elemwise_").removeprefix("broadcast_").removeprefix("_")
    if base.endswith("_scalar"):
        base = base.removesuffix("_scalar")
        if base in _TWO:
            return lambda x: _TWO[base](x, 1.7)
        return lambda x: _TWO[base[1:]](1.7, x)
    return _TWO.get(base)


@pytest.mark.parametrize("op", [o for o in OPS if oracle(o)], ids=lambda o: o.name)
def test_values_are_those_of_plain_python(op, rng):
    p = op.parse(dict(CASES[[c.id.split(",")[0] for c in CASES].index(op.name)].values[1]))
    xs = inputs_of(op, p, (41,), "float64", rng)
    (got,) = run_cpu(op, p, xs)
    want = np.array([float(oracle(op)(*map(float, v))) for v in zip(*xs)])
    wrong = differs(got, want, "float64")
    assert not wrong, wrong


@pytest.mark.parametrize("op, params", CASES)
def test_dtypes_and_shapes(op, params, rng):
    p = op.parse(params)
    for dtype in ("float64", "float32", "float16"):
        for shape in ((), (0,), (1,), (7,), (3, 5), (2, 129)):
            xs = inputs_of(op, p, shape, dtype, rng)
            (got,) = run_cpu(op, p, [x.copy() for x in xs])
            (wide,) = run_cpu(op, p, [x.astype("float64") for x in xs])
            assert got.shape == shape and got.dtype == dtype
            wrong = differs(got, wide.astype(dtype), dtype, scale=20)  # 20: tan and power amplify the rounded input
            assert not wrong, wrong


@pytest.mark.parametrize("op, params", CASES)
def test_requests_and_sharing(op, params, rng):
    p = op.parse(params)
    xs = inputs_of(op, p, (3, 50), "float32", rng)
    (y,) = run_cpu(op, p, [x.copy() for x in xs])
    added = np.full_like(y, 2)
    run_cpu(op, p, [x.copy() for x in xs], [Req.ADD], [added])
    wrong = differs(added, y + 2, "float32")
    assert not wrong, wrong
    for i, _ in op.inplace(p):
        copies = [x.copy() for x in xs]
        run_cpu(op, p, copies, [Req.INPLACE], [copies[i]])
        assert np.array_equal(copies[i], y, equal_nan=True)
    untouched = np.full_like(y, 2)
    run_cpu(op, p, [x.copy() for x in xs], [Req.NULL], [untouched])
    assert (untouched == 2).all()


@pytest.mark.parametrize("op, params", CASES)
def test_gradient_along_a_random_direction(op, params, rng):
    p = op.parse(params)
    if op.gradient_of(p) is None:
        assert not op.differentiable or op.name in ("floor", "ceil", "trunc", "fix", "round", "rint", "sign", "_floor_divide",
                                                    "_floor_divide_scalar", "_rfloor_divide_scalar")
        return
    xs = inputs_of(op, p, (3, 5), "float64", rng)
    if op.name in STRAIGHT:
        dy = rng.normal(size=(3, 5))
        assert np.array_equal(run_backward(op, p, xs, dy, run_cpu(op, p, xs))[0], dy)
        return
    assert directional_error(op, p, xs, rng) < 1e-6


@pytest.mark.parametrize("op, params", CASES)
def test_cpu_equals_interpreted_gpu(op, params, rng):
    p = op.parse(params)
    xs = inputs_of(op, p, (3, 700), "float32", rng)
    states = [x.copy() for x in xs]
    (y,) = run_cpu(op, p, states)
    (got,), moved = run_gpu(op, p, xs, [np.zeros_like(y)], [Req.WRITE])
    wrong = differs(got, y, "float32", scale=4)  # 4: two ulp each way of another exp or sin
    assert not wrong, wrong
    for k in range(len(op.arguments(p)), len(xs)):
        assert not differs(moved[k], states[k], "float32", scale=4)
    g = op.gradient_of(p)
    if g is not None:
        dy = rng.normal(size=y.shape).astype("float32")
        want = run_backward(op, p, xs, dy, [y])
        source = {"dy": [dy], "x": xs, "y": [y]}
        grads, _ = run_gpu(g.op, p, [source[k][i] for k, i in g.needs], [np.ones_like(want[i]) for i in g.gives],
                           [Req.ADD] * len(g.gives))
        for i, d in zip(g.gives, grads):
            wrong = differs(d, want[i] + 1, "float32", scale=10)
            assert not wrong, f"derivative by input {i}: {wrong}"


BROADCASTS = [((4, 3), (1, 3)), ((4, 3), (4, 1)), ((2, 1, 5), (1, 3, 1)), ((6,), (1,)), ((2, 3), (3,)), ((70, 1000), (1, 1000))]


@pytest.mark.parametrize("a, b", BROADCASTS, ids=str)
@pytest.mark.parametrize("name", ["broadcast_add", "broadcast_mul", "broadcast_maximum"])
def test_broadcasting_and_its_gradient(name, a, b, rng):
    op = registered()[name]
    p = op.parse({})
    x, y = rng.normal(size=a).astype("float32"), rng.normal(size=b).astype("float32")
    (got,) = run_cpu(op, p, [x, y])
    want = {"broadcast_add": np.add, "broadcast_mul": np.multiply, "broadcast_maximum": np.maximum}[name](x, y)
    assert np.array_equal(got, want)
    assert directional_error(op, p, [x, y], rng) < 1e-5  # 1e-5: up to 70,000 terms in the sums
    dy = rng.normal(size=want.shape).astype("float32")
    cpu = run_backward(op, p, [x, y], dy, [got])
    (gpu,), _ = run_gpu(op, p, [x, y], [np.zeros_like(want)], [Req.WRITE])
    assert np.array_equal(gpu, want)
    g = op.gradient_of(p)
    source = {"dy": [dy], "x": [x, y], "y": [got]}
    grads, _ = run_gpu(g.op, p, [source[k][i] for k, i in g.needs], [np.zeros_like(cpu[i]) for i in g.gives],
                       [Req.WRITE] * len(g.gives))
    for i, d in zip(g.gives, grads):
        assert not differs(d, cpu[i], "float32", scale=20), differs(d, cpu[i], "float32", scale=20)


REDUCTIONS = sorted({o.name: o for o in registered().values() if type(o) is ReductionOp and not o.is_users}.values(),
                    key=lambda o: o.name)
FOLD = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min, "nansum": np.nansum, "nanprod": np.nanprod,
        "_smallest": np.min, "_square_sum": lambda x, **along: np.sum(np.square(x), **along)}


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, (0,), (1,), (-1,), (0, 2), (1, 2), ()], ids=str)
@pytest.mark.parametrize("op", REDUCTIONS, ids=lambda o: o.name)
def test_reductions(op, axis, keepdims, rng):
    p = op.parse({"axis": axis, "keepdims": keepdims})
    x = rng.normal(size=(3, 4, 50)).astype("float64")
    (got,) = run_cpu(op, p, [x])
    want = np.asarray(FOLD[op.name](x, axis=axis or None, keepdims=keepdims))
    want = want.reshape(want.shape or (1,))
    assert not differs(got, want, "float64"), differs(got, want, "float64")
    assert directional_error(op, p, [x], rng) < 1e-6
    (gpu,), _ = run_gpu(op, p, [x.astype("float32")], [np.zeros(want.shape, "float32")], [Req.WRITE])
    assert not differs(gpu, want.astype("float32"), "float32", scale=20)


def test_half_precision_sums_in_float32():
    op = registered()["sum"]
    x = np.full((1, 40_000), 0.25, "float16")
    (got,) = run_cpu(op, op.parse({"axis": (1,)}), [x])
    assert got.dtype == "float16" and got[0] == 10_000  # in float16 the sum would stop at 512


def test_a_large_sum_has_the_same_bits_for_any_number_of_threads(rng):
    op = registered()["sum"]
    x = rng.normal(size=(700, 900)).astype("float32")
    p = op.parse({"axis": (0,)})

    class Backwards(HostRun):
        def parallel(self, fn, n):
            for i in reversed(range(n)):
                fn(i)

    specs = (Spec(x.shape, x.dtype),), (Spec((900,), x.dtype),)
    results = []
    for run in (HostRun(), Backwards()):
        out = np.empty(900, "float32")
        compiled(op, p, *specs, (Req.WRITE,), "cpu")(run, [x], [out])
        results.append(out)
    assert np.array_equal(*results)


# ---- what a declaration keeps, and the errors --------------------------------------------------------------------------
@pytest.mark.parametrize("name, needs", [("tanh", (("dy", 0), ("y", 0))), ("exp", (("dy", 0), ("y", 0))),
                                         ("sqrt", (("dy", 0), ("y", 0))), ("sin", (("x", 0), ("dy", 0))),
                                         ("relu", (("dy", 0), ("y", 0))), ("elemwise_add", (("dy", 0),)),
                                         ("elemwise_mul", (("x", 0), ("x", 1), ("dy", 0)))])
def test_backward_keeps_only_what_it_needs(name, needs):
    op = registered()[name]
    assert op.gradient_of(op.parse({})).needs == needs


def test_a_new_learning_rate_is_no_new_kernel():
    from tritium.kernels.op import _compiled

    op = registered()["sgd_update"]
    w = np.ones(4, "float32")
    run_cpu(op, op.parse({"lr": 0.5}), [w, w.copy()])
    before = len(_compiled)
    for lr in (0.4, 0.3, 0.2):
        (y,) = run_cpu(op, op.parse({"lr": lr}), [w, w.copy()])
        assert np.allclose(y, 1 - lr)
    assert len(_compiled) == before


def test_a_users_operator_calls_others():
    @simple_op(name="_test_swish", replace=True)
    def swish(x, *, beta: float = 1.0):
        return x * lang.sigmoid(beta * x)

    @simple_op(name="_test_twice", replace=True)
    def twice(x):
        return swish(x, beta=2.0) + swish(x)

    x = np.linspace(-3, 3, 13)
    (got,) = run_cpu(twice, twice.parse({}), [x])
    np.testing.assert_allclose(got, x / (1 + np.exp(-2 * x)) + x / (1 + np.exp(-x)), rtol=1e-12)  # closer than the table
    assert directional_error(twice, twice.parse({}), [x], np.random.default_rng(0)) < 1e-6
    lines = []
    from tritium.kernels.declare.check_op import check_op

    check_op(twice, say=lines.append)
    assert [line.split(":")[0] for line in lines][:3] == ["_test_twice"] * 3


@pytest.mark.parametrize("name, shapes, message", [
    ("elemwise_add", [(2, 3), (3, 2)], r"shapes differ: lhs \(2, 3\), rhs \(3, 2\)"),
    ("broadcast_add", [(2, 3), (4, 3)], r"shapes do not broadcast: lhs \(2, 3\), rhs \(4, 3\)")])
def test_shapes_that_do_not_fit_are_named(name, shapes, message):
    op = registered()[name]
    with pytest.raises(ShapeError, match=f"{name}: {message}"):
        op.infer_shape(op.parse({}), shapes)


@pytest.mark.parametrize("name, params, message", [
    ("Activation", {"act_type": "rellu"}, "act_type='rellu' is not one of 'relu'"),
    ("Activation", {"act_typ": "relu"}, r"unknown parameter 'act_typ'\. Did you mean 'act_type'"),
    ("clip", {}, r"parameter 'a_min' \(scalar\) is required")])
def test_wrong_parameters_are_named(name, params, message):
    with pytest.raises(ParameterError, match=f"{name}: {message}"):
        registered()[name].parse(params)


def test_wrong_declarations_and_arguments_are_named():
    with pytest.raises(OperatorError, match=r"tanh: is one of the framework's operators\. Give yours another name"):
        simple_op(lambda x: x, name="tanh")
    with pytest.raises(OperatorError, match=r"the gradient asks for 'z'\. It can ask for dy, y, x"):
        @simple_op(name="_test_bad", replace=True)
        def bad(x):
            return x

        @bad.gradient
        def _(dy, z):
            return dy
    with pytest.raises(OperatorError, match="no argument is an NDArray, a Symbol or a traced value: list"):
        registered()["tanh"]([1.0])


def gradients(fn, ctx, *values, dtype="float32"):
    """fn's derivatives by each of values, of the sum of its results."""
    arrays = [mx.nd.array(v, ctx, dtype=dtype) for v in values]
    for a in arrays:
        a.attach_grad()
    with mx.autograd.record():
        y = fn(*arrays)
    y.backward()
    return [a.grad.tolist() for a in arrays]


def test_clip_passes_the_derivative_on_at_nan(ctx):
    """As MXNet 1.9.1: what is neither below nor above."""
    x = [np.nan, 2, -1, 0.5, 0, 1]
    assert gradients(lambda a: mx.nd.clip(a, 0, 1), ctx, x) == [[1, 0, 0, 1, 1, 1]]
    assert gradients(lambda a: mx.nd.clip(a, np.nan, 1), ctx, x) == [[1, 0, 1, 1, 1, 1]]


def test_clip_between_bounds_that_cross_is_mxnets(ctx):
    x = mx.nd.array([-3, -1, -0.5, 0, 0.5, 1, 3], ctx=ctx)
    assert mx.nd.clip(x, 1, -1).asnumpy().tolist() == [1, 1, -1, -1, -1, -1, -1]  # what MXNet 1.9.1 gave
    assert mx.nd.clip(x, 2, 0).asnumpy().tolist() == [2, 2, 2, 2, 0, 0, 0]
    assert mx.nd.clip(x, 0, np.nan).asnumpy().tolist() == [0, 0, 0, 0, 0.5, 1, 3]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8"])
def test_whole_numbers_have_no_infinite_derivatives(dtype, ctx):
    """No integer is infinite: where a divisor is zero, nothing is passed on, on either side."""
    a, zero, b = [7, 3, 0], [0, 0, 0], [2, 3, 4]
    for fn in (mx.nd.broadcast_mod, lambda x, y: x % y):
        assert gradients(fn, ctx, a, zero, dtype=dtype) == [zero, zero]
        assert gradients(fn, ctx, a, b, dtype=dtype) == [zero, zero]  # flat, as in MXNet 1.9.1
    assert gradients(mx.nd.broadcast_div, ctx, a, zero, dtype=dtype) == [zero, zero]
    for fn in (lambda x: x % 0, lambda x: 7 % x, lambda x: x / 0, lambda x: 5 % (x * 0)):
        assert gradients(fn, ctx, a, dtype=dtype) == [zero]
    assert gradients(lambda x: 8 / x, ctx, [2, 1, 0], dtype=dtype)[0][2] == 0
    assert gradients(mx.nd.broadcast_power, ctx, [1, 1, 0], zero, dtype=dtype)[0][2] == 0
