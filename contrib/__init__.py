"""`mx.contrib`: mixed precision, ONNX, text, and other parts of MXNet beside its core. Each is imported at its first use."""

from __future__ import annotations

import importlib
from typing import Any

from .. import ndarray as _ndarray
from ..errors import NoSuchNameError
from ..graph.symbol import namespace as _symbol

nd = ndarray = _ndarray.contrib
sym = symbol = _symbol.contrib

_MODULES = ("amp", "autograd", "io", "onnx", "svrg_optimization", "tensorboard", "text")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in ("quantization", "quant"):
        raise NoSuchNameError(f"mx.contrib.{name}: int8 networks are not available. Use mx.contrib.amp, which computes in "
                                f"float16 or bfloat16; the operators nd.contrib.quantize and dequantize exist.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
