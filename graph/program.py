"""Program: a graph lowered to two flat lists, values and steps. Passes rewrite it, and the memory plan places its values.

A value is one buffer. One step writes it, except where gradients add up: there the first step writes and later ones add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import ShapeError
from ..gc_pause import gc_paused
from ..kernels.op import Op, Req, Shape, Spec, is_known
from ..kernels.params import Params
from .passes.infer import infer_dtypes, infer_shapes, spell
from .symbol.node import Entry, Node, topological

ARG, AUX, GRAD, HEAD, ZERO, OUTPUT, KEPT, INNER = "arg", "aux", "grad", "head", "zero", "output", "kept", "inner"


@dataclass(slots=True)
class Value:
    """One buffer.

    kind:  "arg", "aux", "grad": an array of the caller; "head": a head gradient; "zero": a constant zero;
           "output": an output of the executor; "kept": has memory of its own, so that it stays from pass to pass;
           "inner": placed by the memory plan.
    name:  the argument's name, or `node_output`.
    ctx:   the number of its context.
    """

    spec: Spec
    kind: str
    name: str
    ctx: int = 0


@dataclass(slots=True)
class Step:
    """One kernel call.

    inputs, outputs:  value numbers; -1 for an output that is not wanted (its request is NULL).
    auxiliaries:      the number of inputs, counted from the end, that the kernel changes.
    unused_outputs:   specs of the outputs that are not wanted, by position.
    members:          the operators fused into this step, as `name (operator)`; empty for an unfused step.
    ctx:              the number of the context it runs on.
    input_views:      specs under which inputs are read, by position, where they differ from the values' own.
    refusals:         {input: why this step is not in the kernel that writes it}, for explain().
    """

    op: Op
    params: Params
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reqs: tuple[Req, ...]
    auxiliaries: int = 0
    unused_outputs: dict[int, Spec] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    ctx: int = 0
    input_views: dict[int, Spec] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the graph that it computes, as `name (operator)`."""
        return self.members or (f"{self.name} ({self.op.name})",)

    @property
    def states(self) -> tuple[int, ...]:
        """The inputs that the kernel changes."""
        return self.inputs[len(self.inputs) - self.auxiliaries:]

    def with_refusals(self, refusals: dict[int, str]) -> Step:
        """Return the step with other refusals; faster than dataclasses.replace, which planning a large graph would feel."""
        return Step(self.op, self.params, self.name, self.inputs, self.outputs, self.reqs, self.auxiliaries, self.unused_outputs,
                    self.members, self.ctx, self.input_views, refusals)

    def final_part(self) -> Step | None:
        """Return the elementwise step that computes the first output again from the others, as of BatchNorm; None if none can."""
        if self.op.final_part is None:
            return None
        op, needs = self.op.final_part
        inputs = tuple(self.inputs[i] if kind == "x" else self.outputs[i] for kind, i in needs)
        return Step(op, self.params, self.name, inputs, self.outputs[:1], (Req.WRITE,), ctx=self.ctx)


@dataclass(slots=True, eq=False)
class Program:
    """Values and steps, steps in order of execution.

    n_forward:   the number of forward steps; the steps after them are backward.
    heads:       the value of each output of the symbol.
    head_grads:  {output number: its head gradient}, of the outputs whose head gradient is read.
    zero_grads:  arguments whose gradient is zero.
    targets:     "cpu" or "gpu", by context.
    """

    values: list[Value] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    n_forward: int = 0
    heads: list[int] = field(default_factory=list)
    args: dict[str, int] = field(default_factory=dict)
    auxes: dict[str, int] = field(default_factory=dict)
    grads: dict[str, int] = field(default_factory=dict)
    head_grads: dict[int, int] = field(default_factory=dict)
    zero_grads: list[str] = field(default_factory=list)
    train: bool = False
    targets: tuple[str, ...] = ("cpu",)

    @property
    def forward(self) -> list[Step]:
        """The forward steps."""
        return self.steps[:self.n_forward]

    @property
    def backward(self) -> list[Step]:
        """The backward steps."""
        return self.steps[self.n_forward:]

    def add_value(self, spec: Spec, kind: str, name: str, ctx: int = 0) -> int:
        """Append a value; returns its number."""
        self.values.append(Value(spec, kind, name, ctx))
        return len(self.values) - 1

    def value_specs(self, values: Iterable[int]) -> tuple[Spec, ...]:
        """The specs of values."""
        return tuple([self.values[v].spec for v in values])

    def input_specs(self, step: Step) -> tuple[Spec, ...]:
        """The specs under which step reads its inputs."""
        if not step.input_views:
            return self.value_specs(step.inputs)
        return tuple([step.input_views.get(k) or self.values[v].spec for k, v in enumerate(step.inputs)])

    def output_specs(self, step: Step) -> tuple[Spec, ...]:
        """The specs of all outputs of step, wanted or not."""
        return tuple([self.values[v].spec if v >= 0 else step.unused_outputs[k] for k, v in enumerate(step.outputs)])

    def rewrite(self, emit: Callable[[int, Step], Iterable[Step]]) -> Program:
        """Return a program in which the steps of emit(i, step) replace step i. It shares this program's values."""
        forward = [new for i, step in enumerate(self.forward) for new in emit(i, step)]
        backward = [new for i, step in enumerate(self.backward, self.n_forward) for new in emit(i, step)]
        return replace(self, steps=forward + backward, n_forward=len(forward))

    def __str__(self) -> str:
        """One line per step, to read a program before and after a pass."""
        def show(v: int) -> str:
            if v < 0:
                return "-"
            value = self.values[v]
            kind = "" if value.kind == INNER else f"={value.kind} {value.name}"
            return f"%{v}:{value.spec.dtype}{list(value.spec.shape)}{kind}"

        lines = []
        for i, s in enumerate(self.steps):
            if i == self.n_forward:
                lines.append("--- backward ---")
            outputs = [f"{show(o)}{'+' if r == Req.ADD else ''}" for o, r in zip(s.outputs, s.reqs)]
            lines.append(f"{', '.join(outputs)} <- {s.op.name}({', '.join(map(show, s.inputs))})  # {s.name}")
        return "\n".join(lines)


