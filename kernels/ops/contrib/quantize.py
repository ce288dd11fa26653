"""quantize, quantize_v2, dequantize, requantize: float32 to eight-bit integers with a range, and back.

Values are scaled, rounded (halves to even) and clipped to the range of the integer type; NaN becomes zero. For int8 the range is
made symmetric, so zero stays zero. For uint8 the range begins at zero and its given lower end is ignored, as on MXNet's CPU.
These operators have no derivative.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from ....dtype import float32
from ....errors import DTypeError, ParameterError
from ...declare.composite import TracedValue, composite, ops
from ...declare.indexed import indexed
from ...ir.lang import maximum, minimum
from ...op import Dtypes, Shape
from ...params import Params

Bits = Literal["int8", "uint8"]
_INT8, _UINT8, _INT32 = np.dtype("int8"), np.dtype("uint8"), np.dtype("int32")
_STEPS = {"int8": 127.0, "uint8": 255.0}
_FINE = {"int8": 127.5, "uint8": 255.5}  # the integer that MXNet's newer operators map the end of the range to
_OUTPUTS = ("output0", "output1", "output2")  # the integers, and the ends of their range, [1] each
_ENDS = ("lower", "upper")
_WHOLE = 1.5 * 2**23  # added to a float32 below 2²² and subtracted again, it rounds halves to even


def _numbers(x: Any, largest: Any, out_type: str, steps: float) -> Any:
    """Scale x, float32, so that `largest` becomes `steps`; clip and round it. NaN stays, and becomes zero as an integer."""
    known = np.iinfo(out_type)
    clipped = maximum(minimum(x * _scale(steps, largest), float(known.max)), float(known.min))
    return (clipped + _WHOLE) - _WHOLE


def _scale(steps: float, largest: Any) -> Any:
    return math.inf if isinstance(largest, float) and not largest else steps / largest


def _larger(low: Any, high: Any) -> Any:
    return maximum(abs(low), abs(high))


def _number_of(values: tuple[Any, Any], at: Any) -> Any:
    """Return the end of a range that output 1 or 2 holds."""
    return values[at.output - 1]


def _shapes(data: Shape, *others: Shape, **_: Any) -> tuple[Shape, Shape, Shape]:
    return data, (1,), (1,)


def _takes(name: str, given: np.dtype | None, *allowed: np.dtype) -> None:
    if given is not None and given not in allowed:
        raise DTypeError(f"{name}: data is {given}. It must be {' or '.join(d.name for d in allowed)}. Convert it with astype.")


def _quantize_dtypes(data: np.dtype, *_: Any, out_type: str) -> tuple[Any, Any, Any]:
    _takes("_contrib_quantize", data, float32)
    return np.dtype(out_type), float32, float32


@indexed("_contrib_quantize", shape=_shapes, dtype=_quantize_dtypes, outputs=_OUTPUTS, differentiable=False)
def quantize(at: Any, data: Any, min_range: Any, max_range: Any, *, out_type: Bits = "uint8") -> Any:
    """data as eight-bit integers; min_range and max_range, [1] each, are the range they represent.

    data: float32, any shape. Returns: [integers of out_type, min_range, max_range].
    """
    low, high = min_range[0], max_range[0]
    largest = _larger(low, high)
    if at.output:
        return _number_of((-largest, largest) if out_type == "int8" else (low, high), at)
    return _numbers(data[at], largest, out_type, _STEPS[out_type])


# ---- a range that is a parameter, or computed from the data -------------------------------------------------------------
def _check_range(name: str, p: Params) -> None:
    low, high = p.min_calib_range, p.max_calib_range
    if (low is None) != (high is None) or (low is not None and low > high):
        raise ParameterError(f"{name}: min_calib_range={low} and max_calib_range={high} must be given both, in order, or "
                             f"neither.")


def _chosen_type(out_type: str, least: float | None) -> str:
    return ("uint8" if least is not None and least >= 0 else "int8") if out_type == "auto" else out_type


@indexed("_quantize_given", shape=_shapes, dtype=lambda *_, out_type, **p: (out_type, float32, float32), outputs=_OUTPUTS,
         differentiable=False)
def _quantize_given(at: Any, data: Any, *, out_type: Bits, low: float, high: float) -> Any:
    """data as integers of the range low to high; a part of quantize_v2. Integers are copied."""
    copied, largest = data.dtype.name in _STEPS, max(abs(low), abs(high))
    if at.output:
        return _number_of((-largest, largest) if out_type == "int8" and not copied else (low, high), at)
    return data[at] if copied else _numbers(data[at], largest, out_type, _FINE[out_type])


@indexed("_quantize_ends", shape=lambda *_: ((1,), (1,)), outputs=_ENDS, differentiable=False)
def _quantize_ends(at: Any, low: Any, high: Any) -> Any:
    """The symmetric range that holds two numbers, [1] each; a part of quantize_v2."""
    largest = _larger(low[at], high[at])
    return -largest, largest


@indexed("_quantize_by", dtype=lambda *_, out_type, **p: out_type, differentiable=False)
def _quantize_by(at: Any, data: Any, largest: Any, *, out_type: Bits) -> Any:
    """data as integers, whose range ends at largest, [1]; a part of quantize_v2."""
    return _numbers(data[at], largest[0], out_type, _FINE[out_type])


def _v2_dtypes(p: Params, given: Dtypes) -> tuple[Dtypes, Dtypes]:
    _takes("_contrib_quantize_v2", given[0], float32, _INT8, _UINT8)
    return list(given), [np.dtype(_chosen_type(p.out_type, p.min_calib_range)), float32, float32]


@composite("_contrib_quantize_v2", outputs=_OUTPUTS, gives=(), dtypes=_v2_dtypes,
           check=lambda p: _check_range("_contrib_quantize_v2", p))
def quantize_v2(data: TracedValue, *, out_type: Literal["auto", "int8", "uint8"] = "int8", min_calib_range: float | None = None,
                max_calib_range: float | None = None) -> list[TracedValue]:
    """data as eight-bit integers, in the range min_calib_range to max_calib_range, or in the range of data.

    data: float32, or quantized integers, which are copied. out_type "auto": uint8 where the given range is not negative.
    Returns: [integers, lower end, upper end].
    """
    kind, low, high = _chosen_type(out_type, min_calib_range), min_calib_range, max_calib_range
    if data.dtype.name in _FINE:
        low, high = -_FINE["int8"] if data.dtype == _INT8 else 0.0, _FINE[data.dtype.name]
    if low is not None or not math.prod(data.shape):
        return ops._quantize_given(data, out_type=kind, low=low or 0.0, high=high or 0.0)
    least, most = ops.min(data), ops.max(data)
    lower, upper = ops._quantize_ends(least, most)
    numbers = ops._quantize_by(data, upper, out_type=kind)
    return [numbers, lower, upper] if kind == "int8" else [numbers, least, most]


def _dequantize_dtypes(data: np.dtype, *_: Any) -> np.dtype:
    _takes("_contrib_dequantize", data, _INT8, _UINT8)
    return float32


@indexed("_contrib_dequantize", dtype=_dequantize_dtypes, free=("min_range", "max_range"), differentiable=False)
def dequantize(at: Any, data: Any, min_range: Any, max_range: Any, *, out_type: Literal["float32"] = "float32") -> Any:
    """The floats that eight-bit integers represent: data · max(|min_range|, |max_range|) / 127.5, or / 255.5 for uint8.

    data: int8 or uint8. Returns: float32, the shape of data.
    """
    return data[at].astype("float32") * (_larger(min_range[0], max_range[0]) / _FINE[data.dtype.name])


def _unit(min_range: Any, max_range: Any) -> Any:
    """Return the number that an int32 one stands for."""
    return _larger(min_range[0], max_range[0]).astype("float64") / (2.0**31 - 1)


@indexed("_requantize_ends", shape=lambda *_, **p: ((1,), (1,)), dtype=(float32, float32), outputs=_ENDS,
         free=("min_range", "max_range"), differentiable=False)
def _requantize_ends(at: Any, low: Any, high: Any, min_range: Any, max_range: Any, *, out_type: Bits) -> Any:
    """The range of out_type that holds what int32 low and high stand for, [1] each; a part of requantize."""
    unit = _unit(min_range, max_range)
    largest = _larger(*((v[at].astype("float64") * unit).astype("float32") for v in (low, high)))
    return -largest if out_type == "int8" else 0.0, largest


@indexed("_requantize_by", shape=lambda data, *_, **p: data, dtype=lambda *_, out_type, **p: out_type,
         free=("largest", "min_range", "max_range"), differentiable=False)
def _requantize_by(at: Any, data: Any, largest: Any, min_range: Any, max_range: Any, *, out_type: Bits) -> Any:
    """int32 data of the range min_range to max_range as integers whose range ends at largest, [1]; a part of requantize."""
    x = (data[at].astype("float64") * _unit(min_range, max_range)).astype("float32")
    return _numbers(x, largest[0], out_type, _STEPS[out_type])


@indexed("_requantize_given", shape=_shapes, dtype=lambda *_, out_type, **p: (out_type, float32, float32), outputs=_OUTPUTS,
         free=("min_range", "max_range"), differentiable=False)
def _requantize_given(at: Any, data: Any, min_range: Any, max_range: Any, *, out_type: Bits, largest: float) -> Any:
    """The same for a range that is known, and its ends."""
    if at.output:
        return _number_of((-largest if out_type == "int8" else 0.0, largest), at)
    x = (data[at].astype("float64") * _unit(min_range, max_range)).astype("float32")
    return _numbers(x, largest, out_type, _STEPS[out_type])


def _requantize_dtypes(p: Params, given: Dtypes) -> tuple[Dtypes, Dtypes]:
    _takes("_contrib_requantize", given[0], _INT32)
    return [_INT32, float32, float32], [np.dtype(_chosen_type(p.out_type, p.min_calib_range)), float32, float32]


@composite("_contrib_requantize", outputs=_OUTPUTS, gives=(), dtypes=_requantize_dtypes,
           check=lambda p: _check_range("_contrib_requantize", p),
           complete=lambda p, shapes: [shapes[0], (1,), (1,)])
def requantize(data: TracedValue, min_range: TracedValue, max_range: TracedValue, *,
               out_type: Literal["auto", "int8", "uint8"] = "int8", min_calib_range: float | None = None,
               max_calib_range: float | None = None) -> list[TracedValue]:
    """Sums of products of eight-bit integers (int32 in the range min_range to max_range) as eight-bit integers.

    Returns: [integers, lower end, upper end], in the range min_calib_range to max_calib_range or that of data.
    """
    kind = _chosen_type(out_type, min_calib_range)
    if min_calib_range is not None or not math.prod(data.shape):
        largest = max(abs(min_calib_range or 0.0), abs(max_calib_range or 0.0))
        return ops._requantize_given(data, min_range, max_range, out_type=kind, largest=largest)
    lower, upper = ops._requantize_ends(ops.min(data), ops.max(data), min_range, max_range, out_type=kind)
    return [ops._requantize_by(data, upper, min_range, max_range, out_type=kind), lower, upper]
