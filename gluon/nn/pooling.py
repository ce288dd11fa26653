"""Pooling layers, and padding by reflection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ParameterError, check_choice
from ...train.compat.base import numeric_types
from ..block import HybridBlock

Size = int | Sequence[int]


def sizes(layer: str, parameter: str, value: Any, n: int) -> tuple[int, ...]:
    """Return one integer per spatial axis, from one for all, or a sequence of n."""
    if isinstance(value, numeric_types):
        return (value,) * n  # type: ignore[return-value]
    if len(value) != n:
        raise ParameterError(f"{layer}: {parameter}={value!r}. It must be a number or a list of {n} ints.")
    return tuple(value)


class _Pooling(HybridBlock):
    """The base of all pooling layers."""

    def __init__(self, pool_size: Sequence[int], strides: Size | None, padding: Size, ceil_mode: bool, global_pool: bool,
                 pool_type: str, layout: str, count_include_pad: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        name, n = type(self).__name__, len(pool_size)
        self._kwargs = {"kernel": tuple(pool_size),
                        "stride": sizes(name, "strides", pool_size if strides is None else strides, n),
                        "pad": sizes(name, "padding", padding, n), "global_pool": global_pool, "pool_type": pool_type,
                        "layout": layout, "pooling_convention": "full" if ceil_mode else "valid"}
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        k = self._kwargs
        return (f"{type(self).__name__}(size={k['kernel']}, stride={k['stride']}, padding={k['pad']}, "
                f"ceil_mode={k['pooling_convention'] == 'full'}, global_pool={k['global_pool']}, pool_type={k['pool_type']}, "
                f"layout={k['layout']})")


#: The layouts of each number of spatial axes; the first is the default.
_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def _layout(layer: HybridBlock, n: int, layout: str) -> str:
    check_choice(type(layer).__name__, "layout", layout, _LAYOUTS[n])
    return layout


class MaxPool1D(_Pooling):
    """The largest value of each window.

    pool_size:  size of the window.
    strides:    distance between windows; None: pool_size.
    padding:    positions added at both ends.
    layout:     'NCW' or 'NWC'.
    ceil_mode:  a last window that is not full counts too.
    """

    def __init__(self, pool_size: Size = 2, strides: Size | None = None, padding: Size = 0, layout: str = "NCW",
                 ceil_mode: bool = False, **kwargs: Any) -> None:
        super().__init__(sizes("MaxPool1D", "pool_size", pool_size, 1), strides, padding, ceil_mode, False, "max",
                         _layout(self, 1, layout), **kwargs)


class MaxPool2D(_Pooling):
    """The largest value of each window. layout: 'NCHW' or 'NHWC'. The other parameters are MaxPool1D's."""

    def __init__(self, pool_size: Size = (2, 2), strides: Size | None = None, padding: Size = 0, layout: str = "NCHW",
                 ceil_mode: bool = False, **kwargs: Any) -> None:
        super().__init__(sizes("MaxPool2D", "pool_size", pool_size, 2), strides, padding, ceil_mode, False, "max",
                         _layout(self, 2, layout), **kwargs)


class MaxPool3D(_Pooling):
    """The largest value of each window. layout: 'NCDHW' or 'NDHWC'. The other parameters are MaxPool1D's."""

    def __init__(self, pool_size: Size = (2, 2, 2), strides: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
                 layout: str = "NCDHW", **kwargs: Any) -> None:
        super().__init__(sizes("MaxPool3D", "pool_size", pool_size, 3), strides, padding, ceil_mode, False, "max",
                         _layout(self, 3, layout), **kwargs)


class AvgPool1D(_Pooling):
    """The mean of each window. count_include_pad: padding counts as zeros. The other parameters are MaxPool1D's."""

    def __init__(self, pool_size: Size = 2, strides: Size | None = None, padding: Size = 0, layout: str = "NCW",
                 ceil_mode: bool = False, count_include_pad: bool = True, **kwargs: Any) -> None:
        super().__init__(sizes("AvgPool1D", "pool_size", pool_size, 1), strides, padding, ceil_mode, False, "avg",
                         _layout(self, 1, layout), count_include_pad, **kwargs)


