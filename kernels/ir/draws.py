"""Random numbers in bodies: every call of `uniform()`, `normal()` or `bernoulli()` is one draw, a fresh number per element.

A number is a function of the seed, of the call's place in the body and of the element's index in the full shape, so results
depend neither on the device nor on the number of threads. Draw number k of an operator takes the numbers of the generator
that follow those of draw k - 1; element i takes number i of them (normal numbers come in pairs, from two numbers).
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...dtype import float32, float64
from ...errors import TraceError
from .. import philox
from ..op import Expression, Shape, Spec, Specs
from .expr import DRAW, Expr, caller, load, node, substitute, topological
from .rows import padded

UINT32 = np.dtype("uint32")


@dataclass(frozen=True, slots=True)
class Draw:
    """One call in a body.

    site:    its number, from 0, in the order of the calls.
    kind:    "uniform", "normal", or "word": the 32 random bits themselves.
    bits:    random bits of a uniform number: as many as are exact below 1 in the result's dtype.
    dtype:   of the numbers: float32, float64 or uint32.
    shared:  the axes of the full shape along which all elements get one number.
    """

    site: int
    kind: str
    bits: int
    dtype: np.dtype
    shared: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}{self.site}"

    def count(self, n: int) -> int:
        """Return how many random numbers n elements take."""
        return n + n % 2 if self.kind == "normal" else n

    def shape(self, full: Shape) -> Shape:
        """Return the shape of the numbers: the full shape, with 1 along shared axes."""
        shared = {a % len(full) for a in self.shared if -len(full) <= a < len(full)}
        return tuple(1 if i in shared else n for i, n in enumerate(full))

    def numbers(self, seed: int, offset: int, first: int, count: int) -> np.ndarray:
        """Return the numbers of elements first .. first + count, dtype [count]; the draw's numbers begin at offset."""
        if self.kind == "word":
            return philox.words(seed, offset + first, count)
        if self.kind == "uniform":
            return philox.fractions(seed, offset + first, count, self.bits, self.dtype)
        odd = first % 2
        return philox.normal(seed, offset + first - odd, count + odd, self.dtype)[odd:]


@dataclass(frozen=True, slots=True)
class PlacedDraw:
    """A draw of one use of an operator. base: where its numbers begin, after the operator's offset; shape: of the numbers."""

    draw: Draw
    base: int
    shape: Shape


def total(draws: Sequence[Draw], full: Shape) -> int:
    """Return how many random numbers the draws take together."""
    return sum(d.count(math.prod(d.shape(full))) for d in draws)


def as_inputs(e: Expression, ins: Specs, full: Shape) -> tuple[Expression, list[Spec], dict[int, PlacedDraw]]:
    """Return the expression with a load for each draw, the specs of all loads, and the draws by the number of their load."""
    if not e.draws:
        return e, list(ins), {}
    bases, at = [], 0
    for d in e.draws:
        bases.append(at)
        at += d.count(math.prod(d.shape(full)))
    specs, placed, new = list(ins), {}, {}
    for x in topological(e.outputs):
        if x.op == DRAW:
            d = x.value
            placed[len(specs)] = PlacedDraw(d, bases[d.site], padded(d.shape(full), len(full)))
            new[id(x)] = load(len(specs), d.dtype)
            specs.append(Spec(d.shape(full), d.dtype))
    return replace(e, outputs=tuple(substitute(e.outputs, new)), draws=()), specs, placed


# ---- tracing ----------------------------------------------------------------------------------------------------------
class Recorder:
    """The draws of a body that is being traced.

    draws:   in the order of the calls; drawn: what each call returns before it is scaled, as a node.
    bits, wide: of uniform numbers, by the dtype of the result. refusal: the text of the error of a draw; "" to allow it.
    train:   whether the body is traced for a training step; asked: whether the body asked that.
    """

    def __init__(self, dtype: np.dtype | None, refusal: str, train: bool):
        self.train, self.asked = train, False
        self.draws: list[Draw] = []
        self.drawn: list[Expr] = []
        self.refusal = refusal
        self.wide = float64 if dtype == np.float64 else float32
        self.bits = philox.BITS.get(dtype, 24) if dtype is not None else 24

    def draw(self, kind: str, shared: Sequence[int], bits: int = 0) -> Expr:
        """Return the node of a new draw. bits: the fewest of a uniform number."""
        if self.refusal:
            raise TraceError(self.refusal.format(place=caller()))
        dtype = UINT32 if kind == "word" else self.wide
        self.draws.append(Draw(len(self.draws), kind, max(self.bits, bits) if kind == "uniform" else 32, dtype, tuple(shared)))
        self.drawn.append(node(DRAW, (), self.draws[-1], dtype))
        return self.drawn[-1]


class _Tracing(threading.local):
    recorder: Recorder | None = None


_tracing = _Tracing()


@contextlib.contextmanager
def recording(dtype: np.dtype | None = None, refusal: str = "", train: bool = True) -> Iterator[Recorder]:
    """Record the draws of the body that is traced inside the block.

    dtype:    of the body's result.
    refusal:  the error for a body that must not draw, with {place} for the line.
    """
    previous, _tracing.recorder = _tracing.recorder, Recorder(dtype, refusal, train)
    try:
        yield _tracing.recorder
    finally:
        _tracing.recorder = previous


def recorder(function: str) -> Recorder:
    """Return the recorder of the body that is being traced. Raises TraceError outside a body."""
    if _tracing.recorder is None:
        raise TraceError(f"{function}: can be called in the body of an operator alone, and no body is being traced ({caller()}). "
                         f"For an array of random numbers call mx.nd.random.")
    return _tracing.recorder
