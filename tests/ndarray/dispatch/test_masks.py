"""A mask stays one in views, copies, moves, logic and products: as an index it selects. Oracle: NumPy's bool arrays."""

import copy
import pickle
import random

import numpy as np
import pytest
import tritium as mx
from tritium import nd

X = np.array([[3.0, -1, 2, -4, 0.5, -0.5], [-2, 5, 1, 1, -3, 2], [1, 1, -1, 2, -2, 4], [0, -1, 2, 3, 1, -1]], "float32")

#: One mask to another: what is done to the array, and to NumPy's bool array.
STEPS = {
    "copy": (lambda m: m.copy(), lambda b: b), "array": (lambda m: nd.array(m, m.ctx), lambda b: b),
    "copy.copy": (copy.copy, lambda b: b), "deepcopy": (copy.deepcopy, lambda b: b),
    "context": (lambda m: m.as_in_context(mx.cpu(1)).as_in_context(m.ctx), lambda b: b),
    "detach": (lambda m: m.detach(), lambda b: b), "pickle": (lambda m: pickle.loads(pickle.dumps(m)), lambda b: b),
    "float64": (lambda m: m.astype("float64").astype("float32"), lambda b: b),
    "T": (lambda m: m.T, lambda b: b.T), "transpose": (lambda m: m.transpose(), lambda b: b.T),
    "swapaxes": (lambda m: m.swapaxes(0, 1), lambda b: b.T), "np": (np.transpose, np.transpose),
    "slice": (lambda m: m[1:], lambda b: b[1:]), "strided": (lambda m: m[::-1], lambda b: b[::-1]),
    "columns": (lambda m: m[:, 1:], lambda b: b[:, 1:]), "positions": (lambda m: m[[1, 0]], lambda b: b[[1, 0]]),
    "take": (lambda m: m.take(nd.array([1, 0], m.ctx)), lambda b: b[[1, 0]]),
    "flat": (lambda m: m.reshape((-1,)).reshape(m.shape), lambda b: b),
    "expand": (lambda m: m.expand_dims(0).squeeze(0), lambda b: b), "flip": (lambda m: m.flip(0), lambda b: b[::-1]),
    "concat": (lambda m: nd.concat(m, m, dim=0), lambda b: np.concatenate([b, b])),
    "tile": (lambda m: m.tile((2, 1)), lambda b: np.tile(b, (2, 1))),
    "~": (lambda m: ~m, lambda b: ~b), "not": (nd.logical_not, lambda b: ~b), "1 -": (lambda m: 1 - m, lambda b: ~b),
    "and": (lambda m: nd.logical_and(m, m[::-1]), lambda b: b & b[::-1]),
    "or": (lambda m: nd.logical_or(m, m[::-1]), lambda b: b | b[::-1]),
    "xor": (lambda m: nd.logical_xor(m, m[::-1]), lambda b: b ^ b[::-1]),
    "&": (lambda m: m & m[::-1], lambda b: b & b[::-1]), "|": (lambda m: m | ~m, lambda b: b | ~b),
    "product": (lambda m: m * m[::-1], lambda b: b & b[::-1]), "multiply": (lambda m: nd.multiply(m, m), lambda b: b),
    "maximum": (lambda m: nd.maximum(m, m[::-1]), lambda b: b | b[::-1]), "!=": (lambda m: m != m[::-1], lambda b: b ^ b[::-1]),
    "where": (lambda m: nd.where(m, m, m[::-1]), lambda b: b | b[::-1]),
}


def agrees(m, b, ctx):
    """m selects and assigns what b does, whole and row by row."""
    values = np.arange(b.size, dtype="float32").reshape(b.shape) + 1
    a, want = nd.array(values, ctx), values.copy()
    np.testing.assert_array_equal(a[m].asnumpy(), want[b])
    a[m] = -1
    want[b] = -1
    np.testing.assert_array_equal(a.asnumpy(), want)
    row = len(b) - 1
    a[row][m[row]] = -7
    want[row][b[row]] = -7
    np.testing.assert_array_equal(a.asnumpy(), want)


@pytest.mark.parametrize("name", STEPS)
def test_an_operation_on_a_mask_gives_a_mask(name, ctx):
    ours, numpys = STEPS[name]
    for _ in range(2):  # the second time by way of what was remembered
        agrees(ours(nd.array(X, ctx) > 0), numpys(X > 0), ctx)


def test_masks_stay_masks_in_any_sequence_of_operations(ctx):
    for seed in range(60):
        draw, log = random.Random(seed), []
        m, b = nd.array(X, ctx) > 0, X > 0
        for _ in range(draw.randint(2, 6)):
            name = draw.choice([s for s in STEPS if b.size < 200 or s not in ("concat", "tile")])
            log.append(name)
            if min(b.shape) < 2:
                break
            m, b = STEPS[name][0](m), STEPS[name][1](b)
        if b.size:
            agrees(m, b, ctx)


def test_the_functions_that_compare_give_masks():
    a, b = nd.array(X), nd.array(X[::-1].copy())
    for name, same in (("equal", "=="), ("greater", ">"), ("lesser_equal", "<=")):
        want = eval(f"X {same} X[::-1]")
        for f in (getattr(nd, name), getattr(nd, f"broadcast_{name}")):
            np.testing.assert_array_equal(a[f(a, b)].asnumpy(), X[want])
    np.testing.assert_array_equal(a[nd.contrib.isnan(a) < 1].asnumpy(), X.reshape(-1))


def test_an_index_that_is_not_a_mask_is_an_array_of_indices():
    a, m = nd.array(X), nd.array(X[:, 0]) > 0
    assert a[m.astype("int32")].shape == (4, 6) and a[m + m].shape == (4, 6)  # counts
    assert a[nd.array([1.0, 0, 1, 0])].shape == (4, 6)
    m += 1
    assert a[m].tolist() == [a[i].tolist() for i in m.asnumpy().astype(int)]
    out = nd.zeros((4,))
    nd.broadcast_greater(nd.array(X[:, 0]), nd.zeros((4,)), out=out)
    assert a[out].tolist() == X[X[:, 0] > 0].tolist()


def test_a_mask_is_an_ordinary_array_otherwise(ctx):
    x, m = nd.array(X, ctx), nd.array(X, ctx) > 0
    assert m.dtype == np.float32 and (x * m).sum().item() == X[X > 0].sum()
    m.attach_grad()
    mx.autograd.mark_variables([m], [nd.zeros(m.shape, ctx)])
    with mx.autograd.record():
        y = x * m
    y.backward(nd.ones(y.shape, ctx) > 0)
    np.testing.assert_array_equal(m.grad.asnumpy(), X)
    out = nd.zeros(m.shape, ctx)
    nd.elemwise_add(m, m, out=out)
    np.testing.assert_array_equal(out.asnumpy(), 2.0 * (X > 0))
