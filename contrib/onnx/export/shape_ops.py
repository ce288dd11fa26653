"""Converters of operators that move, join, cut, index or create elements."""

from __future__ import annotations

import numpy as np

from ..library import Unsupported
from .graph import Use, converts, tensor_type

#: An end of a slice beyond every size.
TO_END = np.iinfo(np.int64).max


@converts("Reshape")
def _reshape(use: Use) -> None:
    shape = tuple(use.p.shape)
    simple = shape and not use.p.reverse and all(n is not None and n >= -1 for n in shape)
    use.emit("Reshape", use.inputs[0], use.const(shape if simple else use.out_shape()))


@converts("Flatten")
def _flatten(use: Use) -> None:
    use.emit("Flatten", use.inputs[0], axis=1)


@converts("reshape_like")
def _reshape_like(use: Use) -> None:
    use.emit("Reshape", use.inputs[0], use.add("Shape", use.inputs[1]))


@converts("transpose")
def _transpose(use: Use) -> None:
    use.emit("Transpose", use.inputs[0], perm=[use.axis(a) for a in use.p.axes] or list(range(use.ndim()))[::-1])


@converts("SwapAxis")
def _swap(use: Use) -> None:
    order = list(range(use.ndim()))
    a, b = use.axis(use.p.dim1), use.axis(use.p.dim2)
    order[a], order[b] = order[b], order[a]
    use.emit("Transpose", use.inputs[0], perm=order)


@converts("expand_dims")
def _expand_dims(use: Use) -> None:
    use.emit("Unsqueeze", use.inputs[0], use.const([use.p.axis % (use.ndim() + 1)]))


@converts("squeeze")
def _squeeze(use: Use) -> None:
    axis = use.p.axis
    if axis is None:
        use.emit("Squeeze", use.inputs[0])
    else:
        use.emit("Squeeze", use.inputs[0], use.const([use.axis(a) for a in ((axis,) if isinstance(axis, int) else axis)]))


@converts("Concat")
def _concat(use: Use) -> None:
    use.emit("Concat", *use.inputs, axis=use.axis(use.p.dim))


@converts("stack")
def _stack(use: Use) -> None:
    axis = use.p.axis % (use.ndim() + 1)
    use.emit("Concat", *(use.unsqueeze(i, [axis]) for i in use.inputs), axis=axis)


def _cut(use: Use, axis: int, sizes: list[int], squeeze: bool) -> None:
    if not squeeze:
        use.emit("Split", use.inputs[0], use.const(sizes), axis=axis)
        return
    parts = use.add("Split", use.inputs[0], use.const(sizes), outputs=len(sizes), axis=axis)
    for part, output in zip([parts] if isinstance(parts, str) else parts, use.outputs):
        use.writer.add("Squeeze", [part, use.const([axis])], [output], use.writer.name(output), {})


