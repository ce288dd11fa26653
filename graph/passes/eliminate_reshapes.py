"""Views: a step that only gives its input another shape is left out, and whoever reads its result reads the input so shaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...kernels.op import Req, Spec
from ..program import ARG, HEAD, INNER, OUTPUT, ZERO, Program, Step
from .device_placement import cross_device_copy

_READABLE = (ARG, HEAD, INNER, OUTPUT, ZERO)  # a state may change between the view and its reader


def eliminate_reshapes(program: Program) -> Program:
    """The program without steps that move no bytes. The given program is not changed."""
    if not any(s.op.same_bytes for s in program.steps):
        return program
    writers = Counter(v for s in program.steps for v in s.outputs if v >= 0)
    last_write = {v: i for i, s in enumerate(program.steps) for v in s.outputs if v >= 0}
    crossing = {v for s in program.steps if s.op is cross_device_copy()[0] for v in s.inputs}
    source: dict[int, int] = {}  # view -> the value whose bytes it is
    new = program.without_steps()
    for i, step in enumerate(program.steps):
        if i == program.n_forward:
            new.n_forward = len(new.steps)
        if step.op.same_bytes and step.outputs[0] not in crossing and _is_view(program, step, writers) \
                and last_write.get(step.inputs[0], -1) < i:
            source[step.outputs[0]] = source.get(step.inputs[0], step.inputs[0])
        else:
            new.steps.append(_reading(program, step, source))
    if program.n_forward == len(program.steps):
        new.n_forward = len(new.steps)
    return new


def _is_view(program: Program, step: Step, writers: Counter) -> bool:
    v, o = step.inputs[0], step.outputs[0]
    if o < 0 or step.reqs[0] != Req.WRITE or writers[o] != 1:
        return False
    a, b = program.values[v], program.values[o]
    return b.kind == INNER and a.kind in _READABLE and a.spec.size == b.spec.size and a.spec.dtype == b.spec.dtype


def _reading(program: Program, step: Step, source: dict[int, int]) -> Step:
    if not any(v in source for v in step.inputs):
        return step
    seen = {k: program.values[v].spec for k, v in enumerate(step.inputs) if v in source}
    return replace(step, inputs=tuple([source.get(v, v) for v in step.inputs]), input_views=step.input_views | seen)


def input_specs(program: Program, step: Step) -> Sequence[Spec]:
    """The shapes under which a step of a final program reads its inputs."""
    return [step.input_views.get(k) or program.values[v].spec for k, v in enumerate(step.inputs)]
