"""KVStore: what every key-value store can do, and how keys and values are read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from ..errors import MXNetError, ParameterError
from ..ndarray import NDArray, RowSparseNDArray

Key = int | str
Updater = Callable[[Key, NDArray, NDArray], None]


@runtime_checkable
class MakesUpdater(Protocol):
    """What `set_optimizer` takes: anything that can hand out an updater (train's Optimizer does)."""

    def create_updater(self) -> Any: ...


#: Stores that were registered under the names of their classes, in lower case.
REGISTERED: dict[str, type[KVStore]] = {}


class KVStore:
    """Base of key-value stores. Keys are all ints or all strings; a key's shape and dtype are fixed by `init`.

    Operations on one key run in program order; operations on different keys may overlap, higher `priority` first.
    """

    def __init__(self, kind: str = ""):
        self._kind = kind or type(self).__name__.lower()

    @staticmethod
    def register(klass: type[KVStore]) -> type[KVStore]:
        """Make a store of one's own known to `kv.create` by its class's name, in any case."""
        name = klass.__name__.lower()
        if name in REGISTERED and REGISTERED[name] is not klass:
            warnings.warn(f"KVStoreBase.register: {name!r} replaces {REGISTERED[name].__module__}.{klass.__name__}", stacklevel=2)
        REGISTERED[name] = klass
        return klass

    @property
    def type(self) -> str:
        """The name it was created by."""
        return self._kind

    @property
    def rank(self) -> int:
        """Which worker this is, from 0."""
        return 0

    @property
    def num_workers(self) -> int:
        """How many workers share the store."""
        return 1

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        """Make keys, with copies of value. A key can be made once."""
        raise NotImplementedError

    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        """Sum a key's values (one per device), then merge the sum into the key: by the updater, else by replacing it.

        value:  an array, or a list with one array per device; for a list of keys, a list of these. Arrays may be row-sparse
                (`mx.nd.sparse.row_sparse_array`): rows that are not in them count as 0.
        The pushed arrays are never written, and may be changed as soon as this returns.
        """
        raise NotImplementedError

    def pull(self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy a key's value into out (an array, or a list of them), after all earlier pushes to the key."""
        raise NotImplementedError

    def pushpull(self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0) -> None:
        """push value, then pull into out, or back into value if there is no out."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Key | Sequence[Key], value: Any, out: Any, priority: int = 0) -> None:
        """init, then pull into out."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Copy the rows row_ids of a key's value into out, of the value's shape; its other rows become 0.

        out:      an array, dense or row-sparse, or a list of them.
        row_ids:  whole numbers, in any order, repeated or not: one array, or one for each out.
        """
        raise NotImplementedError

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Compression concerns pushes between machines; a store without any refuses it."""
        raise MXNetError(f"KVStore.set_gradient_compression: a {self.type!r} store sends nothing over a network: "
                         f"there is nothing to compress. Leave compression_params out.")

    def resume(self) -> int:
        """How many steps were made before this worker joined: none, in a store of one process."""
        return 0

    def is_capable(self, capability: str) -> bool:
        """Whether the store can run an optimizer (`"optimizer"`)."""
        return capability.lower() == "optimizer"

    def barrier(self) -> None:
        """Wait until every worker is here and this store's own operations are done."""
        raise NotImplementedError

    def get_num_dead_node(self, node_id: int = 4, timeout: int = 60) -> int:
        """How many processes of the job are dead: none, in a store of one process."""
        return 0

    def _barrier(self) -> None:  # MXNet's name for it
        self.barrier()


KVStoreBase = KVStore  # MXNet's name for what one's own stores derive from


def pairs(what: str, key: Any, value: Any) -> list[tuple[Key, list[NDArray]]]:
    """(key, arrays) for each key, from all the forms a user may give; equal keys in one call are merged, in order.

    what:  the public name, for messages.
    Raises ParameterError for keys that are no int or str, lists of different length, or a value that is no array.
    """
    if isinstance(key, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(key):
            have = f"{len(value)} values" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"
            raise ParameterError(f"{what}: {len(key)} keys, but {have}. Give one value, or list of values, per key.")
        merged: dict[Key, list[NDArray]] = {}
        for k, v in zip(key, value):
            merged.setdefault(_check_key(what, k), []).extend(_arrays(what, k, v))
        return list(merged.items())
    return [(_check_key(what, key), _arrays(what, key, value))]


def first_values(key: Any, value: Any) -> list[tuple[Key, list[NDArray]]]:
    """`pairs` for init: a store keeps dense values, whatever they are made from."""
    return [(k, [a if isinstance(a, NDArray) else a.tostype("default") for a in arrays])
            for k, arrays in pairs("KVStore.init", key, value)]


def _check_key(what: str, key: Any) -> Key:
    if isinstance(key, bool) or not isinstance(key, (int, str)):
        raise ParameterError(f"{what}: a key is an int or a str: {key!r} is a {type(key).__name__}.")
    return key


def _arrays(what: str, key: Any, value: Any) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise ParameterError(f"{what}: key {key!r}: no arrays were given.")
    for v in values:
        if not isinstance(v, (NDArray, RowSparseNDArray)):
            raise ParameterError(f"{what}: key {key!r}: {type(v).__name__} is no NDArray. Wrap it in mx.nd.array(...).")
    return values
