"""Derivatives of derivatives: grad(create_graph=True) against differences of first derivatives, in float64."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium import autograd, nd
from tritium.errors import MXNetError
from tritium.kernels.declare.check_op import domain
from tritium.kernels.declare.simple_op import SimpleOp
from tritium.kernels.params import REQUIRED

F8 = np.dtype("float64")


def second_order_error(fn, xs, rng, ctx, eps=1e-5):
    """⟨∇⟨w, ∇⟨u, f⟩⟩, v⟩ along random v, beside the difference of ⟨w, ∇⟨u, f⟩⟩ at x ± εv; relative."""
    ws, vs = ([rng.normal(size=x.shape) for x in xs] for _ in range(2))
    make = lambda a: nd.array(a, ctx, "float64")
    u = None

    def first(arrays, create_graph):
        nonlocal u
        for a in arrays:
            a.attach_grad()
        with autograd.record():
            y = fn(*arrays)
            u = rng.normal(size=y.shape) if u is None else u
            return autograd.grad(y, arrays, head_grads=make(u), create_graph=create_graph)

    arrays = [make(x) for x in xs]
    with autograd.record():
        total = sum((g * make(w)).sum() for g, w in zip(first(arrays, True), ws))
    if total._grad_edge is None:
        exact = 0.0
    else:
        total.backward()
        exact = sum(np.sum(a.grad.asnumpy() * v) for a, v in zip(arrays, vs))
    up, down = ([g.asnumpy() for g in first([make(x + s * eps * v) for x, v in zip(xs, vs)], False)] for s in (1, -1))
    numeric = sum(np.sum(w * (a - b)) for w, a, b in zip(ws, up, down)) / (2 * eps)
    return abs(exact - numeric) / max(1.0, abs(numeric))


def traced():
    for name, op in mx.kernels.registered().items():
        if isinstance(op, SimpleOp) and op.input_names and name == op.name and not name.startswith(("_test_", "_log_pdf_")):
            given = {d.name: d.choices[0] if d.choices else 1.5 for d in op.params if d.name == "scalar" or d.default is REQUIRED}
            p = op.parse(given)
            if op.gradient_of(p) is not None and not op.auxiliaries(p):
                yield pytest.param(op, given, id=name)


@pytest.mark.parametrize("op, given", list(traced()))
def test_every_traced_operator(op, given, rng):
    shapes = [(3, 5)] * len(op.arguments(op.parse(given)))
    if op.broadcast and len(shapes) == 2:
        shapes = [(3, 1), (1, 5)]
    xs = [domain(op, s, F8, rng) for s in shapes]
    assert second_order_error(lambda *a: op(*a, **given), xs, rng, mx.cpu()) < 1e-4


X, Y = (3, 4), (3, 4)
PROGRAMS = {
    "x**3": (lambda x: x**3, [X]), "tanh": (lambda x: nd.tanh(x), [X]), "sigmoid": (lambda x: nd.sigmoid(x), [X]),
    "exp": (lambda x: nd.exp(x * x), [X]), "product": (lambda x, y: x * y * x, [X, Y]),
    "broadcast": (lambda x, y: nd.tanh(x * y.reshape(1, 4) + x / (y * y + 1)), [X, (4,)]),
    "sum": (lambda x: (x * x).sum(axis=1) * 2, [X]), "mean": (lambda x: nd.exp((x * x).mean()), [X]),
    "prod": (lambda x: x.prod(axis=0), [X]), "max": (lambda x: (x * x).max(axis=1) ** 2, [X]),
    "norm": (lambda x: (nd.norm(x, axis=1) - 1) ** 2, [X]),
    "dot": (lambda a, b: nd.tanh(nd.dot(a, b)), [(3, 4), (4, 2)]),
    "dot transposed": (lambda a, b: nd.tanh(nd.dot(a, b, transpose_b=True)), [(3, 4), (2, 4)]),
    "batch_dot": (lambda a, b: nd.tanh(nd.batch_dot(a, b)), [(2, 3, 4), (2, 4, 2)]),
    "FullyConnected": (lambda x, w, b: nd.tanh(nd.FullyConnected(x, w, b, num_hidden=5)), [(3, 4), (5, 4), (5,)]),
    "Convolution": (lambda x, w, b: nd.tanh(nd.Convolution(x, w, b, kernel=(3, 3), num_filter=2)),
                    [(2, 3, 5, 5), (2, 3, 3, 3), (2,)]),
    "softmax": (lambda x: nd.softmax(x * x, axis=1), [X]),
    "log_softmax": (lambda x: nd.log_softmax(x * x, axis=1, temperature=2.0), [X]),
    "reshape": (lambda x: nd.tanh((x * x).reshape(4, 3)), [X]), "transpose": (lambda x: nd.transpose(x * x) ** 2, [X]),
    "concat": (lambda x, y: nd.concat(x * x, y, dim=1) ** 3, [X, (3, 2)]),
    "split": (lambda x: nd.split(x**3, num_outputs=2, axis=1)[0] ** 2, [X]),
    "view": (lambda x: (x * x)[1:3] ** 2, [X]), "strided": (lambda x: (x * x)[:, ::2] ** 2, [X]),
    "fancy": (lambda x: (x * x)[[0, 2, 0]] ** 2, [X]), "take": (lambda x: nd.take(x * x, nd.array([0, 2, 0], x.ctx)) ** 2, [X]),
    "astype": (lambda x: (x * x).astype("float64") ** 2, [X]),
    "average pooling": (lambda x: nd.Pooling(x * x, kernel=(2, 2), pool_type="avg") ** 2, [(1, 1, 4, 4)]),
    "LayerNorm": (lambda x, g, b: nd.tanh(nd.LayerNorm(x * x, g, b)), [(3, 4), (4,), (4,)]),
    "LayerNorm axis 1": (lambda x, g, b: nd.LayerNorm(x, g, b, axis=1) ** 2, [(2, 3, 4), (3,), (3,)]),
    "GroupNorm": (lambda x, g, b: nd.GroupNorm(x, g, b, num_groups=2) ** 2, [(2, 4, 3), (2,), (2,)]),
    "InstanceNorm": (lambda x, g, b: nd.InstanceNorm(x, g, b) ** 2, [(2, 3, 4), (3,), (3,)]),
    "BatchNorm": (lambda x, g, b: nd.BatchNorm(x * x, g, b, nd.zeros(3, dtype=F8), nd.ones(3, dtype=F8), fix_gamma=False) ** 2,
                  [(4, 3, 2), (3,), (3,)]),
    "BatchNorm fixed": (lambda x, g, b: nd.BatchNorm(x, g, b, nd.zeros(3, dtype=F8), nd.ones(3, dtype=F8)) ** 2,
                        [(4, 3, 2), (3,), (3,)]),
    "max pooling": (lambda x: nd.Pooling(x**3, kernel=(2, 2), pool_type="max") ** 2, [(2, 2, 4, 5)]),
    "max pooling padded": (lambda x: nd.Pooling(x**3, kernel=(3, 2), stride=(2, 2), pad=(1, 1), pool_type="max",
                                                pooling_convention="full") ** 2, [(1, 2, 5, 6)]),
    "max of the plane": (lambda x: nd.Pooling(x**3, kernel=(1, 1), global_pool=True, pool_type="max") ** 2, [(2, 3, 4, 4)]),
    "two layers": (lambda x, w, v: nd.FullyConnected(nd.tanh(nd.FullyConnected(x, w, no_bias=True, num_hidden=5)), v,
                                                     no_bias=True, num_hidden=1), [X, (5, 4), (1, 5)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, rng):
    fn, shapes = PROGRAMS[name]
    assert second_order_error(fn, [rng.normal(size=s) for s in shapes], rng, mx.cpu()) < 1e-4


def test_on_the_gpu(ctx, rng):
    assert second_order_error(lambda x, y: nd.tanh(x) * y**3, [rng.normal(size=(5,)), rng.normal(size=(5,))], rng, ctx) < 1e-4


def test_third_derivatives_of_formulas():
    x = nd.array([0.5, 2.0])
    x.attach_grad()
    with autograd.record():
        g = x**4
        for _ in range(3):
            g = autograd.grad(g, x, create_graph=True)[0]
    assert np.allclose(g.asnumpy(), 24 * np.array([0.5, 2.0]))


def test_gradient_penalty_flows_into_weights(rng):
    """The pattern of WGAN-GP: the norm of a derivative by the input is itself a loss of the weights."""
    x, w = nd.array(rng.normal(size=(4, 3))), nd.array(rng.normal(size=(1, 3)))
    x.attach_grad()
    w.attach_grad()
    with autograd.record():
        y = nd.FullyConnected(x, w, num_hidden=1, no_bias=True)
        slope = autograd.grad(y, x, create_graph=True)[0]
        penalty = ((nd.norm(slope, axis=1) - 1) ** 2).mean()
    penalty.backward()
    length = np.sqrt(np.sum(w.asnumpy() ** 2))
    assert_close(w.grad, 2 * (length - 1) * w.asnumpy() / length, scale=0.1)  # 0.1: closer than the table: few roundings


def test_an_operator_without_second_derivative_is_refused():
    x = nd.array(np.arange(16.0).reshape(1, 4, 4, 1))
    x.attach_grad()
    with autograd.record():
        y = nd.Pooling(x * x, kernel=(2, 2), pool_type="max", layout="NHWC")
        with pytest.raises(MXNetError, match=r"needs the derivative of _backward_Pooling, which has none. Pooling can be"):
            autograd.grad(y * y, x, create_graph=True)


def test_a_third_derivative_of_a_kernel_is_refused():
    a, b = nd.ones((2, 2)), nd.ones((2, 2))
    a.attach_grad()
    b.attach_grad()
    with autograd.record():
        g = autograd.grad(nd.dot(a * a, b) ** 2, a, create_graph=True)[0]
        with pytest.raises(MXNetError, match="third derivative of dot"):
            autograd.grad(g, a, create_graph=True)


@pytest.mark.parametrize("function", [lambda x: x * 2, mx.nd.rint, lambda x: x > 0, mx.nd.ones_like, mx.nd.BlockGrad])
def test_a_derivative_that_is_constant_is_recorded_too(function):
    """As a gradient penalty of a linear critic: the derivative of the penalty is 0."""
    x = mx.nd.array([0.5, -1.5])
    x.attach_grad()
    x.grad[:] = 7
    with autograd.record():
        slope = autograd.grad([function(x)], [x], create_graph=True, retain_graph=True)[0]
        penalty = (slope * slope).sum()
    penalty.backward()
    assert x.grad.asnumpy().tolist() == [0, 0]
    with autograd.record():
        penalty = (slope * x).sum()
    penalty.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), slope.asnumpy())
