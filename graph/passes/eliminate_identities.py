"""At inference: a step that hands its input through outside training, as Dropout does, is left out."""

from __future__ import annotations

from dataclasses import replace

from ...kernels.op import Req
from ..program import ARG, INNER, OUTPUT, Program, Step
from .gradient import copy_op


def eliminate_identities(program: Program) -> Program:
    """The program without steps that change nothing outside training; one whose result is an output becomes a copy.

    Not for training programs; before backward steps are added. The given program is not changed.
    """
    if not any(s.op.idle(s.params) for s in program.steps):
        return program
    source: dict[int, int] = {}  # what a step handed through -> where it comes from
    new = program.without_steps()
    for step in program.steps:
        inputs = tuple(source.get(v, v) for v in step.inputs)
        if not step.op.idle(step.params):
            new.steps.append(step if inputs == step.inputs else replace(step, inputs=inputs))
        elif program.values[step.outputs[0]].kind == INNER and program.values[inputs[0]].kind in (ARG, INNER, OUTPUT):
            source[step.outputs[0]] = inputs[0]
        else:
            op, params = copy_op()
            new.steps.append(Step(op, params, step.name, inputs[:1], step.outputs[:1], (Req.WRITE,), ctx=step.ctx))
    new.n_forward = len(new.steps)
    return new
