"""CheckedEngine: serial, and checks that every function uses only the arrays that it declared.

Two checks find accesses. A NumPy view of a known block is a `CheckedArray`, which checks before every use that goes through
Python or NumPy's protocols. So reads and writes raise where they happen, also through a view taken long before. Writes that
avoid this (`np.asarray` of such a view, a raw pointer) change the checksum of bytes that the function did not declare.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from typing import Any

import numpy as np

from ..errors import EngineError
from .deps import Task, Var
from .gpu import cuda, transfer
from .interrupts import ki_unprotected
from .memory import storage
from .naive import NaiveEngine


class CheckedEngine(NaiveEngine):
    """An undeclared read or write of an array's bytes is an EngineError with the names of function and array.

    It is raised at the wait, like any error of a function. Choose this engine (TRITIUM_ENGINE_TYPE=CheckedEngine) before
    arrays are made: it knows the blocks that storage gives out while it exists. It is slow, because all of them are
    looked at after every function. A function that hands work to another thread is checked for writes only, and memory of
    a real GPU is not checked.
    """

    def __init__(self) -> None:
        super().__init__()
        install()

    def _collect(self, task: Task) -> None:
        """Submit task alone, without merging it, so that each function is checked by itself."""
        self._submit_recorded(task, self._submit)

    @ki_unprotected
    def _call(self, task: Task) -> None:
        before = _checksums(task)
        outer, _now.task = getattr(_now, "task", None), task
        try:
            super()._call(task)
        except ValueError as e:
            if "read-only" in str(e):
                raise EngineError(f"{task.name or 'a function without a name'}: writes an array that it declared only to "
                                  f"read ({e}). Move its var from const_vars to mutable_vars.") from e
            raise
        finally:
            _now.task = outer
        for block, checksum in _checksums(task).items():
            if before.get(block, checksum) != checksum:
                raise _undeclared(task, _checks[block], True)


class AccessCheck:
    """A known block: its variable, the array last seen on it, and the task that allocated it, which may use it."""

    __slots__ = ("maker", "seen", "var")

    def __init__(self, var: Var, block: storage.Block, maker: Task | None):
        self.var, self.seen = var, str(block)
        self.maker = None if maker is None else maker.seq

    def check(self, writes: bool) -> None:
        """Raise EngineError unless the running function, if any, declared this access."""
        task: Task | None = getattr(_now, "task", None)
        if task is None or self.var in task.mutable_vars or (self.var in task.const_vars and not writes):
            return
        if self.maker != task.seq:
            raise _undeclared(task, self, writes)


_checks: weakref.WeakKeyDictionary[storage.Block, AccessCheck] = weakref.WeakKeyDictionary()
_now = threading.local()  # task: the one that this thread runs


class AccessChecker:
    """Registry of the known blocks; storage calls it."""

    def register(self, block: storage.Block, var: Var) -> None:
        """Check accesses to block from now on. var orders work on it."""
        _checks[block] = AccessCheck(var, block, getattr(_now, "task", None))

    def view(self, block: storage.Block, array: Any) -> Any:
        """Return array, a view of block, as a CheckedArray. Raises EngineError if the running function did not declare it."""
        access = _checks.get(block)
        if access is None:
            return array
        dtype = str(array.dtype).removeprefix("torch.")
        access.seen = f"{dtype}[{','.join(map(str, array.shape))}]@{block.ctx}"
        access.check(False)
        if not isinstance(array, np.ndarray):
            return array
        if (task := getattr(_now, "task", None)) is not None and access.var in task.const_vars:
            array.flags.writeable = False
        checked = array.view(CheckedArray)
        checked._access = access
        return checked


def install() -> None:
    """Have storage register blocks and views from now on."""
    storage.access_checker = AccessChecker()


def _undeclared(task: Task, access: AccessCheck, writes: bool) -> EngineError:
    name = task.name or "a function without a name"
    if access.var in task.const_vars:
        return EngineError(f"{name}: writes {access.seen}, but declared only to read it. Move its var from const_vars to "
                           f"mutable_vars.")
    return EngineError(f"{name}: {'writes' if writes else 'reads'} {access.seen}, which it did not declare. Put its var "
                       f"into {'mutable_vars' if writes else 'const_vars, or into mutable_vars if it changes it'}.")


def _checksums(task: Task) -> dict[storage.Block, int]:
    """Return checksums of the blocks that task may not change, but for memory of a real GPU."""
    checksums = {}
    for block, access in list(_checks.items()):
        memory: Any = block.taken()  # None if no function has written the block yet
        hidden = memory is None or (block.ctx.is_gpu and cuda.is_real())
        if not hidden and access.var not in task.mutable_vars and access.maker != task.seq:
            host: Any = transfer.to_host(memory) if block.ctx.is_gpu else memory
            checksums[block] = zlib.crc32(host.data)
    return checksums


#: Functions of NumPy, and methods of its arrays, that write into their first argument.
_WRITERS = {"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal", "fill", "sort", "partition", "itemset",
            "resize", "setfield", "byteswap", "__setitem__"}
#: Attributes that describe an array, or give another view of the same bytes: not accesses.
_HARMLESS = {"shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags", "base", "view", "reshape", "T",
             "transpose", "swapaxes", "ravel", "squeeze", "real", "imag", "diagonal", "setflags", "_access"}


class CheckedArray(np.ndarray):
    """A view of a known block: an ndarray that checks each use."""

    _access: AccessCheck | None = None

    def __array_finalize__(self, obj: Any) -> None:
        if isinstance(obj, CheckedArray):  # self is a view of obj, or a copy with bytes of its own
            self._access = obj._access if self.base is not None else None

    def __getattribute__(self, name: str) -> Any:
        if name not in _HARMLESS and not (name.startswith("__") and name not in ("__array_interface__",)):
            access = object.__getattribute__(self, "_access")
            if access is not None:
                access.check(name in _WRITERS)
        return super().__getattribute__(name)

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(_plain(key))
        if not isinstance(part, CheckedArray) or part._access is None:  # not just another view of the same bytes
            _check(self, False)
        return part

    def __setitem__(self, key: Any, value: Any) -> None:
        _check(self, True)
        super().__setitem__(_plain(key), _plain(value))

    def __iter__(self) -> Any:
        _check(self, False)
        return super().__iter__()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        writes = method == "at"
        for a in out or ():
            _check(a, True)
        for i, a in enumerate(inputs):
            _check(a, writes and i == 0)
        if out is not None:
            kwargs["out"] = tuple(_plain(a) for a in out)
        result = getattr(ufunc, method)(*map(_plain, inputs), **{k: _plain(v) for k, v in kwargs.items()})
        return out[0] if out is not None and len(out) == 1 else result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        for i, a in enumerate(args):
            _check(a, i == 0 and func.__name__ in _WRITERS)
        for k, a in kwargs.items():
            _check(a, k == "out")
        result = func(*_plain(args), **{k: _plain(v) for k, v in kwargs.items()})
        return kwargs["out"] if kwargs.get("out") is not None else result


def _check(a: Any, writes: bool) -> None:
    if isinstance(a, CheckedArray):
        if a._access is not None:
            a._access.check(writes)
    elif isinstance(a, (list, tuple)):
        for part in a:
            _check(part, writes)


def _plain(a: Any) -> Any:
    """Return a with plain arrays in place of checked ones, also inside tuples and lists."""
    if isinstance(a, CheckedArray):
        return a.view(np.ndarray)
    if isinstance(a, (list, tuple)) and type(a) in (list, tuple):
        return type(a)(map(_plain, a))
    return a
