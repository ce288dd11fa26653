"""One run of an operator on gpu(0), interpreted or real, for `op.check()` (kernels/declare/check_op.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...context import gpu
from ...kernels.op import Op
from ...kernels.params import Params
from ..core.array_core import allocate
from ..core.chunk import layout_of
from .copy import allocate_like_host
from .invoke import backward_plan, execute


def run(op: Op, p: Params, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """op's results for inputs, on the host; outputs say their shapes and dtypes. Raises ContextError without a GPU."""
    ctx = gpu(0)
    arrays = [allocate_like_host(a, ctx) for a in inputs]
    results = [allocate(layout_of(a.shape, a.dtype, ctx)) for a in outputs]
    plan = backward_plan(op, p, [a.layout for a in arrays], [a.layout for a in results], False)
    execute(plan, plan.kernel, arrays, results, p.scalars)
    return [a.asnumpy() for a in results]

