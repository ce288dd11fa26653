"""The gradient pass: a forward program becomes one with backward steps for every argument whose grad_req is not null.

Where several uses of a value each give a derivative, the first writes the buffer and the others add to it: there are no
sum nodes. Zeros are made only where a derivative by one output of several is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ...errors import GraphError, MXNetError
from ...kernels import op as ops
from ...kernels.op import Gradient, Op, Req, Spec
from ...kernels.params import Params
from ..program import GRAD, HEAD, INNER, ZERO, Program, Step

REQUESTS = {"null": Req.NULL, "write": Req.WRITE, "add": Req.ADD, "inplace": Req.WRITE}


class _Copy(Op):
    """Copies its input: the last resort where no `_copy` operator is registered."""

    name = "_graph_copy"
    hidden = True
    input_names = ("data",)

    def kernel(self, p, ins, outs, reqs, target, train=False):
        def run(_, inputs, outputs):
            if reqs[0] == Req.ADD:
                outputs[0][...] += inputs[0]
            elif reqs[0] != Req.NULL:
                outputs[0][...] = inputs[0]
        return run


_COPY = _Copy()


@cache
def _own_copy() -> tuple[Op, Params]:
    return _COPY, Params({})


def copy_op() -> tuple[Op, Params]:
    """The operator that copies an array, and its parameters."""
    try:
        op = ops.builtin("_copy")
    except MXNetError:
        return _own_copy()
    return op, op.parse({})


def add_gradients(program: Program, grad_req: Mapping[str, str]) -> Program:
    """The program with backward steps after the forward ones, in reverse order. The given program is not changed.

    grad_req: {argument: "write" | "add" | "null"}; an argument that is not named is null.
    """
    for name, req in grad_req.items():
        if req not in REQUESTS:
            raise GraphError(f"bind: grad_req of {name!r} is {req!r}. Use 'write', 'add' or 'null'.")
    new = Program(list(program.values), list(program.steps), program.n_forward, list(program.heads), dict(program.args),
                  dict(program.auxes), train=program.train, targets=program.targets)
    requests = {program.args[n]: REQUESTS[r] for n, r in grad_req.items() if r != "null" and n in program.args}
    _Backward(new, requests).run()
    return new


class _Backward:
    def __init__(self, program: Program, requests: dict[int, Req]):
        self.program = program
        self.requests = requests
        self.gradient_of: dict[int, int] = {}  # value -> value that holds its derivative so far
        self.zeros: dict[Spec, int] = {}

    def run(self) -> None:
        program = self.program
        wanted = self._wanted()
        forward = program.steps[: program.n_forward]
        gradients: list[Gradient | None] = [
            s.op.gradient(s.params) if any(v in wanted for v in s.inputs) else None for s in forward
        ]
        heads: dict[int, list[int]] = {}
        for number, v in enumerate(program.heads):
            if v in wanted:
                heads.setdefault(v, []).append(number)
        written = {v for s in forward for v in s.outputs}
        for v in [v for v in heads if v not in written]:  # an argument that is itself an output
            self._head(v, heads.pop(v))
        for step, gradient in zip(reversed(forward), reversed(gradients)):
            at_heads = {v: heads[v] for v in step.outputs if v in heads}
            if gradient is not None:
                self._backward_of(step, gradient, at_heads, wanted)
        labels = self._labels()
        for name, v in program.args.items():
            if self.requests.get(v) == Req.WRITE and v not in self.gradient_of and v not in labels:
                program.zero_grads.append(name)

    def _labels(self) -> set[int]:
        """Values used as labels or lengths alone: their gradient is never written, as in MXNet."""
        uses: dict[int, bool] = {}
        for s in self.program.steps[: self.program.n_forward]:
            names = s.op.arguments(s.params)
            for i, v in enumerate(s.inputs):
                uses[v] = uses.get(v, True) and i < len(names) and names[i] in ("label", "sequence_length")
        return {v for v, only in uses.items() if only}

    def _wanted(self) -> set[int]:
        """Values whose derivative matters: requested arguments and everything computed from them."""
        wanted = set(self.requests)
        for s in self.program.steps[: self.program.n_forward]:
            if any(v in wanted for v in s.inputs):
                wanted.update(s.outputs)
        return wanted

    def _head(self, v: int, numbers: list[int]) -> None:
        """Let the caller's head gradients flow into value v."""
        for number in numbers:
            given = self.program.add_value(self.program.values[v].spec, HEAD, f"{self.program.values[v].name}_grad",
                                           self.program.values[v].ctx)
            self.program.head_grads[number] = given
            if v not in self.gradient_of and v not in self.requests:
                self.gradient_of[v] = given
            else:
                target, req = self._target(v)
                self._copy(given, target, req)

    def _backward_of(self, step: Step, gradient: Gradient, at_heads: dict[int, list[int]], wanted: set[int]) -> None:
        program = self.program
        by_outputs = sorted({i for kind, i in gradient.needs if kind == "dy"})
        if by_outputs:
            for v in (step.outputs[i] for i in by_outputs):
                if v in at_heads:
                    self._head(v, at_heads[v])
            if not any(step.outputs[i] in self.gradient_of for i in by_outputs):
                return  # nothing depends on it
        elif not at_heads and not any(v in self.gradient_of for v in step.outputs):
            return
        if not any(step.inputs[i] in wanted for i in gradient.gives):
            return
        inputs = tuple(self._need(step, kind, i) for kind, i in gradient.needs)
        outputs: list[int] = []
        reqs: list[Req] = []
        copies: list[tuple[int, int]] = []
        absent: dict[int, Spec] = {}
        for at, i in enumerate(gradient.gives):
            v = step.inputs[i]
            if v not in wanted:
                absent[at] = program.values[v].spec
                outputs.append(-1)
                reqs.append(Req.NULL)
                continue
            target, req = self._target(v)
            if target in outputs:  # one operator read the value twice: the second derivative goes through a buffer
                extra = program.add_value(program.values[v].spec, INNER, f"{step.name}_backward{i}", step.ctx)
                copies.append((extra, target))
                target, req = extra, Req.WRITE
            outputs.append(target)
            reqs.append(req)
        program.steps.append(Step(gradient.op, step.params, f"{step.name}_backward", inputs, tuple(outputs), tuple(reqs),
                                  len(gradient.op.auxiliaries(step.params)), 1, absent, ctx=step.ctx))
        for source, target in copies:
            self._copy(source, target, Req.ADD)

    def _need(self, step: Step, kind: str, i: int) -> int:
        if kind == "x":
            return step.inputs[i]
        v = step.outputs[i]
        if kind == "y":
            return v
        assert kind == "dy", f"{step.op.name}: a gradient cannot need {kind!r}"
        found = self.gradient_of.get(v)
        if found is None:
            spec = self.program.values[v].spec
            if spec not in self.zeros:
                self.zeros[spec] = self.program.add_value(spec, ZERO, "zero")
            found = self.zeros[spec]
        return found

    def _target(self, v: int) -> tuple[int, Req]:
        """Where the next derivative of value v goes, and how."""
        program = self.program
        found = self.gradient_of.get(v)
        if found is not None and program.values[found].kind == HEAD:
            made = program.add_value(program.values[v].spec, INNER, f"{program.values[v].name}_backward", program.values[v].ctx)
            self._copy(found, made, Req.WRITE)
            self.gradient_of[v] = found = made
        if found is not None:
            return found, Req.ADD
        value = program.values[v]
        if v in self.requests:
            made = program.add_value(value.spec, GRAD, value.name, value.ctx)
            program.grads[value.name] = made
            req = self.requests[v]
        else:
            made, req = program.add_value(value.spec, INNER, f"{value.name}_backward", value.ctx), Req.WRITE
        self.gradient_of[v] = made
        return made, req

    def _copy(self, source: int, target: int, req: Req) -> None:
        op, params = copy_op()
        name = self.program.values[target].name
        self.program.steps.append(Step(op, params, f"{name}_copy", (source,), (target,), (req,),
                                       ctx=self.program.values[target].ctx))
