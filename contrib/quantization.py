"""`mx.contrib.quantization`: int8 networks, which are not available. Each function raises an error that says what to use."""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import NotAvailableError

__all__ = ["CalibrationCollector", "calib_graph", "combine_histogram", "quantize_graph", "quantize_model",
           "quantize_model_mkldnn", "quantize_net", "quantize_net_v2"]


def _refuse(name: str) -> NoReturn:
    raise NotAvailableError(f"contrib.quantization.{name}: int8 networks are not available. Use mx.contrib.amp, which computes "
                            f"in float16 or bfloat16. The operators nd.contrib.quantize, requantize and dequantize exist.")


def quantize_model(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise NotAvailableError: networks of symbols cannot be converted to int8."""
    _refuse("quantize_model")


def quantize_model_mkldnn(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise NotAvailableError: networks of symbols cannot be converted to int8."""
    _refuse("quantize_model_mkldnn")


def quantize_graph(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise NotAvailableError: networks of symbols cannot be converted to int8."""
    _refuse("quantize_graph")


def calib_graph(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise NotAvailableError: there are no int8 networks to calibrate."""
    _refuse("calib_graph")


def combine_histogram(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise NotAvailableError: there are no int8 networks to calibrate."""
    _refuse("combine_histogram")


def quantize_net(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise NotAvailableError: gluon networks cannot be converted to int8."""
    _refuse("quantize_net")


def quantize_net_v2(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise NotAvailableError: gluon networks cannot be converted to int8."""
    _refuse("quantize_net_v2")


class CalibrationCollector:
    """Base of collectors of calibration data. Not available: raises NotAvailableError."""

    def __init__(self, *args: Any, **kwargs: Any):
        _refuse("CalibrationCollector")
