"""Failure: the error of a function that failed, with its operator and the line that pushed it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FrameType, TracebackType

from .interrupts import ki_protected

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_in_package: dict[str, bool] = {}  # by file name

_GENERATOR = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_MOST_OPERATORS = 4  # named by one error, when functions wait for each other

Origin = tuple[CodeType, int]
_last: Origin = (sys._getframe().f_code, -1)


class EngineText(str):
    """A text that the engine wrote on an error.

    plain:      the text that the error had before; of a note, the empty string.
    operators:  how many operators it names.
    """

    plain: str
    operators: int

    def __new__(cls, text: str, plain: str = "", operators: int = 1) -> EngineText:
        self = super().__new__(cls, text)
        self.plain, self.operators = plain, operators
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


_OPERATOR = "_tritium_operator"


def name_operator(error: BaseException, name: str) -> None:
    """Have the Failure of error name this operator instead of the task, which consists of several."""
    error.__dict__[_OPERATOR] = name


class Failure:
    """Poisons the variables that a failed function mutates.

    error:  the exception. When a wait raises it, it names the operator and the line that pushed it.
    seq:    its place in push order. Of several failures the first pushed is raised.
    seen:   True once a wait has raised it.

    One exception object may be raised by many functions, and by many waits. It carries the text and the frames of the last
    one only, so that it does not grow.
    """

    __slots__ = ("_line", "_name", "_plain", "_traceback", "error", "seen", "seq")

    def __init__(self, error: BaseException, name: str, origin: Origin | None, seq: int):
        self.error, self.seq, self.seen = error, seq, False
        self._name, self._line = error.__dict__.pop(_OPERATOR, name), format_call_site(origin)
        self._traceback = error.__traceback__
        self._plain = _plain_text(error, _cut_earlier_raise(error.__traceback__))

    def throw(self) -> None:
        """Raise the error."""
        self.seen = True
        raise self.explained().with_traceback(self._traceback)

    @ki_protected
    def explained(self) -> BaseException:
        """Return the error with its operator and the pushing line in the message, or else in a note.

        An error that cannot be changed stays as it is.
        """
        error, name, plain = self.error, self._name, self._plain
        pushed = f"pushed at {self._line}" if self._line else ""
        try:
            if plain is not None:
                text = plain if not name or plain.startswith(f"{name}:") else f"{name}: {plain}"
                before, operators = (plain.plain, plain.operators) if isinstance(plain, EngineText) else (plain, 0)
                error.args = (EngineText(f"{text} ({pushed})" if pushed else text, before, operators + 1),)
            else:
                notes = [n for n in getattr(error, "__notes__", ()) if not isinstance(n, EngineText)]
                notes.append(EngineText(f"in operator {name or 'without a name'}{', ' + pushed if pushed else ''}"))
                BaseException.__setattr__(error, "__notes__", notes)  # works for a frozen dataclass, too
        except BaseException:  # raised by the error's own methods
            pass
        return error


def capture_call_site() -> Origin | None:
    """Return the innermost line outside this package that led to this call, unformatted; None if all lines are the package's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        in_package = _in_package.get(code.co_filename)
        if in_package is None:
            in_package = _in_package[code.co_filename] = _is_in_package(code.co_filename)
        if not in_package:
            global _last
            last, instruction = _last, frame.f_lasti
            if last[1] != instruction or last[0] is not code:  # a loop that pushes a million times keeps one pair
                _last = last = (code, instruction)
            return last
        frame = frame.f_back
    return None


def _is_in_package(filename: str) -> bool:
    """Return True for the package's own files, which `examples` and folders beside the package are not among."""
    if not filename.startswith(_ROOT):
        return False
    folder, nested, _ = filename[len(_ROOT):].partition(os.sep)
    return not nested or (folder != "examples" and os.path.isfile(os.path.join(_ROOT, folder, "__init__.py")))


def format_call_site(origin: Origin | None) -> str:
    """Return `model.py:41` for a captured call site; the empty string for None."""
    if origin is None:
        return ""
    code, instruction = origin
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return f"{code.co_filename}:{line}"
    return f"{code.co_filename}:{code.co_firstlineno}"


def first_pushed(failures: Sequence[Failure]) -> Failure | None:
    """Return the failure that was pushed first; None of an empty sequence."""
    return min(failures, key=lambda f: f.seq, default=None)


def text_of(value: object) -> str:
    """Return str(value), or the name of its type if that raises."""
    try:
        return str(value)
    except Exception:
        return f"{type(value).__name__} (its text cannot be formed)"


def _plain_text(error: BaseException, raised_before: bool) -> str | None:
    """Return the message that the operator's name goes in front of; None if only a note can be added."""
    try:
        if type(error).__str__ not in (BaseException.__str__, KeyError.__str__, OSError.__str__) or len(error.args) > 1 or \
                not all(isinstance(a, str) for a in error.args):
            return None
        text = error.args[0] if error.args else type(error).__name__
        return text.plain if isinstance(text, EngineText) and (raised_before or text.operators == _MOST_OPERATORS) else text
    except Exception:
        return None


def _cut_earlier_raise(tb: TracebackType | None) -> bool:
    """Remove the frames of an earlier raise of the same object. Return True if there were any.

    Python puts the frames of a raise in front of those that the object has. An earlier raise begins where two neighbours
    did not call each other. This cannot be seen below a generator, whose frame does not keep its caller, or below a wait
    inside a function, which raises the error of another function: of those a few are kept.
    """
    waits = 0
    while tb is not None and (below := tb.tb_next) is not None:
        if tb.tb_frame.f_code is _THROW:
            waits += 1
            if waits == _MOST_OPERATORS:
                tb.tb_next = None
        elif below.tb_frame.f_back is not tb.tb_frame and not below.tb_frame.f_code.co_flags & _GENERATOR:
            tb.tb_next = None
            return True
        tb = below
    return False


_THROW = Failure.throw.__code__
