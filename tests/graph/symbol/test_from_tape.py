"""autograd.get_symbol. Oracle: the symbol, bound to the same arrays, gives the recorded values."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import GraphError, MXNetError


def test_the_symbol_of_a_tape_computes_the_recorded_values():
    x, w = mx.nd.array([[1.0, -2.0], [3.0, 4.0]]), mx.nd.array([[0.5, 1.0], [2.0, -1.0], [1.0, 1.0]])
    for a in (x, w):
        a.attach_grad()
    with mx.autograd.record():
        h = mx.nd.FullyConnected(x, w, no_bias=True, num_hidden=3)
        y = mx.nd.softmax(h * 2.0, axis=0) + h
    net = mx.autograd.get_symbol(y)
    assert net.list_arguments() == ["var0", "var1"]
    assert mx.sym.fromjson(net.tojson()).tojson() == net.tojson()
    np.testing.assert_array_equal(net.eval(var0=x, var1=w)[0].asnumpy(), y.asnumpy())


def test_one_output_of_several_and_arrays_without_gradients():
    x = mx.nd.array([[1.0, 2.0, 3.0, 4.0]])
    x.attach_grad()
    with mx.autograd.record():
        second = mx.nd.split(x, num_outputs=2, axis=1)[1] * mx.nd.array([[10.0, 100.0]])
    net = mx.autograd.get_symbol(second)
    assert net.list_arguments() == ["var0", "var1"]
    assert net.eval(var0=x, var1=mx.nd.array([[10.0, 100.0]]))[0].asnumpy().tolist() == [[30, 400]]


def test_states_stay_states():
    x = mx.nd.ones((2, 3, 4))
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.BatchNorm(x, *(mx.nd.ones((3,)) for _ in range(4)))
    assert len(mx.autograd.get_symbol(y).list_auxiliary_states()) == 2


def not_recorded(x):
    return x


def indexed(x):
    with mx.autograd.record():
        return x[0] * 2


def freed(x):
    with mx.autograd.record():
        y = x * 2
    y.backward()
    return y


@pytest.mark.parametrize(("make", "error", "text"), [
    (not_recorded, GraphError, r"get_symbol: float32\[2,3\]@cpu\(0\) was not computed from variables while recording"),
    (indexed, GraphError, "is computed by a Python function, not by an operator"),
    (freed, MXNetError, "were freed by an earlier backward")])
def test_arrays_without_a_tape_of_operators_are_refused(make, error, text):
    x = mx.nd.ones((2, 3))
    if make is not not_recorded:
        x.attach_grad()
    y = make(x)
    with pytest.raises(error, match=text):
        mx.autograd.get_symbol(y)
