"""Every use of an array while recording passes its derivative on, as in MXNet, or is refused: no derivative is lost silently."""

import numpy as np
import pytest
import tritium as mx
from tritium import autograd, nd
from tritium.errors import MXNetError


def leaf(ctx=None, n=4):
    x = nd.array(np.arange(1.0, n + 1), ctx)
    x.attach_grad()
    return x


def into(y, b):
    y.copyto(b)
    return b


KEEP = {
    "array": lambda y: nd.array(y, y.ctx),
    "array of another dtype": lambda y: nd.array(y, y.ctx, "float64").astype("float32"),
    "copyto": lambda y: into(y, nd.zeros((4,), y.ctx)),
    "copyto of another dtype": lambda y: into(y, nd.zeros((4,), y.ctx, dtype="float64")).astype("float32"),
    "copyto of another shape": lambda y: into(y, nd.zeros((2, 2), y.ctx)).reshape((4,)),
    "copyto a context": lambda y: into(y, nd.zeros((4,), mx.cpu(1))).as_in_context(y.ctx),
    "copyto what is reshaped": lambda y: into(y, nd.zeros((2, 2), y.ctx).reshape((4,))),
    "full": lambda y: nd.full((4,), y, y.ctx),
    "list of arrays": lambda y: nd.array([y[0], y[1], y[2], y[3]], y.ctx).reshape((4,)),
    "nested lists": lambda y: nd.array([[y[0], y[1]], [y[2], y[3]]], y.ctx).reshape((4,)),
    "a row of a buffer": lambda y: into(y, nd.zeros((3, 4), y.ctx)[1]),
}


@pytest.mark.parametrize("name", KEEP)
def test_copies_pass_derivatives_on(name, ctx):
    x = leaf(ctx)
    with autograd.record():
        z = KEEP[name](x * 2) * nd.array([1, 2, 3, 4], ctx)
    z.backward()
    assert x.grad.tolist() == [2, 4, 6, 8] and x.grad.ctx == ctx


def test_second_derivatives_through_copies():
    x = leaf()
    with autograd.record():
        y = nd.array(x * x * x)
        g = autograd.grad(y, x, create_graph=True)[0]
        h = into(g * 1, nd.zeros((4,)))
    h.backward()
    assert x.grad.tolist() == [6, 12, 18, 24]


def by_view(b, y):
    b[:2] = y[:2]


def by_old_view(b, y):
    b.old[:] = y[:2]


def adding(b, y):
    v = b[1:3]
    v += y[:2]


def by_copy(b, y):
    y[:2].copyto(b[2:])


def by_out(b, y):
    nd.exp(y, out=b.reshape((2, 2)).reshape((4,)))


@pytest.mark.parametrize("write", [by_view, adding, by_copy, by_out])
def test_writes_through_a_view_are_refused(write, ctx):
    x, b = leaf(ctx), nd.zeros((4,), ctx)
    with autograd.record(), pytest.raises(MXNetError, match=r"derivative|part of a recorded computation"):
        write(b, x * 2)
        b * 3


def test_a_view_older_than_a_recorded_write_is_refused(ctx):
    x, b = leaf(ctx), nd.zeros((4,), ctx)
    v, w = b[:2], b[2:]
    with autograd.record():
        v[:] = x[:2] * 5
        z = v * 2 + w  # v knows, w was not written
        for lost in (lambda: b * 3, lambda: b[::2], lambda: b.copy(), lambda: nd.array(b), lambda: b.reshape((2, 2)) + 1,
                     lambda: b[1:] * 2, lambda: b[nd.array([0])], lambda: np.cumprod(b)):
            with pytest.raises(MXNetError, match=r"the memory of float32\[.*\]@.* was written while recording, by _copy through "
                                                 r"another array that shares it, so a derivative would be lost here"):
                lost()
        assert (b.detach() * 2).tolist() == [10, 20, 0, 0]
        with autograd.pause():
            assert (b * 2).tolist() == [10, 20, 0, 0]
            seen = b[:3]
        assert (seen * 2).tolist() == [10, 20, 0]
    z.backward()
    assert x.grad.tolist() == [10, 10, 0, 0]
    with autograd.record():  # what was walked is constant
        (b * x).backward()
    assert x.grad.tolist() == [5, 10, 0, 0]


