"""mx.random and mx.nd.random: seed, and arrays of random numbers. The numbers are assigned when the operator is pushed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from numpy.typing import DTypeLike

from ...context import Context, as_context, current_context
from ...dtype import as_dtype
from ...engine.memory import resource
from ...errors import DistributionError, OperatorError
from ...kernels.op import builtin
from ..core.array_core import ArrayCore, allocate
from ..core.chunk import ShapeLike, layout_of
from ..core.ndarray import NDArray
from ..dispatch.arguments import call_op
from ..dispatch.copy import push
from .namespace import attribute


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Restart the random numbers of all contexts, or of one."""
    resource.seed(int(seed_state), "all" if ctx == "all" else as_context(ctx))  # type: ignore[arg-type]


def _draw(kind: str, shape: ShapeLike | None, dtype: DTypeLike | None, ctx: Context | str | None, out: NDArray | None,
          **params: Any) -> Any:
    """Draw from one distribution. If the parameters are arrays, draw `shape` numbers for each of their elements."""
    arrays = [v for v in params.values() if isinstance(v, ArrayCore)]
    given: dict[str, Any] = {"out": out}
    if arrays:
        if len(arrays) < len(params):
            raise OperatorError(f"random.{kind}: {', '.join(params)} must be all arrays or all numbers.")
        op = builtin(f"_sample_{kind}")
        given |= {"shape": () if shape is None else shape}
        positional: tuple[Any, ...] = tuple(params.values())
    else:
        op = builtin(f"_random_{kind}")
        if out is not None:
            shape, ctx, dtype = out.shape, out.ctx, out.layout.dtype if dtype is None else dtype
        given |= {"shape": (1,) if shape is None else shape, **params}
        positional = ()
    if dtype is not None:
        given["dtype"] = dtype
    where = as_context(ctx)
    try:
        with where if where is not None and not arrays else nullcontext():
            return call_op(op, positional, given)
    except DistributionError as e:
        return _refused(op.name, e, where, out, given)


def _refused(name: str, error: DistributionError, ctx: Context | None, out: NDArray | None, given: Mapping[str, Any]) -> NDArray:
    """Return the array of a draw that is refused. As in MXNet, the error is raised where somebody waits for its values."""
    shape = (given["shape"],) if isinstance(given["shape"], int) else tuple(given["shape"])
    target = out if out is not None else allocate(layout_of(shape, as_dtype(given.get("dtype")), ctx or current_context()))

    def fail(_: Any) -> None:
        raise error

    push(name, target.ctx, fail, (), target)
    return target


def uniform(low: float | NDArray = 0, high: float | NDArray = 1, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
            ctx: Context | str | None = None, out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """Draw from the uniform distribution over [low, high)."""
    return _draw("uniform", shape, dtype, ctx, out, low=low, high=high)


def normal(loc: float | NDArray = 0, scale: float | NDArray = 1, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
           ctx: Context | str | None = None, out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """Draw from the normal distribution with mean loc and standard deviation scale."""
    names = ("mu", "sigma") if isinstance(loc, ArrayCore) else ("loc", "scale")
    return _draw("normal", shape, dtype, ctx, out, **dict(zip(names, (loc, scale))))


def randn(*shape: int, loc: float | NDArray = 0, scale: float | NDArray = 1, dtype: DTypeLike | None = None,
          ctx: Context | str | None = None, out: NDArray | None = None) -> NDArray:
    """Draw from the normal distribution, with the shape given as arguments."""
    return normal(loc, scale, shape or None, dtype, ctx, out)


def exponential(scale: float | NDArray = 1, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
                ctx: Context | str | None = None, out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """Draw from the exponential distribution with mean scale."""
    return _draw("exponential", shape, dtype, ctx, out, lam=1.0 / scale)


def gamma(alpha: float | NDArray = 1, beta: float | NDArray = 1, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
          ctx: Context | str | None = None, out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """Draw from the gamma distribution with shape alpha and scale beta; mean alpha · beta."""
    return _draw("gamma", shape, dtype, ctx, out, alpha=alpha, beta=beta)


def poisson(lam: float | NDArray = 1, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
            ctx: Context | str | None = None, out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """Draw from the Poisson distribution with mean lam."""
    return _draw("poisson", shape, dtype, ctx, out, lam=lam)


def negative_binomial(k: float | NDArray = 1, p: float | NDArray = 1, shape: ShapeLike | None = None,
                      dtype: DTypeLike | None = None, ctx: Context | str | None = None, out: NDArray | None = None,
                      **kwargs: Any) -> NDArray:
    """Draw the number of failures before the k-th success, each with probability p."""
    return _draw("negative_binomial", shape, dtype, ctx, out, k=k, p=p)


def generalized_negative_binomial(mu: float | NDArray = 1, alpha: float | NDArray = 1, shape: ShapeLike | None = None,
                                  dtype: DTypeLike | None = None, ctx: Context | str | None = None, out: NDArray | None = None,
                                  **kwargs: Any) -> NDArray:
    """Draw from the negative binomial distribution with mean mu and dispersion alpha."""
    return _draw("generalized_negative_binomial", shape, dtype, ctx, out, mu=mu, alpha=alpha)


def randint(low: int, high: int, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
            ctx: Context | str | None = None, out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """Draw integers in [low, high), by default as int32."""
    return _draw("randint", shape, dtype or "int32", ctx, out, low=low, high=high)


def multinomial(data: NDArray, shape: ShapeLike | None = (), get_prob: bool = False,
                out: NDArray | Sequence[NDArray] | None = None, dtype: DTypeLike | None = "int32", **kwargs: Any
                ) -> NDArray | list[NDArray]:
    """Draw indices with the probabilities along data's last axis; with get_prob return their log probabilities too."""
    return call_op(builtin("_sample_multinomial"), (data,), {"shape": shape, "get_prob": get_prob, "dtype": dtype, "out": out})


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return attribute("random", name, ("_random_", "_sample_", "_"))
