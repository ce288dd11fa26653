"""Leave out steps that return their input unchanged outside training, such as Dropout."""

from __future__ import annotations

from dataclasses import replace

from ..program import ARG, INNER, OUTPUT, Program, Step
from .gradient import copy_step


def eliminate_identities(program: Program) -> Program:
    """Leave out the identities of an inference program without backward steps; one that writes an output becomes a copy."""
    if not any(s.op.is_identity_at_inference(s.params) for s in program.steps):
        return program
    source: dict[int, int] = {}  # result of an identity -> its input

    def emit(_: int, step: Step) -> list[Step]:
        inputs = tuple(source.get(v, v) for v in step.inputs)
        if not step.op.is_identity_at_inference(step.params):
            return [step if inputs == step.inputs else replace(step, inputs=inputs)]
        if program.values[step.outputs[0]].kind == INNER and program.values[inputs[0]].kind in (ARG, INNER, OUTPUT):
            source[step.outputs[0]] = inputs[0]
            return []
        return [copy_step(step.name, inputs[0], step.outputs[0], step.ctx)]

    return program.rewrite(emit)
