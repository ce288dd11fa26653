"""`mx.libinfo`: the version. There is no C library, and so no path of one."""

from __future__ import annotations

from ...errors import NotAvailableError
from ...version import __version__ as __version__

_REASON = "Tritium has no C library. `import tritium` is all that is needed; docs/operators.md shows how to add operators."


def find_lib_path(prefix: str = "libmxnet") -> list[str]:
    """Raise NotAvailableError: there is no C library."""
    raise NotAvailableError(f"libinfo.find_lib_path: {_REASON}")


def find_include_path() -> str:
    """Raise NotAvailableError: there are no C headers."""
    raise NotAvailableError(f"libinfo.find_include_path: {_REASON}")


def find_conf_path(prefix: str = "tvmop") -> str:
    """Raise NotAvailableError: there is no configuration of a C library."""
    raise NotAvailableError(f"libinfo.find_conf_path: {_REASON}")
