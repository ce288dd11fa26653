"""The regression outputs, MakeLoss and make_loss: against MXNet, slopes of their losses, requests, errors."""

import numpy as np
import pytest
import tritium as mx
from support.layer_helpers import TARGETS, backward, check_golden, check_requests, close, golden_cases
from tritium.errors import ShapeError
from tritium.kernels import op as ops

NAMES = ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "MakeLoss", "make_loss")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases(*NAMES)])
def test_golden(m, z, target):
    check_golden(m, z, target)


LOSSES = {
    "LinearRegressionOutput": lambda x, t: 0.5 * (x - t) ** 2,
    "LogisticRegressionOutput": lambda x, t: np.log(1 + np.exp(x)) - t * x,
    "MAERegressionOutput": lambda x, t: abs(x - t),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", list(LOSSES))
def test_derivative_is_the_slope_of_the_loss(name, target, rng):
    x, t, v = (rng.standard_normal((4, 3)) for _ in range(3))
    loss = lambda a: LOSSES[name](a, t).sum() / 3
    slope = (loss(x + 1e-6 * v) - loss(x - 1e-6 * v)) / 2e-6
    assert abs(slope - (backward(name, [x, t], [x], target)[0] * v).sum()) < 1e-6
    check_requests(name, [x, t], [x], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("params, want", [({"grad_scale": 2.0}, 2.0), ({"normalization": "batch"}, 1 / 3),
                                          ({"normalization": "valid", "valid_thresh": 0.5}, 1 / 2)])
def test_make_loss(params, want, target):
    x = np.array([[0.0, 1.0], [0.5, 0.2], [3.0, -1.0]], "f")
    close(backward("MakeLoss", [x], [x], target, **params)[0], np.full((3, 2), want, "f"))
    check_requests("MakeLoss", [x], [x], target, **params)


def test_an_absolute_error_of_0_has_the_slope_below_it(ctx):
    x, label = mx.nd.array([[1, 2, 3, np.nan]], ctx=ctx), mx.nd.array([[1, 1, 5, 0]], ctx=ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.MAERegressionOutput(x, label, grad_scale=2)
    y.backward()
    assert x.grad.asnumpy().tolist() == [[-0.5, 0.5, -0.5, -0.5]]  # of MXNet 1.9.1


def test_labels_that_do_not_fit():
    op = ops.get("LinearRegressionOutput")
    p = op.parse({})
    assert op.infer_shape(p, [(4, 1), (4,)])[0] == [(4, 1), (4,)]
    with pytest.raises(ShapeError, match=r"LinearRegressionOutput: data \(4, 3\) and label \(4,\) disagree. The label must"):
        op.infer_shape(p, [(4, 3), (4,)])


@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
def test_make_loss_needs_no_head_gradient(normalization, ctx):
    """Nor beside other losses, nor over data without a derivative: what detection networks end in."""
    x = mx.sym.Variable("x")
    shown = mx.sym.MakeLoss(mx.sym.BlockGrad(x), grad_scale=0)
    ex = mx.sym.Group([mx.sym.MakeLoss(x * x, grad_scale=3, normalization=normalization), shown]).simple_bind(ctx, x=(2, 2))
    ex.arg_dict["x"][:] = np.array([[1, 2], [0, 4]])
    ex.forward(is_train=True)
    ex.backward()
    by = {"null": 1, "batch": 2, "valid": 3}[normalization]
    assert ex.grad_dict["x"].asnumpy().tolist() == [[6 / by, 12 / by], [0, 24 / by]]
