"""Modules of MXNet that do not exist here. An import of one is an error with the reason and another way."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from typing import Any

from ...errors import NoSuchModuleError

_PACKAGE = __name__.split(".", 1)[0]
_NO_LIBRARY = "there is no C library, and so no bindings to it. The classes are mx.nd.NDArray, mx.sym.Symbol and mx.nd.CachedOp"
_GENERATED = ("operators are declared, not generated. mx.nd.NAME and mx.sym.NAME are functions; docs/operators.md shows how to "
              "add one")
#: The reason by module, without the package's name. It holds for the modules below it, too.
ABSENT = {
    "notebook": "charts of pandas and bokeh are not drawn here. Use Module.fit(progress=True) or mx.callback.Speedometer, and "
                "mx.contrib.tensorboard.LogMetricsCallback for curves",
    "torch": "functions of Lua Torch are not called. Use mx.operator.CustomOp, or exchange arrays with torch.from_dlpack",
    "th": "functions of Lua Torch are not called. Use mx.operator.CustomOp, or exchange arrays with torch.from_dlpack",
    "tvmop": "operators are not compiled by TVM. Declare one with @mx.simple_op, or write a kernel in Triton: docs/operators.md",
    "space": "operators are not compiled by TVM. `tritium tune` finds configurations of kernels",
    **dict.fromkeys(("_ctypes", "_cy2", "_cy3", "cython", "_ffi", "_api_internal", "_global_var", "api"), _NO_LIBRARY),
    **dict.fromkeys((f"ndarray.{name}" for name in ("register", "gen__internal", "gen_contrib", "gen_image", "gen_linalg",
                                                    "gen_op", "gen_random", "gen_sparse")), _GENERATED),
}


def reason(module: str) -> str | None:
    """Return the message for a module, or for a module below an absent one; None for all others. module: "notebook.callback"."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        why = ABSENT.get(".".join(parts[:end]))
        if why is not None:
            return f"mx.{module} is not available: {why}."
    return None


class _AbsentFinder(importlib.abc.MetaPathFinder):
    """The last import hook: nothing else has found the module."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        package, _, module = fullname.partition(".")
        why = reason(module) if sys.modules.get(package) is sys.modules[_PACKAGE] else None  # mxnet may be MXNet itself
        if why is not None:
            raise NoSuchModuleError(why)


def explain_absent_modules() -> None:
    """Let imports of these modules fail with their reason."""
    if not any(isinstance(f, _AbsentFinder) for f in sys.meta_path):
        sys.meta_path.append(_AbsentFinder())
