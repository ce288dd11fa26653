"""quantize, quantize_v2, dequantize, requantize: float32 to eight-bit integers with a range, and back.

Values are scaled, rounded (halves to even) and clipped to the range of the integer type. For int8 the range is made symmetric,
so zero stays zero. For uint8 the range begins at zero and its given lower end is ignored, as on MXNet's CPU.
These operators have no derivative.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ....dtype import float32
from ....errors import DTypeError, ParameterError
from ...declare.host_op import HostOp
from ...declare.operator_property import Dtypes, Shapes
from ...declare.property_op import register_operator

_INT8, _UINT8, _INT32 = np.dtype("int8"), np.dtype("uint8"), np.dtype("int32")
_STEPS = {_INT8: 127.0, _UINT8: 255.0}
_FINE = {_INT8: 127.5, _UINT8: 255.5}  # the integer that MXNet's newer operators map the end of the range to


def _quantized(x: np.ndarray, largest: Any, dtype: np.dtype, steps: float) -> np.ndarray:
    """Scale x so that `largest` becomes `steps`, then round and clip to dtype."""
    known = np.iinfo(dtype)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = x.astype(np.float32) * (np.float32(steps) / np.float32(largest))
    return np.clip(np.rint(np.nan_to_num(scaled, nan=0.0)), known.min, known.max).astype(dtype)


def _span(low: Any, high: Any, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the range that integers of dtype represent, [1] each."""
    largest = max(abs(np.float32(low)), abs(np.float32(high)))
    ends = (-largest, largest) if dtype == _INT8 else (low, high)
    return np.array([ends[0]], np.float32), np.array([ends[1]], np.float32)


class _Quantizer(HostOp):
    """Base class. Outputs: the integers, and the ends of their range, [1] each."""

    gradient_arguments = ()
    output_names = ("output0", "output1", "output2")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        shape = out_shape[0] if in_shape[0] is None else in_shape[0]
        return [shape, *[(1,)] * (len(in_shape) - 1)], [shape, (1,), (1,)], []

    def _takes(self, given: np.dtype | None, *allowed: np.dtype) -> None:
        if given is not None and given not in allowed:
            raise DTypeError(f"{self.name}: data is {given}. It must be {' or '.join(d.name for d in allowed)}. Convert it with "
                             f"astype.")


class _Calibrated(_Quantizer):
    """Base class of operators whose range is a parameter, or computed from the data."""

    out_type: Literal["auto", "int8", "uint8"] = "int8"
    min_calib_range: float | None = None
    max_calib_range: float | None = None

    def validate(self) -> None:
        low, high = self.min_calib_range, self.max_calib_range
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):
            raise ParameterError(f"{self.name}: min_calib_range={low} and max_calib_range={high} must be given both, in order, "
                                 f"or neither.")

    @property
    def dtype(self) -> np.dtype:
        """The integer type of the output."""
        if self.out_type == "auto":
            return _UINT8 if self.min_calib_range is not None and self.min_calib_range >= 0 else _INT8
        return np.dtype(self.out_type)

    def range_of(self, x: np.ndarray, scale: float = 1.0) -> tuple[Any, Any]:
        """Return min_calib_range and max_calib_range if given, else the smallest and largest of x · scale."""
        if self.min_calib_range is not None:
            return self.min_calib_range, self.max_calib_range
        low, high = (x.min(), x.max()) if x.size else (0, 0)
        return np.float32(float(low) * scale), np.float32(float(high) * scale)


@register_operator("_contrib_quantize")
class Quantize(_Quantizer):
    """data as eight-bit integers; min_range and max_range, [1] each, are the range they represent.

    data: float32, any shape. Returns: [integers of out_type, min_range, max_range]. Computed on the host.
    """

    out_type: Literal["int8", "uint8"] = "uint8"
    argument_names = ("data", "min_range", "max_range")

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        self._takes(in_type[0], float32)
        return [float32] * 3, [np.dtype(self.out_type), float32, float32], []

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        x, low, high = arrays
        dtype = np.dtype(self.out_type)
        return (_quantized(x, max(abs(low[0]), abs(high[0])), dtype, _STEPS[dtype]), *_span(low[0], high[0], dtype))


@register_operator("_contrib_quantize_v2")
class QuantizeV2(_Calibrated):
    """data as eight-bit integers, in the range min_calib_range to max_calib_range, or in the range of data.

    data: float32, or quantized integers, which are copied. out_type "auto": uint8 where the given range is not negative.
    Returns: [integers, lower end, upper end]. Computed on the host.
    """

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        self._takes(in_type[0], float32, _INT8, _UINT8)
        return [in_type[0]], [self.dtype, float32, float32], []

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        x = arrays[0]
        if x.dtype in _FINE:
            largest = _FINE[x.dtype]
            return x.astype(self.dtype), np.array([-largest if x.dtype == _INT8 else 0], "f"), np.array([largest], "f")
        low, high = self.range_of(x)
        return (_quantized(x, max(abs(low), abs(high)), self.dtype, _FINE[self.dtype]), *_span(low, high, self.dtype))


@register_operator("_contrib_dequantize")
class Dequantize(_Quantizer):
    """The floats that eight-bit integers represent: data · max(|min_range|, |max_range|) / 127.5, or / 255.5 for uint8.

    data: int8 or uint8. Returns: float32, the shape of data. Computed on the host.
    """

    out_type: Literal["float32"] = "float32"
    argument_names = ("data", "min_range", "max_range")
    output_names = ("output",)

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        ins, outs, _ = super().infer_shape(in_shape, out_shape)
        return ins, outs[:1], []

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        self._takes(in_type[0], _INT8, _UINT8)
        return [in_type[0], float32, float32], [float32], []

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        x, low, high = arrays
        return x.astype(np.float32) * (max(abs(low[0]), abs(high[0])) / np.float32(_FINE[x.dtype]))


@register_operator("_contrib_requantize")
class Requantize(_Calibrated):
    """Sums of products of eight-bit integers (int32 in the range min_range to max_range) as eight-bit integers.

    Returns: [integers, lower end, upper end], in the range min_calib_range to max_calib_range or that of data. On the host.
    """

    argument_names = ("data", "min_range", "max_range")

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        self._takes(in_type[0], _INT32)
        return [_INT32, float32, float32], [self.dtype, float32, float32], []

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        x, low, high = arrays
        unit = float(max(abs(low[0]), abs(high[0]))) / (2**31 - 1)
        largest = max(map(abs, self.range_of(x, unit)))
        numbers = _quantized(x.astype(np.float64) * unit, largest, self.dtype, _STEPS[self.dtype])
        return (numbers, *_span(0, largest, self.dtype))
