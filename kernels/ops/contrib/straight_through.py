"""Straight-through estimators (gradientmultiplier, round_ste, sign_ste), whose derivative differs from their formula on purpose;
tests (isnan, isinf, isfinite, allclose); quadratic; casts of mixed precision (amp_cast, amp_multicast)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtype import is_float
from ....errors import ParameterError
from ...declare.composite import TracedValue, composite, ops
from ...declare.indexed import indexed
from ...declare.reduction import reduction
from ...declare.simple_op import Array, Float, Scalar, simple_op
from ...ir.lang import floor, sign, where
from ...params import Param, Params


@simple_op(name="_contrib_quadratic")
def quadratic(data: Array, *, a: Scalar = 0.0, b: Scalar = 0.0, c: Scalar = 0.0) -> Array:
    """a data² + b data + c."""
    return a * data * data + b * data + c


@simple_op(name="_contrib_gradientmultiplier")
def gradientmultiplier(data: Array, *, scalar: Scalar = 1.0, is_int: bool = True) -> Array:
    """data unchanged; its derivative times scalar. A negative scalar reverses it (Ganin, Lempitsky 2015, arXiv:1409.7495)."""
    return data + 0


@gradientmultiplier.gradient
def _(dy: Any, *, scalar: Any) -> Any:
    return dy * scalar


@simple_op(name="_contrib_round_ste")
def round_ste(data: Array) -> Array:
    """data rounded, halves away from zero; the derivative passes unchanged (straight-through estimator)."""
    return where(data < 0, -floor(0.5 - data), floor(data + 0.5))


@round_ste.gradient
def _(dy: Any) -> Any:
    return dy


@simple_op(name="_contrib_sign_ste")
def sign_ste(data: Array) -> Array:
    """The sign of data; the derivative passes unchanged (straight-through estimator)."""
    return sign(data)


@sign_ste.gradient
def _(dy: Any) -> Any:
    return dy


# ---- tests ----------------------------------------------------------------------------------------------------------
@simple_op(name="_contrib_isnan", differentiable=False)
def isnan(data: Float) -> Float:
    """1 where data is NaN, else 0."""
    return where(data != data, 1, 0)


@simple_op(name="_contrib_isinf", differentiable=False)
def isinf(data: Float) -> Float:
    """1 where data is an infinity, else 0."""
    return where(abs(data) == float("inf"), 1, 0)


@simple_op(name="_contrib_isfinite", differentiable=False)
def isfinite(data: Float) -> Float:
    """1 where data is neither NaN nor an infinity, else 0."""
    return where(abs(data) < float("inf"), 1, 0)


@simple_op(name="_contrib_isclose", differentiable=False)
def isclose(a: Float, b: Float, *, rtol: Scalar = 1e-5, atol: Scalar = 1e-8, equal_nan: bool = False) -> Float:
    """1 where |a - b| ≤ atol + rtol |b|, or both are one infinity, else 0. equal_nan: NaN equals NaN."""
    near = where(a == b, 1, where(abs(b) < float("inf"), where(abs(a - b) <= atol + rtol * abs(b), 1, 0), 0))
    return where(a != a, where(b != b, 1, 0), near) if equal_nan else near


@reduction(name="_smallest", combine="minimum", differentiable=False)
def smallest(data: Float) -> Float:
    """The smallest element; not differentiable."""
    return data


@indexed("_alone", shape=lambda data: (), dtype=lambda data: np.uint8, differentiable=False)
def _alone(at: Any, data: Any) -> Any:
    """The element of an array of one axis, without axes; uint8."""
    return data[0]


@composite("_contrib_allclose", gives=(), dtypes=lambda p, d: (list(d), [np.dtype(np.uint8)]))
def allclose(a: TracedValue, b: TracedValue, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> TracedValue:
    """1 if |a - b| ≤ atol + rtol |b| everywhere, else 0; uint8, of shape (). equal_nan: NaN equals NaN."""
    near = ops._contrib_isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return ops._alone(ops._smallest(near))


# ---- mixed precision --------------------------------------------------------------------------------------------------
def _amp_type(p: Params, given: Any) -> Any:
    d = given[0]
    return list(given), [p.dtype if d is None or _is_amp(d) else d]


def _is_amp(dtype: np.dtype) -> bool:
    """Return True for float dtypes of at most 32 bits: mixed precision leaves float64 arrays alone."""
    return is_float(dtype) and dtype.itemsize <= 4


@composite("amp_cast", dtypes=_amp_type, keeps_shapes=True)
def amp_cast(data: TracedValue, *, dtype: np.dtype) -> TracedValue:
    """data cast to dtype if it holds floats of at most 32 bits, else data unchanged."""
    return ops.Cast(data, dtype=dtype.name) if _is_amp(data.dtype) and data.dtype != dtype else ops.identity(data)


def _names(what: str, p: Params) -> tuple[str, ...]:
    return tuple(f"{what}{i}" for i in range(p.num_outputs))


def _common(p: Params, given: Any) -> Any:
    if any(d is None for d in given):  # an unknown one may be the widest (`in` takes float64 for None, as NumPy does)
        return list(given), [d if d is not None and not _is_amp(d) else None for d in given]
    chosen = _chosen(p.cast_narrow, given)
    return list(given), [chosen if _is_amp(d) else d for d in given]


def _chosen(narrow: bool, dtypes: Any) -> Any:
    """Return the widest of the float dtypes of at most 32 bits, or the narrowest; None without one."""
    return (min if narrow else max)((d for d in dtypes if _is_amp(d)), key=lambda d: d.itemsize, default=None)


def _counted(p: Params) -> None:
    if p.num_outputs < 1 or p.num_args not in (None, p.num_outputs):
        raise ParameterError(f"amp_multicast: num_outputs={p.num_outputs}, but {p.num_args} arrays were given.")


@composite("amp_multicast", arguments=lambda p: _names("data_", p), outputs=lambda p: _names("output", p), dtypes=_common,
           check=_counted, keeps_shapes=True, params=(Param("num_outputs", "int"), Param("cast_narrow", "bool", False),
                                   Param("num_args", "int", None, doc="how many arrays are given")))
def amp_multicast(*data: TracedValue, num_outputs: int, cast_narrow: bool, num_args: int | None) -> list[TracedValue]:
    """Each array of floats of at most 32 bits cast to the widest dtype among these; with cast_narrow, to the narrowest."""
    to = _chosen(cast_narrow, [d.dtype for d in data])
    return [ops.Cast(d, dtype=to.name) if _is_amp(d.dtype) and d.dtype != to else ops.identity(d) for d in data]
