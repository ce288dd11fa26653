"""BatchNorm: normalize every channel to mean 0 and variance 1 over the batch, then scale by gamma and shift by beta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ....dtype import float32, is_half
from ....errors import ParameterError, ShapeError
from ....integers import cdiv
from ...cpu.c_template import Template
from ...cpu.sum_tree import total
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes, assign, gpu_module, math_dtype
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Op, Req, Reqs, Shape, Shaped, Spec, Specs, merge_shapes
from ..tensor.reshape import check_axis
from . import c_norm
from .batch_norm_fused import MovingScale, NormaliseMoving, NormaliseOp, ScaleShift, norm_tail
from .norm_layers import differentiable_gradient
from .softmax import Rows, pieces, rows_along

_SLOTS = 64  # largest number of pieces, each with its own partial sums


@register_operator("BatchNorm", aliases=("BatchNorm_v1",))
class BatchNorm(OperatorProperty):
    """y = gamma · (x - mean) / √(var + eps) + beta, per channel.

    data: any shape; channels along `axis`. gamma, beta, moving_mean, moving_var: [channels] (float32 for half data).
    In training, mean and (biased) variance are those of the batch, and moving = momentum · moving + (1 - momentum) · batch.
    At inference, and with use_global_stats, the moving ones are used.
    fix_gamma: gamma is taken as 1 and gets no derivative. output_mean_var: also returns mean and 1 / √(var + eps).
    """

    eps: float = 1e-3
    momentum: float = 0.9
    fix_gamma: bool = True
    use_global_stats: bool = False
    output_mean_var: bool = False
    axis: int = 1
    min_calib_range: float | None = None
    max_calib_range: float | None = None

    backward_needs_aux: ClassVar[bool] = False
    final_part = NormaliseOp(), (("x", 0), ("x", 1), ("x", 2), ("y", 1), ("y", 2))
    state_formulas: ClassVar[Mapping[str, tuple[Op, ...]]] = {"gpu": (NormaliseMoving(),), "cpu": (MovingScale(), ScaleShift())}
    argument_names = ("data", "gamma", "beta")
    output_names = ("output", "mean", "var")
    state_names = ("moving_mean", "moving_var")
    backward_reads = ("dy0", "x0", "x1", "y1", "y2")
    backward_inplace = (("dy0", 0), ("x0", 0))  # the sums are computed first, then each element by itself

    def validate(self) -> None:
        if self.eps < 0 or not 0 <= self.momentum <= 1:
            raise ParameterError(f"{self.name}: eps={self.eps} must not be negative, momentum={self.momentum} must be "
                                 f"between 0 and 1.")

    def differentiable_gradient(self, read: Mapping[tuple[str, int], Any], train: bool) -> list[Shaped] | None:
        own = train and not self.use_global_stats  # the mean and variance are those of the batch
        return differentiable_gradient(self, read, fixed=self.fix_gamma) if own else None

    def changes_states(self, train: bool) -> bool:
        return train and not self.use_global_stats

    def with_channels_last(self) -> dict[str, object] | None:
        return {"axis": 3} if self.axis in (1, -3) else None

    def tail(self, data: Spec, target: str, *, plus: bool, backward: bool) -> Op | None:
        found = target == "gpu" or c_norm.in_c(self.rows(data.shape), data.dtype, (), backward=backward)
        return norm_tail(plus, backward) if found else None

    def c_files(self, ins: Specs, train: bool) -> Sequence[Template]:
        return c_norm.c_files(self.rows(ins[0].shape), ins[0].dtype) if train else ()

    @property
    def visible_outputs(self) -> int:
        return 3 if self.output_mean_var else 1

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = merge_shapes(self.name, "data and output", in_shape[0], out_shape[0])
        if x is None:
            return list(in_shape), list(out_shape), [None, None]
        c = (x[check_axis(self.name, self.axis, len(x))],)
        for what, s in zip(("gamma", "beta"), in_shape[1:]):
            if s is not None and (len(s) != 1 or (-1 not in (s + c) and s != c)):
                raise ShapeError(f"{self.name}: {what} {s} must be {c}: data {x} has that many channels on axis "
                                 f"{self.axis}.")
        return [x, c, c], [x, c, c], [c, c]

    def rows(self, shape: Shape) -> Rows:
        """Return the shape of data as [outer, channels, inner]."""
        return rows_along(shape, check_axis(self.name, self.axis, len(shape)))

    def view(self, shape: Shape) -> tuple[Shape, Shape, Shape]:
        """Return the shapes of data, its statistics and gamma for the sums."""
        outer, n, inner = self.rows(shape)
        return (outer, n, inner), (1, n, 1), (n, 1)

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        d = in_type[0] or out_type[0]
        p = float32 if d is None or is_half(d) else d
        return [d, p, p], [d, p, p], [p, p]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows = self.rows(ins[0].shape)
        batch, eps, momentum, req = train and not self.use_global_stats, self.eps, self.momentum, reqs[0]
        if target == "gpu":
            norm, p = gpu_module("nn.triton_norm"), self
            return lambda run, inputs, outputs: norm.forward(run, rows, p, batch, inputs, outputs, reqs)
        if c_norm.in_c(rows, ins[0].dtype, reqs):
            return c_norm.forward(rows, self, batch, reqs)
        dtype, count = math_dtype(ins[0].dtype), rows[0] * rows[2]

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            x, gamma, beta, moving_mean, moving_var = inputs
            x = x.reshape(rows)
            if batch and count:
                mean = _sums(run, rows, dtype, lambda a, z: x[a:z])[0] / count
                m = mean.reshape(1, -1, 1)

                def squares(a: int, z: int) -> np.ndarray:
                    d = x[a:z] - m
                    d *= d
                    return d

                var = _sums(run, rows, dtype, squares)[0] / count
                moving_mean *= momentum
                moving_mean += (1 - momentum) * mean
                moving_var *= momentum
                moving_var += (1 - momentum) * var
            else:
                mean, var = moving_mean.astype(dtype), moving_var.astype(dtype)
            inverse = 1 / np.sqrt(var + dtype.type(eps))
            scale = inverse if self.fix_gamma else inverse * gamma
            shift = beta - mean * scale
            assign(outputs[1], reqs[1], mean)
            assign(outputs[2], reqs[2], inverse)
            if req != Req.NULL:
                y = outputs[0].reshape(rows)
                s, t = (v.astype(dtype, copy=False).reshape(1, -1, 1) for v in (scale, shift))

                def write(a: int, z: int) -> None:
                    v = x[a:z] * s
                    v += t
                    assign(y[a:z], req, v)

                pieces(run, rows[0], _step(rows), write)

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows = self.rows(ins[0].shape)
        batch = train and not self.use_global_stats
        if target == "gpu":
            norm, p = gpu_module("nn.triton_norm"), self
            return lambda run, inputs, outputs: norm.backward(run, rows, p, batch, inputs, outputs, reqs)
        if c_norm.in_c(rows, ins[1].dtype, reqs, backward=True):
            return c_norm.backward(rows, self, batch, reqs)
        dtype, count = math_dtype(ins[0].dtype), max(1, rows[0] * rows[2])

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            dy, x, gamma, mean, inverse = inputs
            dy, x = dy.reshape(rows), x.reshape(rows)
            m, r = (v.astype(dtype, copy=False).reshape(1, -1, 1) for v in (mean, inverse))
            whole, along = _sums(run, rows, dtype, lambda a, z: dy[a:z], lambda a, z: (x[a:z] - m) * r * dy[a:z])
            assign(outputs[1], reqs[1], np.zeros_like(along) if self.fix_gamma else along)
            assign(outputs[2], reqs[2], whole)
            if reqs[0] == Req.NULL:  # the array is None
                return
            dx = outputs[0].reshape(rows)
            scale = r if self.fix_gamma else r * gamma.astype(dtype, copy=False).reshape(1, -1, 1)
            a1, a2 = ((v / dtype.type(count)).reshape(1, -1, 1) for v in (whole, along))

            def write(a: int, z: int) -> None:
                if batch:
                    v = x[a:z] - m
                    v *= r * a2
                    v += a1
                    v = dy[a:z] - v
                else:
                    v = dy[a:z].astype(dtype)
                v *= scale
                assign(dx[a:z], reqs[0], v)

            pieces(run, rows[0], _step(rows), write)

        return kernel


def _step(rows: Rows) -> int:
    """Return the length of a piece along outer, of at most _SLOTS; it depends on the size alone."""
    outer, n, inner = rows
    return max(1, (1 << 16) // max(1, n * inner), cdiv(outer, _SLOTS))


def _sums(run: Any, rows: Rows, dtype: np.dtype, *values: Any) -> list[np.ndarray]:
    """Sum each of values(first, last) -> [outer, n, inner] over outer and inner; pieces are added in order."""
    step = _step(rows)
    partial = np.zeros((len(values), _SLOTS, rows[1]), dtype)

    def add(a: int, z: int) -> None:
        for k, value in enumerate(values):
            partial[k, a // step] = total(value(a, z).astype(dtype, copy=False), (0, 2))[0, :, 0]

    pieces(run, rows[0], step, add)
    return [total(p, (0,))[0] for p in partial]


@register_operator("_contrib_SyncBatchNorm")
class SyncBatchNorm(BatchNorm):
    """BatchNorm under MXNet's name for statistics shared by several devices; here each device uses its own.

    ndev and key are accepted and ignored. The other parameters (eps, momentum, fix_gamma, use_global_stats, output_mean_var,
    axis, min_calib_range, max_calib_range) are BatchNorm's.
    """

    ndev: int = 1
    key: str = ""
