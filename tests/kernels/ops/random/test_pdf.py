"""random_pdf_*: densities. Oracle: they add up to 1, and means come out right; formulas by math.gamma."""

import math

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import ShapeError

CONTINUOUS = {"uniform": ((1.0, 3.0), (1, 3), 2.0), "normal": ((0.5, 0.8), (-8, 9), 0.5),
              "gamma": ((2.5, 1.5), (1e-6, 40), 2.5 / 1.5), "exponential": ((2.0,), (0, 30), 0.5)}
COUNTED = {"poisson": ((3.0,), 3.0), "negative_binomial": ((2.5, 0.4), 2.5 * 0.6 / 0.4),
           "generalized_negative_binomial": ((2.0, 0.5), 2.0)}


def pdf(name, x, parameters, ctx, **p):
    arrays = [mx.nd.array([v], ctx=ctx, dtype="float64") for v in parameters]
    return getattr(mx.nd, f"random_pdf_{name}")(mx.nd.array(x[None], ctx=ctx, dtype="float64"), *arrays, **p).asnumpy()[0]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_densities_integrate_to_one_with_their_mean(name, ctx):
    parameters, (low, high), mean = CONTINUOUS[name]
    x = np.linspace(low, high, 20001)
    y = pdf(name, x, parameters, ctx)
    assert abs(np.trapezoid(y, x) - 1) < 1e-3 and abs(np.trapezoid(x * y, x) - mean) < 1e-2
    assert_close(pdf(name, x, parameters, ctx, is_log=True), np.log(y))


@pytest.mark.parametrize("name", COUNTED)
def test_probabilities_add_up_to_one_with_their_mean(name, ctx):
    parameters, mean = COUNTED[name]
    x = np.arange(200.0)
    y = pdf(name, x, parameters, ctx)
    assert abs(y.sum() - 1) < 1e-9 and abs((x * y).sum() - mean) < 1e-7


def test_dirichlet_by_its_formula(ctx, rng):
    alpha, x = np.array([[0.5, 2.0, 3.0]]), rng.dirichlet([1, 1, 1], size=(1, 4))
    got = mx.nd.random_pdf_dirichlet(*(mx.nd.array(a, ctx=ctx, dtype="float64") for a in (x, alpha)))
    scale = math.gamma(5.5) / (math.gamma(0.5) * math.gamma(2) * math.gamma(3))
    np.testing.assert_allclose(got.asnumpy(), scale * (x ** (alpha - 1)).prod(-1), rtol=1e-10)  # closer than the table


@pytest.mark.parametrize("name", [*CONTINUOUS, *COUNTED, "dirichlet"])
def test_gradients(name, ctx, rng):
    n = 2 if name == "dirichlet" else len((CONTINUOUS | COUNTED)[name][0])
    parameters = [rng.uniform(0.3, 0.7, 2) for _ in range(n)]
    if name == "uniform":
        parameters[1] += 1
    xs = [rng.uniform(0.2, 2, (2, 3)), *parameters]
    if name == "dirichlet":
        xs = [rng.uniform(0.2, 1, (2, 3, 4)), rng.uniform(1, 2, (2, 4))]
    counts = [mx.nd.array(xs.pop(0), ctx=ctx, dtype="float64")] if name in COUNTED else []  # have no derivative
    check_gradient(lambda *a: getattr(mx.nd, f"random_pdf_{name}")(*counts, *a), xs, ctx, rng, tolerance=1e-4)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: mx.nd.random_pdf_normal(mx.nd.ones((3, 4)), mx.nd.ones(2), mx.nd.ones(2)),
     ShapeError, r"random_pdf_normal: sample \(3, 4\) must begin with the parameters' shape \(2,\)"),
    (lambda: mx.nd.random_pdf_dirichlet(mx.nd.ones((2, 4)), mx.nd.ones((2, 3))),
     ShapeError, r"random_pdf_dirichlet: sample \(2, 4\) must begin and end as alpha \(2, 3\)"),
])
def test_shapes_that_do_not_fit(call, error, text):
    with pytest.raises(error, match=text):
        call()
