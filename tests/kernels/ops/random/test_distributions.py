"""Sampling: moments and whole distributions, the same numbers on CPU and GPU, shapes, arrays of parameters, errors.

Oracle: the probabilities by their textbook formulas, worked out with math.lgamma.
"""

import math

import numpy as np
import pytest
import tritium as mx
from support.layer_helpers import TARGETS, forward
from tritium.errors import DTypeError, ParameterError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.cpu import c_compile, c_draws
from tritium.kernels.kernel import HostRun
from tritium.kernels.ops.random.distributions import DISTRIBUTIONS

N = 40000


def drawn(name, n=N, target="cpu", seed=11, **params):
    return forward(f"_random_{name}", [], target, random=(seed, 4), shape=(n,), **params)[0]


MOMENTS = [  # name, parameters, mean, variance
    ("exponential", {"lam": 2.0}, 0.5, 0.25), ("gamma", {"alpha": 0.4, "beta": 3.0}, 1.2, 3.6),
    ("gamma", {"alpha": 9.0, "beta": 0.5}, 4.5, 2.25), ("poisson", {"lam": 3.0}, 3, 3), ("poisson", {"lam": 400.0}, 400, 400),
    ("negative_binomial", {"k": 3, "p": 0.4}, 4.5, 11.25),
    ("generalized_negative_binomial", {"mu": 5.0, "alpha": 0.3}, 5.0, 12.5)]


@pytest.mark.parametrize("name, params, mean, variance", MOMENTS)
def test_mean_and_variance(name, params, mean, variance):
    x = drawn(name, **params).astype("float64")
    assert x.dtype == "float64" and abs(x.mean() - mean) < 5 * math.sqrt(variance / N)
    assert abs(x.var() - variance) < 0.08 * variance


@pytest.mark.parametrize("lam", [0.2, 4.0, 11.99, 12.01, 60.0])
def test_poisson_is_distributed_as_it_should(lam):
    x = drawn("poisson", lam=lam)
    p = [math.exp(k * math.log(lam) - lam - math.lgamma(k + 1)) for k in range(int(lam + 12 * math.sqrt(lam) + 12))]
    chi, places = 0.0, 0
    for k, q in enumerate(p):
        if q * N >= 10:
            chi, places = chi + ((x == k).sum() - q * N) ** 2 / (q * N), places + 1
    assert chi < places + 5 * math.sqrt(2 * places), (chi, places)
    assert (x == np.floor(x)).all() and x.min() >= 0 and x.max() < len(p)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("size", [7, 3000])
def test_numbers_and_arrays_as_parameters_give_the_same_gamma_samples(alpha, size):
    mx.random.seed(5)
    numbers = mx.nd.random_gamma(alpha=alpha, beta=1.5, shape=(size,)).asnumpy()
    mx.random.seed(5)
    arrays = mx.nd.sample_gamma(mx.nd.array([alpha]), mx.nd.array([1.5]), shape=(size,)).asnumpy()[0]
    np.testing.assert_array_equal(numbers, arrays)


@pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, params", [("uniform", {"low": -1.0, "high": 3.0}), ("normal", {"mu": 1.0, "sigma": 2.0}),
                                          ("exponential", {"lam": 2.0}), ("gamma", {"alpha": 2.0, "beta": 3.0}),
                                          ("gamma", {"alpha": 0.5, "beta": 3.0})])
def test_few_numbers_drawn_in_one_call_are_the_same(name, params, dtype, cpu_code, monkeypatch):
    """At the first run kernels are called one by one, and afterwards together: also with other seeds, into other arrays."""
    cpu_code("c")
    together, run = [], c_draws.DrawnTogether.run
    monkeypatch.setattr(c_draws.DrawnTogether, "run", lambda *a: together.append(run(*a)) or together[-1])

    def draws(op, inputs, **given):
        p = op.parse(given if op.name.endswith("_like") else {"shape": (150,), "dtype": dtype, **given})
        out = ops.Spec(op.infer_shape(p, [a.shape for a in inputs])[1][0], np.dtype(dtype))
        specs = [ops.Spec(a.shape, a.dtype) for a in inputs]

        def drawn_by(kernel, offset):
            y = np.zeros(out.shape, dtype)
            kernel(HostRun(), inputs, [y], random=(3, offset))
            return y

        def make():
            return op.kernel(p, specs, [out], [ops.Req.WRITE], "cpu")

        often = make()
        for offset in (0, 9, 2):
            np.testing.assert_array_equal(drawn_by(often, offset), drawn_by(make(), offset))

    if name in ("exponential", "gamma"):
        draws(ops.get(f"_random_{name}"), [], **params)
        draws(ops.get(f"_random_{name}_like"), [np.zeros((50, 3), dtype)], **params)
    draws(ops.get(f"_sample_{name}"), [np.full(2, v, dtype) for v in params.values()])
    assert any(together) == (dtype == "float32" or name == "uniform")  # exponentials of float64 are NumPy's


