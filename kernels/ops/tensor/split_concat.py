"""Operators that split or join arrays: slice, split, _split_v2, concat, stack, tile, repeat, reverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.index_kernel import index_kernel
from ...declare.operator_property import KnownShapes, Shapes
from ...declare.property_op import register_operator
from ...declare.traced import printed
from ...ir.expr import load
from ...ir.lang import sum as total
from ...ir.strided import View, shaped, whole
from ...kernel import KernelFunction
from ...op import Expression, Reqs, Shape, Spec, Specs, is_known, merge_shapes
from .data_movement import Move, MoveProperty
from .reshape import check_axis


def window(axis: int, begin: int, end: int) -> View:
    """Return the view begin:end along axis."""
    cut = (slice(None),) * axis + (slice(begin, end),)
    return lambda a: a[cut]


class Variadic(MoveProperty):
    """Base class of operators with num_args inputs."""

    num_args: int

    def validate(self) -> None:
        if self.num_args < 1:
            raise ParameterError(f"{self.name}: num_args={self.num_args} must be at least 1.")

    @property
    def argument_names(self) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(self.num_args))


@register_operator("Concat", aliases=("concat",))
class Concat(Variadic):
    """The inputs joined along axis `dim`; all other axes must be equal."""

    costly = True

    dim: int = 1

    def with_channels_last(self) -> dict[str, object] | None:
        return {"dim": 3} if self.dim in (1, -3) else None

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        y = out_shape[0]
        first = next((s for s in (*in_shape, y) if s is not None), None)
        if first is None:
            return list(in_shape), [y], []
        axis = check_axis(self.name, self.dim, len(first))
        rest: Shape | None = None
        for s in (*in_shape, y):
            if s is not None:
                try:
                    rest = merge_shapes(self.name, "", rest, (*s[:axis], -1, *s[axis + 1:]))
                except ShapeError:
                    raise ShapeError(f"{self.name}: inputs {in_shape} differ on an axis other than dim={self.dim}. "
                                     f"Only sizes on that axis may differ.") from None
        assert rest is not None
        sizes = [s[axis] if s is not None else -1 for s in in_shape]
        total = y[axis] if y is not None else -1
        if -1 not in sizes:
            total = sum(sizes)
        elif total >= 0 and sizes.count(-1) == 1:
            sizes[sizes.index(-1)] = total - sum(s for s in sizes if s >= 0)
        put = lambda d: (*rest[:axis], d, *rest[axis + 1:])
        return [put(d) for d in sizes], [put(total)], []

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        axis, at, moves = self.dim % len(outs[0]), 0, []
        for i, s in enumerate(ins):
            moves.append(Move(i, whole, 0, window(axis, at, at + s[axis])))
            at += s[axis]
        return moves


@register_operator("_rnn_param_concat")
class RNNParamConcat(Concat):
    """Weights and biases of a recurrent layer, flattened, joined to the one vector that RNN takes.

    Inputs of unknown size, the weights of the two directions of the first layer, have equal sizes.
    """

    dim: int = 0

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        y, unknown = out_shape[0], sum(s is not None and s == (-1,) for s in in_shape)
        if y is not None and is_known(y) and unknown > 1 and all(s is not None for s in in_shape):
            rest = y[0] - sum(s[0] for s in in_shape if s is not None and s != (-1,))
            if rest > 0 and rest % unknown == 0:
                in_shape = [(rest // unknown,) if s == (-1,) else s for s in in_shape]
        return super().infer_shape(in_shape, out_shape)


@register_operator("stack")
class Stack(Variadic):
    """Inputs of equal shape joined along a new axis."""

    axis: int = 0

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        y, x = out_shape[0], None
        for i, s in enumerate(in_shape):
            x = merge_shapes(self.name, f"arg{i}, like the inputs before it,", x, s)
        if y is not None:
            axis = check_axis(self.name, self.axis, len(y))
            x = merge_shapes(self.name, "the inputs", x, (*y[:axis], *y[axis + 1:]))
        if x is not None:
            axis = check_axis(self.name, self.axis, len(x) + 1)
            y = (*x[:axis], self.num_args, *x[axis:])
        return [x] * len(in_shape), [y], []

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        axis = self.axis % len(outs[0])
        one = (*outs[0][:axis], 1, *outs[0][axis + 1:])
        return [Move(i, shaped(one), 0, window(axis, i, i + 1)) for i in range(len(ins))]


class Parts(MoveProperty):
    """Base class: the input cut along an axis."""

    axis: int

    def parts(self, size: int) -> list[tuple[int, int]]:
        """Return (begin, end) of each part of an axis of this size."""
        raise NotImplementedError(self.name)

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        x = ins[0]
        axis = self.axis % len(x)
        return [Move(0, window(axis, b, e), i, shaped((*x[:axis], e - b, *x[axis + 1:])))
                for i, (b, e) in enumerate(self.parts(x[axis]))]


@register_operator("SliceChannel", aliases=("split",))
class SliceChannel(Parts):
    """num_outputs equal parts along axis. squeeze_axis: parts have size 1 along the axis, which is removed."""

    num_outputs: int
    axis: int = 1
    squeeze_axis: bool = False
    argument_names = ("data",)

    def validate(self) -> None:
        if self.num_outputs < 1:
            raise ParameterError(f"{self.name}: num_outputs={self.num_outputs} must be at least 1.")

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(f"output{i}" for i in range(self.num_outputs))

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, n, y = in_shape[0], self.num_outputs, None
        for s in out_shape:
            y = merge_shapes(self.name, "the outputs", y, s)
        if x is None and y is not None:
            rank = len(y) + 1 if self.squeeze_axis else len(y)
            axis = check_axis(self.name, self.axis, rank)
            x = (*y[:axis], n, *y[axis:]) if self.squeeze_axis else \
                (*y[:axis], y[axis] * n if y[axis] >= 0 else -1, *y[axis + 1:])
        if x is None:
            return [x], list(out_shape), []
        axis = check_axis(self.name, self.axis, len(x))
        if x[axis] >= 0 and x[axis] % n:
            raise ShapeError(f"{self.name}: axis {axis} of {x} has size {x[axis]}, not a multiple of "
                             f"num_outputs={n}.")
        if self.squeeze_axis and x[axis] >= 0 and x[axis] != n:
            raise ShapeError(f"{self.name}: squeeze_axis needs parts of size 1, but axis {axis} of {x} has size "
                             f"{x[axis]} for num_outputs={n}.")
        part = x[axis] // n if x[axis] >= 0 else -1
        thin = (*x[:axis], *x[axis + 1:]) if self.squeeze_axis else (*x[:axis], part, *x[axis + 1:])
        return [x], [thin] * n, []

    def parts(self, size: int) -> list[tuple[int, int]]:
        part = size // self.num_outputs
        return [(i * part, (i + 1) * part) for i in range(self.num_outputs)]


@register_operator("_split_v2")
class SplitV2(Parts):
    """data cut along axis: into `sections` equal parts, or before each of `indices`, the first of which is 0.

    squeeze_axis: parts have size 1 along the axis, which is removed.
    """

    indices: tuple = ()
    axis: int = 1
    squeeze_axis: bool = False
    sections: int = 0

    def validate(self) -> None:
        if self.sections < 0 or (not self.sections and (not self.indices or self.indices[0] != 0
                                                        or list(self.indices) != sorted(self.indices))):
            raise ParameterError(f"{self.name}: sections={self.sections}, indices={self.indices}: give a number of parts, or "
                                 f"ascending indices that begin with 0.")

    @property
    def output_names(self) -> tuple[str, ...]:
        n = self.sections or len(self.indices)
        return tuple(f"output{i}" for i in range(n)) if n > 1 else ("output",)

    def parts(self, size: int) -> list[tuple[int, int]]:
        if self.sections:
            if size % self.sections:
                raise ShapeError(f"{self.name}: an axis of size {size} does not divide into {self.sections} equal parts.")
            step = size // self.sections
            return [(i * step, (i + 1) * step) for i in range(self.sections)]
        if self.indices[-1] > size:
            raise ShapeError(f"{self.name}: indices={self.indices} exceed an axis of size {size}.")
        return list(zip(self.indices, (*self.indices[1:], size)))

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        axis = check_axis(self.name, self.axis, len(x))
        sizes = [e - b for b, e in self.parts(x[axis])]
        if self.squeeze_axis and any(s != 1 for s in sizes):
            raise ShapeError(f"{self.name}: squeeze_axis needs parts of size 1, but axis {axis} of {x} has parts {sizes}.")
        thin = lambda s: (*x[:axis], *([] if self.squeeze_axis else [s]), *x[axis + 1:])
        return [thin(s) for s in sizes]


_LONG = 1 << 40  # replaces an unknown size: no slice reaches its end


class Window(MoveProperty):
    """Base class: one slice per axis of the first input. The derivative is zero elsewhere."""

    covers: ClassVar[bool] = False

    def slices(self, ins: Sequence[Shape]) -> tuple[slice, ...]:
        """Return one slice per axis of the first input."""
        raise NotImplementedError(self.name)

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        if any(s is None or (not is_known(s) and len(in_shape) > 1) for s in in_shape):
            return list(in_shape), list(out_shape), []
        known = [s for s in in_shape if s is not None]
        cut = self.slices([tuple(_LONG if d < 0 else d for d in s) for s in known])
        y = tuple(-1 if d < 0 else len(range(*s.indices(d))) for s, d in zip(cut, known[0]))
        return list(in_shape), [y], []

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        cut = self.slices(ins)
        return [Move(0, lambda a: a[cut], 0, whole)]


@register_operator("slice", aliases=("crop",))
class Slice(Window):
    """begin:end:step of the first axes, as Python slices (None: from the first, or to the last)."""

    begin: tuple[int | None, ...]
    end: tuple[int | None, ...]
    step: tuple[int | None, ...] = ()

    def validate(self) -> None:
        if len(self.begin) != len(self.end) or (self.step and len(self.step) != len(self.begin)):
            raise ParameterError(f"{self.name}: begin={self.begin}, end={self.end}, step={self.step} must have "
                                 f"equal length.")
        if 0 in self.step:
            raise ParameterError(f"{self.name}: step={self.step} contains 0.")

    def slices(self, ins: Sequence[Shape]) -> tuple[slice, ...]:
        x = ins[0]
        if len(self.begin) > len(x):
            raise ShapeError(f"{self.name}: begin={self.begin} has more axes than data {x}.")
        given = [slice(*t) for t in zip(self.begin, self.end, self.step or (None,) * len(self.begin))]
        return (*given, *[slice(None)] * (len(x) - len(given)))


@register_operator("slice_axis")
class SliceAxis(Window):
    """begin:end along one axis; negative values count from the end, end=None is the end."""

    axis: int
    begin: int
    end: int | None = None

    def slices(self, ins: Sequence[Shape]) -> tuple[slice, ...]:
        x = ins[0]
        axis = check_axis(self.name, self.axis, len(x))
        begin, end = self.begin, x[axis] if self.end is None else self.end
        begin, end = (begin + x[axis] if begin < 0 else begin), (end + x[axis] if end < 0 else end)
        if not 0 <= begin <= end <= x[axis]:
            raise ShapeError(f"{self.name}: {self.begin}:{self.end} is not a valid range of axis {axis} of {x}.")
        return (*[slice(None)] * axis, slice(begin, end), *[slice(None)] * (len(x) - axis - 1))


@register_operator("slice_like")
class SliceLike(Window):
    """The first input cut to the sizes of the second along `axes`, or along all axes."""

    axes: tuple = ()
    argument_names = ("data", "shape_like")
    gradient_arguments = (0,)
    own_dtypes = True

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        cut = tuple(slice(0, d) for d in outs[0])
        return [Move(0, lambda a: a[cut], 0, whole)]

    def slices(self, ins: Sequence[Shape]) -> tuple[slice, ...]:
        x, like = ins
        axes = {check_axis(self.name, a, len(x)) for a in self.axes} or set(range(len(x)))
        if not self.axes and len(like) != len(x):
            raise ShapeError(f"{self.name}: data {x} and shape_like {like} have different numbers of axes. Give axes.")
        for a in axes:
            if a >= len(like) or like[a] > x[a]:
                raise ShapeError(f"{self.name}: axis {a} of data {x} is shorter than that of shape_like {like}.")
        return tuple(slice(0, like[a]) if a in axes else slice(None) for a in range(len(x)))


@register_operator("reverse", aliases=("flip",))
class Reverse(MoveProperty):
    """data reversed along each of `axis`."""

    axis: tuple

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        x = ins[0]
        axes = {check_axis(self.name, a, len(x), low=0) for a in self.axis}
        cut = tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(len(x)))
        return [Move(0, lambda a: a[cut], 0, whole)]


_FEW = 8  # up to this many repetitions, one copy each is faster than short runs of elements


class Repeated(MoveProperty):
    """Base class: each element of the input appears several times in the output. Its derivative is the sum of theirs."""

    overlaps: ClassVar[bool] = True

    def spread(self, x: Shape) -> tuple[Shape, Shape]:
        """Return the shapes of input and output with an extra axis for repetitions, of size 1 in the input."""
        raise NotImplementedError(self.name)

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        once, often = self.spread(ins[0])
        counts = [r if n == 1 else 1 for n, r in zip(once, often)]
        if math.prod(counts) > _FEW:
            return [Move(0, lambda a: np.broadcast_to(a.reshape(once), often), 0, shaped(often))]
        part = lambda at: tuple(slice(i, i + 1) if r > 1 else slice(None) for i, r in zip(at, counts))
        return [Move(0, shaped(once), 0, lambda a, cut=part(at): a.reshape(often)[cut]) for at in np.ndindex(*counts)]

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        once, often = self.spread(outs[0].shape)
        if math.prod(often) <= _FEW * math.prod(once):
            return super().backward_kernel(ins, outs, reqs, target, train)
        return self._folded(Spec(often, ins[0].dtype), Spec(once, outs[0].dtype), reqs, target)

    def _folded(self, x: Spec, y: Spec, reqs: Reqs, target: str) -> KernelFunction:
        """Return the kernel that broadcasts x to y, or sums x to y."""
        inner = printed(Expression((load(0, x.dtype),)), [x], [y], reqs, target, self.name)
        return lambda run, inputs, outputs: inner(run, [inputs[0].reshape(x.shape)], [outputs[0].reshape(y.shape)])


@register_operator("tile")
class Tile(Repeated):
    """The input repeated reps[i] times along axis i; the shorter of shape and reps is padded with ones in front."""

    reps: tuple

    def validate(self) -> None:
        if any(r < 1 for r in self.reps):
            raise ParameterError(f"{self.name}: reps={self.reps} must all be at least 1.")

    def padded(self, x: Shape) -> tuple[Shape, Shape]:
        """Return shape and reps, padded to equal length."""
        n = max(len(x), len(self.reps))
        return (1,) * (n - len(x)) + x, (1,) * (n - len(self.reps)) + self.reps

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is None:
            return [x], list(out_shape), []
        return [x], [tuple(-1 if d < 0 else d * r for d, r in zip(*self.padded(x)))], []

    def spread(self, x: Shape) -> tuple[Shape, Shape]:
        x, reps = self.padded(x)
        return tuple(n for d in x for n in (1, d)), tuple(n for pair in zip(reps, x) for n in pair)


@register_operator("repeat")
class Repeat(Repeated):
    """Each element repeated `repeats` times along axis; without axis, of the flattened input."""

    repeats: int
    axis: int | None = None

    def validate(self) -> None:
        if self.repeats < 0:
            raise ParameterError(f"{self.name}: repeats={self.repeats} must not be negative.")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is None:
            return [x], list(out_shape), []
        if self.axis is None:
            return [x], [(math.prod(x) * self.repeats if is_known(x) else -1,)], []
        axis = check_axis(self.name, self.axis, len(x))
        return [x], [(*x[:axis], x[axis] * self.repeats if x[axis] >= 0 else -1, *x[axis + 1:])], []

    def spread(self, x: Shape) -> tuple[Shape, Shape]:
        axis = len(x) if self.axis is None else self.axis % len(x) + 1
        return (*x[:axis], 1, *x[axis:]), (*x[:axis], self.repeats, *x[axis:])

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.repeats > 2 * _FEW:
            return super().backward_kernel(ins, outs, reqs, target, train)
        x, axis = ((outs[0].size,), 0) if self.axis is None else (outs[0].shape, self.axis % len(outs[0].shape))
        outer, n, rest = math.prod(x[:axis]), x[axis], math.prod(x[axis + 1:])
        return index_kernel(lambda at, dy: total(dy.shape[2], lambda k: dy[at[0], at[1], k, at[2]]), ins, outs, reqs, target,
                            self.name, views=[(outer, n, self.repeats, rest)], results=[(outer, n, rest)])
