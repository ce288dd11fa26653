"""_foreach, _while_loop and _cond: nodes that hold graphs, with the names, parameters and wiring of MXNet 1.x's files.

Each runs the kernels of its subgraph inside one kernel of its own. In training, forward keeps the states before each round, and
backward runs a round again before it differentiates it: memory grows with the states alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...engine import RunContext
from ...errors import GraphError
from ...kernels.declare import random_fill
from ...kernels.kernel import DeviceArray, KernelFunction, Run
from ...kernels.op import Dtypes, Gradient, Op, Req, Reqs, Shape, Specs, merge_shapes
from ...kernels.ops.tensor.data_movement import copy_into, fill
from ...kernels.params import Param, Params
from ..symbol.node import Entry, Node
from .subgraph import BoundSubgraph, CompiledSubgraph, Subgraph

RESERVED = 1 << 32  # random numbers reserved for one run of a node that draws any: their number depends on the rounds
_INT64 = np.dtype("int64")


class ControlFlow(Op):
    """Common base of the three operators.

    Hidden outputs, after the visible ones: `history...` (the states before each round), `count` (the number of rounds, or the
    branch) and `random` (seed and offset, if the subgraphs draw numbers). Without a backward pass they are left out.
    """

    common = (Param("num_args", "int"), Param("num_outputs", "int"), Param("subgraphs", "any", ()))
    loop_states = False  # whether there are histories
    counts = False

    def __init__(self) -> None:
        self._backward = BackwardControlFlow(self)

    def check(self, p: Params, n_subgraphs: int, locs: Sequence[tuple[Sequence[int], int]]) -> None:
        """Raise GraphError if the numbers in p do not fit its subgraphs. locs: (positions, the limit of each)."""
        subgraphs = p.subgraphs
        if len(subgraphs) != n_subgraphs or not all(isinstance(s, Subgraph) for s in subgraphs):
            raise GraphError(f"{self.name}: {len(subgraphs)} subgraphs, not {n_subgraphs}. Make it with mx.sym.contrib.")
        for positions, limit in locs:
            if not all(isinstance(i, int) and 0 <= i < limit for i in positions):
                raise GraphError(f"{self.name}: the positions {tuple(positions)} are not all below {limit}. "
                                 f"The node and its subgraphs do not belong together.")

    # ---- wiring: which input of the node is input i of a subgraph -----------------------------------------------------
    def wiring(self, p: Params) -> tuple[tuple[int, ...], ...]:
        """For each subgraph, return the node's input that feeds each of its inputs: its parameter `..._input_locs`."""
        return tuple(p[d.name] for d in self.params if d.name.endswith("_input_locs"))

    def moved(self, p: Params, new_at: Sequence[int]) -> dict[str, list[int]]:
        """Return the positions after input i of the node has moved to new_at[i]."""
        return {d.name: [new_at[i] for i in p[d.name]] for d in self.params if d.name.endswith("_input_locs")}

    def carried(self, p: Params) -> tuple[int, ...]:
        """Return the node's inputs with the initial states of the loop, in the order of the states."""
        return ()

    def n_inputs(self, p: Params) -> int:
        return p.num_args - len(p.subgraphs)

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        return tuple(self._names(p)[i] for i in self._states(p))

    def arguments(self, p: Params) -> tuple[str, ...]:
        return self._names(p)[:self.n_inputs(p) - len(self._states(p))]

    def _names(self, p: Params) -> tuple[str, ...]:
        return tuple(f"data{i}" for i in range(self.n_inputs(p)))

    def _states(self, p: Params) -> list[int]:
        """Return the node's inputs that a subgraph changes; they are the last ones."""
        return sorted({wires[i] for sub, wires in zip(p.subgraphs, self.wiring(p)) for i in sub.states})

    def outputs(self, p: Params) -> tuple[str, ...]:
        shown = ("output",) if p.num_outputs == 1 else tuple(f"output{i}" for i in range(p.num_outputs))
        return shown + tuple(self.kept(p))

    def visible_outputs(self, p: Params) -> int:
        return p.num_outputs

    def kept(self, p: Params) -> list[str]:
        """Names of the hidden outputs."""
        names = [f"history{i}" for i in range(len(self.carried(p)))] if self.loop_states else []
        return names + ["count"] * self.counts + ["random"] * any(s.draws for s in p.subgraphs)

    def kept_shapes(self, p: Params, states: Sequence[Shape | None], n_rounds: int) -> list[Shape | None]:
        """Shapes of the hidden outputs. n_rounds: the most rounds; -1 if unknown."""
        histories: list[Shape | None] = [s if s is None else (n_rounds, *s) for s in states] if self.loop_states else []
        return [*histories, *[(1,)] * self.counts, *[(2,)] * any(s.draws for s in p.subgraphs)]

    def num_random(self, p: Params, outs: Specs) -> int:
        return RESERVED if any(s.draws for s in p.subgraphs) else 0

    # ---- inference ----------------------------------------------------------------------------------------------------
    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        ins, heads = list(inputs), []
        for sub, wires in zip(p.subgraphs, self.wiring(p)):
            found, heads = sub.dtypes([ins[i] for i in wires])
            for i, d in zip(wires, found):
                ins[i] = d
        for i, d in zip(self.carried(p), heads[len(heads) - len(self.carried(p)):]):
            ins[i] = ins[i] if ins[i] is not None else d
        kept = [ins[i] for i in self.carried(p)] if self.loop_states else []
        return ins, [*heads, *kept, *[_INT64] * (len(self.kept(p)) - len(kept))]

    def through(self, sub: Subgraph, wires: Sequence[int], shapes: list[Shape | None]) -> list[Shape | None]:
        """Return the shapes of a subgraph's heads, and fill in shapes: those of the node's inputs in one round."""
        found, heads = sub.shapes([shapes[i] for i in wires])
        for i, s in zip(wires, found):
            shapes[i] = merge_shapes(self.name, f"input {i}", shapes[i], s)
        return heads

    # ---- gradient -----------------------------------------------------------------------------------------------------
    def gradient_of(self, p: Params) -> Gradient | None:
        n, shown = self.n_inputs(p), p.num_outputs
        needs = [("dy", i) for i in range(shown)] + [("x", i) for i in range(n)]
        needs += [("y", shown + i) for i in range(len(self.kept(p)))]
        return Gradient(self._backward, tuple(needs), tuple(range(len(self.arguments(p)))))

    def backward_kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        """Return kernel(run, inputs, outputs) of the derivative. ins: as in gradient(); outs: one per argument."""
        raise NotImplementedError(self.name)


