"""UpSampling: planes enlarged by an integer factor, by repeating elements or by a learned Deconvolution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ....errors import ParameterError, ShapeError
from ... import op as registry
from ...declare.index_kernel import At, IndexedArray, index_kernel
from ...declare.operator_property import Shapes
from ...declare.property_op import register_operator
from ...ir.expr import Expr
from ...ir.lang import sum as total
from ...kernel import KernelFunction
from ...op import Op, Reqs, Shape, Spec, Specs, is_known
from ...params import Params
from ..tensor.data_movement import Move, move_kernel
from ..tensor.split_concat import Variadic


@register_operator("UpSampling")
class UpSampling(Variadic):
    """The planes of arg0 [n, c, h, w], scale times as large.

    sample_type: "nearest": repeat each element; further arrays are enlarged to the same size, and concatenated along channels
    (multi_input_mode "concat") or added ("sum"). "bilinear": a Deconvolution with one group per channel; its weight is the
    second array [num_filter, 1, k, k], k = 2 scale - scale % 2.
    """

    linear: ClassVar[bool] = False

    scale: int
    sample_type: Literal["nearest", "bilinear"]
    num_filter: int = 0
    multi_input_mode: Literal["concat", "sum"] = "concat"
    workspace: int = 512

    def validate(self) -> None:
        super().validate()
        if self.scale < 1:
            raise ParameterError(f"{self.name}: scale={self.scale} must be at least 1.")
        if self.sample_type == "bilinear" and (self.num_args > 2 or self.num_filter < 1):
            raise ParameterError(f"{self.name}: bilinear takes one array and its weight, and num_filter, the number of channels; "
                                 f"not num_args={self.num_args}, num_filter={self.num_filter}.")

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data", "weight") if self.sample_type == "bilinear" else super().argument_names

    # ---- bilinear: a Deconvolution ----
    def _layer(self) -> tuple[Op, Params]:
        k, s = 2 * self.scale - self.scale % 2, self.scale
        op = registry.builtin("Deconvolution")
        return op, op.parse({"kernel": (k, k), "stride": (s, s), "pad": (s // 2,) * 2, "num_filter": self.num_filter,
                             "num_group": self.num_filter, "no_bias": True})

    @property
    def backward_reads(self) -> tuple[str, ...]:
        if self.sample_type == "nearest":
            return ("dy",)
        op, p = self._layer()
        gradient = op.gradient_of(p)
        assert gradient is not None
        return tuple(f"{kind}{i}" for kind, i in gradient.needs)

    # ---- both ----
    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        if self.sample_type == "bilinear":
            op, p = self._layer()
            ins, outs = op.infer_shape(p, in_shape, out_shape)
            return ins, outs, []
        alone = in_shape[0] if len(in_shape) == 1 else None
        if alone is not None and len(alone) == 4 and not is_known(alone):
            return [alone], [(*alone[:2], *(d * self.scale if d >= 0 else -1 for d in alone[2:]))], []
        if any(s is None or not is_known(s) for s in in_shape):
            return list(in_shape), list(out_shape), []
        known = [s for s in in_shape if s is not None]
        x = known[0]
        if any(len(s) != 4 for s in known):
            raise ShapeError(f"{self.name}: inputs {in_shape} must be [n, c, h, w].")
        size = (x[2] * self.scale, x[3] * self.scale)
        for i, s in enumerate(known):
            if s[0] != x[0] or 0 in s or size[0] % s[2] or size[1] % s[3] or \
                    (self.multi_input_mode == "sum" and s[1] != x[1]):
                raise ShapeError(f"{self.name}: arg{i} {s} cannot be enlarged to [{x[0]}, ..., {size[0]}, {size[1]}], the size "
                                 f"of arg0 {x} times {self.scale}, by integer factors.")
        channels = x[1] if self.multi_input_mode == "sum" else sum(s[1] for s in known)
        return list(in_shape), [(x[0], channels, *size)], []

    def _split(self, ins: Sequence[Shape], y: Shape) -> list[tuple[int, int, Shape]]:
        """Return, per input, its first and last channel in y, and the planes of y as blocks of equal elements."""
        at, found = 0, []
        for s in ins:
            blocks = (s[2], y[2] // s[2], s[3], y[3] // s[3])
            found.append((at, at + s[1], blocks))
            at += 0 if self.multi_input_mode == "sum" else s[1]
        return found

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.sample_type == "bilinear":
            op, p = self._layer()
            return op.kernel(p, ins, outs, reqs, target, train)
        y, moves = outs[0].shape, []
        for i, (begin, end, blocks) in enumerate(self._split([s.shape for s in ins], y)):
            n, c, h, w = ins[i].shape
            full = (n, c, h, blocks[1], w, blocks[3])
            moves.append(Move(i, lambda a, full=full: np.broadcast_to(a[:, :, :, None, :, None], full), 0,
                              lambda a, b=begin, e=end, k=blocks: a.reshape(*y[:2], *k)[:, b:e]))
        return move_kernel(moves, ins, outs, reqs, target, overlap=self.multi_input_mode == "sum" and len(ins) > 1)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.sample_type == "bilinear":
            op, p = self._layer()
            gradient = op.gradient_of(p)
            assert gradient is not None
            return gradient.op.kernel(p, ins, outs, reqs, target, train)
        parts = self._split([s.shape for s in outs], ins[0].shape)
        dy, kernels = Spec(ins[0].shape, ins[0].dtype), []
        for (begin, _, blocks), dx, req in zip(parts, outs, reqs):
            body = partial(_block_sum, begin=begin, size=(blocks[1], blocks[3]))
            kernels.append(index_kernel(body, [dy], [dx], [req], target, self.name))

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            for one, dx in zip(kernels, outputs):
                one(run, inputs, [dx])

        return kernel


def _block_sum(at: At, dy: IndexedArray, *, begin: int, size: tuple[int, int]) -> Expr:
    """Return the sum of a block of a plane. begin: the first channel; size: of the block."""
    n, c, h, w = at
    rows, columns = size
    return total(rows, lambda i: total(columns, lambda j: dy[n, begin + c, h * rows + i, w * columns + j]))
