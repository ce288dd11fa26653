"""Read MXNet's optimizer-state files, which are pickles, without unpickling them.

`pickletools` splits a file into opcodes. This module interprets those that a state file needs; any other is an error. A file
can only construct what `_CONSTRUCTORS` lists. MXNet's optimizers and schedulers become a name and a dictionary.
"""

from __future__ import annotations

import itertools
import pickletools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ...errors import FileError
from ...ndarray.interop.params_file import read_array
from .states import Tree, check_key

_SETTINGS_CLASSES = ("mxnet.optimizer.", "mxnet.optimizer ", "mxnet.lr_scheduler ")
_MARK = object()


class _Array:
    """An NDArray under construction. The opcode BUILD sets its value."""

    def __init__(self, handle: Any = None):
        if handle is not None:
            raise ValueError("the argument of an NDArray is not None")
        self.value: np.ndarray | None = None


class _Settings:
    """An optimizer or scheduler of MXNet: the name of its class, and its attributes."""

    def __init__(self, name: str, *args: Any):
        self.name = name
        self.values: dict[Any, Any] = {}

    def plain(self) -> dict[str, Any]:
        """Return the attributes that are numbers or None."""
        return {k: v for k, v in self.values.items() if isinstance(k, str) and type(v) in (int, float, bool, type(None))}


def _make_bytes(data: Any = b"", encoding: Any = "latin-1") -> bytes:
    if isinstance(data, str) and encoding in ("latin-1", "latin1"):
        return data.encode("latin-1")
    if isinstance(data, bytes):
        return data
    raise ValueError(f"the argument of bytes is a {type(data).__name__}")


_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "mxnet.ndarray.ndarray NDArray": _Array,
    "mxnet.ndarray NDArray": _Array,
    "builtins bytearray": _make_bytes,
    "__builtin__ bytearray": _make_bytes,
    "_codecs encode": _make_bytes,
}


def is_pickle(data: bytes) -> bool:
    """Return True if data begins like a pickle, and not like a states file of our own."""
    return data[:1] in (b"\x80", b"}", b"(", b"c") and data[8:9] != b"{"  # byte 8: the JSON header of a safetensors file


def read_mxnet_states(data: bytes, source: str = "optimizer states") -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return {key: None, an array, or a tuple of these} from a file of MXNet's `save_optimizer_states`, and further values.

    The latter are those of `Updater.get_states(dump_optimizer=True)` if the file has the optimizer, as a Trainer's has; else {}.
    Raises FileError with the byte and the reason if the file is damaged or holds any other type.
    """
    reader = _Unpickled(source)
    at = 0
    try:
        for opcode, argument, position in pickletools.genops(data):
            at = position if position is not None else at
            reader.step(opcode.name, argument)
        if not reader.stopped or len(reader.stack) != 1:
            raise ValueError("it is cut short")
        root = reader.stack[0]
        extra: dict[str, Any] = {}
        if isinstance(root, tuple) and len(root) == 2 and isinstance(root[0], dict):
            root, saved = root
            extra = _extra(saved)
        if not isinstance(root, dict):
            raise ValueError(f"it holds a {type(root).__name__}, not a dictionary of states")
        parts = itertools.count(1)
        return {check_key(k.decode() if isinstance(k, bytes) else k): _tree(v, parts, len(data)) for k, v in root.items()}, extra
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError, FileError, RecursionError,
            OverflowError) as e:
        raise FileError(f"{source}: byte {at:,}: this is not an optimizer-state file of MXNet: {e}. "
                        f"Only arrays, tuples and numbers can be read; no code of the file was run.") from e


class _Unpickled:
    """The stack and memo of a pickle, with an interpreter of the opcodes of state files."""

    def __init__(self, source: str):
        self.source = source
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.stopped = False

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
                raise ValueError("a tuple has too few items")
            self.stack[-n:] = [items]
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self.to_mark()
            push(tuple(items) if name == "TUPLE" else items if name == "LIST" else _dict(items))
        elif name in ("SETITEM", "SETITEMS"):
            items = self.to_mark() if name == "SETITEMS" else [pop(-2), pop()]
            self.top(dict).update(_dict(items))
        elif name in ("APPEND", "APPENDS"):
            items = self.to_mark() if name == "APPENDS" else [pop()]
            self.top(list).extend(items)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            if name == "STACK_GLOBAL":
                attribute, module = pop(), pop()
                if not isinstance(attribute, str) or not isinstance(module, str):
                    raise ValueError(f"it names a class by a {type(module).__name__} and a {type(attribute).__name__}")
                argument = f"{module} {attribute}"
            push(_global(argument))
        elif name in ("REDUCE", "NEWOBJ"):
            args, target = pop(), pop()
            if not callable(target) or not isinstance(args, tuple):
                raise ValueError(f"it calls a {type(target).__name__}")
            push(target(*args))
        elif name == "BUILD":
            state = pop()
            self.build(self.stack[-1], state)
        else:
            raise ValueError(f"it uses the opcode {name}")

    def top(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise ValueError(f"it adds items to a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def build(self, target: Any, state: Any) -> None:
        if not isinstance(state, dict):
            raise ValueError(f"the state of an object is a {type(state).__name__}")
        if isinstance(target, _Settings):
            target.values = state
            return
        if isinstance(target, _Array) and set(state) <= {"handle", "writable"} and isinstance(state.get("handle"), bytes):
            target.value, length = read_array(state["handle"], self.source, "a state")
            if length != len(state["handle"]):
                raise ValueError("there are bytes after an array")
        else:
            raise ValueError(f"the state of a {type(target).__name__} has {sorted(map(str, state))}")


_PLAIN = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
    "BINUNICODE8",
})
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
}


def _extra(optimizer: Any) -> dict[str, Any]:
    """Return the name, the update counts, and the numeric settings of an optimizer and its scheduler."""
    if not isinstance(optimizer, _Settings):
        raise ValueError(f"its optimizer is a {type(optimizer).__name__}")
    values, scheduler = optimizer.values, optimizer.values.get("lr_scheduler")
    counts = values.get("_index_update_count", {})
    if not isinstance(counts, dict):
        raise ValueError(f"its update counts are a {type(counts).__name__}")
    extra = {"optimizer": optimizer.name.lower(), "num_update": values.get("num_update", 0), "counts": list(counts.items()),
             "settings": optimizer.plain()}
    if isinstance(scheduler, _Settings):
        extra |= {"scheduler": scheduler.name, "scheduler_settings": scheduler.plain()}
    return extra


def _global(name: str) -> Callable[..., Any]:
    if name in _CONSTRUCTORS:
        return _CONSTRUCTORS[name]
    if name.startswith(_SETTINGS_CLASSES):
        return partial(_Settings, name.split()[-1])
    raise ValueError(f"it names {name.replace(' ', '.')}, which state files do not use")


def _dict(items: list[Any]) -> dict[Any, Any]:
    keys = items[::2]
    for key in keys:
        if isinstance(key, tuple):  # its hash would visit tuples within tuples once for each mention
            raise ValueError("a key is a tuple")
    return dict(zip(keys, items[1::2]))


def _tree(state: Any, parts: Iterator[int], most: int) -> Tree:
    """Return a state with arrays as its leaves. parts counts them: tuples that share tuples may have 2**(bytes of the file)."""
    if next(parts) > most:
        raise ValueError(f"its states have more than {most} parts")
    if isinstance(state, (tuple, list)):
        return tuple(_tree(part, parts, most) for part in state)
    if state is None:
        return None
    if isinstance(state, _Array) and state.value is not None:
        return state.value
    raise ValueError(f"a state is a {type(state).__name__}")
