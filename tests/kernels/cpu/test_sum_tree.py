"""Sums along any axis: accurate, and the same bits at any number of threads. Oracle: NumPy in float64, and math.fsum."""

import math

import numpy as np
import pytest
import tritium as mx
from hypothesis import given
from hypothesis import strategies as st
from tritium import engine
from tritium.kernels.cpu.numpy_printer import TILE, numpy_kernel
from tritium.kernels.cpu.sum_tree import combined, total
from tritium.kernels.gpu.printer import plan_launches
from tritium.kernels.gpu.reduction import MAX_BLOCKS
from tritium.kernels.gpu.target import CodegenTarget
from tritium.kernels.ir.expr import load
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Expression, Req, Spec
from tritium.kernels.ops.linalg.gemm import sum_rows

ENOUGH = 2e-6  # of the sum of magnitudes; adding one after the other loses 1e-3 over a million


def error(got, x, axis):
    x = x.astype(np.float64)
    exact = x.sum(axis=axis, keepdims=True).reshape(np.shape(got))
    return np.max(np.abs(got - exact) / np.abs(x).sum(axis=axis, keepdims=True).reshape(np.shape(got)))


@pytest.mark.parametrize("ctx", [mx.cpu(), mx.gpu(0)], ids=str)
@pytest.mark.parametrize("shape, axis", [((400_003, 3), 0), ((200_000, 2, 3), 0), ((2, 300_001, 2), 1), ((90_000, 5, 2), (0, 2)),
                                         ((1_000_000, 1), 0), ((3, 400_000), 1)])
