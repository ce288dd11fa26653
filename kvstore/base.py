"""KVStore: the interface of every key-value store, and the parsing of keys and values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from ..errors import MXNetError, ParameterError
from ..ndarray import NDArray, RowSparseNDArray
from ..show import Shown

Key = int | str
Updater = Callable[[Key, NDArray | RowSparseNDArray, NDArray], None]


@runtime_checkable
class MakesUpdater(Protocol):
    """An argument of `set_optimizer`: an object that can create an updater, such as train's Optimizer."""

    def create_updater(self) -> Any: ...


#: Registered stores, by the names of their classes in lower case.
REGISTERED: dict[str, type[KVStore]] = {}


class KVStore(Shown):
    """Base class of key-value stores. Keys are all ints or all strings. `init` fixes the shape and dtype of a key.

    Operations on one key run in program order; operations on different keys may overlap, higher `priority` first.
    """

    OPTIMIZER = "optimizer"  # the name of the capability
    kv_registry = REGISTERED

    def __init__(self, kind: str = ""):
        self._kind = kind or type(self).__name__.lower()

    @staticmethod
    def register(klass: type[KVStore]) -> type[KVStore]:
        """Register a store class, so that `kv.create` finds it by its name in any case."""
        name = klass.__name__.lower()
        if name in REGISTERED and REGISTERED[name] is not klass:
            warnings.warn(f"KVStoreBase.register: {name!r} replaces {REGISTERED[name].__module__}.{klass.__name__}", stacklevel=2)
        REGISTERED[name] = klass
        return klass

    @property
    def type(self) -> str:
        """The type of the store: the name that `kv.create` was given."""
        return self._kind

    @property
    def rank(self) -> int:
        """The number of this worker, from 0."""
        return 0

    @property
    def num_workers(self) -> int:
        """The number of workers that share the store."""
        return 1

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        """Create keys with copies of value. A key can be created once."""
        raise NotImplementedError

    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        """Sum a key's values (one per device), then merge the sum into the key: by the updater, or by replacing the value.

        value:  an array, or a list with one array per device; for a list of keys, a list of these. Arrays may be row-sparse
                (`mx.nd.sparse.row_sparse_array`): their missing rows count as 0.
        The pushed arrays are never written. The caller may change them as soon as push returns.
        """
        raise NotImplementedError

    def pull(self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy a key's value into out (an array, or a list of them), after all earlier pushes to the key."""
        raise NotImplementedError

    def pushpull(self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0) -> None:
        """Push value, then pull into out, or into value if out is None."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Key | Sequence[Key], value: Any, out: Any, priority: int = 0) -> None:
        """Call init, then pull into out."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Copy the rows row_ids of a key's value into out, which has the value's shape. Its other rows become 0.

        out:      an array, dense or row-sparse, or a list of them.
        row_ids:  row indices in any order, possibly repeated: one array, or one for each out.
        """
        raise NotImplementedError

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Compress what is sent to other processes.

        A store of one process sends nothing: a "device" store warns, and keeps gradients exact; a local one raises MXNetError,
        as MXNet's.
        """
        if "device" in self.type:
            warnings.warn(f"KVStore.set_gradient_compression: a {self.type!r} store sends nothing over a network, so gradients "
                          f"are not compressed.", stacklevel=2)
            return
        raise MXNetError(f"KVStore.set_gradient_compression: a {self.type!r} store sends nothing over a network. "
                         f"Remove compression_params.")

    def resume(self) -> int:
        """Return the steps that the job made before this worker joined: 0 in a store of one process."""
        return 0

    def is_capable(self, capability: str) -> bool:
        """Return whether the store has a capability. The one known is `"optimizer"`."""
        return capability.lower() == "optimizer"

    def barrier(self) -> None:
        """Wait until every worker has called barrier and this store's own operations are complete."""
        raise NotImplementedError

    def get_num_dead_node(self, node_id: int = 4, timeout: int = 60) -> int:
        """Return the number of dead processes of the job: 0 in a store of one process."""
        return 0

    def _barrier(self) -> None:  # MXNet's name for it
        self.barrier()


KVStoreBase = KVStore  # MXNet's name for the base class of user-defined stores


def pairs(caller: str, key: Any, value: Any) -> list[tuple[Key, list[NDArray]]]:
    """Return (key, arrays) for each key, from every form that a user may pass. Equal keys in one call are merged, in order.

    caller:  the public name of the calling function, for messages.
    Raises ParameterError for a key that is not an int or str, lists of different lengths, or a value that is not an array.
    """
    if isinstance(key, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(key):
            received = f"{len(value)} values" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"
            raise ParameterError(f"{caller}: {len(key)} keys, but {received}. Give one value, or list of values, per key.")
        merged: dict[Key, list[NDArray]] = {}
        for k, v in zip(key, value):
            merged.setdefault(_check_key(caller, k), []).extend(_arrays(caller, k, v))
        return list(merged.items())
    return [(_check_key(caller, key), _arrays(caller, key, value))]


def first_values(key: Any, value: Any) -> list[tuple[Key, list[NDArray]]]:
    """Return `pairs` for init. Row-sparse values become dense."""
    return [(k, [a if isinstance(a, NDArray) else a.tostype("default") for a in arrays])
            for k, arrays in pairs("KVStore.init", key, value)]


def _check_key(caller: str, key: Any) -> Key:
    if isinstance(key, bool) or not isinstance(key, (int, str)):
        raise ParameterError(f"{caller}: a key is an int or a str: {key!r} is a {type(key).__name__}.")
    return key


def _arrays(caller: str, key: Any, value: Any) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise ParameterError(f"{caller}: key {key!r}: no arrays were given.")
    for v in values:
        if not isinstance(v, (NDArray, RowSparseNDArray)):
            raise ParameterError(f"{caller}: key {key!r}: {type(v).__name__} is not an NDArray. Wrap it in mx.nd.array(...).")
    return values
