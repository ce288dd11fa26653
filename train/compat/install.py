"""Second names of modules: `import mxnet as mx` for scripts that cannot be edited, and MXNet's module names."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ...errors import MXNetError
from ...version import MXNET_RELEASE
from .imported_names import give_names

_PACKAGE = __name__.split(".", 1)[0]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that gives modules a second name, without loading their file again.

    renamed: returns the real name of a second name, or None for all other names.
    """

    def __init__(self, renamed: Callable[[str], str | None]) -> None:
        self._renamed = renamed

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
                  ) -> importlib.machinery.ModuleSpec | None:
        real = self._renamed(fullname)
        module = None if real is None else _find(real)
        if module is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.loader_state = module, module.__spec__
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return spec.loader_state[0]

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec. The module ran at its first import."""
        spec: Any = module.__spec__
        module.__spec__ = spec.loader_state[1]


class _MXNetFinder(_Finder):
    """The import hook of `mxnet`. With the package come the names of its modules in sys.modules."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if module is sys.modules[_PACKAGE]:
            for name, loaded in list(sys.modules.items()):
                if name.startswith(f"{_PACKAGE}.") and name.split(".")[1] not in _OWN:
                    sys.modules.setdefault(f"mxnet{name.removeprefix(_PACKAGE)}", loaded)
                    give_names(name.removeprefix(f"{_PACKAGE}."), loaded)
        else:
            alias: str = module.__spec__.name if module.__spec__ is not None else module.__name__
            give_names(alias.removeprefix(f"{_PACKAGE}."), module)


#: Packages that MXNet does not have.
_OWN = frozenset(("graph", "kernels", "train", "cli", "tuning", "examples", "lang", "storage", "cache", "dtype", "integers",
                  "fork", "atomic_file", "version", "errors", "np_shape"))


def _find(name: str) -> ModuleType | None:
    """Return the module called name, or the module that is an attribute of that name, or None."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        above, _, last = name.rpartition(".")
        module = getattr(_find(above), last, None) if above else None
        return module if isinstance(module, ModuleType) else None


def _renamed_mxnet(name: str) -> str | None:
    return name.replace("mxnet", _PACKAGE, 1) if name.partition(".")[0] == "mxnet" else None


def add_aliases(aliases: Mapping[str, str]) -> None:
    """Add second names of modules: with `{"kv": "kvstore"}`, `tritium.kv.create` is the module `tritium.kvstore.create`."""
    for alias, target in aliases.items():
        above, _, last = f"{_PACKAGE}.{alias}".rpartition(".")
        module = _find(f"{_PACKAGE}.{target}")
        assert module is not None, target
        sys.modules[f"{_PACKAGE}.{alias}"] = module
        if above == _PACKAGE or not hasattr(sys.modules[above], last):
            setattr(sys.modules[above], last, module)

    def renamed(name: str) -> str | None:
        if name.startswith(f"{_PACKAGE}."):
            above, _, last = name.removeprefix(f"{_PACKAGE}.").rpartition(".")
            while above:
                if above in aliases:
                    return f"{_PACKAGE}.{aliases[above]}.{last}"
                above, _, middle = above.rpartition(".")
                last = f"{middle}.{last}"
        return None

    sys.meta_path.insert(0, _Finder(renamed))


def install_as_mxnet() -> None:
    """Make `import mxnet`, `from mxnet.module import Module` and so on import Tritium, in this process.

    `__version__` becomes that of MXNet, "1.9.1"; Tritium's own is `__tritium_version__`.
    Raises MXNetError if MXNet itself was imported before.
    """
    mxnet = sys.modules.get("mxnet")
    if mxnet is not None and mxnet is not sys.modules[_PACKAGE]:
        raise MXNetError("install_as_mxnet: mxnet is already imported. Call this before any import of mxnet.")
    sys.modules[_PACKAGE].__version__ = MXNET_RELEASE  # type: ignore[attr-defined]  # scripts compare it
    if not any(isinstance(f, _MXNetFinder) for f in sys.meta_path):
        sys.meta_path.insert(0, _MXNetFinder(_renamed_mxnet))
