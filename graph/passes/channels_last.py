"""Channels last: runs of convolutions, poolings and BatchNorms work on arrays [n, h, w, channels].

There neighbouring threads or lanes compute neighbouring channels, and the inner sum of a product runs along memory. Arrays are
transposed where such a run begins and where it ends; elementwise operators and joins inside the run take part. On a GPU weights
are transposed where they are used, which is little work beside the convolution; on a CPU they stay as they are. There only
convolutions that are computed in C begin a run. The pass runs before gradients are added: the derivative of an operator with
channels last has them last, and the derivative of a transpose is the transpose back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...kernels.op import ChannelsLast, Req, Spec, builtin
from ..program import INNER, OUTPUT, Program, Step

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # axes of a transpose to channels last, and back
FEW_CHANNELS = 8  # that a convolution turns as it copies its data
_AXES = ("axis", "axes", "dim", "shape")  # parameters that name a position: operators with one do not take part


def put_channels_last(program: Program, has_backward: bool = False) -> Program:
    """Put the channels of a forward program last where that pays. has_backward: a backward pass will be added."""
    return _Pass(program, has_backward).run()


class _Pass:
    """last:  {value: the same with channels last}; pending: {value that so far exists only with channels last: its context}."""

    def __init__(self, program: Program, has_backward: bool):
        self.has_backward = has_backward
        self.old, self.new = program, replace(program, values=list(program.values), steps=[])
        self.last: dict[int, int] = {}
        self.pending: dict[int, int] = {}

    def run(self) -> Program:
        for step in self.old.steps:
            form = self._form(step)
            if form is not None:
                self._add(step, form)
                continue
            for v in step.inputs:
                self._channels_first(v)
            self.new.steps.append(step)
        self.new.n_forward = len(self.new.steps)
        return self.new

    def _add(self, step: Step, form: ChannelsLast) -> None:
        """Add step with channels last: its arrays of four axes are transposed ones."""
        changed = range(len(step.inputs)) if form.inputs is None else form.inputs
        op = form.op
        if form.turning is not None and not self.has_backward and self._is_narrow(step.inputs[0]):
            op, changed = form.turning, ()
        for k, v in enumerate(step.inputs):
            if k not in changed:
                self._channels_first(v)
        inputs = tuple([self._channels_last(v, step.ctx) if k in changed and self._is_plane(v) else v
                        for k, v in enumerate(step.inputs)])
        outputs = list(step.outputs)
        for k, v in enumerate(step.outputs):
            if self._is_plane(v):
                outputs[k] = self.last[v] = self._value(v, step.ctx)
                self.pending[v] = step.ctx
        self.new.steps.append(replace(step, op=op, params=form.params, inputs=inputs, outputs=tuple(outputs)))
        for v in step.outputs:
            if v >= 0 and self.old.values[v].kind == OUTPUT:
                self._channels_first(v)

    def _form(self, step: Step) -> ChannelsLast | None:
        """Return the form in which step works on channels last; None if it cannot, or if it would not pay."""
        op, p, target = step.op, step.params, self.old.targets[step.ctx]
        if not step.inputs or not self._is_plane(step.inputs[0]):
            return None
        ready = [v for v in step.inputs if self.last.get(v) is not None and self.new.values[self.last[v]].ctx == step.ctx]
        if not ready and not op.prefers_channels_last(p, [self.old.values[v].spec for v in step.inputs], target):
            return None
        form = op.channels_last(p, target)
        if form is not None:
            return form
        shapes = {self.old.values[v].spec.shape for v in (*step.inputs, *step.outputs) if v >= 0}
        alike = len(shapes) == 1 and 2 * len(ready) >= len(step.inputs) and self._is_elementwise(step)
        return ChannelsLast(op, p) if alike else None

    def _is_elementwise(self, step: Step) -> bool:
        if step.auxiliaries or any(d.name in _AXES for d in step.op.params):
            return False
        e = step.op.expression(step.params, [self.old.values[v].spec.dtype for v in step.inputs])
        return e is not None and e.kind == "elementwise" and not e.states and not step.op.num_random(step.params, ())

    def _is_plane(self, v: int) -> bool:
        return v >= 0 and len(self.old.values[v].spec.shape) == 4

    def _is_narrow(self, v: int) -> bool:
        """Return whether v has few channels, and does not exist with channels last."""
        return v not in self.last and 1 < self.old.values[v].spec.shape[1] <= FEW_CHANNELS

    def _value(self, v: int, ctx: int) -> int:
        value = self.old.values[v]
        shape = tuple(value.spec.shape[a] for a in _LAST)
        return self.new.add_value(Spec(shape, value.spec.dtype), INNER, f"{value.name}_nhwc", ctx)

    def _channels_last(self, v: int, ctx: int) -> int:
        """Return the value with channels last; transposing it at its first use."""
        last = self.last.get(v)
        if last is None or self.new.values[last].ctx != ctx:
            self._channels_first(v)
            last = self.last[v] = self._value(v, ctx)
            self._transpose(v, last, _LAST, ctx)
        return last

    def _channels_first(self, v: int) -> None:
        """Write the value itself, if it only exists with channels last."""
        if v in self.pending:
            self._transpose(self.last[v], v, _FIRST, self.pending.pop(v))

    def _transpose(self, source: int, target: int, axes: Sequence[int], ctx: int) -> None:
        """Add a step that transposes source; it only changes the shape where channels or positions are one."""
        value, shape = self.new.values[source], self.new.values[target].spec.shape
        channels = value.spec.shape[1 if axes == _LAST else 3]
        if channels == 1 or value.spec.shape[0] * channels == value.spec.size:
            op, params = builtin("Reshape"), {"shape": shape}
        else:
            op, params = builtin("transpose"), {"axes": tuple(axes)}
        self.new.steps.append(Step(op, op.parse(params), f"{value.name}_turned", (source,), (target,), (Req.WRITE,), ctx=ctx))
