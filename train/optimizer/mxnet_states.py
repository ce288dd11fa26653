"""MXNet's optimizer-state files, which are pickles, read as the data they hold.

Nothing of a file is ever run. `pickletools` cuts it into opcodes; those that a state file consists of are interpreted
here, over a stack, and anything else is an error that names it. The names a file may use are the keys of `_KNOWN` and
the optimizers and schedulers of MXNet, which become inert records.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import FileError
from ...ndarray.interop.params_file import _read_record, _Reader

_DEEPEST = 64  # how deep containers may lie in each other
_CLASSES = ("mxnet.optimizer.", "mxnet.lr_scheduler.")  # become records; what they hold is read and left unused
_MARK = object()


class _Array:
    """An NDArray under construction: its bytes come with BUILD."""

    value: np.ndarray | None = None


class _Record:
    """An object of one of MXNet's own classes: its name and what it holds, and nothing that runs."""

    def __init__(self, name: str):
        self.name, self.fields = name, {}


class _Name:
    """A global that a file names and that is known here: what to make of its arguments."""

    def __init__(self, name: str, make: Callable[..., Any]):
        self.name, self.make = name, make


def _make_array(*args: Any) -> _Array:
    if args not in ((), (None,)):
        raise ValueError("an NDArray is made of something else than None")
    return _Array()


def _make_bytes(data: Any = b"", encoding: Any = "latin-1") -> bytes:
    if isinstance(data, str) and encoding in ("latin-1", "latin1"):
        return data.encode("latin-1")
    if isinstance(data, bytes):
        return data
    raise ValueError(f"bytes are made of a {type(data).__name__}")


_KNOWN: dict[str, Callable[..., Any]] = {
    "mxnet.ndarray.ndarray NDArray": _make_array,
    "mxnet.ndarray NDArray": _make_array,
    "builtins bytearray": _make_bytes,
    "__builtin__ bytearray": _make_bytes,
    "_codecs encode": _make_bytes,
}


def is_pickle(data: bytes) -> bool:
    """Whether data begins as a pickle does (and not as our own states file)."""
    return data[:1] in (b"\x80", b"}", b"(", b"c") and data[8:9] != b"{"  # where the JSON of ours begins


def read_mxnet_states(data: bytes, source: str = "optimizer states") -> dict[Any, Any]:
    """{key: None, an array, or a tuple of these} of a file that MXNet's `save_optimizer_states` wrote.

    With `dump_optimizer=True` the file also holds the optimizer: its settings are skipped.
    Raises: FileError with the byte and the reason: for damage, and for any type that such files do not hold.
    """
    reader = _Unpickled(source)
    at = 0
    try:
        for opcode, argument, position in pickletools.genops(data):
            at = position if position is not None else at
            reader.step(opcode.name, argument)
        root = reader.result()
        if isinstance(root, tuple) and len(root) == 2 and isinstance(root[0], dict):
            root = root[0]
        if not isinstance(root, dict):
            raise ValueError(f"it holds a {type(root).__name__}, not a dictionary of states")
        return {_key(k): _tree(v, 0) for k, v in root.items()}
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError, FileError, RecursionError,
            OverflowError) as e:
        raise FileError(f"{source}: byte {at:,}: this is no optimizer-state file of MXNet's: {e}. "
                        f"Only arrays, tuples and numbers are read; nothing of the file was run.") from e


class _Unpickled:
    """The stack and memo of a pickle, for the opcodes that state files consist of."""

    def __init__(self, source: str):
        self.source = source
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.stopped = False

    def result(self) -> Any:
        if not self.stopped or len(self.stack) != 1:
            raise ValueError("it ends in the middle")
        return self.stack[0]

    def to_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("a mark is missing")
        items = self.stack[at + 1:]
        del self.stack[at:]
        return items

    def step(self, name: str, argument: Any) -> None:
        push, pop = self.stack.append, self.stack.pop
        if name in _PLAIN:
            push(argument)
        elif name in _CONSTANTS:
            push(_CONSTANTS[name]())
        elif name in ("PROTO", "FRAME"):
            pass
        elif name == "STOP":
            self.stopped = True
        elif name == "MARK":
            push(_MARK)
        elif name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            push(self.memo[argument])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(name[-1])
            items = tuple(self.stack[-n:])
            if len(items) != n or _MARK in items:
                raise ValueError("a tuple lacks its items")
            self.stack[-n:] = [items]
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self.to_mark()
            push(tuple(items) if name == "TUPLE" else items if name == "LIST" else dict(zip(items[::2], items[1::2])))
        elif name in ("SETITEM", "SETITEMS"):
            items = self.to_mark() if name == "SETITEMS" else [pop(-2), pop()]
            self.top(dict).update(zip(items[::2], items[1::2]))
        elif name in ("APPEND", "APPENDS"):
            items = self.to_mark() if name == "APPENDS" else [pop()]
            self.top(list).extend(items)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            if name == "STACK_GLOBAL":
                attribute, module = pop(), pop()
                argument = f"{module} {attribute}"
            push(_global(argument))
        elif name in ("REDUCE", "NEWOBJ"):
            args, target = pop(), pop()
            if not isinstance(target, _Name) or not isinstance(args, tuple):
                raise ValueError(f"it calls {target!r}")
            push(target.make(*args))
        elif name == "BUILD":
            state = pop()
            self.build(self.stack[-1], state)
        else:
            raise ValueError(f"it uses the opcode {name}")

    def top(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise ValueError(f"items are put into a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def build(self, target: Any, state: Any) -> None:
        if not isinstance(state, dict):
            raise ValueError(f"an object's content is a {type(state).__name__}")
        if isinstance(target, _Record):
            target.fields.update(state)
        elif isinstance(target, _Array) and set(state) <= {"handle", "writable"} and isinstance(state.get("handle"), bytes):
            reader = _Reader(memoryview(state["handle"]), self.source)
            target.value = _read_record(reader, "a state")
            if reader.at != len(state["handle"]):
                raise ValueError("bytes follow an array")
        else:
            raise ValueError(f"a {type(target).__name__} is filled with {sorted(map(str, state))}")


_PLAIN = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
    "BINUNICODE8",
})
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
}


def _global(name: str) -> _Name:
    if name in _KNOWN:
        return _Name(name, _KNOWN[name])
    if name.startswith(_CLASSES):
        return _Name(name, lambda *args: _Record(name))
    raise ValueError(f"it names {name.replace(' ', '.')}, which no state file needs")


def _key(key: Any) -> int | str:
    if type(key) is bytes:
        return key.decode()
    if type(key) not in (int, str):
        raise ValueError(f"a key is a {type(key).__name__}")
    return key


def _tree(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError("its states lie too deep in each other")
    if value is None:
        return None
    if isinstance(value, (tuple, list)):
        return tuple(_tree(v, depth + 1) for v in value)
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    raise ValueError(f"a state is a {type(value).__name__}")