def test_a_variable_whose_memory_was_written_through_a_view_is_refused(ctx):
    x, y = leaf(ctx), leaf(ctx)
    v = x[:2]
    with autograd.record():
        v[:] = y[:2]
        with pytest.raises(MXNetError, match="a derivative would be lost here"):
            x * 2
        with pytest.raises(MXNetError, match="a derivative would be lost here"):
            x[1:] * 2


def test_a_write_of_an_array_on_the_same_memory_is_refused_too(ctx):
    x, b = leaf(ctx), nd.zeros((4,), ctx)
    v, w = b.reshape((2, 2)), b.reshape((4, 1))
    with autograd.record():
        b[:] = x
        for write in (lambda: w.__setitem__(slice(None), v.reshape((4, 1))), lambda: v.copyto(w)):
            with pytest.raises(MXNetError, match="a derivative would be lost here"):
                write()


def test_a_later_write_of_the_whole_array_makes_it_usable_again(ctx):
    x, b = leaf(ctx), nd.zeros((4,), ctx)
    v = b[:2]
    with autograd.record():
        v[:] = x[:2]
        b[:] = 7
        z = b * x
        with pytest.raises(MXNetError, match="a derivative would be lost here"):
            v * 2  # it still says that it came from x
    z.backward()
    assert x.grad.tolist() == [7, 7, 7, 7]


def test_a_later_write_of_a_part_does_not_make_it_usable_again(ctx):
    x, b = leaf(ctx), nd.zeros((4,), ctx)
    v = b[:3]
    with autograd.record():
        v[:] = x[:3]
        b[1] = 7
        for lost in (b, v):
            with pytest.raises(MXNetError, match="a derivative would be lost here"):
                lost * 2


def test_a_buffer_may_be_used_in_every_iteration(ctx):
    x, b = leaf(ctx), nd.zeros((4,), ctx)
    for _ in range(3):
        with autograd.record():
            b[:] = x * 2
            z = b * 3
        z.backward()
        assert x.grad.tolist() == [6, 6, 6, 6]
    with autograd.record():
        b[:] = 7
        z = b * x
    z.backward()
    assert x.grad.tolist() == [7, 7, 7, 7]
    with autograd.record():
        nd.ones((4,), ctx).copyto(b)
        z = b * x
    z.backward()
    assert x.grad.tolist() == [1, 1, 1, 1]


NUMPY = {
    "cumprod": np.cumprod, "outer": lambda y: np.outer(y, y), "arctan2": lambda y: np.arctan2(y, 2.0), "std": np.std,
    "norm": np.linalg.norm, "mean of a dtype": lambda y: np.mean(y, dtype="float64"), "split": lambda y: np.split(y, 2),
    "mixed": lambda y: np.concatenate([y, np.zeros(2, "float32")]), "in a list": lambda y: np.vstack([y, y]),
    "by keyword": lambda y: np.cumprod(a=y), "reduce": np.add.reduce, "modf": np.modf,
    "out": lambda y: np.cumprod(y, out=nd.zeros((4,))), "host out": lambda y: np.exp(y, out=np.zeros(4), where=True),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_functions_that_would_lose_a_derivative_are_refused(name):
    x = leaf()
    with autograd.record():
        y = x * 2
        with pytest.raises(MXNetError, match=r"np\.\w+: float32\[4\]@cpu\(0\) is part of a recorded computation, and this call, "
                                             r"which NumPy computes, would lose its derivative.* or give it a\.detach\(\)"):
            NUMPY[name](y)
        NUMPY[name](y.detach())
        with autograd.pause():
            NUMPY[name](y)
    NUMPY[name](y)


def test_numpy_functions_without_a_derivative_still_work_while_recording():
    x = leaf()
    with autograd.record():
        y = x * 2
        assert np.isnan(y).sum() == 0 and np.allclose(y, 2 * x) and np.argsort(y).tolist() == [0, 1, 2, 3]
        assert np.count_nonzero(y) == 4 and np.full_like(y, 3).tolist() == [3] * 4 and np.array2string(y)
        assert np.exp(y)._grad_edge is not None
