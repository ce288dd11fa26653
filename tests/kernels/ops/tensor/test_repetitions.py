"""tile and repeat: any number of repetitions is one copy, and its derivative one sum. Oracle: NumPy's own."""

import tracemalloc

import numpy as np
import pytest
import tritium as mx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.layer_helpers import TARGETS, backward, close, forward
from tritium.kernels.op import Req, Spec, get


def made(name, shape, target, **params):
    """The kernel of one use, and the bytes that it keeps."""
    op = get(name)
    p = op.parse(params)
    ins = [Spec(shape, np.dtype("float32"))]
    outs = [Spec(s, np.dtype("float32")) for s in op.infer_shape(p, [shape])[1]]
    op.kernel(p, ins, outs, [Req.WRITE], target)
    tracemalloc.start()
    try:
        kept = [op.kernel(p, ins, outs, [Req.WRITE], target)]
        return tracemalloc.get_traced_memory()[0], kept
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name, params", [("tile", {"reps": (200_000,)}), ("tile", {"reps": (500, 400)}),
                                          ("repeat", {"repeats": 200_000}), ("repeat", {"repeats": 200_000, "axis": 0})])
def test_many_repetitions_keep_no_objects(name, params, target):
    assert made(name, (3,), target, **params)[0] < 50_000  # 290 MB, with an object for each


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 2, 8, 9, 17, 1000])
def test_repetitions_and_their_derivatives(n, target, rng):
    x = rng.standard_normal((2, 3)).astype("f")
    for name, params, want in (
            ("tile", {"reps": (n,)}, np.tile(x, n)), ("tile", {"reps": (n, 1)}, np.tile(x, (n, 1))),
            ("tile", {"reps": (2, n, 2)}, np.tile(x, (2, n, 2))), ("repeat", {"repeats": n}, np.repeat(x, n)),
            ("repeat", {"repeats": n, "axis": 0}, np.repeat(x, n, 0)),
            ("repeat", {"repeats": n, "axis": -1}, np.repeat(x, n, 1))):
        close(forward(name, [x], target, **params)[0], want)
        dy = rng.standard_normal(want.shape).astype("f")
        places = np.arange(x.size).reshape(x.shape)
        at = np.tile(places, params["reps"]) if name == "tile" else np.repeat(places, n, params.get("axis"))
        summed = np.bincount(at.reshape(-1), dy.reshape(-1).astype(float), x.size).reshape(x.shape)
        close(backward(name, [x], [dy], target, **params)[0], summed.astype("f"), scale=n)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_repeating_nothing_keeps_the_other_axes(axis, target):
    x = np.ones((2, 3), "f")
    want = np.repeat(x, 0, axis)
    got = forward("repeat", [x], target, repeats=0, axis=axis)[0]
    assert got.shape == want.shape
    close(backward("repeat", [x], [want], target, repeats=0, axis=axis)[0], np.zeros_like(x))


@pytest.mark.parametrize("target", TARGETS)
def test_repeating_one_number(target):
    close(forward("repeat", [np.float32([3])], target, repeats=2)[0], np.float32([3, 3]))
    close(backward("repeat", [np.float32([3])], [np.float32([1, 2])], target, repeats=2)[0], np.float32([3]))


@given(st.data())
def test_any_tile_and_repeat(data):
    check_any(data, mx.cpu())


@settings(max_examples=10)  # interpreted, a new shape costs a tenth of a second
@given(st.data())
def test_any_tile_and_repeat_on_a_gpu(data):
    check_any(data, mx.gpu(0))


def check_any(data, ctx):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    reps = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    x = np.arange(np.prod(shape), dtype="f").reshape(shape)
    a = mx.nd.array(x, ctx=ctx)
    a.attach_grad()
    with mx.autograd.record():
        y = mx.nd.tile(a, reps=tuple(reps))
    y.backward(y)
    assert y.asnumpy().tolist() == np.tile(x, reps).tolist()
    assert a.grad.asnumpy().tolist() == (x * (y.size // x.size)).tolist()
    axis, n = data.draw(st.integers(-len(shape), len(shape) - 1)), data.draw(st.integers(0, 20))
    assert mx.nd.repeat(a, repeats=n, axis=axis).asnumpy().tolist() == np.repeat(x, n, axis).tolist()
