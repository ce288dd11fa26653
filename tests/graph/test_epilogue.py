"""Epilogues on a GPU: a rectifier joins the product it reads, where nobody else reads it. Oracle: NumPy."""

import numpy as np
import pytest
import tritium as mx
from tritium.graph import options

pytestmark = pytest.mark.skipif(not mx.num_gpus(), reason="no GPU, not even an interpreted one")


def dense(x, n, name):
    return mx.sym.FullyConnected(x, num_hidden=n, name=name)


def run(symbol, **how):
    with options(**how):
        executor = symbol.simple_bind(mx.gpu(0), "write", x=(5, 3))
    rng = np.random.default_rng(0)
    for array in executor.arg_dict.values():
        array[:] = rng.normal(size=array.shape).astype("float32")
    out = executor.forward(is_train=True)[0]
    executor.backward(mx.nd.ones(out.shape, mx.gpu(0)))
    return executor, out.asnumpy(), {n: g.asnumpy() for n, g in executor.grad_dict.items()}


def names(executor):
    return [s.op.name for s in executor._main().program.steps[:executor._main().program.n_forward]]


def test_a_rectifier_joins():
    net = dense(mx.sym.Activation(dense(mx.sym.Variable("x"), 4, "a"), act_type="relu"), 2, "b")
    executor, out, grads = run(net)
    assert names(executor) == ["FullyConnected+tail", "FullyConnected"]
    x, w, b, v, c = (a.asnumpy() for a in executor.arg_dict.values())
    h = np.maximum(x @ w.T + b, 0)
    assert np.allclose(out, h @ v.T + c, atol=1e-5)
    assert np.allclose(grads["a_weight"], ((np.ones((5, 2)) @ v) * (h > 0)).T @ x, atol=1e-5)
    plain = run(net, fuse=False)
    assert np.array_equal(out, plain[1]) and all(np.array_equal(grads[n], plain[2][n]) for n in grads)


@pytest.mark.parametrize("tail", [mx.sym.tanh, lambda y: mx.sym.relu(y) + y, lambda y: mx.sym.relu(y + 1)],
                         ids=["tanh", "read twice", "two steps"])
def test_other_tails_stay_apart(tail):
    executor, _, _ = run(tail(dense(mx.sym.Variable("x"), 4, "a")))
    assert names(executor)[0] == "FullyConnected"
    assert "on the GPU FullyConnected takes no tail but a rectifier" in str(executor.explain())
