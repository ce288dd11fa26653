"""SequentialModule and PythonModule. Oracle: the same network as one Module."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import MXNetError, ParameterError


def lower():
    return mx.sym.Activation(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="fc1"), act_type="tanh")


def upper(x=None):
    return mx.sym.FullyConnected(mx.sym.Variable("data") if x is None else x, num_hidden=3, name="fc2")


@pytest.fixture
def data(rng):
    x, y = rng.normal(size=(64, 4)).astype("f"), rng.integers(0, 3, 64).astype("f")
    return mx.io.NDArrayIter(x, y, 16)


def weights(module, data, steps=2):
    mx.random.seed(1)
    module.bind(data.provide_data, data.provide_label)
    start = np.random.default_rng(5)
    shapes = {"fc1_weight": (6, 4), "fc1_bias": (6,), "fc2_weight": (3, 6), "fc2_bias": (3,)}
    module.init_params(arg_params={k: mx.nd.array(start.normal(size=s)) for k, s in shapes.items()}, aux_params={})
    module.init_optimizer(optimizer_params={"learning_rate": 0.3, "rescale_grad": 1 / 16})
    for _ in range(steps):
        data.reset()
        for batch in data:
            module.forward_backward(batch)
            module.update()
    return {k: v.asnumpy() for k, v in module.get_params()[0].items()}


def test_a_chain_trains_as_one_network(data):
    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(lower(), label_names=None))
    chain.add(mx.mod.Module(mx.sym.SoftmaxOutput(upper(), name="softmax")), take_labels=True, auto_wiring=True)
    got = weights(chain, data)
    want = weights(mx.mod.Module(mx.sym.SoftmaxOutput(upper(lower()), name="softmax")), data)
    assert got.keys() == want.keys()
    for k in want:
        assert_close(got[k], want[k])
    assert chain.output_names == ["softmax_output"] and chain.output_shapes == [("softmax_output", (16, 3))]
    assert 0 <= chain.score(data, "acc")[0][1] <= 1 and chain.predict(data).shape == (64, 3)


def test_a_chain_may_end_in_a_loss_in_python(data):
    """The loss computes the derivative of softmax in NumPy."""

    def slope(scores, labels):
        e = np.exp(scores.asnumpy() - scores.asnumpy().max(1, keepdims=True))
        return e / e.sum(1, keepdims=True) - np.eye(3)[labels.asnumpy().astype(int)]

    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(upper(lower()), label_names=None))
    chain.add(mx.mod.PythonLossModule(grad_func=slope), take_labels=True, auto_wiring=True)
    got = weights(chain, data)
    want = weights(mx.mod.Module(mx.sym.SoftmaxOutput(upper(lower()), name="softmax")), data)
    for k in want:
        assert_close(got[k], want[k], scale=10)  # 10: rounded in another order


def same_name_twice(data):
    chain = mx.mod.SequentialModule().add(mx.mod.Module(upper(), label_names=None)).add(
        mx.mod.Module(upper(), label_names=None), auto_wiring=True)
    chain.bind(data.provide_data)
    chain.init_params()


def two_inputs_for_one_output(data):
    pair = mx.mod.Module(mx.sym.Variable("a") + mx.sym.Variable("b"), data_names=("a", "b"), label_names=None)
    mx.mod.SequentialModule().add(mx.mod.Module(upper(), label_names=None)).add(pair, auto_wiring=True).bind(data.provide_data)


@pytest.mark.parametrize("call, error, text", [
    (lambda data: mx.mod.SequentialModule().bind(data.provide_data), MXNetError, "SequentialModule.bind: the chain is empty"),
    (lambda data: mx.mod.SequentialModule().add(None, labels=True), ParameterError, "unknown setting 'labels'"),
    (same_name_twice, MXNetError, "modules 0 and 1 both have a parameter 'fc2_weight'"),
    (two_inputs_for_one_output, ParameterError, r"module 1 has the inputs \['a', 'b'\], but the previous module has 1 outputs"),
    (lambda data: mx.mod.PythonLossModule(grad_func=3), ParameterError, "grad_func is not a function"),
    (lambda data: mx.mod.PythonLossModule().bind([("x", (2, 3))]), ParameterError, r"the data shapes are of \['x'\]"),
])
def test_errors(call, error, text, data):
    with pytest.raises(error, match=text):
        call(data)
