"""What dense arrays and operators know of sparse ones: their base class, and the ways to make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import check_choice
from ...kernels.op import Op


class SparseCore:
    """Base of arrays that are not dense. An operator with such an argument calls `call_sparse` of the first one."""

    stype: str
    shape: tuple[int, ...]

    def tostype(self, stype: str) -> Any:
        """Return the array in another storage type."""
        raise NotImplementedError(f"{type(self).__name__}.tostype")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Replace the whole array: a[:] = an array of any storage type."""
        raise NotImplementedError(f"{type(self).__name__}.__setitem__")

    def call_sparse(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run op on these arguments."""
        raise NotImplementedError(f"{type(self).__name__}.call_sparse")


class StorageType(NamedTuple):
    """The functions that make arrays of a storage type.

    convert:  any source, context and dtype -> array.
    zeros:    shape, context and dtype -> array.
    """

    convert: Callable[..., Any]
    zeros: Callable[..., Any]


#: The sparse storage types; each class adds its own.
STORAGE_TYPES: dict[str, StorageType] = {}


def storage_type(caller: str, stype: str) -> StorageType:
    """Return a sparse storage type by name. Raises ParameterError for an unknown name."""
    check_choice(caller, "stype", stype, ("default", *STORAGE_TYPES))
    return STORAGE_TYPES[stype]


def find_sparse(args: Sequence[Any], kwargs: Mapping[str, Any]) -> SparseCore | None:
    """Return the first sparse array among the arguments of an operator, also in a list of arrays; None if there is none."""
    for a in (*args, *kwargs.values()):
        for b in a if isinstance(a, (list, tuple)) else (a,):
            if isinstance(b, SparseCore):
                return b
    return None
