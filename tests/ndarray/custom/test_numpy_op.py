"""NumpyOp and NDArrayOp, in graphs and on arrays. Oracle: the cube's formula."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close


class Cube(mx.operator.NumpyOp):
    def forward(self, in_data, out_data):
        out_data[0][:] = in_data[0] ** 3

    def backward(self, out_grad, in_data, out_data, in_grad):
        in_grad[0][:] = 3 * in_data[0] ** 2 * out_grad[0]


class NDCube(mx.operator.NDArrayOp):
    def forward(self, in_data, out_data):
        out_data[0][:] = in_data[0] * in_data[0] * in_data[0]

    def backward(self, out_grad, in_data, out_data, in_grad):
        in_grad[0][:] = 3 * in_data[0] * in_data[0] * out_grad[0]

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [out_grad[0], in_data[0]]


class Softmax(mx.operator.NumpyOp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]]

    def forward(self, in_data, out_data):
        y = np.exp(in_data[0] - in_data[0].max(axis=1, keepdims=True))
        out_data[0][:] = y / y.sum(axis=1, keepdims=True)

    def backward(self, out_grad, in_data, out_data, in_grad):
        in_grad[0][:] = out_data[0]
        in_grad[0][np.arange(len(in_data[1])), in_data[1].astype(int)] -= 1


@pytest.mark.parametrize("kind", [Cube, NDCube])
@pytest.mark.parametrize("req", ["write", "add"])
def test_in_a_graph(kind, req, rng):
    x = rng.normal(size=(3, 4)).astype("float32")
    net = kind()(mx.sym.Variable("x"), name="cube")
    grad = mx.nd.ones((3, 4))
    run = net.bind(mx.cpu(), {"x": mx.nd.array(x)}, {"x": grad}, req)
    np.testing.assert_allclose(run.forward(is_train=True)[0].asnumpy(), x**3, rtol=1e-6)  # closer than the table for small values
    run.backward(mx.nd.array(2 * np.ones_like(x)))
    np.testing.assert_allclose(grad.asnumpy(), 6 * x**2 + (req == "add"), rtol=1e-5)  # closer than the table for small values


def test_on_arrays(rng):
    x = mx.nd.array(rng.normal(size=5))
    x.attach_grad()
    with mx.autograd.record():
        y = Cube()(x)
    y.backward()
    assert_close(x.grad, 3 * x.asnumpy() ** 2, scale=0.1)  # 0.1: closer than the table: few roundings


def test_a_loss_trains_a_network_and_its_label_is_inferred(rng):
    net = Softmax()(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="softmax")
    assert net.list_arguments() == ["data", "fc_weight", "fc_bias", "softmax_label"]
    want = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="softmax")
    given = {"data": rng.normal(size=(4, 5)), "fc_weight": rng.normal(size=(3, 5)), "fc_bias": np.zeros(3),
             "softmax_label": [0, 2, 1, 2]}
    found = []
    for symbol in (net, want):
        run = symbol.simple_bind(mx.cpu(), data=(4, 5))
        for k, v in given.items():
            run.arg_dict[k][:] = mx.nd.array(v)
        run.forward(is_train=True)
        run.backward()
        found.append(run.grad_dict["fc_weight"].asnumpy())
    assert_close(found[0], found[1])
