"""BatchNorm with what follows it, softmax of whole rows, and the derivative of take: against NumPy, under guard pages."""

import types

import numpy as np
import pytest
from support.guard_pages import dies_of, guarded
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.op import Req, Spec, builtin, compiled
from tritium.kernels.ops.nn import triton_norm
from tritium.kernels.ops.tensor import triton_take

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
torch = pytest.importorskip("torch")
RUN = types.SimpleNamespace(stream=None, workspace=lambda s, d: torch.from_numpy(guarded(np.full(s, 7, d))))
P = types.SimpleNamespace(fix_gamma=False, eps=1e-3, momentum=0.9)


def tensor(a):
    return torch.from_numpy(guarded(np.ascontiguousarray(a)))


def norm(rows, rng, relu, add=False):
    """One BatchNorm with a sum and perhaps a rectifier after it, forward and backward, by formulas of its own."""
    n = rows[1]
    x = rng.normal(100, 1, size=rows).astype("float32")  # a mean that drowns the variance in a naive sum of squares
    other, dy = rng.normal(size=rows).astype("float32"), rng.normal(size=rows).astype("float32")
    gamma, beta, moving_mean, moving_var = (rng.uniform(0.5, 1.5, size=n).astype("float32") for _ in range(4))
    x64, channel = x.astype("float64"), (1, n, 1)
    mean, var = x64.mean((0, 2)), x64.var((0, 2))
    inverse = 1 / np.sqrt(var + P.eps)
    u = (x64 - mean.reshape(channel)) * inverse.reshape(channel)
    y = u * gamma.reshape(channel) + beta.reshape(channel) + other
    y = y.clip(0) if relu else y
    g = dy * (y > 0) if relu else dy
    scale = (gamma * inverse).reshape(channel)
    dx = scale * (g - g.mean((0, 2), keepdims=True) - u * (g * u).mean((0, 2), keepdims=True))
    start = 1 if add else 0
    out = [tensor(np.full(s, start, "float32")) for s in (rows, n, n)]
    reqs = [Req.ADD if add else Req.WRITE] * 3
    inputs = [tensor(a) for a in (x, gamma, beta, moving_mean, moving_var)]
    triton_norm.forward(RUN, rows, P, True, inputs, out, reqs, other=tensor(other), relu=relu)
    close = {"rtol": 1e-4, "atol": 2e-4}
    for found, want in zip(out, (y, mean, inverse)):
        np.testing.assert_allclose(found.numpy() - start, want, **close)
    np.testing.assert_allclose(inputs[3].numpy(), 0.9 * moving_mean + 0.1 * mean, **close)
    np.testing.assert_allclose(inputs[4].numpy(), 0.9 * moving_var + 0.1 * var, **close)
    grads, d_other = [tensor(np.full(s, start, "float32")) for s in (rows, n, n)], tensor(np.zeros(rows, "float32"))
    kept = [tensor(a.astype("float32")) for a in (dy, x, gamma, mean, inverse)]
    triton_norm.backward(RUN, rows, P, True, kept, grads, reqs, y=tensor(y.astype("float32")) if relu else None,
                         d_other=d_other)
    np.testing.assert_allclose(d_other.numpy(), g, **close)
    for found, want in zip(grads, (dx, (g * u).sum((0, 2)), g.sum((0, 2)))):
        np.testing.assert_allclose(found.numpy() - start, want, rtol=1e-3, atol=5e-3)


ROWS = {"channels last": (300, 24, 1), "channels last, odd": (37, 5, 1), "channels first": (6, 5, 49),
        "channels first, wide": (3, 2, 2100)}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("relu", [False, True])
def test_batch_norm_matches_its_formula(rows, relu, rng):
    norm(ROWS[rows], rng, relu, add=relu)


@pytest.mark.parametrize("rows", ROWS)
def test_batch_norm_stays_inside_its_arrays(rows):
    assert dies_of(lambda: norm(ROWS[rows], np.random.default_rng(0), True)) == 0


def on_gpu(name, params, reqs, *arrays):
    """Run an operator, or with a name after "d " its derivative, on guarded arrays; return the last of them."""
    op = builtin(name.removeprefix("d "))
    p = op.parse(params)
    op = op.gradient_of(p).op if name.startswith("d ") else op
    arrays = [tensor(a) for a in arrays]
    specs = tuple(Spec(tuple(a.shape), a.numpy().dtype) for a in arrays)
    compiled(op, p, specs[:-1], specs[-1:], reqs, "gpu")(RUN, arrays[:-1], arrays[-1:])
    return arrays[-1].numpy()


def softmax(shape, log, rng):
    x, dy = rng.normal(size=shape).astype("float32") * 9, rng.normal(size=shape).astype("float32")
    v = 2.0 * x.astype("float64") - (2.0 * x).max(-1, keepdims=True)
    total = np.exp(v).sum(-1, keepdims=True)
    s = np.exp(v) / total
    want = v - np.log(total) if log else s
    dx = 2 * (dy - s * dy.sum(-1, keepdims=True)) if log else 2 * s * (dy - (s * dy).sum(-1, keepdims=True))
    name, params = "log_softmax" if log else "softmax", {"temperature": 0.5}
    y = on_gpu(name, params, (Req.WRITE,), x, np.zeros(shape, "float32"))
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=2e-5 if log else 1e-7)
    got = on_gpu(f"d {name}", params, (Req.ADD,), dy, y, np.ones(shape, "float32"))
    np.testing.assert_allclose(got - 1, dx, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("shape", [(37, 10), (3, 1000), (2, 5001), (1, 16), (5, 1)])
@pytest.mark.parametrize("log", [False, True])
def test_softmax_of_whole_rows(shape, log, rng):
    softmax(shape, log, rng)
    assert dies_of(lambda: softmax(shape, log, np.random.default_rng(0))) == 0


def put(rng, rows, k, wrap, add):
    outer, n, inner = rows
    dy, index = rng.normal(size=(outer, k, inner)).astype("float32"), rng.integers(-n, 2 * n, size=k).astype("float32")
    want = np.full(rows, 1.0 if add else 0.0)
    places = index.astype(int) % n if wrap else index.astype(int).clip(0, n - 1)
    for j, place in enumerate(places):
        want[:, place] += dy[:, j]
    dx = tensor(np.ones(rows, "float32"))
    triton_take.put(RUN, rows, k, tensor(dy), tensor(index), dx, wrap=wrap, add=add, by_order=True)
    np.testing.assert_allclose(dx.numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows, k", [((1, 5, 20), 33), ((2, 40, 17), 9), ((1, 3, 4), 1), ((1, 4, 3), 0)])
@pytest.mark.parametrize("wrap", [False, True])
def test_the_derivative_of_take(rows, k, wrap, rng):
    put(rng, rows, k, wrap, add=wrap)
    assert dies_of(lambda: put(np.random.default_rng(0), rows, k, wrap, add=wrap)) == 0
