"""Layout: on a GPU, runs of convolutions, poolings and BatchNorms work on arrays whose channels stand last.

There neighbouring threads read neighbouring channels, and a product's inner sum runs along memory. Data turns where such a
run begins and turns back where it ends; elementwise operators and joins inside it go along. Weights turn where they are
used, which is little work beside the convolution. The pass runs before gradients are added: the derivative of an operator
with channels last has them last, and the derivative of a turn is the turn back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...kernels import op as ops
from ...kernels.op import Spec
from ...kernels.params import Params
from ..program import INNER, OUTPUT, Program, Step

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # axes of a transpose to channels last, and back
_CHANNELS_FIRST = (None, "NCHW")
_AXES = ("axis", "axes", "dim", "shape")  # parameters that say where something is: such an operator does not go along


def put_channels_last(program: Program) -> Program:
    """The forward program with channels last where that pays. The given program is not changed."""
    if "gpu" not in program.targets or not any(_convolves(s) for s in program.steps):
        return program
    return _ChannelsLast(program).run()


class _ChannelsLast:
    """last:  {value: the same with channels last}; pending: values that exist only so, until someone wants the other."""

    def __init__(self, program: Program):
        self.old, self.new = program, replace(program, values=list(program.values), steps=[])
        self.last: dict[int, int] = {}
        self.pending: dict[int, int] = {}

    def run(self) -> Program:
        for step in self.old.steps:
            turned = self._turned(step) if self.old.targets[step.ctx] == "gpu" else None
            if turned is not None:
                self._add(step, turned)
                continue
            for v in step.inputs:
                self._channels_first(v)
            self.new.steps.append(step)
        self.new.n_forward = len(self.new.steps)
        return self.new

    def _add(self, step: Step, params: Params) -> None:
        """step with channels last: its arrays of four axes are turned ones."""
        inputs = tuple([self._channels_last(v, step.ctx) if self._is_plane(v) else v for v in step.inputs])
        outputs = list(step.outputs)
        for k, v in enumerate(step.outputs):
            if self._is_plane(v):
                outputs[k] = self.last[v] = self._value(v, step.ctx)
                self.pending[v] = step.ctx
        self.new.steps.append(replace(step, params=params, inputs=inputs, outputs=tuple(outputs)))
        for v in step.outputs:
            if v >= 0 and self.old.values[v].kind == OUTPUT:
                self._channels_first(v)

    def _turned(self, step: Step) -> Params | None:
        """The parameters with which step works on channels last; None if it does not, or it would not pay."""
        p, op = step.params, step.op
        if not step.inputs or not self._is_plane(step.inputs[0]):
            return None
        if _convolves(step):
            return _with(step, layout="NHWC")
        ready = [v for v in step.inputs if self.last.get(v) is not None and self.new.values[self.last[v]].ctx == step.ctx]
        if not ready:
            return None
        if op.role == "Pooling" and p.layout in _CHANNELS_FIRST:
            return _with(step, layout="NHWC")
        if op.role == "BatchNorm" and p.axis in (1, -3):
            return _with(step, axis=3)
        planes = [v for v in (*step.inputs, *step.outputs) if v >= 0]
        if op.role == "Concat" and p.dim in (1, -3) and all(map(self._is_plane, planes)):
            return _with(step, dim=3)
        shapes = {self.old.values[v].spec.shape for v in planes}
        if len(shapes) == 1 and 2 * len(ready) >= len(step.inputs) and self._is_elementwise(step):
            return p
        return None

    def _is_elementwise(self, step: Step) -> bool:
        if step.auxiliaries or any(d.name in _AXES for d in step.op.params):
            return False
        e = step.op.expression(step.params, [self.old.values[v].spec.dtype for v in step.inputs])
        return e is not None and e.kind == "elementwise" and not e.states and not step.op.num_random(step.params, ())

    def _is_plane(self, v: int) -> bool:
        return v >= 0 and len(self.old.values[v].spec.shape) == 4

    def _value(self, v: int, ctx: int) -> int:
        value = self.old.values[v]
        shape = tuple(value.spec.shape[a] for a in _LAST)
        return self.new.add_value(Spec(shape, value.spec.dtype), INNER, f"{value.name}_nhwc", ctx)

    def _channels_last(self, v: int, ctx: int) -> int:
        """The value with channels last, made if need be."""
        found = self.last.get(v)
        if found is None or self.new.values[found].ctx != ctx:
            self._channels_first(v)
            found = self.last[v] = self._value(v, ctx)
            self._turn(v, found, _LAST, ctx)
        return found

    def _channels_first(self, v: int) -> None:
        """See to it that the value itself is written before whoever reads it."""
        if v in self.pending:
            self._turn(self.last[v], v, _FIRST, self.pending.pop(v))

    def _turn(self, source: int, target: int, axes: Sequence[int], ctx: int) -> None:
        """A step that turns source into target: only another shape where channels or positions are one."""
        spec, name = self.new.values[target].spec, f"{self.new.values[source].name}_turned"
        n, rest = self.new.values[source].spec.shape[0], self.new.values[source].spec.shape[1:]
        channels = rest[0] if axes == _LAST else rest[2]
        if channels == 1 or n * channels == self.new.values[source].spec.size:
            op, given = ops.builtin("Reshape"), {"shape": spec.shape}
        else:
            op, given = ops.builtin("transpose"), {"axes": tuple(axes)}
        self.new.steps.append(Step(op, op.parse(given), name, (source,), (target,), (ops.Req.WRITE,), ctx=ctx))


def _convolves(step: Step) -> bool:
    """Whether step is a convolution over planes, channels first."""
    return step.op.role == "Convolution" and len(step.params.kernel) == 2 and step.params.layout in _CHANNELS_FIRST


def _with(step: Step, **changed: object) -> Params:
    """The step's parameters with some changed."""
    return step.op.parse({**step.params, **changed})
