"""Operators that give the same elements another shape or dtype: Reshape, Flatten, transpose, expand_dims, Cast ..."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ....dtype import is_half
from ....errors import ParameterError, ShapeError
from ...cpu.c_cast import cast_kernel
from ...declare.operator_property import Dtypes, KnownShapes, Shapes
from ...declare.property_op import register_operator
from ...declare.traced import printed
from ...ir.expr import cast, load
from ...ir.strided import shaped, whole
from ...kernel import KernelFunction
from ...op import Expression, Reqs, Shape, Specs, is_known, merge_shapes
from .data_movement import Move, MoveProperty


def check_axis(name: str, axis: int, rank: int, *, low: int | None = None) -> int:
    """Return axis as a non-negative index; a negative axis counts from the end. Raises ShapeError if out of range."""
    if not (-rank if low is None else low) <= axis < rank:
        raise ShapeError(f"{name}: axis {axis} is out of range for an array of {rank} axes. "
                         f"Use {-rank if low is None else low} to {rank - 1}.")
    return axis % rank if rank else 0


def lines_of(name: str, axis: int | None, x: Shape) -> tuple[int, int, int]:
    """Return x as [outer, n, inner], n being the size of axis; without axis, x flattened."""
    if axis is None:
        return 1, math.prod(x), 1
    axis = check_axis(name, axis, len(x))
    return math.prod(x[:axis]), x[axis], math.prod(x[axis + 1:])


class SameElements(MoveProperty):
    """Base class: one input, one output, the same elements in the same order. Costs nothing if both share memory."""

    is_reshape = True
    forward_inplace = ((0, 0),)
    backward_inplace = (("dy0", 0),)

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        n, m = math.prod(ins[0]), math.prod(outs[0])
        if n != m:
            raise ShapeError(f"{self.name}: {ins[0]} has {n} elements, but {outs[0]} has {m}. "
                             f"Choose sizes whose product is {n}.")
        return [Move(0, shaped((n,)), 0, shaped((m,)))]


def reshape_codes(name: str, shape: Shape, codes: Sequence[int], reverse: bool = False) -> Shape:
    """Apply MXNet's reshape codes to a shape. Sizes that cannot be inferred are -1.

    0 keeps a size; -1 infers it; -2 keeps all remaining sizes; -3 merges two; -4 splits one into the next two codes, one of
    which may be -1. reverse: read both lists from the right, so that the two sizes of a split come before its -4, as in MXNet.
    Raises ShapeError with shape and codes. As in MXNet, an inferred size may leave a remainder: then the kernel raises.
    """
    given = tuple(int(c) for c in codes)
    src, todo = (shape[::-1], given[::-1]) if reverse else (shape, given)
    out: list[int] = []
    at, i, free = 0, 0, -1

    def wrong(why: str) -> ShapeError:
        return ShapeError(f"{name}: {shape} does not reshape to {given}{' from the right' if reverse else ''}: {why}. "
                          f"Codes: 0 copy, -1 infer, -2 the rest, -3 merge two, -4 split into "
                          f"the {'two before it' if reverse else 'next two'}.")

    def take() -> int:
        nonlocal at
        if at >= len(src):
            raise wrong(f"code {code} has no axis left")
        at += 1
        return src[at - 1]

    if reverse and -4 in given[:2]:
        raise wrong("-4 needs two sizes before it")
    while i < len(todo):
        code = todo[i]
        i += 1
        if code == 0:
            out.append(take())
        elif code == -1:
            if free >= 0:
                raise wrong("only one size can be -1")
            free = len(out)
            out.append(1)
            at += 1
        elif code == -2:
            out += src[at:]
            at = len(src)
        elif code == -3:
            a, b = take(), take()
            out.append(-1 if -1 in (a, b) else a * b)
        elif code == -4:
            whole_size = take()
            if i + 2 > len(todo):
                raise wrong("-4 needs two sizes after it")
            a, b = todo[i:i + 2]
            i += 2
            known = max(a, 1) * max(b, 1)  # product of the known ones of the two
            if min(a, b) < -1 or 0 in (a, b) or a == b == -1 or (whole_size >= 0 and (
                    whole_size % known if -1 in (a, b) else whole_size != known)):
                raise wrong(f"-4 cannot split {whole_size} into {a} and {b}")
            rest = -1 if whole_size < 0 else whole_size // known
            out += [rest if a == -1 else a, rest if b == -1 else b]
        elif code > 0:
            out.append(code)
            at += 1
        else:
            raise wrong(f"{code} is not a reshape code")
    size, rest = math.prod(shape), math.prod(out)
    if -1 in shape:
        if free >= 0:
            out[free] = -1
    elif free >= 0:
        out[free] = size // rest if rest else 0
        if size and not out[free]:
            raise wrong(f"{size} elements are not divisible by {rest}")
    elif rest != size:
        raise wrong(f"{size} elements are not {rest}")
    return tuple(out[::-1] if reverse else out)


@register_operator("Reshape", aliases=("reshape",))
class Reshape(SameElements):
    """The same elements in another shape.

    shape: sizes and codes: 0 keep this size, -1 infer it, -2 keep the rest, -3 merge two, -4 split in two.
    reverse: match the codes from the right.
    """

    shape: tuple = ()
    reverse: bool = False
    target_shape: tuple = ()
    keep_highest: bool = False

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        (x,), (y,) = in_shape, out_shape
        codes = self.shape
        if not codes and self.target_shape:  # MXNet before 0.9: 0 means infer
            codes = tuple(-1 if s == 0 else s for s in self.target_shape)
            if self.keep_highest:
                codes = (0, *codes[1:])
        if not codes:
            raise ParameterError(f"{self.name}: parameter 'shape' is required.")
        if x is not None:
            found = reshape_codes(self.name, x, codes, self.reverse)
            if is_known(x):
                return [x], [found], []
            y = merge_shapes(self.name, "the output", y, found)
            rest = -math.prod(x)
            if y is not None and is_known(y) and list(x).count(-1) == 1 and rest and math.prod(y) % rest == 0:
                x = tuple(math.prod(y) // rest if d < 0 else d for d in x)
        elif y is None and all(c > 0 or c == -1 for c in codes):
            y = tuple(codes)
        return [x], [y], []


@register_operator("Flatten", aliases=("flatten",))
class Flatten(SameElements):
    """[n, a, b, ...] to [n, a·b·...]; one axis [n] to [n, 1]."""

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, y = in_shape[0], out_shape[0]
        if x is None or not x or not is_known(x):  # as in MXNet: nothing is inferred from some of the sizes
            return [x], [y], []
        return [x], [merge_shapes(self.name, "the output", y, (x[0], math.prod(x[1:])))], []


@register_operator("expand_dims")
class ExpandDims(SameElements):
    """A new axis of size 1 at position `axis` of the output; a negative one counts from the end."""

    axis: int

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, y = in_shape[0], out_shape[0]
        if x is not None:
            axis = check_axis(self.name, self.axis, len(x) + 1)
            y = merge_shapes(self.name, "the output", y, (*x[:axis], 1, *x[axis:]))
        if y is not None:
            axis = check_axis(self.name, self.axis, len(y))
            x = (*y[:axis], *y[axis + 1:])
        return [x], [y], []


@register_operator("squeeze")
class Squeeze(SameElements):
    """Remove the axes of size 1, or those named. At least one axis stays."""

    axis: tuple | None = None

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        if self.axis is None:
            gone = {i for i, d in enumerate(x) if d == 1}
        else:
            gone = {check_axis(self.name, a, len(x)) for a in self.axis}
            for a in sorted(gone):
                if x[a] != 1:
                    raise ShapeError(f"{self.name}: axis {a} of {x} has size {x[a]}. Only axes of size 1 can be removed.")
        return [tuple(d for i, d in enumerate(x) if i not in gone) or (1,)]


@register_operator("reshape_like")
class ReshapeLike(SameElements):
    """lhs in the shape of rhs; or its axes lhs_begin:lhs_end in the sizes of rhs's axes rhs_begin:rhs_end."""

    lhs_begin: int | None = None
    lhs_end: int | None = None
    rhs_begin: int | None = None
    rhs_end: int | None = None
    argument_names = ("lhs", "rhs")
    gradient_arguments = (0,)
    own_dtypes = True

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, r = in_shape
        if x is None or r is None:
            return list(in_shape), list(out_shape), []
        b, e, _ = slice(self.lhs_begin, self.lhs_end).indices(len(x))
        rb, re, _ = slice(self.rhs_begin, self.rhs_end).indices(len(r))
        y = (*x[:b], *r[rb:re], *x[e:])
        if is_known(x) and is_known(y) and math.prod(x) != math.prod(y):
            raise ShapeError(f"{self.name}: {x} reshaped like {r} would be {y}, which does not have {math.prod(x)} elements.")
        return [x, r], [y], []


