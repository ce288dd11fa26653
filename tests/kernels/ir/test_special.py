"""gamma, gammaln, digamma, erfinv in float64. Oracle: the math module, identities, and MXNet's values at special points."""

import math

import numpy as np
import pytest
from tritium.kernels.ir.special import digamma, erf, erfinv, gamma, gammaln

INF, NAN = math.inf, math.nan


def at(f, x):
    x = np.asarray(x, np.float64)
    out = np.empty_like(x)
    f(x, out)
    return out


def test_gamma_and_its_logarithm():
    x = np.concatenate([np.linspace(-20, 40, 4001) + 0.00371, [1e-30, 1e-5, 0.5, 1, 2, 170.3]])
    np.testing.assert_allclose(at(gamma, x), [math.gamma(v) for v in x], rtol=2e-13)  # closer than the table
    np.testing.assert_allclose(at(gammaln, x), [math.lgamma(v) for v in x], rtol=2e-13, atol=2e-14)  # closer than the table
    assert at(gammaln, [1e30])[0] == pytest.approx(math.lgamma(1e30))


def test_digamma_by_its_recurrence_and_a_known_value():
    x = np.linspace(-6, 30, 1001) + 0.0113
    np.testing.assert_allclose(at(digamma, x + 1) - at(digamma, x), 1 / x, rtol=1e-11, atol=1e-12)  # closer than the table
    assert at(digamma, [1])[0] == pytest.approx(-0.57721566490153286, abs=1e-14)
    slope = [(math.lgamma(v + 1e-5) - math.lgamma(v - 1e-5)) / 2e-5 for v in x[x > 0.5]]
    np.testing.assert_allclose(at(digamma, x[x > 0.5]), slope, rtol=1e-6, atol=1e-8)  # slopes by finite differences


def test_erfinv_undoes_erf():
    y = np.linspace(-3, 3, 2001)
    np.testing.assert_allclose(at(erfinv, at(erf, y)), y, rtol=1e-11, atol=1e-15)  # closer than the table
    assert at(erfinv, [1 - 2**-53])[0] == pytest.approx(5.8635847487551676, rel=1e-12)


@pytest.mark.parametrize("f, x, want", [
    (gamma, [0.0, -0.0, -1, -2.5, INF, -INF, NAN, -1e30], [INF, -INF, NAN, -0.9453087204829419, INF, NAN, NAN, NAN]),
    (gammaln, [0.0, -0.0, -1, -2.5, INF, -INF, NAN, -1e30], [INF, INF, INF, -0.056243716497674, INF, INF, NAN, INF]),
    (digamma, [0.0, -0.0, -1, -2.5, INF, -INF, NAN], [INF, INF, INF, 1.1031566406452431, INF, INF, NAN]),
    (erfinv, [0.0, 1, -1, 1.5, -INF, NAN], [0, INF, -INF, NAN, NAN, NAN])])
def test_special_points(f, x, want):
    np.testing.assert_allclose(at(f, x), want, rtol=1e-12)  # closer than the table
