"""The tape keeps only the arrays that gradient declarations name, and notices when one of them was overwritten."""

import gc

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium import autograd, nd
from tritium.engine.memory import storage
from tritium.errors import MXNetError

N = 1 << 18  # elements: far beyond what is allocated past the pool
BYTES = 4 * N


def arrays_alive(fn, ctx):
    """Count the arrays of N float32 that the tape of y = fn(x) holds besides x, its gradient and y itself."""
    x = nd.ones((N,), ctx) * 0.5
    x.attach_grad()
    nd.waitall()
    gc.collect()
    before = storage.stats(ctx).in_use
    with autograd.record():
        y = fn(x)
    nd.waitall()
    gc.collect()
    kept = storage.stats(ctx).in_use - before
    y.backward()
    assert np.isfinite(x.grad.asnumpy()).all()
    return round(kept / BYTES, 2) - 1  # y


def chain(fn, n=4):
    def run(x):
        for _ in range(n):
            x = fn(x)
        return x

    return run


@pytest.mark.parametrize("fn, kept", [
    (chain(lambda x: x + 1), 0),            # keeps nothing
    (chain(lambda x: x * 2), 0),            # the factor is a parameter
    (chain(lambda x: -x), 0),
    (chain(nd.tanh), 3),                    # keeps y; the last y is the result
    (chain(nd.sigmoid), 3),
    (chain(nd.exp, 2), 1),
    (chain(nd.relu), 3),
    (chain(lambda x: x * x), 3),            # keeps x; the first x is the variable
    (lambda x: nd.tanh(x) + 1, 1),
    (lambda x: (x + x).reshape((2, -1)), 0),  # a view
    (lambda x: nd.sin(x + 1) + 1, 1),       # keeps x, and not y
], ids=["add", "scale", "negative", "tanh", "sigmoid", "exp", "relu", "square", "tanh+1", "reshape", "sin"])
def test_the_tape_keeps_only_the_arrays_that_gradients_need(fn, kept, ctx):
    assert arrays_alive(fn, ctx) == kept


def test_backward_releases_the_kept_arrays(ctx):
    x = nd.ones((N,), ctx)
    x.attach_grad()
    nd.waitall()
    gc.collect()
    before = storage.stats(ctx).in_use
    with autograd.record():
        y = chain(nd.tanh, 6)(x)
    y.backward()
    nd.waitall()
    gc.collect()
    assert storage.stats(ctx).in_use - before <= BYTES  # y


# ---- written in place -----------------------------------------------------------------------------------------------
def recorded(ctx):
    x, w = nd.array([1.0, 2.0], ctx), nd.array([3.0, 4.0], ctx)
    x.attach_grad()
    with autograd.record():
        y = nd.exp(x) * w
    return x, w, y


@pytest.mark.parametrize("write", [
    lambda w: w.__setitem__(slice(None), 0), lambda w: w.__setitem__(0, 5), lambda w: w.__iadd__(1),
    lambda w: nd.ones((2,), w.ctx).copyto(w), lambda w: nd.broadcast_add(w, w, out=w), lambda w: w.__setitem__([1], 7),
    lambda w: w.reshape((2, 1)).__setitem__(1, 0), lambda w: nd.sgd_update(w, w.copy(), out=w, lr=0.1),
], ids=["fill", "element", "+=", "copyto", "out", "fancy", "view", "optimizer"])
def test_an_input_that_was_written_is_noticed(ctx, write):
    _, w, y = recorded(ctx)
    write(w)
    with pytest.raises(MXNetError, match=r"backward: elemwise_mul needs float32\[2\].* as it was, but its memory was written"):
        y.backward()


def test_an_output_that_was_written_is_noticed():
    x, w, _ = recorded(mx.cpu())
    with autograd.record():
        e = nd.exp(x)
        y = e * w
    e[:] = 0
    with pytest.raises(MXNetError, match="needs float32"):
        y.backward()


def test_writing_an_array_that_no_gradient_needs_is_allowed(ctx):
    x, w = nd.array([1.0, 2.0], ctx), nd.array([3.0, 4.0], ctx)
    x.attach_grad()
    with autograd.record():
        y = x + w
        z = nd.tanh(y)
    x[:] = 9
    w[:] = 9
    y[:] = 9
    z.backward()
    assert np.allclose(x.grad.asnumpy(), 1 - np.tanh([4, 6]) ** 2, rtol=1e-3)  # 1 - y² cancels


def test_writing_after_backward_is_allowed(ctx):
    x, w, y = recorded(ctx)
    y.backward()
    w[:] = 0
    x[:] = 0
    assert_close(x.grad, np.exp([1, 2]) * [3, 4], scale=0.1)  # 0.1: closer than the table: few roundings


def test_a_retained_graph_notices_an_update_between_two_backwards():
    _, w, y = recorded(mx.cpu())
    y.backward(retain_graph=True)
    w += 1
    with pytest.raises(MXNetError, match="written in place"):
        y.backward()


def test_saved_tensors_of_a_function():
    class Square(autograd.Function):
        def forward(self, x):
            self.save_for_backward(x)
            return x * x

        def backward(self, dy):
            (x,) = self.saved_tensors
            return 2 * x * dy

    x = nd.array([3.0])
    x.attach_grad()
    with autograd.record():
        y = Square()(x)
    x += 1
    with pytest.raises(MXNetError, match="backward: Square needs float32"):
        y.backward()


def test_auxiliary_states_that_forward_changes_are_not_counted_as_overwritten():
    x, g, b = nd.array(np.arange(12.0).reshape(4, 3)), nd.ones((3,)), nd.zeros((3,))
    mean, var = nd.zeros((3,)), nd.ones((3,))
    g.attach_grad()
    with autograd.record():
        y = nd.BatchNorm(x, g, b, mean, var, fix_gamma=False)
        nd.BatchNorm(x * 2, g, b, mean, var, fix_gamma=False)
    y.backward(nd.array(np.eye(4, 3)))
    assert np.isfinite(g.grad.asnumpy()).all() and mean.asnumpy().any()


@pytest.mark.parametrize("kept", [{"scale": 3}, 3, None, "text", (3, None)])
def test_a_function_may_keep_anything_for_backward(kept):
    seen = []

    class Keep(autograd.Function):
        def forward(self, x):
            self.saved_tensors = kept
            return x * 1

        def backward(self, dy):
            seen.append(self.saved_tensors)
            return dy

    x = nd.array([3.0])
    x.attach_grad()
    with autograd.record():
        y = Keep()(x)
    y.backward()
    assert seen == [kept] and x.grad.asscalar() == 1