@gc_paused()  # passes make millions of small objects and no cycles
def specs_of(order: Sequence[Node], shapes: Mapping[str, Shape], dtypes: Mapping[str, np.dtype]) -> list[list[Spec]]:
    """Infer the specs of all outputs of all nodes, from those of some variables. Raises ShapeError for an unknown shape."""
    node_shapes = infer_shapes(order, shapes)
    node_dtypes = infer_dtypes(order, dtypes, np.dtype("float32"))
    for node, known in zip(order, node_shapes):
        for name, shape in zip(node.output_names(), known):
            if not is_known(shape):
                kind = "argument" if node.op is None else f"output of {node.op.name}"
                raise ShapeError(f"bind: the shape of {kind} {name!r} cannot be inferred: {spell(shape)}. "
                                 f"Give it by keyword, such as {node.name}=(...).")
    return [[Spec(s, np.dtype(t)) for s, t in zip(a, b) if s is not None and t is not None]
            for a, b in zip(node_shapes, node_dtypes)]


def lower(heads: Sequence[Entry], specs: list[list[Spec]], train: bool, places: Mapping[str, int] | None = None,
          targets: tuple[str, ...] = ("cpu",), keep: bool | None = None) -> Program:
    """Return the forward program of a graph.

    specs:    by node, in topological order.
    places:   the number of each node's context, by name; 0 for a name that is missing.
    targets:  "cpu" or "gpu", by context.
    keep:     True to compute what only backward reads. None: in training.
    """
    keep = train if keep is None else keep
    places = places or {}
    order = topological(n for n, _ in heads)
    states = {id(n) for node in order for n, _ in node.auxiliary_inputs()}
    head_entries = {(id(n), i) for n, i in heads if n.op is not None}
    program = Program(train=train, targets=targets)
    values: dict[int, list[int]] = {}  # id of a node -> its values
    for node, known in zip(order, specs):
        ctx = places.get(node.name, 0)
        if node.op is None:
            kind, table = (AUX, program.auxes) if id(node) in states else (ARG, program.args)
            table[node.name] = program.add_value(known[0], kind, node.name, ctx)
            values[id(node)] = [table[node.name]]
            continue
        kinds = [OUTPUT if (id(node), i) in head_entries else INNER for i in range(len(known))]
        outs = [program.add_value(*fields, ctx) for fields in zip(known, kinds, node.output_names())]
        values[id(node)] = outs
        drops_hidden = not keep and (node.subgraphs or node.op.drops_hidden_at_inference)  # they are for backward alone
        shown = node.n_visible() if drops_hidden else len(outs)
        dropped = len(outs) - shown
        program.steps.append(Step(
            node.op, node.use, node.name, tuple([values[id(n)][i] for n, i in node.inputs]), (*outs[:shown], *[-1] * dropped),
            (*[Req.WRITE] * shown, *[Req.NULL] * dropped), len(node.auxiliary_inputs()),
            unused_outputs={k: known[k] for k in range(shown, len(outs))}, ctx=ctx))
    program.n_forward = len(program.steps)
    program.heads = [values[id(n)][i] for n, i in heads]
    return program


def naive_bytes(program: Program) -> int:
    """Return the bytes of all values but the caller's arrays, each with memory of its own."""
    return sum(v.spec.nbytes for v in program.values if v.kind in (INNER, OUTPUT, ZERO, KEPT))
