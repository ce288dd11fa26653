"""A failed function: what it raised, which operator it was, and the line that pushed it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import CodeType, FrameType

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FLOORS = ("engine", "kernels", "ndarray", "graph", "kvstore", "io", "train", "gluon")
_ours: dict[str, bool] = {}  # file name -> whether it belongs to the package, so that the user's line is above it

Origin = tuple[CodeType, int]
_last: Origin = (sys._getframe().f_code, -1)


class Failure:
    """The mark that a failing function leaves on the vars it mutates.

    error:  what it raised, with the operator's name in front and the pushing line behind.
    seq:    its place in push order: of several failures the first pushed is raised.
    seen:   whether somebody was told.
    """

    __slots__ = ("error", "seen", "seq")

    def __init__(self, error: BaseException, name: str, origin: Origin | None, seq: int):
        self.error, self.seq, self.seen = error, seq, False
        _explain(error, name, where(origin))

    def throw(self) -> None:
        """Raise the error."""
        self.seen = True
        raise self.error


def here(depth: int = 2) -> Origin | None:
    """The innermost line outside this package that led to this call, as a cheap pair; None at the top."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        ours = _ours.get(code.co_filename)
        if ours is None:
            ours = _ours[code.co_filename] = _is_ours(code.co_filename)
        if not ours:
            global _last
            last, at = _last, frame.f_lasti
            if last[1] != at or last[0] is not code:  # a loop that pushes a million times keeps one pair and not a million
                _last = last = (code, at)
            return last
        frame = frame.f_back
    return None


def where(origin: Origin | None) -> str:
    """`model.py:41` for what `here` gave, or the empty string."""
    if origin is None:
        return ""
    code, instruction = origin
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return f"{code.co_filename}:{line}"
    return f"{code.co_filename}:{code.co_firstlineno}"


def first(failures: Sequence[Failure]) -> Failure | None:
    """The failure that was pushed first."""
    return min(failures, key=lambda f: f.seq, default=None)


def _is_ours(filename: str) -> bool:
    if not filename.startswith(_ROOT):
        return False
    folder, found, _ = filename[len(_ROOT):].partition(os.sep)
    return folder in _FLOORS if found else True


def _explain(error: BaseException, name: str, line: str) -> None:
    """Put the operator's name in front of the message and the pushing line behind; where that cannot be, in a note."""
    pushed = f"pushed at {line}" if line else ""
    plain = type(error).__str__ in (BaseException.__str__, KeyError.__str__, OSError.__str__)
    if plain and len(error.args) <= 1 and all(isinstance(a, str) for a in error.args):
        text = error.args[0] if error.args else type(error).__name__
        if name and not text.startswith(f"{name}:"):
            text = f"{name}: {text}"
        error.args = (f"{text} ({pushed})" if pushed else text,)
    else:
        error.add_note(f"in operator {name or 'without a name'}{', ' + pushed if pushed else ''}")
