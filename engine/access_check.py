"""Which var stands for which bytes, and whether the running function declared it. Used by CheckedEngine alone.

Two nets. A numpy view of guarded bytes is a `CheckedArray`: it asks before every use that goes through Python or through
NumPy's protocols, so reads and writes are caught where they happen, also through a view taken long before. What gets
around that (`np.asarray` of such a view, a raw pointer) is caught when it writes: the checksum of bytes that the
function did not say it mutates changes.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from typing import Any

import numpy as np

from ..errors import EngineError
from .deps import Task, Var
from .gpu import cuda
from .memory import storage


class AccessCheck:
    """The var of a block, what an array on it was last seen to be, and which task made it (its scratch)."""

    __slots__ = ("maker", "seen", "var")

    def __init__(self, var: Var, block: storage.Block, maker: Task | None):
        self.var, self.seen = var, str(block)
        self.maker = None if maker is None else maker.seq


_checks: weakref.WeakKeyDictionary[storage.Block, AccessCheck] = weakref.WeakKeyDictionary()
_now = threading.local()


def install() -> None:
    """Have storage tell of blocks and views from now on."""
    storage.access_checker = AccessChecker()


class running:
    """`with running(task)`: the calling thread runs task, and its accesses are checked against what task declared."""

    __slots__ = ("_before", "_task")

    def __init__(self, task: Task):
        self._task = task

    def __enter__(self) -> None:
        self._before = getattr(_now, "task", None)
        _now.task = self._task

    def __exit__(self, *exc: object) -> None:
        _now.task = self._before


class AccessChecker:
    """What storage calls."""

    def register(self, block: storage.Block, var: Var) -> None:
        """var stands for the bytes of block."""
        _checks[block] = AccessCheck(var, block, getattr(_now, "task", None))

    def view(self, block: storage.Block, array: Any) -> Any:
        """array, a view of block, guarded. Raises EngineError if the running function did not declare block's var."""
        guard = _checks.get(block)
        if guard is None:
            return array
        dtype = str(array.dtype).removeprefix("torch.")
        guard.seen = f"{dtype}[{','.join(map(str, array.shape))}]@{block.ctx}"
        check(guard, False)
        if not isinstance(array, np.ndarray):
            return array
        if (task := getattr(_now, "task", None)) is not None and guard.var in task.const_vars:
            array.flags.writeable = False
        made = array.view(CheckedArray)
        made._check = guard
        return made


def check(guard: AccessCheck, writes: bool) -> None:
    """Raise EngineError unless the running function, if any, declared this access."""
    task: Task | None = getattr(_now, "task", None)
    if task is None or guard.var in task.mutable_vars or (guard.var in task.const_vars and not writes):
        return
    if guard.maker != task.seq:
        raise undeclared(task, guard, writes)


def undeclared(task: Task, guard: AccessCheck, writes: bool) -> EngineError:
    """The error for an access that was not declared."""
    name = task.name or "a function without a name"
    if guard.var in task.const_vars:
        return EngineError(f"{name}: writes {guard.seen}, but declared only to read it. Move its var from const_vars to "
                           f"mutable_vars.")
    return EngineError(f"{name}: {'writes' if writes else 'reads'} {guard.seen}, which it did not declare. Put its var "
                       f"into {'mutable_vars' if writes else 'const_vars, or into mutable_vars if it changes it'}.")


def sums(task: Task) -> dict[storage.Block, int]:
    """Checksums of the blocks that task does not say it mutates. Bytes on a real GPU are not looked at."""
    found = {}
    for block, guard in list(_checks.items()):
        memory: Any = block.taken()  # what no function has written yet has none
        hidden = memory is None or (block.ctx.is_gpu and cuda.is_real())
        if not hidden and guard.var not in task.mutable_vars and guard.maker != task.seq:
            host: Any = cuda.to_host(memory) if block.ctx.is_gpu else memory
            found[block] = zlib.crc32(host.data)
    return found


def changed(task: Task, before: dict[storage.Block, int]) -> EngineError | None:
    """The error for the first block whose bytes are no longer what they were."""
    for block, total in sums(task).items():
        if before.get(block, total) != total:
            return undeclared(task, _checks[block], True)
    return None


#: Functions of NumPy, and methods of its arrays, that write into their first argument.
_WRITERS = {"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal", "fill", "sort", "partition", "itemset",
            "resize", "setfield", "byteswap", "__setitem__"}
#: Attributes that say what an array is, or give another view of the same bytes: no access yet.
_HARMLESS = {"shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags", "base", "view", "reshape", "T",
             "transpose", "swapaxes", "ravel", "squeeze", "real", "imag", "diagonal", "setflags", "_check"}


class CheckedArray(np.ndarray):
    """A view of guarded bytes: as an ndarray, but it asks first."""

    _check: AccessCheck | None = None

    def __array_finalize__(self, obj: Any) -> None:
        if isinstance(obj, CheckedArray):  # a view of it, or a copy: then the bytes are its own
            self._check = obj._check if self.base is not None else None

    def __getattribute__(self, name: str) -> Any:
        if name not in _HARMLESS and not (name.startswith("__") and name not in ("__array_interface__",)):
            guard = object.__getattribute__(self, "_check")
            if guard is not None:
                check(guard, name in _WRITERS)
        return super().__getattribute__(name)

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(_plain(key))
        if not isinstance(part, CheckedArray) or part._check is None:  # not just another view of the same bytes
            _ask(self, False)
        return part

    def __setitem__(self, key: Any, value: Any) -> None:
        _ask(self, True)
        super().__setitem__(_plain(key), _plain(value))

    def __iter__(self) -> Any:
        _ask(self, False)
        return super().__iter__()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        writes = method == "at"
        for a in out or ():
            _ask(a, True)
        for i, a in enumerate(inputs):
            _ask(a, writes and i == 0)
        if out is not None:
            kwargs["out"] = tuple(_plain(a) for a in out)
        result = getattr(ufunc, method)(*map(_plain, inputs), **{k: _plain(v) for k, v in kwargs.items()})
        return out[0] if out is not None and len(out) == 1 else result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        for i, a in enumerate(args):
            _ask(a, i == 0 and func.__name__ in _WRITERS)
        for k, a in kwargs.items():
            _ask(a, k == "out")
        result = func(*_plain(args), **{k: _plain(v) for k, v in kwargs.items()})
        return kwargs["out"] if kwargs.get("out") is not None else result


def _ask(a: Any, writes: bool) -> None:
    if isinstance(a, CheckedArray):
        if a._check is not None:
            check(a._check, writes)
    elif isinstance(a, (list, tuple)):
        for part in a:
            _ask(part, writes)


def _plain(a: Any) -> Any:
    """a with plain arrays for guarded ones; tuples and lists too."""
    if isinstance(a, CheckedArray):
        return a.view(np.ndarray)
    if isinstance(a, (list, tuple)) and type(a) in (list, tuple):
        return type(a)(map(_plain, a))
    return a