class Permuted(MoveProperty):
    """Base class: one input, one output with its axes in another order."""

    backwards: ClassVar[bool] = True  # the shape of data can be inferred from that of the output

    def order(self, rank: int) -> tuple[int, ...]:
        """Return the input axis of each output axis."""
        raise NotImplementedError(self.name)

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, y = in_shape[0], out_shape[0]
        if x is not None:
            y = merge_shapes(self.name, "the output", y, tuple(x[a] for a in self.order(len(x))))
        elif y is not None and not self.backwards:
            raise ShapeError(f"{self.name}: the shape of the data is unknown, and is inferred from the output {y} only "
                             f"if axes are given. Give axes={self.order(len(y))}.")
        if y is not None:
            order = self.order(len(y))
            x = tuple(y[order.index(i)] for i in range(len(y)))
        return [x], [y], []

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        order = self.order(len(ins[0]))
        return [Move(0, lambda a: a.transpose(order), 0, whole)]


@register_operator("transpose")
class Transpose(Permuted):
    """Axes in the order `axes`, or reversed."""

    axes: tuple = ()

    @property
    def backwards(self) -> bool:
        return bool(self.axes)  # as in MXNet

    def order(self, rank: int) -> tuple[int, ...]:
        if not self.axes:
            return tuple(range(rank))[::-1]
        if sorted(self.axes) != list(range(rank)):
            raise ShapeError(f"{self.name}: axes={self.axes} must be a permutation of the {rank} axes of the data. "
                             f"Name each of 0 to {rank - 1} once.")
        return self.axes


