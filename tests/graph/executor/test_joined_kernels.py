"""Consecutive kernels in C run in one call: with the bits of separate ones, and with errors that name the kernel."""

import numpy as np
import pytest
import tritium as mx
from tritium.graph.options import options
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_team import Phases
from tritium.kernels.kernel import Kernel

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")


def bound(monkeypatch, train, **choices):
    """A network of convolutions, poolings and products, all in C."""
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    x = mx.sym.Variable("data")
    for k, n in enumerate((8, 12)):
        x = mx.sym.Activation(mx.sym.Convolution(x, kernel=(3, 3), num_filter=n, name=f"conv{k}"), act_type="tanh")
        x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{k}")
    x = mx.sym.FullyConnected(x, num_hidden=16, name="hidden")
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="relu"), num_hidden=9, name="out")
    with options(**choices):
        executor = x.simple_bind(mx.cpu(), "write" if train else "null", data=(10, 3, 14, 15))
    rng = np.random.default_rng(3)
    for a in executor.arg_dict.values():
        a[:] = rng.normal(size=a.shape, scale=0.3).astype("f")
    return executor


def run(executor, train, times=3):
    made = []
    for _ in range(times):
        made += [o.copy() for o in executor.forward(is_train=train)]
        if train:
            executor.backward(mx.nd.ones(executor.outputs[0].shape))
            made += [g.copy() for g in executor._grads.values()]
        for a in executor.arg_dict.values():
            a *= 0.9
    return [a.asnumpy() for a in made]


@pytest.mark.parametrize("train", [False, True])
def test_joined_kernels_have_the_bits_of_separate_ones(monkeypatch, train):
    joined = bound(monkeypatch, train)
    got = run(joined, train)
    wanted = run(bound(monkeypatch, train, bulk_train=1, bulk_infer=1), train)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(g, w)
    assert all(np.isfinite(g).all() and g.any() for g in got)
    calls = [call for segment in joined._compile(train).forward for call in segment.ready]
    assert any(isinstance(call, Phases) and last - at >= 3 for call, at, last in calls)


def test_a_failing_kernel_between_joined_ones_is_named(monkeypatch):
    executor = bound(monkeypatch, False)
    want = run(executor, False, 1)
    segment = executor._compile(False).forward[0]
    at = next(k for k, call in enumerate(segment.calls) if call[3].startswith("pool1"))
    before = segment.calls[at]

    def broken(*_):
        raise ZeroDivisionError("boom")

    segment.calls[at], segment.ready = (Kernel(broken), *before[1:]), None
    with pytest.raises(mx.MXNetError, match=r"pool1 \(Pooling\): ZeroDivisionError: boom"):
        executor.forward()[0].asnumpy()
    segment.calls[at], segment.ready = before, None
    for a in executor.arg_dict.values():
        a /= 0.9
    for g, w in zip(run(executor, False, 1), want):
        np.testing.assert_allclose(g, w, rtol=1e-4)


def test_joined_kernels_without_memory_are_named_together(monkeypatch):
    executor = bound(monkeypatch, False)
    executor.forward()[0].wait_to_read()
    segment = executor._compile(False).forward[0]
    _, at, last = max(segment.ready, key=lambda c: c[2] - c[1])

    def fails(_):
        raise MemoryError("none left")

    segment.ready = [(fails, at, last)]
    with pytest.raises(mx.MXNetError, match=r"\) to .*\): MemoryError: none left"):
        executor.forward()[0].asnumpy()
