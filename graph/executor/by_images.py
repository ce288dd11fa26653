"""Consecutive layers some images at a time, so that what one layer writes is in cache when the next one reads it.

A large layer of a whole batch writes more than the caches hold. Where the pieces of some layers are of one image each
(`Step.images`), the layers run in turn for the first images, then for the next ones. Results have the same bits.

The memory planner lets later arrays take the place of earlier ones, as if each layer ended before the next one begins. So layers
are cut only where none writes, for the first images, what an earlier layer still needs for the next ones, or the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ...integers import cdiv

LARGE = 1 << 23  # bytes of the arrays of a layer from which on they do not stay in cache
EACH = 2  # pieces of a part of a layer for each thread, at least


@dataclass(frozen=True, slots=True)
class Span:
    """The memory of an array: its first byte, how many, whether each image has an equal part, and whether it is written."""

    start: int
    size: int
    by_image: bool
    written: bool


@dataclass(frozen=True, slots=True)
class Layer:
    """A kernel whose pieces are of `images` images, as many of each; 0: they are not. spans: of the arrays it uses."""

    images: int
    pieces: int
    spans: Sequence[Span]

    @property
    def is_large(self) -> bool:
        return self.images > 1 and sum(s.size for s in self.spans if s.by_image) >= LARGE


def cut(layers: Sequence[Layer], threads: int) -> list[tuple[int, int, int]]:
    """Return (first, end, images at a time) of the runs of layers that are cut, in order, for so many threads."""
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(layers):
        end, chunk = _reach(layers, at, EACH * threads)
        if end - at > 1:
            found.append((at, end, chunk))
        at = max(end, at + 1)
    return found


def _reach(layers: Sequence[Layer], first: int, pieces: int) -> tuple[int, int]:
    """Return the end of the layers that are cut together from this one on, and the images at a time.

    pieces: of a part of a layer, at least.
    """
    images, end, chunk = layers[first].images, first, 1
    for at in range(first, len(layers)):
        layer = layers[at]
        if layer.images != images or not layer.is_large:
            break
        wanted = max(chunk, cdiv(pieces * images, layer.pieces))
        run = layers[first:at + 1]
        if 2 * wanted > images or not all(_may_overtake(a, b, images, wanted) for i, b in enumerate(run) for a in run[:i]):
            break
        end, chunk = at + 1, wanted
    return end, chunk


def _may_overtake(a: Layer, b: Layer, images: int, chunk: int) -> bool:
    """Return whether b, which follows a, may compute some images before a computes the next ones."""
    return not any((p.written or q.written) and _meet(p, q, images, chunk) for p, q in product(a.spans, b.spans))


def _meet(p: Span, q: Span, images: int, chunk: int) -> bool:
    """Return whether the part of q for some images shares memory with that of p for later ones."""
    if p.start + p.size <= q.start or q.start + q.size <= p.start:
        return False
    if not (p.by_image and q.by_image):
        return True
    return any(p.start + p.size * (i + chunk) // images < q.start + q.size * min(i + chunk, images) // images
               and q.start + q.size * i // images < p.start + p.size for i in range(0, images - chunk, chunk))