class BackwardControlFlow(Op):
    """The derivative of a control-flow operator, with the same parameters."""

    def __init__(self, forward: ControlFlow):
        self.forward, self.name = forward, f"_backward{forward.name}"

    def arguments(self, p: Params) -> tuple[str, ...]:
        gradient = self.forward.gradient_of(p)
        return tuple(f"{kind}{i}" for kind, i in gradient.needs) if gradient else ()

    def outputs(self, p: Params) -> tuple[str, ...]:
        return tuple(f"d{n}" for n in self.forward.arguments(p))

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        return self.forward.backward_kernel(p, ins, outs, reqs, target, train)


def row(array: DeviceArray, t: int, shape: Shape) -> DeviceArray:
    """Return array[t] as a view of this shape, of a NumPy array or of a GPU's."""
    return array[t:t + 1].reshape(shape)


def save_random(run: Run, keep: Mapping[str, DeviceArray | None], random: tuple[int, int] | None) -> None:
    """Save seed and offset for backward."""
    kept = keep.get("random")
    if random is not None and kept is not None:
        random_fill.save_random(run, kept, random)


def load_random(array: DeviceArray | None) -> tuple[Any, int] | None:
    """Return the seed and offset that save_random saved."""
    return None if array is None else random_fill.load_random(array)


def advance(random: tuple[Any, int] | None, n: int) -> tuple[Any, int] | None:
    """Skip n random numbers."""
    return None if random is None else (random[0], random[1] + n)


class BackwardSubgraph(CompiledSubgraph):
    """A subgraph that is differentiated round by round, and the destinations of its derivatives.

    Derivatives by states pass from round to round; those by rows of the data go to rows; the others add up.
    """

    def __init__(self, sub: Subgraph, wires: Sequence[int], specs: Specs, reqs: Mapping[int, Req], target: str,
                 train: bool, rows: Sequence[int] = (), carried: Sequence[int] = ()):
        """specs: of the subgraph's inputs. reqs: by input of the node; NULL or missing for derivatives that are not wanted.
        rows: inputs of the node that are read row by row. carried: those with initial states."""
        self.wires, self.carried, self.states = wires, carried, sub.states
        self.requests: dict[int, str] = {}
        self.home: dict[int, int] = {}
        for i, (w, spec) in enumerate(zip(wires, specs)):
            req = reqs.get(w, Req.NULL)
            if i in sub.states or spec.dtype.kind not in "fV" or (req == Req.NULL and w not in carried):
                continue
            self.requests[i] = "write" if w in carried or (w in rows and req != Req.ADD) else "add"
            self.home[i] = w
        self.rows, self.specs = rows, specs
        super().__init__(sub, specs, target, train, self.requests)