class AvgPool2D(_Pooling):
    """The mean of each window. layout: 'NCHW' or 'NHWC'. The other parameters are AvgPool1D's."""

    def __init__(self, pool_size: Size = (2, 2), strides: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
                 layout: str = "NCHW", count_include_pad: bool = True, **kwargs: Any) -> None:
        super().__init__(sizes("AvgPool2D", "pool_size", pool_size, 2), strides, padding, ceil_mode, False, "avg",
                         _layout(self, 2, layout), count_include_pad, **kwargs)


class AvgPool3D(_Pooling):
    """The mean of each window. layout: 'NCDHW' or 'NDHWC'. The other parameters are AvgPool1D's."""

    def __init__(self, pool_size: Size = (2, 2, 2), strides: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
                 layout: str = "NCDHW", count_include_pad: bool = True, **kwargs: Any) -> None:
        super().__init__(sizes("AvgPool3D", "pool_size", pool_size, 3), strides, padding, ceil_mode, False, "avg",
                         _layout(self, 3, layout), count_include_pad, **kwargs)


class _GlobalPooling(_Pooling):
    """Pooling over all positions: the spatial sizes of the output are 1."""

    def __init__(self, n: int, pool_type: str, layout: str, **kwargs: Any) -> None:
        super().__init__((1,) * n, None, 0, True, True, pool_type, _layout(self, n, layout), **kwargs)


class GlobalMaxPool1D(_GlobalPooling):
    """The largest value of each channel. layout: 'NCW' or 'NWC'."""

    def __init__(self, layout: str = "NCW", **kwargs: Any) -> None:
        super().__init__(1, "max", layout, **kwargs)


class GlobalMaxPool2D(_GlobalPooling):
    """The largest value of each channel. layout: 'NCHW' or 'NHWC'."""

    def __init__(self, layout: str = "NCHW", **kwargs: Any) -> None:
        super().__init__(2, "max", layout, **kwargs)


class GlobalMaxPool3D(_GlobalPooling):
    """The largest value of each channel. layout: 'NCDHW' or 'NDHWC'."""

    def __init__(self, layout: str = "NCDHW", **kwargs: Any) -> None:
        super().__init__(3, "max", layout, **kwargs)


class GlobalAvgPool1D(_GlobalPooling):
    """The mean of each channel. layout: 'NCW' or 'NWC'."""

    def __init__(self, layout: str = "NCW", **kwargs: Any) -> None:
        super().__init__(1, "avg", layout, **kwargs)


class GlobalAvgPool2D(_GlobalPooling):
    """The mean of each channel. layout: 'NCHW' or 'NHWC'."""

    def __init__(self, layout: str = "NCHW", **kwargs: Any) -> None:
        super().__init__(2, "avg", layout, **kwargs)


class GlobalAvgPool3D(_GlobalPooling):
    """The mean of each channel. layout: 'NCDHW' or 'NDHWC'."""

    def __init__(self, layout: str = "NCDHW", **kwargs: Any) -> None:
        super().__init__(3, "avg", layout, **kwargs)


class ReflectionPad2D(HybridBlock):
    """Images with borders that mirror their inside.

    padding: pixels at each border; or eight numbers, the first and last of each axis of [batch, channels, height, width].
    """

    def __init__(self, padding: Size = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(padding, numeric_types):
            padding = (0, 0, 0, 0) + (padding,) * 4  # type: ignore[operator]
        if len(padding) != 8:
            raise ParameterError(f"ReflectionPad2D: padding={padding!r}. It must be a number or a list of 8 ints.")
        self._padding = padding

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.pad(x, mode="reflect", pad_width=self._padding)
