"""Program: a graph with everything decided, as flat tables of values and steps. What gradient, fuse and plan work on.

A value is one buffer. It has one writer, except that gradients add up: then the first writer writes and later ones add.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import ShapeError
from ..kernels.op import Op, Req, Shape, Spec, is_known
from ..kernels.params import Params
from .passes.infer import infer_dtypes, infer_shapes, spell
from .symbol.node import Entry, Node, topological

ARG, AUX, GRAD, HEAD, ZERO, OUTPUT, INNER = "arg", "aux", "grad", "head", "zero", "output", "inner"


@dataclass(slots=True)
class Value:
    """One buffer.

    kind:  "arg", "aux", "grad": the caller's arrays; "head": a head gradient; "zero": a constant zero;
           "output": an output of the executor; "inner": placed by the memory plan.
    name:  the argument's, or `node_output`.
    ctx:   which of the program's contexts it lies on.
    """

    spec: Spec
    kind: str
    name: str
    ctx: int = 0


@dataclass(slots=True)
class Step:
    """One kernel call.

    inputs, outputs:  value numbers; -1 for an output nobody wants (its request is NULL).
    auxiliaries:      how many of the last inputs the kernel changes.
    merged:           how many operators of the graph it stands for.
    unused_outputs:           specs of the outputs nobody wants, by position.
    input_views:             specs under which inputs are read, by position, where they are not the values' own.
    ctx:              which of the program's contexts it runs on.
    members:            what was merged into it, for explain(): `name (operator)`; empty for a step as it was.
    """

    op: Op
    params: Params
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reqs: tuple[Req, ...]
    auxiliaries: int = 0
    merged: int = 1
    unused_outputs: dict[int, Spec] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    ctx: int = 0
    input_views: dict[int, Spec] = field(default_factory=dict)


@dataclass(slots=True)
class Program:
    """Values and steps, steps in order of execution.

    n_forward:  steps before this one are forward, the rest backward.
    heads:      the value of each output of the symbol.
    """

    values: list[Value] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    n_forward: int = 0
    heads: list[int] = field(default_factory=list)
    args: dict[str, int] = field(default_factory=dict)
    auxes: dict[str, int] = field(default_factory=dict)
    grads: dict[str, int] = field(default_factory=dict)
    head_grads: dict[int, int] = field(default_factory=dict)  # output number -> value; only heads whose gradient is read
    zero_grads: list[str] = field(default_factory=list)  # arguments whose gradient is zero
    train: bool = False
    targets: tuple[str, ...] = ("cpu",)  # "cpu" or "gpu", by context

    def add_value(self, spec: Spec, kind: str, name: str, ctx: int = 0) -> int:
        self.values.append(Value(spec, kind, name, ctx))
        return len(self.values) - 1

    def without_steps(self) -> Program:
        """The same values and names, and no steps yet: what a pass fills."""
        return replace(self, steps=[], n_forward=0)

    def __str__(self) -> str:
        """One line per step: for reading a graph before and after a pass."""
        def show(v: int) -> str:
            if v < 0:
                return "-"
            value = self.values[v]
            where = "" if value.kind == INNER else f"={value.kind} {value.name}"
            return f"%{v}:{value.spec.dtype}{list(value.spec.shape)}{where}"

        lines = []
        for i, s in enumerate(self.steps):
            if i == self.n_forward:
                lines.append("--- backward ---")
            marks = [f"{show(o)}{'+' if r == Req.ADD else ''}" for o, r in zip(s.outputs, s.reqs)]
            lines.append(f"{', '.join(marks)} <- {s.op.name}({', '.join(map(show, s.inputs))})  # {s.name}")
        return "\n".join(lines)


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause Python's search for cycles: passes make millions of small objects and no garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@gc_paused()
def specs_of(order: Sequence[Node], shapes: Mapping[str, Shape], dtypes: Mapping[str, np.dtype]) -> list[list[Spec]]:
    """The spec of every output of every node. Raises ShapeError for the first node that stays unknown."""
    found = infer_shapes(order, shapes)
    types = infer_dtypes(order, dtypes, np.dtype("float32"))
    for node, known in zip(order, found):
        for name, shape in zip(node.output_names(), known):
            if not is_known(shape):
                kind = "argument" if node.op is None else f"output of {node.op.name}"
                raise ShapeError(f"bind: the shape of {kind} {name!r} cannot be worked out: {spell(shape)}. "
                                 f"Give it by keyword, such as {node.name}=(...).")
    return [[Spec(s, np.dtype(t)) for s, t in zip(a, b) if s is not None and t is not None] for a, b in zip(found, types)]


def lower(heads: Sequence[Entry], specs: list[list[Spec]], train: bool, places: Mapping[str, int] | None = None,
          targets: tuple[str, ...] = ("cpu",), keep: bool | None = None) -> tuple[Program, dict[int, list[int]]]:
    """The forward program of the graph under heads, and the values of each node by its id.

    specs:   by node, in topological order.
    places:  the context of each node, by name; 0 where none is given. targets: "cpu" or "gpu", by context.
    keep:    whether operators compute what only backward reads; None: in training.
    """
    keep = train if keep is None else keep
    places = places or {}
    order = topological(n for n, _ in heads)
    states = {id(n) for node in order for n, _ in node.auxiliary_inputs()}
    wanted = {(id(n), i) for n, i in heads if n.op is not None}
    program = Program(train=train, targets=targets)
    values: dict[int, list[int]] = {}
    for node, known in zip(order, specs):
        if node.op is None:
            kind, table = (AUX, program.auxes) if id(node) in states else (ARG, program.args)
            values[id(node)] = [program.add_value(known[0], kind, node.name, places.get(node.name, 0))]
            table[node.name] = values[id(node)][0]
            continue
        names = node.output_names()
        values[id(node)] = outs = [
            program.add_value(spec, OUTPUT if (id(node), i) in wanted else INNER, names[i], places.get(node.name, 0))
            for i, spec in enumerate(known)
        ]
        forgets = not keep and (node.subgraphs or node.op.forgets)  # what is kept is for backward alone
        shown = node.n_visible() if forgets else len(outs)
        program.steps.append(Step(
            node.op, node.use, node.name, tuple(values[id(n)][i] for n, i in node.inputs),
            (*outs[:shown], *[-1] * (len(outs) - shown)), (*[Req.WRITE] * shown, *[Req.NULL] * (len(outs) - shown)),
            len(node.auxiliary_inputs()), unused_outputs={k: known[k] for k in range(shown, len(outs))},
            ctx=places.get(node.name, 0),
        ))  # fmt: skip
    program.n_forward = len(program.steps)
    program.heads = [values[id(n)][i] for n, i in heads]
    return program, values


def naive_bytes(program: Program) -> int:
    """Bytes if every value but the caller's arrays had memory of its own."""
    return sum(v.spec.nbytes for v in program.values if v.kind in (INNER, OUTPUT, ZERO))


def describe_values(program: Program, numbers: Sequence[int]) -> str:
    """`fc1_output float32[4,3], ...` for messages."""
    def one(v: int) -> str:
        value = program.values[v]
        return f"{value.name} {value.spec.dtype}[{','.join(map(str, value.spec.shape))}]"
    return ", ".join(one(v) for v in numbers if v >= 0)

