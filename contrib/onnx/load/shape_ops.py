"""Converters of ONNX operators that move, join, cut, index or create elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ....graph.symbol import namespace
from ....graph.symbol.symbol import Symbol
from ..library import Unsupported, onnx
from .graph import Use, converts

S: Any = namespace  # its functions, by the names of operators


def _scalar_or_none(n: int, beyond: int) -> int | None:
    """Return a bound of a slice; None for one beyond any size."""
    return None if abs(n) >= beyond else n


@converts("Reshape")
def _reshape(use: Use) -> Symbol:
    if use.attr("allowzero", 0):
        raise Unsupported("allowzero=1 has no equivalent")
    if "shape" not in use.attrs and not use.is_const(1):
        like = use.reader.symbols.get(f"{use.inputs[1]} is the shape of")
        if like is None:
            raise Unsupported(f"the shape, {use.inputs[1]!r}, is computed by the network")
        return S.reshape_like(use.sym(), like, name=use.name)
    shape = tuple(use.ints("shape", 1) or ())
    return S.reshape(use.sym(), shape=shape or (1,), name=use.name)


@converts("Flatten")
def _flatten(use: Use) -> Symbol:
    axis = use.attr("axis", 1)
    if axis == 1:
        return S.Flatten(use.sym(), name=use.name)
    if axis == 0:
        return S.reshape(use.sym(), shape=(1, -1), name=use.name)
    sizes = use.shape()[: axis % use.ndim()]
    if 0 in sizes:
        raise Unsupported(f"axis={axis} of an array with sizes that may differ")
    return S.reshape(use.sym(), shape=(int(np.prod(sizes)), -1), name=use.name)


@converts("Transpose")
def _transpose(use: Use) -> Symbol:
    return S.transpose(use.sym(), axes=tuple(use.attr("perm", ())), name=use.name)


@converts("Unsqueeze")
def _unsqueeze(use: Use) -> Symbol:
    axes = use.ints("axes", 1) or []
    ndim = use.ndim() + len(axes) if min(axes) < 0 else 0
    result = use.sym()
    for axis in sorted(a % ndim if ndim else a for a in axes):
        result = S.expand_dims(result, axis=axis)
    return result


@converts("Squeeze")
def _squeeze(use: Use) -> Symbol:
    axes = use.ints("axes", 1)
    return S.squeeze(use.sym(), axis=None if axes is None else tuple(axes), name=use.name)


@converts("Concat")
def _concat(use: Use) -> Symbol:
    return S.Concat(*use.syms(), dim=use.attr("axis", 1), name=use.name)


@converts("Split")
def _split(use: Use) -> Any:
    axis, n = use.attr("axis", 0), len(use.outputs)
    sizes = use.ints("split", 1)
    if sizes is None or len(set(sizes)) == 1:
        parts = S.SliceChannel(use.sym(), num_outputs=n, axis=axis, name=use.name)
        return [parts[i] for i in range(n)] if n > 1 else parts
    ends = np.cumsum([0, *sizes])
    return [S.slice_axis(use.sym(), axis=axis, begin=int(b), end=int(e)) for b, e in pairwise(ends)]


@converts("Slice")
def _slice(use: Use) -> Symbol:
    starts, ends = use.ints("starts", 1) or [], use.ints("ends", 2) or []
    axes = use.ints("axes", 3, range(len(starts))) or []
    steps = use.ints("steps", 4, [1] * len(starts)) or []
    beyond = np.iinfo(np.int32).max
    ndim = max([*axes, 0]) + 1 if min([*axes, 0]) >= 0 else use.ndim()
    begin: list[int | None] = [None] * ndim
    end: list[int | None] = [None] * ndim
    step = [1] * ndim
    for a, b, e, s in zip(axes, starts, ends, steps):
        begin[a], end[a], step[a] = (None if s < 0 and b == -1 else _scalar_or_none(b, beyond)), _scalar_or_none(e, beyond), s
    return S.slice(use.sym(), begin=tuple(begin), end=tuple(end), step=tuple(step), name=use.name)


@converts("Pad")
def _pad(use: Use) -> Symbol:
    pads, mode = use.ints("pads", 1) or [], use.attr("mode", "constant")
    half = len(pads) // 2
    widths = tuple(n for pair in zip(pads[:half], pads[half:]) for n in pair)
    value = use.scalar("value", 2, 0.0)
    if min(widths, default=0) < 0 or mode not in ("constant", "edge", "reflect"):
        raise Unsupported(f"mode={mode!r} with pads {pads} has no equivalent")
    if half in (4, 5) and not any(widths[:4]):
        return S.Pad(use.sym(), mode=mode, pad_width=widths, constant_value=value, name=use.name)
    if mode != "constant":
        raise Unsupported(f"mode={mode!r} needs four or five axes, of which the first two have no padding")
    result = use.sym()
    for axis, pair in enumerate(zip(pads[:half], pads[half:])):
        result = _padded(use, result, axis, pair, value, half)
    return result


def _padded(use: Use, data: Symbol, axis: int, widths: Sequence[int], value: float, ndim: int) -> Symbol:
    """Return data with constant rows before and after, along one axis."""
    parts = [data]
    for place, n in zip((0, 2), widths):
        if n:
            row = S.slice_axis(data, axis=axis, begin=0, end=1) * 0 + value
            rows = S.repeat(row, repeats=n, axis=axis) if n > 1 else row
            parts.insert(0 if place == 0 else len(parts), rows)
    return S.Concat(*parts, dim=axis) if len(parts) > 1 else data


@converts("Tile")
def _tile(use: Use) -> Symbol:
    return S.tile(use.sym(), reps=tuple(int(n) for n in use.const(1)), name=use.name)


@converts("Expand")
def _expand(use: Use) -> Symbol:
    if not use.is_const(1):
        like = use.reader.symbols.get(f"{use.inputs[1]} is the shape of")
        if like is None:
            raise Unsupported(f"the shape, {use.inputs[1]!r}, is computed by the network")
        return S.broadcast_like(use.sym(), like, name=use.name)
    ones = use.param("ones", np.ones([int(n) for n in use.const(1)], np.float32))
    return S.broadcast_mul(use.sym(), ones, name=use.name)


@converts("DepthToSpace")
def _depth_to_space(use: Use) -> Symbol:
    if use.attr("mode", "DCR") != "DCR":
        raise Unsupported("mode='CRD' has no equivalent")
    return S.depth_to_space(use.sym(), block_size=use.attr("blocksize"), name=use.name)


@converts("SpaceToDepth")
def _space_to_depth(use: Use) -> Symbol:
    return S.space_to_depth(use.sym(), block_size=use.attr("blocksize"), name=use.name)


@converts("Gather")
def _gather(use: Use) -> Symbol:
    axis = use.attr("axis", 0)
    if use.is_const(1) and use.const(1).ndim == 0:
        index = int(use.const(1))
        part = S.slice_axis(use.sym(), axis=axis, begin=index, end=None if index == -1 else index + 1)
        return S.squeeze(part, axis=axis, name=use.name)
    return S.take(use.sym(0), use.sym(1), axis=axis, mode="wrap", name=use.name)  # wrap: negative ones count from the end


@converts("GatherND")
def _gather_nd(use: Use) -> Symbol:
    ndim = use.ndim(1)
    return S.gather_nd(use.sym(0), S.transpose(use.sym(1), axes=(ndim - 1, *range(ndim - 1))), name=use.name)


@converts("OneHot")
def _one_hot(use: Use) -> Symbol:
    if use.attr("axis", -1) != -1:
        raise Unsupported("only axis=-1 has an equivalent")
    off, on = (float(v) for v in use.const(2))
    depth = int(use.const(1).reshape(-1)[0])
    return S.one_hot(use.sym(), depth=depth, on_value=on, off_value=off, dtype=use.const(2).dtype.name, name=use.name)


@converts("TopK")
def _topk(use: Use) -> Any:
    k = (use.ints("k", 1) or [1])[0] if "k" not in use.attrs else int(use.attrs["k"])
    found = S.topk(use.sym(), axis=use.attr("axis", -1), k=k, ret_typ="both", is_ascend=not use.attr("largest", 1), dtype="int64",
                   name=use.name)
    return [found[0], found[1]]


@converts("Shape")
def _shape(use: Use) -> Any:
    shape = use.reader.shape(use.inputs[0])
    if shape is not None and 0 not in shape:
        return np.asarray(shape, np.int64)
    use.reader.symbols[f"{use.outputs[0]} is the shape of"] = use.sym()
    return S.shape_array(use.sym(), name=use.name)


@converts("Size")
def _size(use: Use) -> Symbol:
    return S.reshape(S.size_array(use.sym()), shape=(1,), name=use.name)


@converts("Constant")
def _constant(use: Use) -> np.ndarray:
    for name in ("value_float", "value_floats", "value_int", "value_ints"):
        if name in use.attrs:
            return np.asarray(use.attrs[name], np.float32 if "float" in name else np.int64)
    if "value" not in use.attrs:
        raise Unsupported("only constants of numbers have an equivalent")
    return np.array(onnx().numpy_helper.to_array(use.attrs["value"]))


@converts("ConstantOfShape")
def _constant_of_shape(use: Use) -> np.ndarray:
    value = np.array(onnx().numpy_helper.to_array(use.attrs["value"])) if "value" in use.attrs else np.zeros(1, np.float32)
    return np.full([int(n) for n in use.const(0)], value.reshape(-1)[0], value.dtype)


@converts("ReverseSequence")
def _reverse_sequence(use: Use) -> Symbol:
    if (use.attr("time_axis", 0), use.attr("batch_axis", 1)) != (0, 1):
        raise Unsupported("only time_axis=0 with batch_axis=1 has an equivalent")
    return S.SequenceReverse(use.sym(0), S.Cast(use.sym(1), dtype="float32"), use_sequence_length=True, name=use.name)


@converts("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike")
def _random(use: Use) -> Symbol:
    uniform = use.op.startswith("RandomUniform")
    limits = ({"low": use.attr("low", 0.0), "high": use.attr("high", 1.0)} if uniform else
              {"loc": use.attr("mean", 0.0), "scale": use.attr("scale", 1.0)})
    if use.op.endswith("Like"):
        return getattr(S._internal, "_random_uniform_like" if uniform else "_random_normal_like")(use.sym(), **limits)
    return getattr(S.random, "uniform" if uniform else "normal")(shape=tuple(use.attr("shape")), name=use.name, **limits)


@converts("Range")
def _range(use: Use) -> np.ndarray:
    return np.arange(*(use.const(i).reshape(()).item() for i in range(3))).astype(use.const(0).dtype)
