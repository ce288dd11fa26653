"""mx.sym.contrib: functions that are several nodes, or that a graph cannot compute. Oracles: NumPy, and mx.nd.contrib."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import GraphError

X = np.random.RandomState(2).randn(4, 3, 2).astype("float32")


def normed(x):
    axes = (0, 2)
    return np.maximum((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-3), 0)


def test_batch_norm_with_relu_of_a_symbol_has_mxnets_names():
    data = mx.sym.var("data")
    net = mx.sym.contrib.BatchNormWithReLU(data, name="bn")
    assert net.list_arguments() == ["data", "bn_gamma", "bn_beta"]
    assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"] and net.list_outputs() == ["bn_output"]
    assert mx.sym.contrib.BatchNormWithReLU(data).list_outputs() == ["batchnormwithrelu0_output"]
    with mx.name.Prefix("p_"):
        assert mx.sym.contrib.BatchNormWithReLU(data, name="bn").list_arguments() == ["data", "p_bn_gamma", "p_bn_beta"]
    gamma = mx.sym.var("g")
    assert mx.sym.contrib.BatchNormWithReLU(data, gamma=gamma, name="bn").list_arguments() == ["data", "g", "bn_beta"]


def test_batch_norm_with_relu_computes_both():
    states = [mx.nd.ones(3), mx.nd.zeros(3), mx.nd.zeros(3), mx.nd.ones(3)]
    with mx.autograd.train_mode():
        y, mean, _ = mx.nd.contrib.BatchNormWithReLU(mx.nd.array(X), *states, output_mean_var=True)
        alone = mx.nd.contrib.BatchNormWithReLU(mx.nd.array(X), *states)
    assert_close(y, normed(X))
    assert_close(alone, normed(X))
    assert_close(mean, X.mean((0, 2)))
    net = mx.sym.contrib.BatchNormWithReLU(mx.sym.var("data"), output_mean_var=True)
    executor = net.simple_bind(mx.cpu(), data=X.shape)
    y, mean, _ = executor.forward(is_train=True, data=mx.nd.array(X))
    assert_close(y, normed(X))
    assert_close(mean, X.mean((0, 2)))


@pytest.mark.parametrize("scale", [mx.sym.var("scale"), 0.5], ids=["symbol", "number"])
def test_adamw_update_is_that_of_arrays(scale):
    weight, grad, mean, var = (mx.nd.array(v) for v in ([1, 2], [3, -4], [0.5, 0.25], [1, 2]))
    net = mx.sym.contrib.adamw_update(*map(mx.sym.var, ("weight", "grad", "mean", "var")), scale, lr=0.1, eta=0.7, wd=0.01)
    given = {"weight": weight, "grad": grad, "mean": mean.copy(), "var": var.copy(), "scale": mx.nd.array([0.5])}
    states = {n: given[n] for n in net.list_auxiliary_states()}
    executor = net.bind(mx.cpu(), {n: given[n] for n in net.list_arguments()}, aux_states=states)
    found = executor.forward()[0].asnumpy()
    wanted = mx.nd.contrib.adamw_update(weight, grad, mean, var, 0.5, lr=0.1, eta=0.7, wd=0.01)
    np.testing.assert_array_equal(found, wanted.asnumpy())
    np.testing.assert_array_equal(states["mean"].asnumpy(), mean.asnumpy())


@pytest.mark.parametrize("axis, wanted", [(None, [3]), (0, [1, 0, 2]), (1, [2, 1])])
def test_getnnz_counts_what_is_not_zero(axis, wanted):
    net = mx.sym.contrib.getnnz(mx.sym.var("data"), axis=axis)
    count, = net.eval(data=mx.nd.array([[1, 0, 2], [0, 0, 3]]))
    assert count.dtype == np.int64 and count.asnumpy().tolist() == wanted


def test_edge_id_says_why_a_graph_has_none():
    with pytest.raises(GraphError, match=r"an edge numbered 0 is the same as no edge\. Use mx\.nd\.contrib"):
        mx.sym.contrib.edge_id(mx.sym.var("data"), mx.sym.var("u"), mx.sym.var("v"))


@pytest.mark.parametrize("old, new", [("_Plus", "elemwise_add"), ("_Div", "elemwise_div"), ("_Not_Equal", "_not_equal"),
                                      ("_LesserEqualScalar", "_lesser_equal_scalar"), ("_Logical_Xor", "_logical_xor"),
                                      ("_HypotScalar", "_hypot_scalar")])
def test_operators_have_the_names_of_old_symbols(old, new):
    assert getattr(mx.nd._internal, old).__doc__ == getattr(mx.nd._internal, new).__doc__
