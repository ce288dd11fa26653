"""Sums of device arrays over some axes, in parallel programs but always in the same order."""

from __future__ import annotations

import functools

from ..ir.expr import load
from ..kernel import DeviceArray, Run
from ..op import Expression, Req, Shape, Spec
from .body import LaunchPlan
from .launch import dtype_of
from .printer import plan_launches
from .target import CodegenTarget, codegen_target


def sum_into(run: Run, a: DeviceArray, shape: Shape, kept: Shape, out: DeviceArray, *, add: bool) -> None:
    """Compute out = (or +=) a, seen as shape, summed over the axes of size 1 in kept."""
    req, codegen = Req.ADD if add else Req.WRITE, codegen_target()
    _planned(Spec(shape, dtype_of(a)), Spec(kept, dtype_of(out)), req, codegen).run(run, [a], [out])


@functools.lru_cache(256)
def _planned(x: Spec, y: Spec, req: Req, codegen: CodegenTarget) -> LaunchPlan:
    return plan_launches(Expression((load(0, x.dtype),)), [x], [y], [req], name="sum_into", codegen=codegen)
