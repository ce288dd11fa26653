"""BatchNorm: in training, the rectifier after it and a sum between them join it, forward and backward.

The data is then read once for the statistics and once for all the rest; the values in between vanish. At inference BatchNorm
becomes an elementwise formula, which other passes fuse with its neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...kernels.op import Op, Req
from ..program import INNER, KEPT, Program, Step

_SUM = "elemwise_add"


def fuse_batch_norm(program: Program) -> Program:
    """Merge BatchNorm, sum and rectifier where no other step reads the values between them."""
    if not any(s.op.has_tail for s in program.steps):
        return program
    links = _Links(program)
    if not program.train and program.n_forward == len(program.steps):
        made = replace(program, values=list(program.values))
        made.steps = [s for step in program.steps for s in _formula(made, step, links)]
        made.n_forward = len(made.steps)
        return made
    joined: dict[int, Step] = {}  # last step of a group -> the merged step
    gone: set[int] = set()
    for i, step in enumerate(program.steps):
        forward = i < program.n_forward
        group = links.group(i, forward) if step.op.has_tail else []
        if group and gone.isdisjoint(group) and links.can_merge(group):
            data = program.values[step.inputs[0 if forward else 1]].spec
            op = step.op.tail(step.params, data, program.targets[step.ctx], plus=len(group) > 2, backward=not forward)
            if op is not None:
                joined[max(group)] = _forward(program, group, op) if forward else _backward(program, group, op)
                gone.update(group)
    if not joined:
        return program
    return program.rewrite(lambda i, step: [joined[i]] if i in joined else [] if i in gone else [step])


def is_relu(step: Step, prefix: str = "") -> bool:
    """Return whether a step is a rectifier, or with the prefix "_backward_" its derivative."""
    name = step.op.name
    return name == f"{prefix}relu" or (name == f"{prefix}Activation" and step.params.get("act_type") == "relu")


class _Links:
    """The readers and writers of each value."""

    def __init__(self, program: Program):
        self.program, self.steps = program, program.steps
        self.reads = Counter(v for s in self.steps for v in s.inputs)
        self.reader: dict[int, int] = {}
        self.writer: dict[int, int] = {}
        self.writes: Counter = Counter()
        for i, s in enumerate(self.steps):
            for v in s.inputs:
                self.reader.setdefault(v, i)
            for v, req in zip(s.outputs, s.reqs):
                if v >= 0 and req != Req.NULL:
                    self.writer.setdefault(v, i)
                    self.writes[v] += 1

    def passes(self, v: int) -> bool:
        """Return whether value v is written once and read once, all inside the program."""
        return v >= 0 and self.program.values[v].kind == INNER and self.reads[v] == self.writes[v] == 1

    def group(self, i: int, forward: bool) -> list[int]:
        """Return the numbers of BatchNorm i, a sum if one follows, and the rectifier; [] if no rectifier follows.

        Backward, these are the derivatives of the rectifier, of the sum, and of BatchNorm (i), in this order.
        """
        group, step, prefix = [i], self.steps[i], "" if forward else "_backward_"
        while self.passes(v := (step.outputs if forward else step.inputs)[0]) and (not forward or step.reqs[0] == Req.WRITE):
            at = (self.reader if forward else self.writer)[v]
            near = self.steps[at]
            if (at < self.program.n_forward) != forward or near.ctx != step.ctx or (forward and near.reqs[0] != Req.WRITE):
                return []
            group.append(at)
            if is_relu(near, prefix):
                return group if forward else group[::-1]
            # backward, the sum's other derivative is written where that of data is
            joins = self._alike(near) if forward else len(near.outputs) == 2 and self.steps[i].reqs[0] != Req.NULL
            if len(group) > 2 or near.op.role != prefix + _SUM or not joins:
                return []
            step = near
        return []

    def _alike(self, step: Step) -> bool:
        specs = [self.program.values[v].spec for v in (*step.inputs, *step.outputs)]
        return len(step.inputs) == 2 and all(s == specs[0] for s in specs)

    def can_merge(self, group: Sequence[int]) -> bool:
        """Return whether a group can run at its last step: no other step in between reads or changes its values."""
        last = max(group)
        for i in group:
            step = self.steps[i]
            own, used = {v for v in step.outputs if v >= 0}, set(step.inputs)
            states = set(step.states)
            for k in range(i + 1, last):
                other = self.steps[k]
                if k in group:
                    continue
                changed = {*other.outputs, *other.states}
                if not own.isdisjoint(other.inputs) or not own.isdisjoint(changed) or not used.isdisjoint(changed) \
                        or not states.isdisjoint(other.inputs):
                    return False
        return True


def _formula(program: Program, step: Step, links: _Links) -> list[Step]:
    """Return BatchNorm of inference as formulas, if its statistics are not read; any other step unchanged."""
    formulas = list(step.op.state_formulas.get(program.targets[step.ctx], ()))
    unread = all(v < 0 or (program.values[v].kind == INNER and not links.reads[v]) for v in step.outputs[1:])
    if not formulas or not unread or step.outputs[0] < 0:
        return [step]
    inputs, before = step.inputs, []
    if len(formulas) > 1:
        numbers = formulas[0]
        made = [program.add_value(program.values[step.inputs[1]].spec, KEPT, f"{step.name}_{n}", step.ctx)
                for n in numbers.outputs(step.params)]
        before = [Step(numbers, step.params, f"{step.name}_scale", inputs[1:], tuple(made), (Req.WRITE,) * len(made),
                       ctx=step.ctx)]
        inputs = (inputs[0], *made)
    return [*before, replace(step, op=formulas[-1], inputs=inputs, outputs=step.outputs[:1], reqs=step.reqs[:1], auxiliaries=0,
                             unused_outputs={}, members=step.operators)]


def _forward(program: Program, group: Sequence[int], op: Op) -> Step:
    norm, *between, relu = (program.steps[i] for i in group)
    x, gamma, beta, *states = norm.inputs
    others = [v for s in between for v in s.inputs if v != norm.outputs[0]]
    return _merge([norm, *between, relu], norm, op, (x, gamma, beta, *others, *states),
                  (relu.outputs[0], *norm.outputs[1:]), (Req.WRITE, *norm.reqs[1:]), dict(norm.unused_outputs))


def _backward(program: Program, group: Sequence[int], op: Op) -> Step:
    relu, *between, norm = (program.steps[i] for i in group)
    dy, y = relu.inputs
    others, reqs, absent = [], [], dict(norm.unused_outputs)
    for step in between:
        (k,) = (k for k, v in enumerate(step.outputs) if v != norm.inputs[0])
        others, reqs = [step.outputs[k]], [step.reqs[k]]
        if k in step.unused_outputs:
            absent[3] = step.unused_outputs[k]
    return _merge([relu, *between, norm], norm, op, (dy, *norm.inputs[1:], y),
                  (*norm.outputs, *others), (*norm.reqs, *reqs), absent)


def _merge(steps: Sequence[Step], norm: Step, op, inputs, outputs, reqs, absent) -> Step:
    return replace(norm, op=op, name=f"{steps[0].name}...{steps[-1].name}", inputs=inputs, outputs=outputs, reqs=reqs,
                   unused_outputs=absent, members=tuple(name for s in steps for name in s.operators))
