"""install_as_mxnet: let `import mxnet as mx` give Tritium, in this process, for code that cannot be edited."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from ...errors import MXNetError

_PACKAGE = __name__.split(".", 1)[0]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `mxnet` and `mxnet.x.y` as this package and what it calls x.y."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
                  ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "mxnet":
            return None
        module = _find(fullname.replace("mxnet", _PACKAGE, 1))
        if module is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.loader_state = module, module.__spec__
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return spec.loader_state[0]

    def exec_module(self, module: ModuleType) -> None:
        """The module ran when Tritium imported it; it only gets its own spec back."""
        state: Any = module.__spec__
        module.__spec__ = state.loader_state[1]


def _find(name: str) -> ModuleType | None:
    """The module called name: imported already, to be imported, or an attribute of one that is."""
    if name in sys.modules:
        return sys.modules[name]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        above, _, last = name.rpartition(".")
        found = getattr(_find(above), last, None) if above else None
        return found if isinstance(found, ModuleType) else None


def install_as_mxnet() -> None:
    """From now on `import mxnet`, and `from mxnet.gluon import nn` and the like, give Tritium in this process.

    Raises MXNetError when MXNet itself was imported before.
    """
    there = sys.modules.get("mxnet")
    if there is not None and there is not sys.modules[_PACKAGE]:
        raise MXNetError("install_as_mxnet: mxnet is imported already. Call this before anything imports it.")
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    importlib.import_module("mxnet")
