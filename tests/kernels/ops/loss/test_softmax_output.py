"""softmax and its relatives, SoftmaxOutput: against MXNet, the cross-entropy's slope, requests, errors."""

import numpy as np
import pytest
import tritium as mx
from support.layer_helpers import TARGETS, backward, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import DTypeError, ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases(
    "softmax", "log_softmax", "softmin", "SoftmaxActivation", "SoftmaxOutput")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_gradient_and_requests(name, target, rng):
    x = rng.standard_normal((2, 5, 3))
    check_gradient(name, [x], rng, target, axis=1, temperature=0.7)
    check_requests(name, [x], [rng.standard_normal(x.shape)], target, axis=1)


@pytest.mark.parametrize("target", TARGETS)
def test_large_rows(target, rng):
    x = rng.standard_normal((2, 20000)).astype("f")  # more than one block of columns
    e = np.exp(x.astype("d"))
    close(forward("softmax", [x], target)[0], (e / e.sum(1, keepdims=True)).astype("f"))
    assert forward("softmax", [np.array([[1000.0, 0.0]], "f")], target)[0].tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("params, shape, labels, rows", [
    ({}, (4, 5), (4,), 1), ({"normalization": "batch"}, (4, 5), (4,), 4), ({"multi_output": True}, (2, 5, 3), (2, 3), 3),
    ({"preserve_shape": True, "normalization": "batch"}, (2, 3, 5), (2, 3), 6)])
def test_derivative_is_the_slope_of_the_cross_entropy(params, shape, labels, rows, target, rng):
    x, label = rng.standard_normal(shape), rng.integers(0, 5, labels).astype("d")
    axis = 1 if "multi_output" in params else -1

    def loss(v):
        p = np.moveaxis(v - np.log(np.exp(v).sum(axis, keepdims=True)), axis, -1).reshape(-1, 5)
        return -sum(p[i, int(k)] for i, k in enumerate(label.ravel())) / rows

    v = rng.standard_normal(shape)
    slope = (loss(x + 1e-6 * v) - loss(x - 1e-6 * v)) / 2e-6
    dx = backward("SoftmaxOutput", [x, label], [np.full(shape, 9.0)], target, **params)[0]  # the head does not matter
    assert abs(slope - (dx * v).sum()) < 1e-6
    check_requests("SoftmaxOutput", [x, label], [x], target, **params)


@pytest.mark.parametrize("target", TARGETS)
def test_ignored_rows_smoothing_and_the_head(target, rng):
    x, label = rng.standard_normal((4, 3)), np.array([0.0, 2, 1, 2])
    p = forward("SoftmaxOutput", [x, label], target)[0]
    hot = np.eye(3)[label.astype(int)]
    grad = lambda **k: backward("SoftmaxOutput", [x, label], [x], target, **k)[0]
    close(grad(use_ignore=True, ignore_label=2), (p - hot) * [[1], [0], [1], [0]])
    close(grad(use_ignore=True, ignore_label=2, normalization="valid", grad_scale=3), (p - hot) * [[1], [0], [1], [0]] * 1.5)
    close(grad(smooth_alpha=0.1), p - np.where(hot, 0.9, 0.05))
    close(grad(out_grad=True), (p - hot) * p)  # as MXNet 1.9.1: not the derivative from above


def test_shapes_and_errors():
    op = ops.get("SoftmaxOutput")
    p, m = op.parse({}), op.parse({"multi_output": True})
    assert op.infer_shape(p, [(4, 3), None]) == ([(4, 3), (4,)], [(4, 3)])
    assert op.infer_shape(m, [(4, 3, 5), None])[0] == [(4, 3, 5), (4, 5)]
    with pytest.raises(ShapeError, match=r"for data \(2, 3, 4\) the label must be \(2, 3\), not \(2,\). .* multi_output=True"):
        op.infer_shape(p, [(2, 3, 4), (2,)])
    with pytest.raises(ParameterError, match="normalization='mean' is not one of"):
        op.parse({"normalization": "mean"})
    with pytest.raises(ParameterError, match="softmax: temperature=0 would divide by zero"):
        ops.get("softmax").parse({"temperature": 0})


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "SoftmaxOutput"])
def test_whole_numbers_are_refused_by_name(name):
    data = mx.nd.array([[1, 2]], dtype="int32")
    with pytest.raises(DTypeError, match=rf"^{name}: data is int32, not floating\. Convert it with astype\('float32'\)\."):
        getattr(mx.nd, name)(data, *([mx.nd.array([0])] if name == "SoftmaxOutput" else []))