class BoundBackward(BoundSubgraph):
    """A backward subgraph with memory for its values.

    inputs: the node's. grads: the node's derivatives by input; None if they are not wanted.
    """

    def __init__(self, back: BackwardSubgraph, run: RunContext, inputs: Sequence[DeviceArray], grads: Mapping[int, DeviceArray]):
        super().__init__(back, run)
        self.back, self.grads = back, grads
        self.heads = [run.workspace(s.shape, s.dtype) for s in back.heads]
        self.inputs = [inputs[w] for w in back.wires]
        for i in back.states:  # a round that is run again must not change the states again
            own = run.workspace(back.specs[i].shape, back.specs[i].dtype)
            copy_into(run, self.inputs[i], own)
            self.inputs[i] = own
        places = {w: i for i, w in enumerate(back.wires)}
        self.place = [places.get(w, -1) for w in back.carried]  # of each state among the subgraph's inputs
        self.spare: dict[int, list[Any]] = {}
        for i, w in back.home.items():
            if w in back.carried:
                self.spare[i] = [run.workspace(back.specs[i].shape, back.specs[i].dtype) for _ in range(2)]

    def round(self, t: int, states: Sequence[DeviceArray], head_grads: Sequence[DeviceArray | None],
              random: tuple[int, int] | None) -> list[DeviceArray | None]:
        """Run round t again from states, then backward. head_grads: of the results, then of the states after the round.

        Returns: the derivatives by the states before it; None for a state without one.
        """
        back = self.back
        inputs = list(self.inputs)
        for i, w in enumerate(back.wires):
            if w in back.rows:
                inputs[i] = row(self.inputs[i], t, back.specs[i].shape)
        for at, state in zip(self.place, states):
            if at >= 0:
                inputs[at] = state
        self.forward(inputs, self.heads, random)
        targets: dict[int, DeviceArray] = {}
        for i, w in back.home.items():
            if w in back.carried:
                targets[i] = self.spare[i][t % 2]
            elif w in back.rows:
                targets[i] = row(self.grads[w], t, back.specs[i].shape)
            else:
                targets[i] = self.grads[w]
        self.backward(head_grads, targets)
        for i in back.zero:
            if back.requests[i] == "write":
                fill(self.run, targets[i], 0)
        return [targets.get(at) for at in self.place]


def wanted_gradients(run: Run, reqs: Reqs, outs: Sequence[DeviceArray], skip: Sequence[int] = ()
                     ) -> tuple[dict[int, Req], dict[int, DeviceArray]]:
    """Return the requests and the arrays of the derivatives that are wanted, by input of the node.

    Those to be written are zeroed, as rounds add to them, except for the inputs in skip.
    """
    wanted = {i: r for i, r in enumerate(reqs) if r != Req.NULL}
    for i, req in wanted.items():
        if req != Req.ADD and i not in skip:
            fill(run, outs[i], 0)
    return wanted, {i: outs[i] for i in wanted}


def reordered(inputs: Sequence[Entry], states: Sequence[int]) -> tuple[list[Entry], list[int]]:
    """Return inputs with the states last, and the new position of each."""
    order = [i for i in range(len(inputs)) if i not in set(states)] + list(states)
    new = {old: at for at, old in enumerate(order)}
    return [inputs[i] for i in order], [new[i] for i in range(len(inputs))]


def control_node(op: ControlFlow, name: str, attrs: dict[str, str], inputs: Sequence[Entry], subgraphs: Sequence[Subgraph]
                 ) -> Node:
    """Make a node of a file, with its states moved behind its other inputs. Raises as op.parse does."""
    known = {d.name for d in op.params}
    given = {k: v for k, v in attrs.items() if k in known}
    p = op.parse({**given, "subgraphs": tuple(subgraphs)})
    if op.n_inputs(p) != len(inputs):
        raise GraphError(f"{op.name}: num_args says {op.n_inputs(p)} inputs, there are {len(inputs)}.")
    ordered, new_at = reordered(inputs, op._states(p))
    if ordered != list(inputs):
        moved = op.moved(p, new_at)
        attrs = {**attrs, **{k: str(v) for k, v in moved.items()}}
        p = op.parse({**given, **moved, "subgraphs": tuple(subgraphs)})
    return Node(op, name, p, attrs, ordered)
