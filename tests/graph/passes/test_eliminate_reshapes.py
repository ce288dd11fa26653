"""Reshapes vanish from programs: nothing is copied, and results stay the same."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.graph import options

RNG = np.random.default_rng(7)


def steps(executor):
    return [s.op.name for s in executor._main().program.steps]


def net():
    x = mx.sym.Flatten(mx.sym.Variable("data"))
    y = mx.sym.FullyConnected(x, num_hidden=6, name="fc")
    y = mx.sym.Reshape(y, shape=(-1, 2, 3))
    y = mx.sym.expand_dims(mx.sym.sum(mx.sym.tanh(y), axis=2), axis=1)
    return mx.sym.Flatten(y) * 2


def run(symbol, ctx, reqs, **how):
    shapes = {"data": (4, 2, 5)}
    rng = np.random.default_rng(3)
    with options(**how):
        executor = symbol.simple_bind(ctx, grad_req=reqs, **shapes)
    for array in executor.arg_dict.values():
        array[:] = rng.normal(size=array.shape).astype("float32")
    out = executor.forward(is_train=True)[0].asnumpy()
    executor.backward(mx.nd.ones_like(executor.outputs[0]))
    return executor, out, {n: g.asnumpy() for n, g in executor._grads.items()}


@pytest.mark.parametrize("ctx", [mx.cpu(), mx.gpu()], ids=str)
def test_flatten_of_an_argument_is_no_step(ctx):
    if ctx.is_gpu and not mx.num_gpus():
        pytest.skip("no GPU, not even an interpreted one")
    reqs = {"fc_weight": "write", "fc_bias": "write"}
    executor, out, grads = run(net(), ctx, reqs)
    assert not [n for n in steps(executor) if "latten" in n or "eshape" in n or "expand" in n]
    data = executor.arg_dict["data"].asnumpy().reshape(4, 10)
    y = np.tanh(data @ executor.arg_dict["fc_weight"].asnumpy().T + executor.arg_dict["fc_bias"].asnumpy())
    assert_close(out, y.reshape(4, 2, 3).sum(axis=2) * 2)
    d = 2 * (1 - y * y)
    assert_close(grads["fc_weight"], d.T @ data)


@pytest.mark.parametrize("fuse", [True, False])
def test_the_gradient_of_a_reshape_is_written_to_the_requested_array(fuse):
    executor, _, grads = run(net(), mx.cpu(), {"data": "write", "fc_weight": "add", "fc_bias": "write"}, fuse=fuse)
    y = np.tanh(executor.arg_dict["data"].asnumpy().reshape(4, 10) @ executor.arg_dict["fc_weight"].asnumpy().T
                + executor.arg_dict["fc_bias"].asnumpy())
    assert grads["data"].shape == (4, 2, 5)
    assert_close(grads["data"].reshape(4, 10), 2 * (1 - y * y) @ executor.arg_dict["fc_weight"].asnumpy())


def test_a_reshape_of_an_argument_shows_its_new_values():
    x = mx.sym.Reshape(mx.sym.Variable("x"), shape=(3, 2))
    executor = mx.sym.dot(x, mx.sym.Variable("w")).bind(mx.cpu(), {"x": mx.nd.arange(6), "w": mx.nd.ones((2, 1))})
    assert executor.forward()[0].asnumpy().ravel().tolist() == [1, 5, 9]
    executor.arg_dict["x"][:] = 1
    assert executor.forward()[0].asnumpy().ravel().tolist() == [2, 2, 2]


def test_a_reshape_of_a_state_is_not_eliminated():
    """BatchNorm changes its state in the middle of the pass; an earlier reshape keeps the old values."""
    mean = mx.sym.Variable("bn_moving_mean")
    y = mx.sym.BatchNorm(mx.sym.Variable("x"), moving_mean=mean, name="bn", momentum=0.5)
    executor = mx.sym.Group([y, mx.sym.Reshape(mean, shape=(1, 2)) + 0]).simple_bind(mx.cpu(), "null", x=(4, 2))
    executor.arg_dict["x"][:] = 8
    old = executor.forward(is_train=True)[1].asnumpy()
    assert executor.aux_dict["bn_moving_mean"].asnumpy().tolist() == [4, 4]
    assert old.shape == (1, 2)


def test_a_reshape_written_by_two_steps_is_not_eliminated():
    """x.reshape + x.reshape: the derivative by each view adds to one buffer."""
    x = mx.sym.Variable("x")
    a, b = mx.sym.Reshape(x, shape=(2, 3)), mx.sym.Reshape(x, shape=(3, 2))
    y = mx.sym.dot(a, b)
    executor = y.simple_bind(mx.cpu(), "write", x=(6,))
    value = RNG.normal(size=6).astype("float32")
    executor.forward(is_train=True, x=mx.nd.array(value))
    executor.backward(mx.nd.ones_like(executor.outputs[0]))
    ones = np.ones((2, 2))
    want = (ones @ value.reshape(3, 2).T).ravel() + (value.reshape(2, 3).T @ ones).ravel()
    assert_close(executor.grad_dict["x"], want)


def test_sizes_that_do_not_fit_are_still_an_error():
    y = mx.sym.Reshape(mx.sym.Variable("x"), shape=(4, 2)) + 1
    with pytest.raises(mx.MXNetError, match="6 elements"):
        y.simple_bind(mx.cpu(), "null", x=(6,)).forward()[0].asnumpy()
