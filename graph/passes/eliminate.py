"""Leave out steps: identities at inference, and reshapes, whose result is their input under another shape."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...kernels.op import Req
from ..program import ARG, HEAD, INNER, OUTPUT, ZERO, Program, Step
from .device_placement import CrossDeviceCopyOp
from .gradient import copy_step

_READABLE = (ARG, HEAD, INNER, OUTPUT, ZERO)  # not a state: it may change before it is read


def eliminate_identities(program: Program) -> Program:
    """Leave out identities, such as Dropout, of a program without backward steps. One that writes an output becomes a copy."""
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


def eliminate_reshapes(program: Program) -> Program:
    """Leave out the steps that only change a shape. Their readers read the input under the other shape."""
    if not any(s.op.is_reshape for s in program.steps):
        return program
    writers = Counter(v for s in program.steps for v in s.outputs if v >= 0)
    last_write = {v: i for i, s in enumerate(program.steps) for v in s.outputs if v >= 0}
    crossing = {v for s in program.steps if isinstance(s.op, CrossDeviceCopyOp) for v in s.inputs}
    source: dict[int, int] = {}  # result of a reshape -> its input

    def emit(i: int, step: Step) -> list[Step]:
        if step.op.is_reshape and step.outputs[0] not in crossing and _is_view(program, step, writers) \
                and last_write.get(step.inputs[0], -1) < i:
            source[step.outputs[0]] = source.get(step.inputs[0], step.inputs[0])
            return []
        views = {k: program.values[v].spec for k, v in enumerate(step.inputs) if v in source}
        return [step if not views else replace(
            step, inputs=tuple([source.get(v, v) for v in step.inputs]), input_views=step.input_views | views,
            refusals={source.get(v, v): why for v, why in step.refusals.items()})]

    return program.rewrite(emit)


def _is_view(program: Program, step: Step, writers: Counter) -> bool:
    v, o = step.inputs[0], step.outputs[0]
    if o < 0 or step.reqs[0] != Req.WRITE or writers[o] != 1:
        return False
    a, b = program.values[v], program.values[o]
    return b.kind == INNER and a.kind in _READABLE and a.spec.size == b.spec.size and a.spec.dtype == b.spec.dtype

