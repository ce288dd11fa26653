"""Epilogues on a GPU: an elementwise step joins the product or convolution it reads, if no other step reads that.

Oracles: NumPy, and the same steps unfused."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
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
    return executor, out.asnumpy(), {n: g.asnumpy() for n, g in executor._grads.items()}


def names(executor):
    return [s.op.name for s in executor._main().program.steps[:executor._main().program.n_forward]]


def test_a_rectifier_joins():
    net = dense(mx.sym.Activation(dense(mx.sym.Variable("x"), 4, "a"), act_type="relu"), 2, "b")
    executor, out, grads = run(net)
    assert names(executor) == ["FullyConnected+epilogue", "FullyConnected"]
    x, w, b, v, c = (a.asnumpy() for a in executor.arg_dict.values())
    h = np.maximum(x @ w.T + b, 0)
    assert_close(out, h @ v.T + c)
    assert_close(grads["a_weight"], ((np.ones((5, 2)) @ v) * (h > 0)).T @ x)
    plain = run(net, fuse=False)
    assert np.array_equal(out, plain[1]) and all(np.array_equal(grads[n], plain[2][n]) for n in grads)


CHANNELS = mx.sym.Variable("c", shape=(1, 16, 1, 1))
EPILOGUES = {
    "tanh": lambda y: mx.sym.tanh(y), "sigmoid": lambda y: mx.sym.Activation(y, act_type="sigmoid"),
    "leaky": lambda y: mx.sym.LeakyReLU(y, slope=0.1), "two steps": lambda y: mx.sym.relu(y + 1),
    "read twice": lambda y: mx.sym.relu(y) + y, "per channel": lambda y: mx.sym.relu(mx.sym.broadcast_mul(y, CHANNELS)),
}  # fmt: skip
HEADS = {
    "plain": {"kernel": (3, 3), "pad": (1, 1)}, "strided": {"kernel": (3, 3), "stride": (2, 2), "no_bias": True},
    "1x1": {"kernel": (1, 1)}, "grouped": {"kernel": (3, 3), "num_group": 2}, "depthwise": {"kernel": (3, 3), "num_group": 16},
    "channels last": {"kernel": (3, 3), "layout": "NHWC"},
}  # fmt: skip


def both(net, shape, dtype="float32", train=False, **how):
    """(names of the forward steps, outputs) with and without fusion."""
    found = []
    for fuse in (True, False):
        with options(fuse=fuse, **how):
            executor = net.simple_bind(mx.gpu(0), "write" if train else "null", type_dict={"x": dtype}, x=shape)
        rng = np.random.default_rng(0)
        for array in (*executor.arg_dict.values(), *executor.aux_dict.values()):
            array[:] = rng.normal(size=array.shape)
        for n, array in executor.aux_dict.items():
            if "var" in n:
                array[:] = 1 + abs(array)
        outs = [o.asnumpy() for o in executor.forward(is_train=train)]
        if train:
            executor.backward(mx.nd.ones(executor.outputs[0].shape, mx.gpu(0), dtype))
            outs += [g.asnumpy() for g in executor._grads.values()]
        found.append(([s.op.name for s in executor._compile(train).program.steps], outs))
    (steps, fused), (_, apart) = found
    return steps, fused, apart


def convolution(epilogue, **head):
    return epilogue(mx.sym.Convolution(mx.sym.Variable("x"), num_filter=16, name="a", **head))


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_elementwise_steps_after_a_product_join_it(name, dtype):
    if name == "per channel":
        net = mx.sym.relu(mx.sym.broadcast_mul(dense(mx.sym.Variable("x"), 16, "a"), mx.sym.Variable("c", shape=(1, 16))))
    else:
        net = EPILOGUES[name](dense(mx.sym.Variable("x"), 16, "a"))
    for train in (False, True):
        steps, fused, apart = both(net, (5, 3), dtype, train)
        kept = train and name in ("leaky", "read twice", "per channel")  # whose derivative reads the product
        assert ("FullyConnected+epilogue" in steps) != kept, steps
        assert all(np.array_equal(a, b) for a, b in zip(fused, apart))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", ["tanh", "per channel"])
@pytest.mark.parametrize("layout", [True, False], ids=["turned once", "turned inside"])
def test_elementwise_steps_after_a_convolution_join_it(head, name, layout):
    if name == "per channel" and head == "channels last":
        epilogue = lambda y: mx.sym.relu(mx.sym.broadcast_mul(y, mx.sym.Variable("c", shape=(1, 1, 1, 16))))
    else:
        epilogue = EPILOGUES[name]
    shape = (2, 6, 5, 16) if head == "channels last" else (2, 16, 6, 5)
    steps, fused, apart = both(convolution(epilogue, **HEADS[head]), shape, layout=layout)
    if name == "tanh" or head == "channels last":
        assert "Convolution+epilogue" in steps, steps
    assert all(np.array_equal(a, b) for a, b in zip(fused, apart))


def test_three_dimensions_and_few_channels_join_too():
    for shape, kernel in (((2, 3, 4, 5, 4), (3, 3, 3)), ((2, 3, 9, 9), (3, 3))):
        steps, fused, apart = both(convolution(mx.sym.relu, kernel=kernel), shape, layout=False)
        assert "Convolution+epilogue" in steps and np.array_equal(fused[0], apart[0])


def test_a_convolution_in_training_joins_its_rectifier():
    steps, fused, apart = both(convolution(mx.sym.relu, kernel=(3, 3)), (2, 16, 6, 5), train=True)
    assert "Convolution+epilogue" in steps
    assert all(np.array_equal(a, b) for a, b in zip(fused, apart))


def test_at_inference_a_convolution_takes_in_its_batch_norm():
    net = convolution(lambda y: mx.sym.relu(mx.sym.BatchNorm(y, name="b", fix_gamma=False)), kernel=(3, 3), no_bias=True)
    steps, fused, apart = both(net, (2, 16, 6, 5))
    assert steps == ["transpose", "transpose", "Convolution+epilogue", "transpose"]
    assert np.array_equal(fused[0], apart[0])


@pytest.mark.parametrize("epilogue, why", [
    (lambda y: y + mx.sym.Variable("z", shape=(5, 4)), "at most 4 arrays of a number per channel"),
    (lambda y: mx.sym.broadcast_add(y, mx.sym.Variable("z", shape=(1, 1))), "at most 4 arrays of a number per channel"),
    (lambda y: mx.sym.Group([mx.sym.tanh(y), y]), "the result of a is read elsewhere too")],
    ids=["whole array", "one number", "an output"])
def test_others_stay_apart(epilogue, why):
    executor = epilogue(dense(mx.sym.Variable("x"), 4, "a")).simple_bind(mx.gpu(0), "null", x=(5, 3))
    executor.forward()
    assert executor._compile(False).program.steps[0].op.name == "FullyConnected"
    assert why in str(executor.explain())
