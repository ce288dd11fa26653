"""Random numbers of the usual distributions, with parameters are numbers (_random_*, _random_*_like) or arrays (_sample_*).

Every element uses its own fixed number of uniform numbers of the counter-based generator, and one body turns them into a sample.
So results do not depend on device or order. Rejection methods make a fixed number of attempts: all of them fail with a
probability below one in a million, and then the middle of the distribution is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....dtype import as_dtype, float32, is_float
from ....errors import DistributionError, DTypeError
from ...cpu.c_draws import drawn_in_turn
from ...declare.row_kernel import row_kernel
from ...declare.traced import printed
from ...ir import lang
from ...ir.expr import param
from ...ir.lang import cast_like, cos, exp, floor, log, log1p, maximum, minimum, power, sqrt, where
from ...kernel import Kernel, KernelFunction
from ...op import Dtypes, Expression, Op, Req, Reqs, Shape, Shapes, Spec, Specs, merge_shapes, register
from ...params import Param, Params

_GAMMA_TRIES, _POISSON_TRIES, _POISSON_TERMS, _FEW = 6, 10, 29, 10.0
_FEW_DRAWN = 1 << 14  # attempts up to which they are made in one call with what reads them
_GAMMA_DRAWS, _POISSON_DRAWS = 3 * _GAMMA_TRIES + 1, 2 * _POISSON_TRIES + 1


def _normal(u: Any, v: Any) -> Any:
    return sqrt(-2 * log(1 - u)) * cos(2 * math.pi * v)


def _uniform(u: Sequence[Any], low: Any, high: Any) -> Any:
    return low + u[0] * (high - low)


def _normals(u: Sequence[Any], mu: Any, sigma: Any) -> Any:
    return mu + sigma * _normal(u[0], u[1])


def _exponential(u: Sequence[Any], lam: Any) -> Any:
    return -log1p(-u[0]) / lam


def _gamma_attempt(alpha: Any, u: Any, v: Any, w: Any) -> Any:
    """Try to draw a gamma sample by rejection, for alpha + 1 where alpha < 1; -1 if rejected.

    Source: Marsaglia, Tsang 2000, "A simple method for generating gamma variables".
    """
    d = _middle(alpha)
    x = _normal(u, v)
    t = 1 + x / sqrt(9 * d)
    t = t * t * t
    fits = (t > 0) & (log(1 - w) < 0.5 * x * x + d * (1 - t + log(maximum(t, 1e-30))))
    return where(fits, d * t, -1.0)


def _middle(alpha: Any) -> Any:
    return where(alpha < 1, alpha + 1, alpha) - 1 / 3


def _gamma(u: Sequence[Any], alpha: Any, beta: Any) -> Any:
    """Return gamma samples with scale beta. u: a uniform number, or None where no alpha is below 1, then the attempts; the first
    accepted one counts."""
    drawn = _middle(alpha)
    for attempt in reversed(u[1:]):  # so that the first accepted one is written last
        drawn = where(attempt >= 0, attempt, drawn)
    return beta * (drawn if u[0] is None else where(alpha < 1, drawn * power(1 - u[0], 1 / alpha), drawn))


def _poisson_attempt(lam: Any, u: Any, v: Any) -> Any:
    """Try to draw a Poisson sample by rejection, for lam that is not small; -1 if rejected.

    Source: Hörmann 1993, "The transformed rejection method for generating Poisson random variables", algorithm PTRS.
    """
    many = where(lam < _FEW, _FEW, lam)
    b = 0.931 + 2.53 * sqrt(many)
    a = -0.059 + 0.02483 * b
    bound, inverse = 0.9277 - 3.6224 / (b - 2), 1.1239 + 1.1328 / (b - 3.4)
    x, v = u - 0.5, 1 - v
    edge = maximum(0.5 - abs(x), 1e-7)
    k = floor((2 * a / edge + b) * x + many + 0.43)
    at = maximum(k, 1)
    r = (at - many) / many
    log_p = where(k < 1, -many, many * (r - (1 + r) * log1p(r)) - 0.5 * log(2 * math.pi * at) - 1 / (12 * at))
    fits = log(v * inverse / (a / (edge * edge) + b)) <= log_p
    fits = ((edge >= 0.07) & (v <= bound)) | ((k >= 0) & ((edge >= 0.013) | (v <= edge)) & fits)
    return where(fits, k, -1.0)


def _poisson(lam: Any, u: Any, *attempts: Any) -> Any:
    """Return Poisson samples: by inverting the distribution for small lam, else the first accepted attempt."""
    few = where(lam < _FEW, lam, _FEW)
    p = exp(-few)
    at_most = minimum(u, 1 - 2e-6)  # the terms add up to this despite rounding
    total = p
    small = cast_like(at_most >= total, u)
    for k in range(1, _POISSON_TERMS):
        p = p * (few * (1 / k))
        total = total + p
        small = small + (at_most >= total)
    large = floor(lam)
    for k in reversed(attempts):  # so that the first accepted one is written last
        large = where(k >= 0, k, large)
    return where(lam < _FEW, small, large)


def _rate(u: Sequence[Any], lam: Any) -> Any:
    return lam


def _negative_binomial(u: Sequence[Any], k: Any, p: Any) -> Any:
    return _gamma(u, k, (1 - p) / p)


def _spread(mu: Any, alpha: Any) -> Any:
    return 1 / where(alpha == 0, 1.0, alpha)


def _generalized_negative_binomial(u: Sequence[Any], mu: Any, alpha: Any) -> Any:
    return where(alpha == 0, mu, _gamma(u, _spread(mu, alpha), alpha * mu))


@dataclass(frozen=True)
class Distribution:
    """One distribution.

    names:     of the parameters; defaults: those of _random_*.
    draws:     uniform numbers per element. body: (u, *parameters) -> sample.
    allowed:   predicate of valid parameters; requirement: the same in words.
    gamma:     returns the alpha of gamma attempts, if u of the body are those of `_gamma`.
    counts:    body returns the mean of a Poisson distribution, from which the sample is drawn.
    """

    name: str
    names: tuple[str, ...]
    defaults: tuple[float, ...]
    draws: int
    body: Callable[..., Any]
    text: str
    allowed: Callable[..., bool] = lambda *_: True
    requirement: str = ""
    counts: bool = False
    gamma: Callable[..., Any] | None = None


DISTRIBUTIONS = (
    Distribution("uniform", ("low", "high"), (0.0, 1.0), 1, _uniform, "Uniform in [low, high).",
                 lambda a, b: a <= b, "low must not be above high"),
    Distribution("normal", ("mu", "sigma"), (0.0, 1.0), 2, _normals, "Normal with mean mu and standard deviation sigma.",
                 lambda a, b: b >= 0, "sigma must not be negative"),
    Distribution("exponential", ("lam",), (1.0,), 1, _exponential, "Exponential with rate lam: mean 1 / lam.",
                 lambda a: a > 0, "lam must be positive"),
    Distribution("gamma", ("alpha", "beta"), (1.0, 1.0), _GAMMA_DRAWS, _gamma, "Gamma with shape alpha and scale beta.",
                 lambda a, b: a > 0 and b > 0, "alpha and beta must be positive", gamma=lambda alpha, beta: alpha),
    Distribution("poisson", ("lam",), (1.0,), 0, _rate, "Poisson with mean lam.",
                 lambda a: a >= 0, "lam must not be negative", counts=True),
    Distribution("negative_binomial", ("k", "p"), (1, 1.0), _GAMMA_DRAWS, _negative_binomial,
                 "Failures before the k-th success, each trial a success with probability p.",
                 lambda k, p: k > 0 and 0 < p <= 1, "k must be positive and p in (0, 1]", counts=True,
                 gamma=lambda k, p: k),
    Distribution("generalized_negative_binomial", ("mu", "alpha"), (1.0, 1.0), _GAMMA_DRAWS,
                 _generalized_negative_binomial, "Negative binomial with mean mu and dispersion alpha.",
                 lambda m, a: m >= 0 and a >= 0, "mu and alpha must not be negative", counts=True,
                 gamma=_spread),
)
_SHAPE = Param("shape", "shape", (), doc="sizes")
_DTYPE = Param("dtype", "dtype", None, doc="element type; float32 when None")


class SampleOp(Op):
    """Samples of one distribution. form: "random" (parameters are numbers), "like" (numbers, and an array gives the shape) or
    "sample" (parameters are arrays, and each element of them gives an array of samples)."""

    nonblocking = capturable = True

    def __init__(self, d: Distribution, form: str, names: Sequence[str] | None = None):
        self.d, self.form = d, form
        names = tuple(names or d.names)
        self.name = {"random": f"_random_{d.name}", "like": f"_random_{d.name}_like", "sample": f"_sample_{d.name}"}[form]
        self.aliases = (self.name[1:],)
        self.input_names = {"random": (), "like": ("data",), "sample": d.names}[form]
        numbers = tuple(Param(n, "float", v) for n, v in zip(names, d.defaults))
        self.numbers = names
        self.params = {"random": (*numbers, _SHAPE, Param("ctx", "context", None), _DTYPE), "like": numbers,
                       "sample": (_SHAPE, _DTYPE)}[form]
        more = {"random": "shape: of the result.", "like": "The result has the shape and dtype of data.",
                "sample": f"{', '.join(d.names)}: of one shape. The result has that shape followed by `shape`."}[form]
        text = d.text
        for theirs, ours in zip(d.names, names):
            text = text.replace(f" {theirs}", f" {ours}")
        self.doc = f"{text}\n\n{more} float dtypes. Not differentiable."

    def parse(self, given: Mapping[str, Any]) -> Params:
        p = super().parse(given)
        if self.form != "sample" and not self.d.allowed(*(p[n] for n in self.numbers)):
            values = ", ".join(f"{n}={p[n]:g}" for n in self.numbers)
            raise DistributionError(f"{self.name}: {values}: {self.d.requirement}.")
        if self.form != "like" and p.dtype is not None and not is_float(p.dtype):
            raise DTypeError(f"{self.name}: dtype {p.dtype} is not a floating dtype. Use float32, float64, float16 or bfloat16.")
        return p

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        if self.form == "random":
            known = outputs[0] if outputs else None
            return [], [known if not p.shape and known is not None else tuple(p.shape) or (1,)]
        shape = None
        for n, s in zip(self.input_names, inputs):
            shape = merge_shapes(self.name, f"the parameters' shape ({n})", shape, s)
        out = shape if self.form == "like" or shape is None else (*shape, *p.shape)
        return [shape] * len(inputs), [out]

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        if self.form == "like":
            return super().infer_dtype(p, inputs, outputs)
        ins, _ = super().infer_dtype(p, inputs, None) if inputs else ([], [])
        return ins, [as_dtype(p.dtype) if p.dtype is not None else float32]

    def num_random(self, p: Params, outs: Specs) -> int:
        return outs[0].size * (self.d.draws + self.d.counts * _POISSON_DRAWS)

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        d, size = self.d, outs[0].size
        if reqs[0] == Req.NULL or not size:
            return lambda run, inputs, outputs, random: None
        rows = ins[0].size if self.form == "sample" else 1
        wide = np.dtype(np.float64 if outs[0].dtype == np.float64 else np.float32)
        full, n = (rows, size // rows), len(d.names)
        numbers = () if self.form == "sample" else tuple(float(p[name]) for name in self.numbers)
        given = list(ins) if self.form == "sample" else [Spec((1,), wide)] * n
        mean, tries = [Spec(full, wide)], _GAMMA_TRIES if d.gamma else 0
        plain = d.gamma is not None and not d.counts and bool(numbers) and d.gamma(*numbers) >= 1

        def body(*a: Any) -> Any:
            u = [None] if plain else [lang.uniform() for _ in range(d.draws if d.gamma is None else 1)]
            return d.body([*u, *a[n:]], *a[:n])

        inner = row_kernel(body, [(s.size, 1) for s in given] + [full] * tries, [full], full, [*given, *mean * tries],
                           *((mean, [Req.WRITE]) if d.counts else (outs, reqs)), target, self.name)
        attempts = _gamma_attempts(d.gamma, given, full, wide, target, self.name) if d.gamma else None
        finish = _counting(size, wide, outs, reqs, target, self.name) if d.counts else None
        value_of = Expression((param("value"),), scalars=("value",))
        constant = printed(value_of, [], [Spec((1,), wide)], [Req.WRITE], target, "constant")
        held = [np.full(1, value, wide) for value in numbers] if target == "cpu" else []

        in_turn = target == "cpu" and finish is None and tries * size <= _FEW_DRAWN
        read = () if numbers else ins  # not an array whose shape alone counts
        together = drawn_in_turn(attempts, inner, read, outs, Spec((tries, *full), wide), held) if in_turn else None

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int]) -> None:
            if together is not None and together.run(run, inputs, outputs, (), random):
                return
            parameters = list(inputs) if not numbers else [*held]
            for value in numbers[len(held):]:  # passed in memory, so that a new value needs no new kernel
                parameters.append(run.workspace((1,), wide))
                constant.run(run, [], [parameters[-1]], scalars=(value,))
            found = []
            if attempts is not None:
                made = run.workspace((tries, *full), wide)
                attempts.run(run, parameters, [made], random=random)
                found = [made[i] for i in range(tries)]  # a GPU's array may not say how long it is
            results = outputs if finish is None else [run.workspace(full, wide)]
            inner(run, [*parameters, *found], results, **({} if plain else {"random": random}))
            if finish is not None:
                finish(run, results[0], (random[0], random[1] + d.draws * size), outputs)

        return kernel


def _gamma_attempts(alpha: Callable[..., Any], given: Specs, full: Shape, wide: np.dtype, target: str,
                    name: str) -> Kernel:
    """Return the kernel of all attempts of `_gamma` for all elements: parameters -> [attempts, *full].

    It is one kernel, so its text holds the formula once.
    """
    tries, n = (_GAMMA_TRIES, *full), len(given)

    def body(*a: Any) -> Any:
        lang.uniform(shared=(0,))  # the number that `_gamma` draws itself
        return _gamma_attempt(alpha(*a[:n]), lang.uniform(), lang.uniform(), lang.uniform())

    return row_kernel(body, [(1, s.size, 1) for s in given], [tries], tries, given, [Spec(tries, wide)], [Req.WRITE], target,
                      f"{name}_attempts")


def _counting(size: int, wide: np.dtype, outs: Specs, reqs: Reqs, target: str, name: str) -> Callable[..., None]:
    """Return a kernel (run, mean [size], random, outputs) that draws Poisson samples.

    One kernel makes all attempts, so its text holds the formula once.
    """
    row, tries = (1, size), (_POISSON_TRIES, size)
    wanted = [Spec(s, wide) for s in (row, tries)]

    def attempted(mean: Any) -> Any:
        lang.uniform(shared=(0,))  # the number that `_poisson` draws itself
        return _poisson_attempt(mean, lang.uniform(), lang.uniform())

    attempt = row_kernel(attempted, [row], [tries], tries, wanted[:1], wanted[1:], [Req.WRITE], target, f"{name}_attempts")
    choose = row_kernel(lambda mean, *found: _poisson(mean, lang.uniform(), *found), [row] * (1 + _POISSON_TRIES), [row], row,
                        wanted[:1] * (1 + _POISSON_TRIES), outs, reqs, target, name)

    def finish(run: Any, mean: Any, random: tuple[int, int], outputs: Sequence[Any]) -> None:
        found = run.workspace(tries, wide)
        attempt(run, [mean], [found], random=random)
        choose(run, [mean, *(found[i] for i in range(_POISSON_TRIES))], outputs, random=random)

    return finish


for _d in DISTRIBUTIONS:
    register(SampleOp(_d, "sample"))
    register(SampleOp(_d, "like", ("loc", "scale") if _d.name == "normal" else None))
    if _d.name not in ("uniform", "normal"):  # those are in uniform.py and need no workspace
        register(SampleOp(_d, "random"))
