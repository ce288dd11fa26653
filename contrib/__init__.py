"""`mx.contrib`: mixed precision, ONNX, text, and other parts of MXNet beside its core. Each is imported at its first use."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .. import ndarray as _ndarray
from ..graph.symbol import namespace as _symbol

nd = ndarray = _ndarray.contrib
sym = symbol = _symbol.contrib
for _name, _module in (("nd", nd), ("ndarray", nd), ("sym", sym), ("symbol", sym)):
    sys.modules[f"{__name__}.{_name}"] = _module  # so that `from tritium.contrib.ndarray import box_nms` works, too

_MODULES = ("amp", "autograd", "io", "onnx", "quantization", "svrg_optimization", "tensorboard", "text")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name == "quant":
        return importlib.import_module(".quantization", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
