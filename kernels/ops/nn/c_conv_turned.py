"""Convolutions of data with channels first in Winograd's tiles, which want channels last: data and result are turned.

To turn both takes a few passes over memory, and the tiles less than half of the multiplications.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...cpu.c_move import copies
from ...cpu.c_team import Scratch, Step
from ...cpu.c_template import Call
from ...ir.strided import Strided
from ...op import Shape
from .conv_geometry import ConvolutionGeometry

F32 = np.dtype("float32")


def channels_last_of(g: ConvolutionGeometry) -> ConvolutionGeometry | None:
    """Return the same convolution of data with channels last, with the weight as it lies; None if they already are last."""
    return None if g.channels_last else replace(g, channels_last=True, weight_first=True)


def turning(n: int, channels: int, spatial: Shape, to_last: bool, add: bool) -> Call | None:
    """Return the function that copies arrays with channels first to channels last, or the reverse; None where NumPy would."""
    positions = math.prod(spatial)
    whole, shape = n * channels * positions, (n, channels, positions)
    first = Strided(0, shape, (channels * positions, positions, 1))
    last = Strided(0, shape, (channels * positions, 1, channels))
    found = copies([(first, last) if to_last else (last, first)], F32, F32, add) if whole else None
    return None if found is None else found[0]


class Turned:
    """The copies around a convolution with channels last: of the data before it, and of the result after it."""

    def __init__(self, before: Call, after: Call, read: int, written: int):
        """read, written: the elements of the data, and of the result."""
        self._before, self._after, self._read, self._written = before, after, read, written

    def around(self, rows: Step, x: np.ndarray, y: np.ndarray | None) -> tuple[list[list[Step]], list[Scratch]]:
        """Return the phases with the step that convolves, and the memory between them. Its data is address 0, its result 3."""
        before, after = self._before.prepare(x, None), self._after.prepare(None, y)
        places = ((before.addresses, 1), (rows.addresses, 0)), ((rows.addresses, 3), (after.addresses, 0))
        return [[before], [rows], [after]], [Scratch(n, p) for n, p in zip((self._read, self._written), places)]


def turned(n: int, read: tuple[int, Shape], written: tuple[int, Shape], add: bool) -> Turned | None:
    """Return what turns n images of data and result, of so many channels and places; None where NumPy would."""
    before, after = turning(n, *read, True, False), turning(n, *written, False, add)
    if before is None or after is None:
        return None
    return Turned(before, after, *(n * channels * math.prod(spatial) for channels, spatial in (read, written)))
