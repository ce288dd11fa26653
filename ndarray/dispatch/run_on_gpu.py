"""Run an operator once on gpu(0), interpreted or real, for `op.check()` (kernels/declare/check_op.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...context import gpu
from ...kernels.op import Op
from ...kernels.params import Params
from ..core.chunk import layout_of
from .copy import allocate_like_host
from .invoke import invoke_backward


def run(op: Op, p: Params, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return op's results for inputs, on the host; outputs give their shapes and dtypes. Raises ContextError without a GPU."""
    ctx = gpu(0)
    arrays = [allocate_like_host(a, ctx) for a in inputs]
    results = invoke_backward(op, p, arrays, [layout_of(a.shape, a.dtype, ctx) for a in outputs], False)
    return [a.asnumpy() for a in results]

