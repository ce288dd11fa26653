"""The gradient pass: adds backward steps to a forward program.

Where several uses of a value each give a derivative, the first writes the buffer and the others add to it, so there are no
steps that sum. A zero is made only where the derivative by one of several outputs is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import GraphError
from ...kernels import op as ops
from ...kernels.op import Gradient, Op, Req, Spec
from ...kernels.params import Params
from ..program import GRAD, HEAD, INNER, ZERO, Program, Step

REQUESTS = {"null": Req.NULL, "write": Req.WRITE, "add": Req.ADD, "inplace": Req.WRITE}


def copy_op() -> tuple[Op, Params]:
    """Return the operator that copies an array, and its parameters."""
    op = ops.builtin("_copy")
    return op, op.parse({})


def copy_step(name: str, source: int, target: int, ctx: int, req: Req = Req.WRITE) -> Step:
    """Return a step that copies, or adds, one value to another."""
    op, params = copy_op()
    return Step(op, params, name, (source,), (target,), (req,), ctx=ctx)


def add_gradients(program: Program, grad_req: Mapping[str, str]) -> Program:
    """Add backward steps for the arguments that want a gradient, in the reverse order of the forward steps.

    grad_req: {argument: "write" | "add" | "null"}; an argument that is missing is null.
    """
    for name, req in grad_req.items():
        if req not in REQUESTS:
            raise GraphError(f"bind: grad_req of {name!r} is {req!r}. Use 'write', 'add' or 'null'.")
    new = replace(program, values=list(program.values), steps=list(program.steps), grads={}, head_grads={}, zero_grads=[])
    requests = {program.args[n]: REQUESTS[r] for n, r in grad_req.items() if r != "null" and n in program.args}
    _GradientPass(new, requests).run()
    return new


class _GradientPass:
    """Appends the backward steps to a program that holds the forward ones."""

    def __init__(self, program: Program, requests: dict[int, Req]):
        self.program = program
        self.requests = requests
        self.gradient_of: dict[int, int] = {}  # value -> value that holds its derivative so far
        self.zeros: dict[Spec, int] = {}
        self.wanted = set(requests)  # values whose derivative is needed: requested arguments and everything computed from them
        for s in program.steps:
            if not self.wanted.isdisjoint(s.inputs):
                self.wanted.update(s.outputs)

    def run(self) -> None:
        program, forward = self.program, self.program.forward
        gradients = [None if self.wanted.isdisjoint(s.inputs) else s.op.gradient_of(s.params) for s in forward]
        heads: dict[int, list[int]] = {}
        for number, v in enumerate(program.heads):
            if v in self.wanted:
                heads.setdefault(v, []).append(number)
        written = {v for s in forward for v in s.outputs}
        for v in [v for v in heads if v not in written]:  # an argument that is itself an output
            self._add_head_gradients(v, heads.pop(v))
        for step, gradient in zip(reversed(forward), reversed(gradients)):
            if gradient is not None:
                self._add_backward_of(step, gradient, {v: heads[v] for v in step.outputs if v in heads})
        labels = self._labels()
        for name, v in program.args.items():
            if self.requests.get(v) == Req.WRITE and v not in self.gradient_of and v not in labels:
                program.zero_grads.append(name)

    def _labels(self) -> set[int]:
        """Return the values used only as labels or lengths: their gradient is never written, as in MXNet."""
        only_label: dict[int, bool] = {}
        for s in self.program.forward:
            names = s.op.arguments(s.params)
            for i, v in enumerate(s.inputs):
                only_label[v] = only_label.get(v, True) and i < len(names) and names[i] in ("label", "sequence_length")
        return {v for v, only in only_label.items() if only}

    def _add_head_gradients(self, v: int, numbers: list[int]) -> None:
        """Take the caller's head gradients of outputs as derivatives of value v."""
        program, value = self.program, self.program.values[v]
        for number in numbers:
            head = program.head_grads[number] = program.add_value(value.spec, HEAD, f"{value.name}_grad", value.ctx)
            if v not in self.gradient_of and v not in self.requests:
                self.gradient_of[v] = head
            else:
                self._copy(head, *self._target(v))

    def _add_backward_of(self, step: Step, gradient: Gradient, at_heads: dict[int, list[int]]) -> None:
        """Add the backward step of one step. at_heads: {output of step: the outputs of the symbol that it is}."""
        program = self.program
        by_outputs = sorted({i for kind, i in gradient.needs if kind == "dy"})
        if by_outputs:
            for v in (step.outputs[i] for i in by_outputs):
                if v in at_heads:
                    self._add_head_gradients(v, at_heads[v])
            if not any(step.outputs[i] in self.gradient_of for i in by_outputs):
                return  # nothing depends on it
        elif not at_heads and not any(v in self.gradient_of for v in step.outputs):
            return
        if not any(step.inputs[i] in self.wanted for i in gradient.gives):
            return
        inputs = tuple(self._input(step, kind, i) for kind, i in gradient.needs)
        outputs: list[int] = []
        reqs: list[Req] = []
        copies: list[tuple[int, int]] = []
        unused: dict[int, Spec] = {}
        for at, i in enumerate(gradient.gives):
            v = step.inputs[i]
            if v not in self.wanted:
                unused[at] = program.values[v].spec
                outputs.append(-1)
                reqs.append(Req.NULL)
                continue
            target, req = self._target(v)
            if target in outputs:  # the operator read the value twice: the second derivative goes through a buffer
                buffer = program.add_value(program.values[v].spec, INNER, f"{step.name}_backward{i}", step.ctx)
                copies.append((buffer, target))
                target, req = buffer, Req.WRITE
            outputs.append(target)
            reqs.append(req)
        program.steps.append(Step(gradient.op, step.params, f"{step.name}_backward", inputs, tuple(outputs), tuple(reqs),
                                  len(gradient.op.auxiliaries(step.params)), unused, ctx=step.ctx))
        for source, target in copies:
            self._copy(source, target, Req.ADD)

    def _input(self, step: Step, kind: str, i: int) -> int:
        """Return the value of one input of a gradient: input ("x"), output ("y") or output's derivative ("dy") i of step."""
        if kind == "x":
            return step.inputs[i]
        v = step.outputs[i]
        if kind == "y":
            return v
        assert kind == "dy", f"{step.op.name}: a gradient cannot need {kind!r}"
        if v in self.gradient_of:
            return self.gradient_of[v]
        spec = self.program.values[v].spec
        if spec not in self.zeros:
            self.zeros[spec] = self.program.add_value(spec, ZERO, "zero")
        return self.zeros[spec]

    def _target(self, v: int) -> tuple[int, Req]:
        """Return the value that the next derivative of value v goes to, and its request."""
        program, value = self.program, self.program.values[v]
        target = self.gradient_of.get(v)
        if target is not None and program.values[target].kind != HEAD:
            return target, Req.ADD
        if target is None and v in self.requests:
            made, req = program.add_value(value.spec, GRAD, value.name, value.ctx), self.requests[v]
            program.grads[value.name] = made
        else:
            made, req = program.add_value(value.spec, INNER, f"{value.name}_backward", value.ctx), Req.WRITE
        self.gradient_of[v] = made
        if target is not None:
            self._copy(target, made, Req.WRITE)  # the caller's head gradient stays as it is
            req = Req.ADD
        return made, req

    def _copy(self, source: int, target: int, req: Req) -> None:
        value = self.program.values[target]
        self.program.steps.append(copy_step(f"{value.name}_copy", source, target, value.ctx, req))
