"""where: against MXNet; a condition per element and per row; both derivatives; a square, where rows and columns agree."""

import numpy as np
import pytest
import tritium as mx
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ShapeError


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("where")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape, rows", [((3, 3), True), ((3, 3), False), ((2, 1, 4), True), ((5,), True)])
def test_by_hand(shape, rows, target, rng):
    c = rng.integers(0, 2, shape[:1] if rows else shape).astype("int32")
    x, y = rng.standard_normal(shape), rng.standard_normal(shape)
    got = forward("where", [c, x, y], target)[0]
    for i in np.ndindex(shape):
        assert got[i] == (x if c[i[: c.ndim]] else y)[i]
    check_gradient("where", [c, x, y], rng, target)
    check_requests("where", [c, x, y], [rng.standard_normal(shape)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_nan_is_not_zero(target):
    close(forward("where", [np.array([np.nan, 0.5, 0]), np.ones(3), np.zeros(3)], target)[0], np.array([1.0, 1, 0]))


def test_a_fused_graph_keeps_the_rows():
    c, x, y = (mx.sym.Variable(n) for n in "cxy")
    net = mx.sym.exp(mx.sym.where(c, x * 2, y + 1))
    arrays = {"c": mx.nd.array([0, 1, 0]), "x": mx.nd.ones((3, 3)), "y": mx.nd.zeros((3, 3))}
    got = net.bind(mx.cpu(), arrays).forward()[0].asnumpy()
    close(got, np.exp(np.array([[1.0] * 3, [2.0] * 3, [1.0] * 3], "f4")))


def test_the_derivative_has_one(rng):
    c, x = mx.nd.array([1, 0]), mx.nd.array(rng.standard_normal((2, 3)))
    x.attach_grad()
    with mx.autograd.record():
        slope = mx.autograd.grad(mx.nd.where(c, x * x * x, x), x, create_graph=True, retain_graph=True)[0]
        total = slope.sum()
    total.backward()
    close(x.grad.asnumpy(), np.array([[6.0], [0.0]], "f4") * x.asnumpy())


def test_errors():
    with pytest.raises(ShapeError, match=r"where: condition \(3,\) must have the shape of x \(2, 3\), or one value"):
        forward("where", [np.zeros(3), np.zeros((2, 3)), np.zeros((2, 3))])
