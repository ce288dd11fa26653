"""The places of attention's operands in arrays, and one use of attention: data that both devices' kernels read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ....errors import ShapeError
from ...op import Shape

Steps = tuple[int, int, int, int]


class Operand(NamedTuple):
    """Rows of one kind, such as the queries: [batch, heads, length, size] in an array. The elements of a row are neighbours.

    array:   its number among the inputs, and among the derivatives.
    offset:  of the first element; steps: to the next batch, head and row. Both in elements.
    """

    array: int
    offset: int
    shape: tuple[int, int, int, int]
    steps: tuple[int, int, int]


@dataclass(frozen=True)
class Use:
    """softmax(scale · query keyᵀ + mask) value for each batch and head.

    output:  among the outputs.
    mask:    the shape of the mask, [batch, heads, queries, keys] or [batch · heads, queries, keys], of which each size may be 1;
             None without one. It is the input behind the operands' arrays.
    causal:  True if query i sees the keys 0 to i alone.
    """

    query: Operand
    key: Operand
    value: Operand
    output: Operand
    mask: Shape | None
    causal: bool
    scale: float

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batches, heads, queries, keys."""
        return *self.query.shape[:3], self.key.shape[2]

    @property
    def mask_array(self) -> int:
        """The number of the mask among the inputs."""
        return 1 + max(o.array for o in (self.query, self.key, self.value))

    def mask_steps(self) -> Steps:
        """Steps to the mask's next batch, head, query and key; 0 where it has one for all."""
        assert self.mask is not None
        steps = [math.prod(self.mask[i + 1:]) if size > 1 else 0 for i, size in enumerate(self.mask)]
        if len(steps) == 3:
            steps.insert(0, steps[0] * self.sizes[1])
        return steps[0], steps[1], steps[2], steps[3]


def contiguous(array: int, shape: Shape, together: bool) -> Operand:
    """Describe an array [batch, heads, length, size] or [batch · heads, length, size]. together: batches count as heads."""
    *lead, length, size = shape
    batch, heads = (1, math.prod(lead)) if together or len(lead) < 2 else lead
    return Operand(array, 0, (batch, heads, length, size), (heads * length * size, length * size, size))


def interleaved(array: int, kind: int, kinds: int, shape: Shape, heads: int) -> Operand:
    """Describe one of the `kinds` parts of each head in an array [length, batch, heads · kinds · size]."""
    length, batch, width = shape
    size = width // (heads * kinds)
    return Operand(array, kind * size, (batch, heads, length, size), (width, kinds * size, batch * width))


def mask_shape(name: str, given: Shape, whole: Shape) -> Shape:
    """Return the shape of a mask with all axes of the scores, `whole`. Raises ShapeError unless it broadcasts to them."""
    shape = (*(1,) * (len(whole) - len(given)), *given)
    if len(shape) > len(whole) or any(size not in (1, of) for size, of in zip(shape, whole)):
        raise ShapeError(f"{name}: mask {given} does not broadcast to the scores {whole}. Each of its sizes, from the last on, "
                         f"must be theirs or 1.")
    return shape