@pytest.mark.parametrize("alpha", [0.3, 1.0, 5.0])
def test_gamma_is_distributed_as_it_should(alpha):
    x = np.sort(drawn("gamma", alpha=alpha)).astype("float64")
    edges = np.geomspace(1e-12, x[-1], 100001)  # the distribution function by trapezia, from a known first piece
    density = np.exp((alpha - 1) * np.log(edges) - edges - math.lgamma(alpha))
    pieces = (density[1:] + density[:-1]) / 2 * np.diff(edges)
    cdf = edges[0] ** alpha / alpha / math.gamma(alpha) + np.concatenate([[0], np.cumsum(pieces)])
    apart = np.abs(np.interp(x, edges, cdf) - np.arange(N) / N).max()
    assert apart < 1.9 / math.sqrt(N)  # Kolmogorov and Smirnov, one in a thousand


@pytest.mark.skipif("gpu" not in TARGETS, reason="needs TRITIUM_GPU=interpret")
@pytest.mark.parametrize("name, params", [(m[0], m[1]) for m in MOMENTS] + [("poisson", {"lam": 0.0})])
def test_gpu_draws_the_same(name, params):
    cpu, gpu = (drawn(name, 400, t, **params) for t in ("cpu", "gpu"))
    np.testing.assert_allclose(gpu, cpu, rtol=1e-4, atol=1e-6)  # a GPU's logarithms and roots are rounded otherwise


@pytest.mark.parametrize("target", TARGETS)
def test_arrays_of_parameters(target):
    low, high = np.array([[0.0, 10], [-5, 100]], "f"), np.array([[1.0, 11], [-4, 200]], "f")
    x = forward("_sample_uniform", [low, high], target, random=(5, 0), shape=(50, 2))[0]
    assert x.shape == (2, 2, 50, 2)
    assert (x >= low[:, :, None, None]).all() and (x < high[:, :, None, None]).all() and x[1, 1].std() > 20
    x = forward("_sample_normal", [np.array([0.0, 50], "f"), np.array([1.0, 0], "f")], target, random=(5, 0), shape=(900,))[0]
    assert abs(x[0].mean()) < 0.2 and abs(x[0].std() - 1) < 0.1 and (x[1] == 50).all()
    x = forward("_sample_poisson", [np.array([1.0, 300], "f")], target, random=(5, 0), shape=(900,), dtype="float64")[0]
    assert x.dtype == "float64" and abs(x[0].mean() - 1) < 0.2 and abs(x[1].mean() - 300) < 3


def test_every_distribution_has_three_forms_and_its_names(ctx):
    mx.random.seed(2)
    for d in DISTRIBUTIONS:
        data = mx.nd.ones((3, 4), ctx=ctx, dtype="float16")
        like = getattr(mx.nd, f"random_{d.name}_like")(data)
        assert like.shape == (3, 4) and like.dtype == np.float16
        parameters = [mx.nd.array([v, v], ctx=ctx) for v in d.defaults]
        assert getattr(mx.nd, f"sample_{d.name}")(*parameters, shape=(3,)).shape == (2, 3)
        with ctx:
            assert getattr(mx.nd, f"random_{d.name}")(shape=(5,)).shape == (5,)


def test_seed_decides():
    draws = []
    for seed in (1, 1, 2):
        mx.random.seed(seed)
        draws.append(mx.nd.random_gamma(alpha=2.0, shape=(9,)).asnumpy().tolist())
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("_random_gamma").parse({"alpha": -1}),
     ParameterError, "_random_gamma: alpha=-1, beta=1: alpha and beta must be positive"),
    (lambda: ops.get("_random_negative_binomial").parse({"k": 3, "p": 2}),
     ParameterError, r"_random_negative_binomial: k=3, p=2: k must be positive and p in \(0, 1\]"),
    (lambda: ops.get("_random_poisson").parse({"dtype": "int32"}),
     DTypeError, "_random_poisson: dtype int32 is not a floating dtype"),
    (lambda: ops.get("_sample_gamma").infer_shape(ops.get("_sample_gamma").parse({}), [(2,), (3,)]),
     ShapeError, r"the parameters' shape \(beta\) would have to be both \(2,\) and \(3,\)"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
