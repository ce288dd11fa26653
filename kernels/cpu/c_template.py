"""C files written by hand, whose functions serve all sizes: a call gives the addresses of arrays and of a few numbers.

A function has the form f(arrays, begin, end) and computes the pieces from begin to end; sizes alone decide the pieces, so results
have the same bits for any number of threads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import c_compile
from .c_math import PREAMBLE
from .c_team import Phases, Step, address_of, team


class Template:
    """One C file. It is compiled, or found in the cache folder, when a kernel is first made from it.

    text: returns what follows the preamble; called once.
    """

    def __init__(self, text: Callable[[], str], names: Sequence[str]):
        self._text, self.names = functools.cache(lambda: PREAMBLE + text()), tuple(names)

    def functions(self) -> dict[str, c_compile.Loaded] | None:
        """Return the functions by name; None if they could not be compiled."""
        return c_compile.library(self._text(), self.names)

    def serves(self, work: int, least: int) -> bool:
        """Return whether C computes so much work: `least` in mode "auto", any in mode "c"; see `c_compile.mode`."""
        mode = c_compile.mode()
        if mode == "numpy" or not work or (mode == "auto" and work < least):
            return False
        return c_compile.available() and self.functions() is not None


class Call:
    """A function of a template with its numbers, for arrays that are given later."""

    def __init__(self, template: Template, name: str, pieces: int, *numbers: ctypes.Array):
        self.template, self.name, self.pieces, self.numbers = template, name, pieces, numbers

    def prepare(self, *arrays: np.ndarray | None) -> Step:
        """Return the step of these arrays; the numbers follow them. It keeps both alive."""
        places = [None if a is None else address(a) for a in arrays]
        addresses = [*places, *map(ctypes.addressof, self.numbers)]
        functions = self.template.functions()
        assert functions is not None
        return Step(functions[self.name], (ctypes.c_void_p * len(addresses))(*addresses), self.pieces,
                    held=(arrays, self.numbers))


class Calls:
    """Functions that run one after the other, on arrays that differ from run to run. Runs may overlap."""

    __slots__ = ("_calls", "_made", "_table")

    def __init__(self, *calls: Call):
        self._calls, self._table = calls, ctypes.c_int64 * (8 * len(calls) + 3)
        self._made: list[tuple[int, tuple[int, ...], int]] = []  # the function, the addresses of its numbers, its pieces

    def _make(self) -> None:
        for call in self._calls:
            functions = call.template.functions()
            assert functions is not None
            self._made.append((address_of(functions[call.name]), tuple(map(ctypes.addressof, call.numbers)), call.pieces))

    def __call__(self, run: Any, *arrays: Sequence[np.ndarray | None]) -> None:
        """Run the functions on the threads of a run context. arrays: those of each function."""
        threads, run_phases, n = 1 if run is None else getattr(run, "threads", 0), team(), len(arrays)
        if not threads or run_phases is None:
            Phases([[call.prepare(*given)] for call, given in zip(self._calls, arrays)])(run)
            return
        if len(self._made) < n:
            self._made.clear()
            self._make()
        table, held = self._table(), []
        at = ctypes.addressof(table)
        for i, ((code, numbers, pieces), given) in enumerate(zip(self._made, arrays)):
            places = [None if a is None else address(a) for a in given]
            addresses = (ctypes.c_void_p * (len(places) + len(numbers)))(*places, *numbers)
            held.append(addresses)
            table[6 * i:6 * i + 6] = code, ctypes.addressof(addresses), 0, 0, pieces, 0
            table[6 * n + 2 * i:6 * n + 2 * i + 2] = at + 48 * i, pieces
        table[8 * n:8 * n + 3] = at + 48 * n, n, threads
        run_phases(at + 64 * n)


def address(a: Any) -> int:
    """Return where the elements of a NumPy array begin."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(a))  # four times as fast as a.ctypes.data
    except (TypeError, ValueError):  # read-only, or empty
        return a.ctypes.data


def doubles(*values: float) -> ctypes.Array:
    """Return numbers as C reads them."""
    return (ctypes.c_double * max(1, len(values)))(*values)