@converts("SliceChannel")
def _slice_channel(use: Use) -> None:
    axis, n = use.axis(use.p.axis), use.p.num_outputs
    _cut(use, axis, [use.known_shape()[axis] // n] * n, bool(use.p.squeeze_axis))


@converts("_split_v2")
def _split(use: Use) -> None:
    axis = use.axis(use.p.axis)
    size = use.known_shape()[axis]
    ends = [size * i // use.p.sections for i in range(use.p.sections)] if use.p.sections else list(use.p.indices)
    _cut(use, axis, list(np.diff([*ends, size])), bool(use.p.squeeze_axis))


@converts("slice_axis")
def _slice_axis(use: Use) -> None:
    end = TO_END if use.p.end is None else use.p.end
    use.emit("Slice", use.inputs[0], *(use.const([n]) for n in (use.p.begin, end, use.axis(use.p.axis))))


@converts("slice")
def _slice(use: Use) -> None:
    steps = [s or 1 for s in use.p.step] or [1] * len(use.p.begin)
    begins = [(0 if s > 0 else TO_END) if b is None else b for b, s in zip(use.p.begin, steps)]
    ends = [(TO_END if s > 0 else -TO_END) if e is None else e for e, s in zip(use.p.end, steps)]
    use.emit("Slice", use.inputs[0], use.const(begins), use.const(ends), use.const(range(len(begins))), use.const(steps))


@converts("slice_like")
def _slice_like(use: Use) -> None:
    axes = [use.axis(a) for a in use.p.axes] or list(range(min(use.ndim(0), use.ndim(1))))
    sizes = use.add("Gather", use.add("Shape", use.inputs[1]), use.const(axes))
    use.emit("Slice", use.inputs[0], use.const([0] * len(axes)), sizes, use.const(axes))


@converts("reverse")
def _reverse(use: Use) -> None:
    axes = [use.axis(a) for a in ((use.p.axis,) if isinstance(use.p.axis, int) else use.p.axis)]
    n = len(axes)
    use.emit("Slice", use.inputs[0], use.const([-1] * n), use.const([-TO_END] * n), use.const(axes), use.const([-1] * n))


@converts("tile")
def _tile(use: Use) -> None:
    reps = [use.p.reps] if isinstance(use.p.reps, int) else list(use.p.reps)
    data, missing = use.inputs[0], len(reps) - use.ndim()
    if missing > 0:
        data = use.unsqueeze(data, range(missing))
    use.emit("Tile", data, use.const([1] * -min(missing, 0) + reps))


@converts("repeat")
def _repeat(use: Use) -> None:
    n = use.p.repeats
    data, axis, ndim = use.inputs[0], use.p.axis, use.ndim()
    if axis is None:
        data, axis, ndim = use.reshape(data, [-1]), 0, 1
    axis %= ndim
    spread = use.add("Tile", use.unsqueeze(data, [axis + 1]), use.const([1] * (axis + 1) + [n] + [1] * (ndim - axis - 1)))
    joined = [0] * axis + [-1]
    if axis + 1 < ndim:
        joined += list(use.shape()[axis + 1 :])
    use.emit("Reshape", spread, use.const(joined))


@converts("broadcast_to", "broadcast_axis")
def _broadcast(use: Use) -> None:
    use.emit("Expand", use.inputs[0], use.const(use.out_shape()))


@converts("broadcast_like")
def _broadcast_like(use: Use) -> None:
    if use.p.get("lhs_axes"):
        raise Unsupported("lhs_axes and rhs_axes have no equivalent")
    use.emit("Expand", use.inputs[0], use.add("Shape", use.inputs[1]))


@converts("Pad")
def _pad(use: Use) -> None:
    widths = list(use.p.pad_width)
    pads = use.const(widths[::2] + widths[1::2])
    more = [use.number(use.p.constant_value)] if use.p.mode == "constant" else []
    use.emit("Pad", use.inputs[0], pads, *more, mode=use.p.mode)


@converts("depth_to_space")
def _depth_to_space(use: Use) -> None:
    use.emit("DepthToSpace", use.inputs[0], blocksize=use.p.block_size, mode="DCR")


@converts("space_to_depth")
def _space_to_depth(use: Use) -> None:
    use.emit("SpaceToDepth", use.inputs[0], blocksize=use.p.block_size)


# ---- by index --------------------------------------------------------------------------------------------------------
@converts("take")
def _take(use: Use) -> None:
    axis = use.axis(use.p.axis)
    index = use.cast(use.inputs[1], np.int64)
    size = use.known_shape()[axis]
    if use.p.mode == "clip":
        index = use.add("Max", use.add("Min", index, use.const(size - 1)), use.const(0))
    elif use.p.mode == "wrap":
        index = use.add("Mod", index, use.const(size))
    use.emit("Gather", use.inputs[0], index, axis=axis)


@converts("Embedding")
def _embedding(use: Use) -> None:
    index = use.add("Max", use.add("Min", use.cast(use.inputs[0], np.int64), use.const(use.p.input_dim - 1)), use.const(0))
    use.emit("Gather", use.inputs[1], index, axis=0)


@converts("gather_nd")
def _gather_nd(use: Use) -> None:
    order = [*range(1, use.ndim(1)), 0]
    use.emit("GatherND", use.inputs[0], use.add("Transpose", use.cast(use.inputs[1], np.int64), perm=order))


@converts("one_hot")
def _one_hot(use: Use) -> None:
    values = use.writer.constant([use.p.off_value, use.p.on_value], use.out_dtypes[0])
    index = use.cast(use.inputs[0], np.int64)
    inside = use.add("And", use.add("GreaterOrEqual", index, use.const(0)), use.add("Less", index, use.const(use.p.depth)))
    kept = use.add("Where", inside, index, use.const(use.p.depth))  # a negative index would count from the end
    use.emit("OneHot", kept, use.const(use.p.depth), values, axis=-1)


@converts("topk", "argsort", "sort")
def _topk(use: Use) -> None:
    flat = use.p.axis is None
    data, axis = (use.reshape(use.inputs[0], [-1]), 0) if flat else (use.inputs[0], use.axis(use.p.axis))
    kind = {"argsort": "indices", "sort": "value"}.get(use.op) or use.p.ret_typ
    if kind == "mask":
        raise Unsupported('ret_typ="mask" has no equivalent')
    k = use.p.get("k", 0) or (int(np.prod(use.shape())) if flat else use.shape()[axis])
    values, index = use.add("TopK", data, use.const([k]), outputs=2, axis=axis, largest=int(not use.p.is_ascend))
    if kind in ("value", "both"):
        use.writer.add("Identity", [values], [use.outputs[0]], use.writer.name(use.name), {})
    if kind in ("indices", "both"):
        use.writer.add("Cast", [index], [use.outputs[-1 if kind == "both" else 0]], use.writer.name(use.name),
                       {"to": tensor_type(use.out_dtypes[-1 if kind == "both" else 0])})




# ---- new arrays ------------------------------------------------------------------------------------------------------
@converts("_zeros", "_ones", "_full")
def _filled(use: Use) -> None:
    value = {"_zeros": 0, "_ones": 1}.get(use.op, use.p.get("value", 0))
    use.emit("Identity", use.writer.constant(np.full(use.out_shape(), value), use.out_dtypes[0]))


@converts("zeros_like", "ones_like")
def _like(use: Use) -> None:
    zero = use.add("Mul", use.inputs[0], use.number(0))
    if use.op == "zeros_like":
        use.emit("Identity", zero)
    else:
        use.emit("Add", zero, use.number(1))


@converts("_arange")
def _arange(use: Use) -> None:
    start, stop = (0, use.p.start) if use.p.stop is None else (use.p.start, use.p.stop)
    values = np.repeat(np.arange(start, stop, use.p.step), use.p.repeat)
    use.emit("Identity", use.writer.constant(values, use.out_dtypes[0]))


@converts("_contrib_arange_like")
def _arange_like(use: Use) -> None:
    shape = use.out_shape()
    values = use.p.start + use.p.step * (np.arange(int(np.prod(shape))) // use.p.repeat)
    use.emit("Identity", use.writer.constant(values.reshape(shape), use.out_dtypes[0]))


@converts("shape_array")
def _shape(use: Use) -> None:
    use.emit("Shape", use.inputs[0])


@converts("size_array")
def _size(use: Use) -> None:
    use.emit("Reshape", use.add("Size", use.inputs[0]), use.const([1]))
