"""A failed function: what it raised, which operator it was, and the line that pushed it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FrameType, TracebackType

from .interrupts import ki_protected

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FLOORS = ("engine", "kernels", "ndarray", "graph", "kvstore", "io", "train", "tuning", "cli", "gluon")
_ours: dict[str, bool] = {}  # file name -> whether it belongs to the package, so that the user's line is above it

_GENERATOR = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_DEEP = 4  # operators that one error names: functions that wait for each other

Origin = tuple[CodeType, int]
_last: Origin = (sys._getframe().f_code, -1)


class Said(str):
    """A text that the engine wrote on an error.

    plain: the text that the error had before; of a note, nothing.
    deep:  how many operators it names.
    """

    plain: str
    deep: int

    def __new__(cls, text: str, plain: str = "", deep: int = 1) -> Said:
        made = super().__new__(cls, text)
        made.plain, made.deep = plain, deep
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


class Failure:
    """The mark that a failing function leaves on the vars it mutates.

    error:  what it raised. When it is raised again, with the operator's name in front and the pushing line behind.
    seq:    its place in push order: of several failures the first pushed is raised.
    seen:   whether somebody was told.

    One exception object may be raised by many functions, and by many waits. It carries the words and the frames of the
    last one only, so that it does not grow.
    """

    __slots__ = ("_line", "_name", "_plain", "_traceback", "error", "seen", "seq")

    def __init__(self, error: BaseException, name: str, origin: Origin | None, seq: int):
        self.error, self.seq, self.seen = error, seq, False
        self._name, self._line = name, where(origin)
        self._traceback = error.__traceback__
        self._plain = _plain_text(error, _cut(error.__traceback__))

    def throw(self) -> None:
        """Raise the error."""
        self.seen = True
        raise self.explained().with_traceback(self._traceback)

    @ki_protected
    def explained(self) -> BaseException:
        """The error, saying which operator it was and where that was pushed: in its message, else in a note.

        What refuses to be changed stays as it is.
        """
        error, name = self.error, self._name
        pushed = f"pushed at {self._line}" if self._line else ""
        try:
            if self._plain is not None:
                text = self._plain
                if name and not text.startswith(f"{name}:"):
                    text = f"{name}: {text}"
                plain, deep = (self._plain.plain, self._plain.deep) if isinstance(self._plain, Said) else (self._plain, 0)
                error.args = (Said(f"{text} ({pushed})" if pushed else text, plain, deep + 1),)
            else:
                notes = [n for n in getattr(error, "__notes__", ()) if not isinstance(n, Said)]
                notes.append(Said(f"in operator {name or 'without a name'}{', ' + pushed if pushed else ''}"))
                BaseException.__setattr__(error, "__notes__", notes)  # a frozen dataclass, too
        except BaseException:  # its own methods raise: it is told as it is
            pass
        return error


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


def in_words(value: object) -> str:
    """str(value), or the name of its type if that raises."""
    try:
        return str(value)
    except Exception:
        return f"{type(value).__name__} (whose text cannot be had)"


def _plain_text(error: BaseException, used_before: bool) -> str | None:
    """The message to put words around; None where only a note can be added."""
    try:
        if type(error).__str__ not in (BaseException.__str__, KeyError.__str__, OSError.__str__) or len(error.args) > 1 or \
                not all(isinstance(a, str) for a in error.args):
            return None
        text = error.args[0] if error.args else type(error).__name__
        return text.plain if isinstance(text, Said) and (used_before or text.deep == _DEEP) else text
    except Exception:
        return None


def _cut(tb: TracebackType | None) -> bool:
    """Cut off the frames of an earlier raise of the same object; whether there were any.

    Python puts the frames of a raise in front of those that the object has. Where two neighbours did not call each
    other, an earlier raise begins. Not so below a generator, whose frame forgets who called it, nor below a wait inside
    a function, which raises what another function raised: of those a few are kept.
    """
    deep = 0
    while tb is not None and (below := tb.tb_next) is not None:
        if tb.tb_frame.f_code is _THROW:
            deep += 1
            if deep == _DEEP:
                tb.tb_next = None
        elif below.tb_frame.f_back is not tb.tb_frame and not below.tb_frame.f_code.co_flags & _GENERATOR:
            tb.tb_next = None
            return True
        tb = below
    return False


_THROW = Failure.throw.__code__
