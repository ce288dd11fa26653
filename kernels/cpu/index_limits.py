"""Limits: the bounds of the indices in an input, which a CPU checks before a kernel reads or writes by them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ShapeError
from ..kernel import Kernel
from ..op import Shape, Spec
from .c_take import INDICES
from .c_team import int64s
from .c_template import Template, address

LEAST = 1 << 14  # indices for which C is compiled at once

_TEXT = """
typedef struct { int64_t axes, k, wraps, kind, sizes[]; } limits_sizes;

#define WITHIN(T, CUT) for (int64_t a = 0; a < g->axes; a++) { \\
        const T *const x = (const T *)indices + a * g->k; \\
        const int64_t end = g->sizes[a], low = g->wraps ? -end : 0; \\
        for (int64_t i = 0; i < g->k; i++) { const int64_t v = CUT(x[i]); beyond |= (v < low) | (v >= end); } \\
    } break;

/* Return 1 if one of the indices [axes][k] is beyond its limits; else 0. */
int64_t limits_beyond(const void *indices, const limits_sizes *g)
{
    int64_t beyond = 0;
    switch (g->kind) {
%s
    }
    return beyond;
}
"""


def _text() -> str:
    types = {"float32": "float", "float64": "double"}
    return _TEXT % "\n".join(f"    case {kind}: WITHIN({types.get(name, name + '_t')}, {cut})"
                             for kind, (name, cut) in enumerate(INDICES.items()))


_TEMPLATE = Template(_text, ("limits_beyond",))


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of the indices in an input. A CPU raises ShapeError for indices beyond them; on a GPU the formula limits them.

    input:  its number; it is read as [sizes, ...]: one row of indices for each axis.
    sizes:  of the axes. wraps: an index may also be negative, and then counts from the end.
    text:   of the error, with {index}, {axis}, {size}, {least} and {most}, the range of the row.
    """

    input: int
    sizes: Shape
    wraps: bool = False
    text: str = "index {index} is out of range for axis {axis} of size {size}."

    def check(self, array: np.ndarray, name: str) -> None:
        with np.errstate(invalid="ignore"):
            rows = array.reshape(len(self.sizes), -1).astype(np.int64)
        for axis, (row, end) in enumerate(zip(rows, self.sizes)):
            low = -end if self.wraps else 0
            if row.size and (row.min() < low or row.max() >= end):
                wrong = row[(row < low) | (row >= end)][0]
                raise ShapeError(f"{name}: {self.text.format(index=wrong, axis=axis, size=end, least=row.min(), most=row.max())}")

    def checked(self, kernel: Kernel, name: str, indices: Spec) -> Kernel:
        """Return kernel behind the check. indices: the layout of that input."""
        return _Checked(kernel, self, name, self._beyond(indices))

    def _beyond(self, indices: Spec) -> Callable[[int], bool] | None:
        """Return a function in C of the address of the indices: whether one may be beyond its limits; None where NumPy looks."""
        if indices.dtype.name not in INDICES or not _TEMPLATE.serves(indices.size, LEAST, exact=True):
            return None
        functions = _TEMPLATE.functions()
        assert functions is not None
        call: Any = functions["limits_beyond"].short if indices.size < LEAST else functions["limits_beyond"].free
        call.restype, call.argtypes = ctypes.c_int64, [ctypes.c_void_p, ctypes.c_void_p]
        axes, mask = len(self.sizes), indices.dtype.itemsize - 1
        sizes = int64s(axes, indices.size // axes, self.wraps, list(INDICES).index(indices.dtype.name), *self.sizes)
        where = ctypes.addressof(sizes)

        def beyond(at: int, held: Any = sizes) -> bool:  # held: an address alone keeps nothing alive
            return at & mask != 0 or call(at, where) != 0  # C reads no numbers that are not aligned

        return beyond


class _Checked(Kernel):
    """A kernel behind the check of indices, which raises ShapeError.

    beyond:  whether indices at an address may be beyond their limits; None: NumPy looks.
    """

    __slots__ = ("_beyond", "_inner", "_input", "_limits", "_name")

    def __init__(self, inner: Kernel, limits: Limits, name: str, beyond: Callable[[int], bool] | None):
        super().__init__(self._run, ahead=inner.ahead)
        self._inner, self._limits, self._name, self._beyond, self._input = inner, limits, name, beyond, limits.input

    def _run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        indices = inputs[self._input]
        if self._beyond is None or self._beyond(address(indices)):
            self._limits.check(indices, self._name)
        self._inner.run(run, inputs, outputs)
        if self._beyond is not None and self._inner.at is not None:
            self.at = self._run_at
            if self._inner.into is not None:
                self.into = self._run_into

    def _run_at(self, run: Any, places: Sequence[int], scalars: Sequence[float] = (), apart: bool = False) -> bool:
        """See Kernel.at. Where an index is beyond its limits, `run` raises the error."""
        return not self._beyond(places[self._input]) and self._inner.at(run, places, scalars, apart)  # type: ignore[misc]

    def _run_into(self, places: Sequence[int], out: np.ndarray) -> int:
        """See Kernel.into."""
        return 0 if self._beyond(places[self._input]) else self._inner.into(places, out)  # type: ignore[misc]
