"""cumsum: running sums along an axis. The derivative sums from the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...cpu import c_scan
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_team import Phases
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes, assign, gpu_module, math_dtype
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Spec, Specs, is_known
from .reshape import check_axis, lines_of


@register_operator("_np_cumsum", aliases=("cumsum",))
class Cumsum(OperatorProperty):
    """Cumulative sums of a along axis. axis None: of the flattened array. dtype: of the sums; None: that of a."""

    axis: int | None = None
    dtype: np.dtype | None = None
    argument_names = ("a",)
    backward_reads = ("dy",)

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        x = in_type[0]
        if self.dtype is None:
            x = x or out_type[0]
        return [x], [self.dtype or x], []

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, y = in_shape[0], out_shape[0]
        if self.axis is None:
            return [x], [(math.prod(x),) if x is not None and is_known(x) else y], []
        if x is None:
            x = y
        if x is not None:
            check_axis(self.name, self.axis, len(x))
        return [x], [x], []

    def _kernel(self, x: Spec, shape: Shape, out: Spec, req: Req, target: str, back: bool) -> KernelFunction:
        lines = lines_of(self.name, self.axis, shape)
        if target == "gpu":
            module = gpu_module("tensor.triton_cumsum")
            return lambda run, inputs, outputs: module.cumsum(run, lines, inputs[0], outputs[0], back=back, add=req == Req.ADD)
        wide = math_dtype(out.dtype)
        if req in (Req.WRITE, Req.INPLACE) and x.dtype == out.dtype and c_scan.sums(out.dtype, lines):
            in_c = c_scan.running_sums(out.dtype, lines, back)
            return ReboundKernel(lambda inputs, outputs: Phases([[in_c.prepare(inputs[0], outputs[0])]]), reentrant=True)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            x, y = inputs[0].reshape(lines), outputs[0].reshape(lines)
            with np.errstate(all="ignore"):
                x = x.astype(wide, copy=False)
                if back:
                    x, y = x[:, ::-1], y[:, ::-1]
                if req == Req.ADD or wide != y.dtype:
                    assign(y, req, np.cumsum(x, axis=1, dtype=wide))
                else:
                    np.cumsum(x, axis=1, dtype=wide, out=y)

        return kernel

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self._kernel(ins[0], ins[0].shape, outs[0], reqs[0], target, False)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self._kernel(ins[0], outs[0].shape, outs[0], reqs[0], target, True)
