"""Subgraphs of loops and branches: a graph inside a node; that graph compiled for given shapes; and with memory for a run.

The kernel of the node that contains the subgraph runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...engine import RunContext
from ...engine.memory import storage
from ...kernels.kernel import DeviceArray
from ...kernels.op import Shape, Spec, Specs, compiled
from ...kernels.ops.tensor.data_movement import fill
from ..compile import compile_program
from ..options import current
from ..passes.gradient import copy_op
from ..passes.infer import infer_dtypes, infer_shapes
from ..program import ARG, AUX, GRAD, HEAD, INNER, KEPT, OUTPUT, ZERO, specs_of
from ..symbol.node import Entry, Node, copy_graph, topological

#: kernel, inputs, outputs, number of random numbers, (position, shape) of inputs that are read under another shape
Call = tuple[Any, tuple[int, ...], tuple[int, ...], int, list[tuple[int, Shape]]]

_ONE = Spec((1,), np.dtype("float32"))


class Subgraph:
    """Heads, and the variables that they are computed from. It is immutable, and equal to others of the same structure.

    heads:    as composed or read from a file; what is written to a file.
    inputs:   names of the variables, in depth-first order: the positions that a node's `..._locs` parameters speak of.
    states:   which of the inputs are auxiliary states.
    body:     a copy of the heads to compute with: input i is called "i", and no head is a variable or another head.
    draws:    whether something in it draws random numbers.
    """

    __slots__ = ("_found", "_hash", "_key", "body", "draws", "heads", "inputs", "order", "states")

    def __init__(self, heads: Sequence[Entry]):
        self.heads = tuple(heads)
        variables = [n for n in topological(n for n, _ in heads) if n.op is None]
        self.inputs = tuple(n.name for n in variables)
        copies, made = copy_graph(self.heads)
        for i, n in enumerate(variables):
            made[id(n)].name = str(i)
        op, params = copy_op()
        seen: set[tuple[int, int]] = set()
        self.body: list[Entry] = []
        for k, (node, index) in enumerate(copies):
            if node.op is None or (id(node), index) in seen:
                node, index = Node(op, f"head{k}", params, {}, [(node, index)]), 0
            seen.add((id(node), index))
            self.body.append((node, index))
        self.order = topological(n for n, _ in self.body)
        self.states = frozenset(int(n.name) for node in self.order for n, _ in node.auxiliary_inputs())
        self.draws = any(n.op.num_random(n.use, [_ONE] * n.n_outputs()) for n in self.order if n.op is not None)
        at = {id(n): i for i, n in enumerate(self.order)}
        self._key = (tuple((n.op, n.params, n.name if n.op is None else "", _attributes(n),
                            tuple((at[id(b)], k) for b, k in n.inputs)) for n in self.order),
                     tuple((at[id(n)], k) for n, k in self.body))
        self._hash = hash(self._key)
        self._found: dict[tuple, tuple[list[Any], list[Any]]] = {}

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subgraph) and self._key == other._key

    def __repr__(self) -> str:
        return f"<subgraph of {len(self.order)} nodes>"

    def shapes(self, inputs: Sequence[Shape | None]) -> tuple[list[Shape | None], list[Shape | None]]:
        """Infer (input shapes, head shapes) from the known input shapes. Raises ShapeError."""
        return self._inferred(infer_shapes, inputs)

    def dtypes(self, inputs: Sequence[np.dtype | None]) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        """Infer (input dtypes, head dtypes) from the known input dtypes. Raises DTypeError."""
        return self._inferred(infer_dtypes, inputs)

    def _inferred(self, infer: Callable[..., list[list[Any]]], inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        key = infer, *map(str, inputs)  # as text, because np.dtype("float64") == None is true
        if key not in self._found:
            found = infer(self.order, {str(i): known for i, known in enumerate(inputs)})
            of = {id(n): values for n, values in zip(self.order, found)}
            ins = {n.name: of[id(n)][0] for n in self.order if n.op is None}
            self._found[key] = [ins[str(i)] for i in range(len(self.inputs))], [of[id(n)][i] for n, i in self.body]
        return self._found[key]


def _attributes(node: Node) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, v) for k, v in node.attrs.items() if k != "__subgraph_name__"))


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
        self.program, self.plan = compile_program(sub.body, specs, train, asked, current(), targets=(target,),
                                                  backward=requests is not None)
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
            calls.append((kernel, step.inputs, step.outputs, step.op.random_count(step.params, sources, results), seen))
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
            elif v in plan.in_output or value.kind in (ZERO, KEPT):
                self.arrays[v] = storage.array(value.spec.shape, value.spec.dtype, run.ctx)
                if value.kind == ZERO:
                    fill(run, self.arrays[v], 0)
            else:
                assert value.kind in (ARG, AUX, GRAD, HEAD, OUTPUT, INNER), value

    def forward(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], random: tuple[Any, int] | None = None
                ) -> None:
        """Compute the heads. inputs, outputs: device arrays, in the subgraph's order. random: as kernels take it."""
        for name, v in self.compiled.ins.items():
            self.arrays[v] = inputs[int(name)]
        for v, array in zip(self.compiled.program.heads, outputs):
            self.arrays[v] = array
        self._call(self.compiled.forward_calls, random)

    def backward(self, head_grads: Sequence[DeviceArray | None], grads: Mapping[int, DeviceArray]) -> None:
        """Compute derivatives, directly after forward. grads: arrays for them by input, written or added to as requested."""
        for number, v in self.compiled.program.head_grads.items():
            self.arrays[v] = head_grads[number]
        for i, v in self.compiled.grads.items():
            self.arrays[v] = grads[i]
        self._call(self.compiled.backward_calls, None)

    def _call(self, calls: Sequence[Call], random: tuple[Any, int] | None) -> None:
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
