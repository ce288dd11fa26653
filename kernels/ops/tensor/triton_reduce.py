"""Triton: sums over some axes of an array, in parallel programs but always in the same order."""

from __future__ import annotations

import functools

from ....dtype import as_dtype
from ...gpu.body import LaunchPlan
from ...gpu.printer import plan_launches
from ...gpu.target import CodegenTarget, codegen_target
from ...ir.expr import load
from ...kernel import DeviceArray, Run
from ...op import Expression, Req, Shape, Spec


def sum_into(run: Run, a: DeviceArray, shape: Shape, kept: Shape, out: DeviceArray, *, add: bool) -> None:
    """Compute out = (or +=) a, seen as shape, summed over the axes of size 1 in kept."""
    dtypes = (str(t.dtype).removeprefix("torch.") for t in (a, out))
    _planned(shape, kept, *dtypes, Req.ADD if add else Req.WRITE, codegen_target()).run(run, [a], [out])


@functools.lru_cache(256)
def _planned(shape: Shape, kept: Shape, dtype: str, to: str, req: Req, codegen: CodegenTarget) -> LaunchPlan:
    whole = Expression((load(0, as_dtype(dtype)),))
    return plan_launches(whole, [Spec(shape, as_dtype(dtype))], [Spec(kept, as_dtype(to))], [req], name="sum_into",
                         codegen=codegen)
