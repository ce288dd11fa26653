"""Converters of attention on interleaved projections, of sequences of various lengths, of regions, and of random numbers."""

from __future__ import annotations

import math

import numpy as np

from ..library import Unsupported
from .graph import Use, converts, tensor_type
from .shape_ops import TO_END


# ---- attention -------------------------------------------------------------------------------------------------------
def _heads(use: Use, i: int, kinds: int) -> list[str]:
    """Split input i, [time, batch, heads · kinds · depth], into arrays [batch · heads, time, depth]."""
    depth = use.known_shape(i)[2] // use.p.heads // kinds
    parts = use.reshape(use.inputs[i], [0, -1, kinds, depth])
    split = use.add("Split", parts, use.const([1] * kinds), outputs=kinds, axis=2)
    return [use.add("Transpose", use.add("Squeeze", part, use.const([2])), perm=[1, 0, 2])
            for part in ([split] if isinstance(split, str) else split)]


def _scores(use: Use, q: str, k: str, depth: int) -> None:
    scaled = use.add("Div", q, use.number(math.sqrt(depth)))
    use.emit("MatMul", scaled, use.add("Transpose", k, perm=[0, 2, 1]))


def _weighted(use: Use, attention: str, v: str, width: int) -> None:
    together = use.add("Transpose", use.add("MatMul", attention, v), perm=[1, 0, 2])
    use.emit("Reshape", together, use.const([0, -1, width]))


@converts("_contrib_interleaved_matmul_selfatt_qk")
def _selfatt_qk(use: Use) -> None:
    q, k, _ = _heads(use, 0, 3)
    _scores(use, q, k, use.known_shape()[2] // use.p.heads // 3)


@converts("_contrib_interleaved_matmul_selfatt_valatt")
def _selfatt_valatt(use: Use) -> None:
    _weighted(use, use.inputs[1], _heads(use, 0, 3)[2], use.known_shape()[2] // 3)


@converts("_contrib_interleaved_matmul_encdec_qk")
def _encdec_qk(use: Use) -> None:
    (q,), (k, _) = _heads(use, 0, 1), _heads(use, 1, 2)
    _scores(use, q, k, use.known_shape()[2] // use.p.heads)


@converts("_contrib_interleaved_matmul_encdec_valatt")
def _encdec_valatt(use: Use) -> None:
    _weighted(use, use.inputs[1], _heads(use, 0, 2)[1], use.known_shape()[2] // 2)


# ---- sequences -------------------------------------------------------------------------------------------------------
@converts("SequenceMask")
def _sequence_mask(use: Use) -> None:
    if not use.p.use_sequence_length:
        use.emit("Identity", use.inputs[0])
        return
    axis, more = use.p.axis, [1] * (use.ndim() - 2)
    steps = np.arange(use.shape()[axis]).reshape([-1, 1] if axis == 0 else [1, -1])
    lengths = use.reshape(use.cast(use.inputs[1], np.int64), [1, -1] if axis == 0 else [-1, 1])
    inside = use.add("Less", use.const(steps), lengths)
    if more:
        inside = use.unsqueeze(inside, range(2, use.ndim()))
    use.emit("Where", inside, use.inputs[0], use.number(use.p.value))


@converts("SequenceReverse")
def _sequence_reverse(use: Use) -> None:
    if use.p.use_sequence_length:
        use.emit("ReverseSequence", use.inputs[0], use.cast(use.inputs[1], np.int64), time_axis=0, batch_axis=1)
    else:
        use.emit("Slice", use.inputs[0], use.const([-1]), use.const([-TO_END]), use.const([0]), use.const([-1]))


# ---- regions and random numbers --------------------------------------------------------------------------------------
@converts("_contrib_ROIAlign")
def _roi_align(use: Use) -> None:
    if use.p.position_sensitive or use.p.aligned:
        raise Unsupported("position_sensitive and aligned have no equivalent")
    columns = [use.add("Slice", use.inputs[1], use.const([a]), use.const([b]), use.const([1])) for a, b in ((0, 1), (1, 5))]
    image = use.reshape(use.cast(columns[0], np.int64), [-1])
    height, width = use.p.pooled_size
    use.emit("RoiAlign", use.inputs[0], columns[1], image, output_height=height, output_width=width, mode="avg",
             sampling_ratio=max(use.p.sample_ratio, 0), spatial_scale=float(use.p.spatial_scale))


@converts("_random_uniform", "_random_uniform_like")
def _uniform(use: Use) -> None:
    limits = {"low": float(use.p.low), "high": float(use.p.high)}
    if use.inputs:
        use.emit("RandomUniformLike", use.inputs[0], **limits)
    else:
        use.emit("RandomUniform", shape=list(use.out_shape()), dtype=tensor_type(use.out_dtypes[0]), **limits)


@converts("_random_normal", "_random_normal_like")
def _normal(use: Use) -> None:
    limits = {"mean": float(use.p.loc), "scale": float(use.p.scale)}
    if use.inputs:
        use.emit("RandomNormalLike", use.inputs[0], **limits)
    else:
        use.emit("RandomNormal", shape=list(use.out_shape()), dtype=tensor_type(use.out_dtypes[0]), **limits)
