"""SVRGModule. Oracle: the formula in NumPy, for a linear regression."""

import numpy as np
import pytest
import tritium as mx
from tritium.contrib.svrg_optimization.svrg_module import SVRGModule
from tritium.errors import ParameterError


def network():
    dense = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="dense", no_bias=True)
    return mx.sym.LinearRegressionOutput(dense, mx.sym.Variable("label"), name="out")


def data(rng, rows=6):
    x = rng.normal(size=(rows, 3)).astype("f")
    return x, x @ np.array([1, -2, 0.5], "f")


def by_hand(x, y, w, rate, epochs, update_freq, batch):
    """Train as the paper says: the gradient of a batch is the sum over its rows; the step divides by the batch size."""
    def grad(w, rows):
        return (x[rows] @ w - y[rows]) @ x[rows]

    batches = [slice(i, i + batch) for i in range(0, len(x), batch)]
    for epoch in range(epochs):
        if epoch % update_freq == 0:
            old, mean = w.copy(), sum(grad(w, rows) for rows in batches) / len(batches)
        for rows in batches:
            w = w - rate / batch * (grad(w, rows) - grad(old, rows) + mean)
    return w


@pytest.mark.parametrize("update_freq", [1, 2])
def test_weights_are_those_of_the_formula(rng, update_freq):
    x, y = data(rng)
    module = SVRGModule(network(), label_names=("label",), update_freq=update_freq)
    batches = mx.io.NDArrayIter(x, y, batch_size=2, label_name="label")
    module.fit(batches, eval_metric="mse", optimizer="sgd", optimizer_params={"learning_rate": 0.1}, num_epoch=3,
               initializer=mx.init.Constant(0.3))
    expected = by_hand(x, y, np.full(3, 0.3), 0.1, 3, update_freq, 2)
    np.testing.assert_allclose(module.get_params()[0]["dense_weight"].asnumpy()[0], expected, rtol=1e-4)


def test_before_a_full_pass_it_is_a_module(rng):
    x, y = data(rng)
    ends = []
    for made in (SVRGModule(network(), label_names=("label",), update_freq=1), mx.mod.Module(network(), label_names=("label",))):
        batches = mx.io.NDArrayIter(x, y, batch_size=2, label_name="label")
        made.bind(batches.provide_data, batches.provide_label)
        made.init_params(mx.init.One())
        made.init_optimizer()
        for batch in batches:
            made.forward_backward(batch)
            made.update()
        ends.append(made.get_params()[0]["dense_weight"].asnumpy())
    assert np.array_equal(*ends)


@pytest.mark.parametrize("freq", [None, 0, 1.5])
def test_update_freq_is_checked(freq):
    with pytest.raises(ParameterError, match=f"update_freq={freq!r} is not a positive integer"):
        SVRGModule(network(), update_freq=freq)