@register_operator("SwapAxis", aliases=("swapaxes",))
class SwapAxis(Permuted):
    """Axes dim1 and dim2 exchanged."""

    dim1: int = 0
    dim2: int = 0

    def order(self, rank: int) -> tuple[int, ...]:
        order = list(range(rank))
        a, b = check_axis(self.name, self.dim1, rank), check_axis(self.name, self.dim2, rank)
        order[a], order[b] = order[b], order[a]
        return tuple(order)


@register_operator("_np_moveaxis", aliases=("moveaxis",))
class MoveAxis(Permuted):
    """Axes `source` of a moved to positions `destination`; the other axes keep their order."""

    source: tuple
    destination: tuple
    argument_names = ("a",)

    def order(self, rank: int) -> tuple[int, ...]:
        src, dst = ([check_axis(self.name, a, rank) for a in axes] for axes in (self.source, self.destination))
        if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
            raise ShapeError(f"{self.name}: source={self.source} and destination={self.destination} must name the same "
                             f"number of axes, each once.")
        rest = iter(a for a in range(rank) if a not in src)
        return tuple(src[dst.index(i)] if i in dst else next(rest) for i in range(rank))


class BlockMoved(MoveProperty):
    """Base class: [n, c, h, w] with blocks of pixels moved between channels and plane."""

    block_size: int

    def validate(self) -> None:
        if self.block_size < 1:
            raise ParameterError(f"{self.name}: block_size={self.block_size} must be at least 1.")

    def moved(self, n: int, c: int, h: int, w: int) -> Shape:
        """Return the shape of the output; sizes may be unknown."""
        raise NotImplementedError(self.name)

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is None:
            return list(in_shape), list(out_shape), []
        if len(x) != 4:
            raise ShapeError(f"{self.name}: data {x} must be [n, c, h, w].")
        return [x], [self.moved(*x)], []


@register_operator("depth_to_space")
class DepthToSpace(BlockMoved):
    """[n, b·b·c, h, w] to [n, c, h·b, w·b], b = block_size."""

    def moved(self, n: int, c: int, h: int, w: int) -> Shape:
        b = self.block_size
        if c > 0 and c % (b * b):
            raise ShapeError(f"{self.name}: {c} channels are not a multiple of block_size² = {b * b}.")
        return n, c // (b * b) if c >= 0 else -1, *(d * b if d >= 0 else -1 for d in (h, w))

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        (n, c, h, w), b = ins[0], self.block_size
        k = c // (b * b)
        return [Move(0, lambda a: a.reshape(n, b, b, k, h, w).transpose(0, 3, 4, 1, 5, 2), 0, shaped((n, k, h, b, w, b)))]


@register_operator("space_to_depth")
class SpaceToDepth(BlockMoved):
    """[n, c, h·b, w·b] to [n, b·b·c, h, w], b = block_size."""

    def moved(self, n: int, c: int, h: int, w: int) -> Shape:
        b = self.block_size
        if max(h, 0) % b or max(w, 0) % b:
            raise ShapeError(f"{self.name}: a plane of {h} × {w} is not divisible into blocks of {b} × {b}.")
        return n, c * b * b if c >= 0 else -1, *(d // b if d >= 0 else -1 for d in (h, w))

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        (n, c, h, w), b = ins[0], self.block_size
        return [Move(0, shaped((n, c, h // b, b, w // b, b)), 0,
                     lambda a: a.reshape(n, b, b, c, h // b, w // b).transpose(0, 3, 4, 1, 5, 2))]


@register_operator("BlockGrad", aliases=("stop_gradient",))
class BlockGrad(SameElements):
    """The input unchanged; its derivative is zero."""

    gradient_arguments = ()


@register_operator("Cast", aliases=("cast",))
class Cast(MoveProperty):
    """The input in another dtype, like astype.

    Floats become integers by truncation. NaN and floats out of range of int32 (of int64 for int64 outputs) become the smallest
    int32 (int64), which then wraps in narrower dtypes: 3e9 is -2147483648 in int32 and 0 in int8. The derivative is cast back.
    """

    dtype: np.dtype

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        return list(in_type), [self.dtype], []

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        return [Move(0, whole, 0, whole)]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        in_c = cast_kernel(ins[0], outs[0], reqs[0]) if target == "cpu" else None
        if in_c is not None:
            return in_c
        value = load(0, ins[0].dtype)
        e = Expression((value if is_half(outs[0].dtype) else cast(value, outs[0].dtype),))
        return printed(e, ins, outs, reqs, target, self.name)

    backward_kernel = forward_kernel
