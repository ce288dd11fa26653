"""BatchNorm in C, with channels on any axis: the statistics, then one pass over the data.

Mean and variance are taken of blocks that stay in cache, where the squared distances to the block's mean are added; blocks are
then joined in double precision (Chan, Golub, LeVeque 1979), so a large mean costs no digits and the data is read once. In the
pass that follows, another array may be added and a rectifier applied; the derivative takes both back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ....integers import cdiv
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_team import Phases, int64s
from ...cpu.c_template import Call, Template, doubles, pays
from ...kernel import BoundKernel, Kernel
from ...op import Req, Reqs
from .c_norm_text import NAMES, norm_text
from .softmax import Rows

TEMPLATE = Template(norm_text, NAMES)
LEAST = 1 << 8  # elements from which on C is worth compiling: NumPy needs 20 microseconds for any count, and 60 backward
PIECE = 1 << 15  # elements of a piece
SLOTS = 16  # sums over parts of the data at most


class Parameters(Protocol):
    """The parameters of BatchNorm that its kernels read."""

    eps: float
    momentum: float
    fix_gamma: bool


def in_c(rows: Rows, dtype: np.dtype, reqs: Reqs, *, backward: bool = False) -> bool:
    """Return whether C computes: that depends on sizes, dtype and the machine alone. reqs: of BatchNorm's outputs."""
    return dtype == np.float32 and (backward or Req.ADD not in reqs[1:3]) and TEMPLATE.serves(math.prod(rows), LEAST)


def c_files(rows: Rows, dtype: np.dtype) -> list[Template]:
    """Return the C files of BatchNorm; none where it is not computed in C."""
    return [TEMPLATE] if dtype == np.float32 and pays(math.prod(rows), LEAST) else []


class _Pieces:
    """A division of the data into pieces, by its size alone.

    slots:    parts with sums of their own. sums: pieces of the functions that add.
    passes:   pieces of those that go over the data.
    sizes(plus, relu, add):  the numbers that the C functions take.
    """

    def __init__(self, rows: Rows):
        outer, channels, inner = rows
        total = outer * channels * inner
        self.rows, self.slots = rows, max(1, min(SLOTS, outer, total // PIECE))
        cut = channels if inner == 1 else max(1, cdiv(channels * self.slots, max(1, min(SLOTS, total // PIECE))))
        self.sums = self.slots * cdiv(channels, cut)
        lines, line = (outer, channels) if inner == 1 else (outer * channels, inner)
        self.lines = max(1, PIECE // line)
        self.passes = cdiv(lines, self.lines)
        self._cut = cut

    def sizes(self, plus: int = 0, relu: bool = False, add: bool = False) -> Any:
        return int64s(*self.rows, self.slots, self._cut, plus, relu, add, self.lines)


def forward(rows: Rows, p: Parameters, batch: bool, reqs: Reqs, *, relu: bool = False, plus: bool = False) -> Kernel:
    """Return the kernel of BatchNorm. Its inputs: data, gamma, beta, the other array if plus, moving mean and variance.

    batch:  take the statistics of the batch, and update the moving ones.
    """
    cut, channels = _Pieces(rows), rows[1]
    sizes = cut.sizes(plus, relu, reqs[0] == Req.ADD)
    statistics = Call(TEMPLATE, "norm_statistics", cut.sums, sizes)
    finish = Call(TEMPLATE, "norm_finish", 1, sizes, doubles(p.eps, p.momentum, batch))
    apply = Call(TEMPLATE, "norm_apply", cut.passes, sizes)

    def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        x, gamma, beta, *other, moving_mean, moving_var = inputs
        y, mean, inverse = outputs
        state, scale = np.empty((cut.slots, 2, channels)), np.empty((2, channels), np.float32)
        mean, inverse = (np.empty(channels, np.float32) if a is None else a for a in (mean, inverse))
        first = [statistics.prepare(x, state)] if batch else []
        then = [finish.prepare(state, None if p.fix_gamma else gamma, beta, moving_mean, moving_var, mean, inverse, scale)]
        last = [] if y is None else [apply.prepare(x, other[0] if other else None, y, scale)]
        return Phases([first, then, last])

    return ReboundKernel(bind)


def backward(rows: Rows, p: Parameters, batch: bool, reqs: Reqs, *, relu: bool = False, plus: bool = False) -> Kernel:
    """Return the kernel of the derivatives by data, gamma, beta and, if plus, the other array.

    Its inputs: dy, data, gamma, mean, 1 / √(var + eps) and, if relu, the result.
    """
    cut, channels = _Pieces(rows), rows[1]
    other = 0 if not plus or reqs[3] == Req.NULL else 2 if reqs[3] == Req.ADD else 1
    sizes = cut.sizes(other, relu, reqs[0] == Req.ADD)
    sums = Call(TEMPLATE, "norm_sums", cut.sums, sizes)
    finish = Call(TEMPLATE, "norm_finish_sums", 1, sizes, int64s(reqs[1] == Req.ADD, reqs[2] == Req.ADD, p.fix_gamma, batch))
    gradient = Call(TEMPLATE, "norm_gradient", cut.passes, sizes)

    def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        dy, x, gamma, mean, inverse = inputs[:5]
        y, (dx, d_gamma, d_beta, *d_other) = inputs[5] if relu else None, outputs
        state, numbers = np.empty((cut.slots, 2, channels)), np.empty((4, channels), np.float32)
        first = [sums.prepare(dy, x, y, mean, state)]
        then = [finish.prepare(state, gamma, mean, inverse, d_gamma, d_beta, numbers)]
        last = [] if dx is None else [gradient.prepare(dy, x, y, dx, d_other[0] if other else None, numbers)]
        return Phases([first, then, last])

    return ReboundKernel(bind)