def test_a_long_sum_keeps_its_digits(shape, axis, ctx, rng):
    x = (rng.random(shape) + 0.1).astype(np.float32)
    a = mx.nd.array(x, ctx=ctx)
    assert error(a.sum(axis=axis).asnumpy(), x, axis) < ENOUGH
    assert error(a.mean(axis=axis).asnumpy() * (x.size // a.sum(axis=axis).size), x, axis) < ENOUGH
    assert abs(mx.nd.norm(a[:, :2] if len(shape) == 2 else a, axis=0).asnumpy().astype(float) /
               np.sqrt(np.square((x[:, :2] if len(shape) == 2 else x).astype(float)).sum(0)) - 1).max() < ENOUGH


def test_bias_gradients_keep_their_digits(rng):
    rows = 500_000
    dy = (rng.random((rows, 2)) + 0.1).astype(np.float32)
    bias = mx.nd.zeros(2)
    bias.attach_grad()
    x, w = mx.nd.zeros((rows, 1)), mx.nd.zeros((2, 1))
    with mx.autograd.record():
        y = mx.nd.FullyConnected(x, w, bias, num_hidden=2)
    y.backward(mx.nd.array(dy))
    assert error(bias.grad.asnumpy(), dy, 0) < ENOUGH
    other = mx.nd.zeros((1, 2))
    other.attach_grad()
    with mx.autograd.record():
        y = mx.nd.broadcast_add(mx.nd.zeros((rows, 2)), other)
    y.backward(mx.nd.array(dy))
    assert error(other.grad.asnumpy()[0], dy, 0) < ENOUGH
    filters = mx.nd.zeros(2)
    filters.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Convolution(mx.nd.zeros((rows // 10, 1, 10)), mx.nd.zeros((2, 1, 1)), filters, kernel=(1,), num_filter=2)
    heads = np.ascontiguousarray(dy.reshape(rows // 10, 10, 2).transpose(0, 2, 1))
    y.backward(mx.nd.array(heads))
    assert error(filters.grad.asnumpy(), heads, (0, 2)) < ENOUGH
    for req in (Req.WRITE, Req.ADD):
        out = np.zeros(2, np.float32)
        sum_rows(dy, out, req)(HostRun())
        assert error(out, dy, 0) < ENOUGH


def test_batch_norm_over_many_rows_keeps_its_digits(rng):
    x = (rng.random((400_000, 3)) + 5).astype(np.float32)
    beta, mean, var = mx.nd.zeros(3), mx.nd.zeros(3), mx.nd.ones(3)
    beta.attach_grad()
    with mx.autograd.record():
        y = mx.nd.BatchNorm(mx.nd.array(x), mx.nd.ones(3), beta, mean, var, momentum=0.0, fix_gamma=False)
    y.backward(mx.nd.array(x))
    assert np.abs(mean.asnumpy() / x.mean(0, dtype=float) - 1).max() < ENOUGH
    assert error(beta.grad.asnumpy(), x, 0) < ENOUGH


@pytest.mark.parametrize("shape, axes", [((3 * TILE // 4, 4), (0,)), ((7, TILE // 8, 3), (1,)), ((5, TILE), (1,)),
                                         ((TILE + 13, 5), (0, 1)), ((1000, 3, 300), (0, 2))])
def test_the_bits_do_not_depend_on_threads(shape, axes, rng):
    x = rng.standard_normal(shape).astype(np.float32)
    before = engine.current()
    found = []
    try:
        for n in (1, 2, 5):
            engine.set_current(engine.ThreadedEngine(n))
            found.append(mx.nd.array(x).sum(axis=axes).asnumpy().tobytes())
    finally:
        engine.set_current(before)
    assert len(set(found)) == 1


def test_a_sum_of_tiles_is_a_tree_whatever_order_they_come_in(rng):
    """The parts come as they are done; what is added to what is fixed."""
    shape = (12 * TILE // 2, 2)
    x = rng.standard_normal(shape).astype(np.float32)
    kernel = numpy_kernel(Expression((load(0, np.dtype("float32")),)), [Spec(shape, x.dtype)], [Spec((1, 2), x.dtype)],
                          [Req.WRITE])

    class Backwards:
        @staticmethod
        def parallel(fn, n):
            for i in reversed(range(n)):
                fn(i)

        @staticmethod
        def workspace(shape, dtype):
            return np.empty(shape, dtype)

    outs = [np.empty((1, 2), np.float32) for _ in range(2)]
    kernel(None, [x], [outs[0]])
    kernel(Backwards, [x], [outs[1]])
    assert outs[0].tobytes() == outs[1].tobytes()
    assert [combined(lambda a, b: f"({a}{b})", "abcde"), combined(max, [3])] == ["(((ab)(cd))e)", 3]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.data(), st.sampled_from(["float32", "float64", "int32", "uint8"]))
def test_any_axes_of_any_shape(shape, data, dtype):
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    x = (rng.standard_normal(shape) * 50).astype(dtype)
    if data.draw(st.booleans()):
        x = np.broadcast_to(x[:1], x.shape)
    wide = np.int64 if np.dtype(dtype).kind in "iu" else np.float64
    got, want = total(x, axes), x.astype(wide).sum(axis=tuple(axes), keepdims=True)
    assert got.dtype == dtype and got.shape == want.shape
    if np.dtype(dtype).kind in "iu":
        assert got.tolist() == want.astype(dtype).tolist()  # wraps
    else:
        assert np.abs(got - want).max() <= 1e-6 * max(1, np.abs(x).sum())


def test_a_gpu_adds_few_numbers_one_after_the_other():
    """In code for a GPU, long sums are split until each lane adds few numbers."""
    f32 = np.dtype("float32")
    for rows, columns in ((1_000_000, 1024), (1 << 24, 8), (1 << 30, 1), (3_000_000, 100)):
        plan = plan_launches(Expression((load(0, f32),)), [Spec((rows, columns), f32)], [Spec((1, columns), f32)], [Req.WRITE],
                          codegen=CodegenTarget(False))
        assert len(plan.launches) == 2 and all(one.sizes["STEPS"] <= MAX_BLOCKS for one in plan.launches)


# ---- nansum and integers ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ctx", [mx.cpu(), mx.gpu(0)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_nansum_with_an_infinity_is_infinite(dtype, ctx):
    rows = [[1, math.inf, math.nan], [-math.inf, 2, 3], [math.inf, -math.inf, 0], [math.nan, math.nan, 4]]
    a = mx.nd.array(rows, dtype=dtype, ctx=ctx)
    assert str(mx.nd.nansum(a, axis=1).asnumpy().tolist()) == "[inf, -inf, nan, 4.0]"
    a.attach_grad()
    with mx.autograd.record():
        y = mx.nd.nansum(a)
    y.backward()
    assert a.grad.asnumpy().tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 1], [0, 0, 1]]


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_whole_numbers_of_many_tiles_add_up(dtype, rng):
    x = rng.integers(0, 100, (TILE + 5, 3)).astype(dtype)
    for name in ("sum", "nansum"):
        got = getattr(mx.nd, name)(mx.nd.array(x, dtype=dtype), axis=0).asnumpy()
        assert got.tolist() == x.sum(axis=0, dtype=np.int64).astype(dtype).tolist()
