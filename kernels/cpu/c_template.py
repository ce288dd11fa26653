"""C files written by hand, whose functions serve all sizes: a call gives the addresses of arrays and of a few numbers.

A function has the form f(arrays, begin, end) and computes the pieces from begin to end; sizes alone decide the pieces, so results
have the same bits for any number of threads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from . import c_compile
from .c_math import PREAMBLE
from .c_team import FILE, Step


def pays(work: int, least: int) -> bool:
    """Return whether C is to compute so much work, if it can: `least` in mode "auto", any in mode "c"."""
    mode = c_compile.mode()
    return mode != "numpy" and work > 0 and (mode == "c" or work >= least)


class Template:
    """One C file. It is compiled, or found in the cache folder, when a kernel is first made from it.

    text: returns what follows the preamble; called once.
    """

    def __init__(self, text: Callable[[], str], names: Sequence[str]):
        self._text, self.names = functools.cache(lambda: PREAMBLE + text()), tuple(names)

    def functions(self) -> dict[str, c_compile.Loaded] | None:
        """Return the functions by name; None if they could not be compiled."""
        return c_compile.library(self._text(), self.names)

    def serves(self, work: int, least: int = 1, *, exact: bool = False) -> bool:
        """Return whether C computes so much work: `least` in mode "auto", any in mode "c"; see `c_compile.mode`.

        exact: NumPy gives the same bits. Then C computes less, too, once the machine has compiled it: in the background, so that
               nobody waits for that.
        """
        if not pays(work, 1) or not c_compile.available():
            return False
        if exact and not pays(work, least):
            file = self._text(), self.names
            if not c_compile.is_compiled(*file):
                c_compile.begin([file])
                return False
            least = 1
        return pays(work, least) and self.functions() is not None


def begin(templates: Iterable[Template]) -> None:
    """Have them compiled in the background, and the team too: kernels will be made from them soon."""
    files = [(t._text(), t.names) for t in templates]
    if files:
        c_compile.begin([*files, FILE])


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


_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


def address(a: Any) -> int:
    """Return where the elements of a NumPy array begin."""
    try:
        return _addressof(_from_buffer(a))  # four times as fast as a.ctypes.data
    except (TypeError, ValueError):  # read-only, or empty
        return a.ctypes.data


def doubles(*values: float) -> ctypes.Array:
    """Return numbers as C reads them."""
    return (ctypes.c_double * max(1, len(values)))(*values)
