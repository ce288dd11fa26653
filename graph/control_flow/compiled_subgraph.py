"""CompiledSubgraph: a subgraph compiled for given shapes, to run inside the kernel of the node that contains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine import RunContext
from ...engine.memory import storage
from ...kernels.kernel import DeviceArray
from ...kernels.op import Shape, Specs, compiled
from ..compile import CompileRequest, compile_program
from ..options import current
from ..program import ARG, AUX, GRAD, HEAD, INNER, OUTPUT, ZERO, specs_of
from .subgraph import Subgraph

#: kernel, inputs, outputs, number of random numbers, (position, shape) of inputs that are read under another shape
Call = tuple[Any, tuple[int, ...], tuple[int, ...], int, list[tuple[int, Shape]]]


class CompiledSubgraph:
    """The kernels of a subgraph in order: forward, and backward if gradients are requested.

    ins:       specs of the subgraph's inputs.
    requests:  {input number: "write" or "add"} for those whose derivative is wanted.
    heads:     specs of what it computes.
    draws:     random numbers that one forward takes.
    zero:      inputs whose derivative is zero: nothing is written there.
    """

    def __init__(self, sub: Subgraph, ins: Specs, target: str, train: bool, requests: Mapping[int, str] | None = None):
        specs = specs_of(sub.order, {str(i): s.shape for i, s in enumerate(ins)}, {str(i): s.dtype for i, s in enumerate(ins)})
        asked = {str(i): r for i, r in (requests or {}).items()}
        request = CompileRequest(sub.body, specs, train, asked, (target,), backward=requests is not None)
        self.program, self.plan = compile_program(request, current())
        program, values = self.program, self.program.values
        self.heads = [values[v].spec for v in program.heads]
        self.ins = {**program.args, **program.auxes}
        self.grads = {int(n): v for n, v in program.grads.items()}
        self.zero = [i for i in (requests or {}) if i not in self.grads]
        calls: list[Call] = []
        for step in program.steps:
            sources, results = program.input_specs(step), program.output_specs(step)
            kernel = compiled(step.op, step.params, sources, results, step.reqs, target, train)
            seen = [(k, spec.shape) for k, spec in sorted(step.input_views.items())]
            calls.append((kernel, step.inputs, step.outputs, step.op.num_random(step.params, results), seen))
        self.forward_calls, self.backward_calls = calls[:program.n_forward], calls[program.n_forward:]
        self.draws = sum(c[3] for c in calls)


class BoundSubgraph:
    """A compiled subgraph with memory for its inner values. It runs any number of times, within one call of the kernel."""

    def __init__(self, compiled: CompiledSubgraph, run: RunContext):
        program, plan = compiled.program, compiled.plan
        self.compiled, self.run = compiled, run
        self.arrays: list[Any] = [None] * len(program.values)
        block = storage.alloc(max(plan.arenas[0], 1), run.ctx)
        for v, value in enumerate(program.values):
            if value.kind == INNER and v not in plan.in_output and plan.offsets[v] >= 0:
                self.arrays[v] = storage.view(block, plan.offsets[v], value.spec.shape, value.spec.dtype)
            elif v in plan.in_output or value.kind == ZERO:
                self.arrays[v] = storage.array(value.spec.shape, value.spec.dtype, run.ctx)
                if value.kind == ZERO:
                    self.arrays[v][...] = 0
            else:
                assert value.kind in (ARG, AUX, GRAD, HEAD, OUTPUT, INNER), value

    def forward(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], random: tuple[int, int] | None = None
                ) -> None:
        """Compute the heads. inputs, outputs: device arrays, in the subgraph's order. random: (seed, offset)."""
        for name, v in self.compiled.ins.items():
            self.arrays[v] = inputs[int(name)]
        for v, array in zip(self.compiled.program.heads, outputs):
            self.arrays[v] = array
        self._call(self.compiled.forward_calls, random)

    def backward(self, head_grads: Sequence[DeviceArray], grads: Mapping[int, DeviceArray]) -> None:
        """Compute derivatives, directly after forward. grads: arrays for them by input, written or added to as requested."""
        for number, v in self.compiled.program.head_grads.items():
            self.arrays[v] = head_grads[number]
        for i, v in self.compiled.grads.items():
            self.arrays[v] = grads[i]
        self._call(self.compiled.backward_calls, None)

    def _call(self, calls: Sequence[Call], random: tuple[int, int] | None) -> None:
        arrays, run = self.arrays, self.run
        seed, offset = random or (0, 0)
        for kernel, ins, outs, draws, seen in calls:
            sources, targets = [arrays[v] for v in ins], [arrays[v] if v >= 0 else None for v in outs]
            for k, shape in seen:
                sources[k] = sources[k].reshape(shape)
            if draws:
                kernel(run, sources, targets, random=(seed, offset))
                offset += draws
            else:
                kernel(run, sources, targets)
