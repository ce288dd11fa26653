"""fuse_steps: merge elementwise kernels of one task of autograd's backward, which is on a lower floor and knows no passes.

Fused and unfused steps give the same bits, so a result does not depend on when a tape was fused: only arithmetic, roots,
comparisons and choices in float32 and float64 take part. Exponentials in C differ from NumPy's, and sums depend on the kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..kernels.cpu.c_compile import compile_wanted
from ..kernels.ir.body import Body
from ..kernels.ir.expr import CAST, CONST, LOAD, topological
from ..kernels.op import Op, Req, compiled
from ..kernels.params import Params
from ..ndarray.autograd.program import Step as TapeStep
from ..ndarray.core.chunk import Layout
from .passes.fuse import fuse
from .program import ARG, INNER, Program, Step

#: Expressions whose results are NumPy's to the bit in every kind of kernel.
_EXACT = frozenset((LOAD, CONST, CAST, "add", "sub", "mul", "div", "neg", "abs", "square", "sqrt", "eq", "ne", "lt", "le", "gt",
                    "ge", "and", "or", "not", "where"))
_DTYPES = (np.dtype("float32"), np.dtype("float64"))
_NONE = Params({})
_BEFORE = "before"  # the name of a step that stands for the work before the task


class _Apart(Op):
    """Stands for a kernel that is not to be fused."""

    name = "kernel"


_apart = _Apart()


def fuse_steps(steps: Sequence[TapeStep], params: Sequence[Params], layouts: Sequence[Layout], local: Collection[int]
               ) -> list[TapeStep] | None:
    """Return the steps of a task on a CPU with groups of them fused; None where there is nothing to fuse.

    params:   of each step that has an operator, with their run-time scalars, which become constants.
    layouts:  of the registers. local: those that nothing but these steps reads.
    """
    fusible = [_is_exact(step, p) and step.fusible for step, p in zip(steps, params)]
    if sum(fusible) < 2:
        return None
    program = Program()
    values: dict[int, int] = {}
    for step in steps:
        for r in (*step.inputs, *step.outputs):
            if r >= 0 and r not in values:
                values[r] = program.add_value(layouts[r].spec, INNER if r in local else ARG, f"r{r}")
    added = {values[r] for step in steps for r, req in zip(step.outputs, step.reqs) if req == Req.ADD and r not in local}
    program.steps.append(Step(_apart, _NONE, _BEFORE, (), tuple(added), (Req.WRITE,) * len(added)))  # a sum has two writers
    for k, (step, p) in enumerate(zip(steps, params)):
        op = step.op if fusible[k] and step.op is not None else _apart
        unused = {} if step.plan is None else {i: o.spec for i, o in enumerate(step.plan.outs)}
        program.steps.append(Step(op, p, str(k), tuple([values[r] for r in step.inputs]),
                                  tuple([values.get(r, -1) for r in step.outputs]), step.reqs, len(step.mutated), unused))
    program.n_forward = len(program.steps)
    merged = fuse(program)
    if not any(step.members for step in merged.steps):
        return None
    registers = {v: r for r, v in values.items()}
    result = []
    for step in merged.steps:
        if step.name == _BEFORE:
            continue
        if not step.members:
            result.append(steps[int(step.name)])
            continue
        kernel = compiled(step.op, step.params, merged.input_specs(step), merged.output_specs(step), step.reqs, "cpu")
        ins, outs = [registers[v] for v in step.inputs], [registers[v] for v in step.outputs]
        first = steps[int(step.members[0].partition(" ")[0])]
        result.append(TapeStep(step.op.name, kernel, ins, outs, layouts[outs[0]], first.node))
    compile_wanted()
    return result


def _is_exact(step: TapeStep, p: Params) -> bool:
    """Return whether a step gives the same bits inside a larger kernel."""
    if step.op is None or step.plan is None or step.mutated or step.plan.draws:
        return False
    if 0 in p.scalars:  # 0.0 and -0.0 are equal, and would share one constant
        return False
    ins, outs = tuple([a.spec for a in step.plan.ins]), tuple([a.spec for a in step.plan.outs])
    if any(s.dtype not in _DTYPES or s.dtype != outs[0].dtype for s in (*ins, *outs)):
        return False
    body = step.op.fusible_body(p, ins, outs)
    return isinstance(body, Body) and not body.rows and all(s == body.shape for s in (*body.ins, *body.outs)) and all(
        x.op in _EXACT for x in topological(body.roots))
