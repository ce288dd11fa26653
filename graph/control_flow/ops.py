"""The operators behind mx.sym.contrib.foreach, while_loop and cond."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...engine import RunContext
from ...errors import GraphError
from ...kernels.kernel import DeviceArray, KernelFunction, Run
from ...kernels.op import Req, Reqs, Shape, Spec, Specs, merge_shapes, register
from ...kernels.ops.tensor.data_movement import copy_into, fill
from ...kernels.params import Param, Params
from .mxnet_nodes import BackwardSubgraph, BoundBackward, ControlFlow, advance, load_random, row, save_random, wanted_gradients
from .subgraph import BoundSubgraph, CompiledSubgraph

Shapes = list[Shape | None]


class Foreach(ControlFlow):
    """Runs a subgraph for every row of its data: results are stacked, states pass from row to row.

    in_data_locs, in_state_locs, remain_locs: the input of the subgraph that each input of the node feeds: first the data, then
    the states, then the others. The subgraph returns num_out_data results, then the new states.
    """

    name = "_foreach"
    loop_states = True
    params = (Param("in_data_locs", "shape"), Param("in_state_locs", "shape"), Param("remain_locs", "shape"),
              Param("num_out_data", "int"), *ControlFlow.common)

    def parse(self, given: Mapping[str, object]) -> Params:
        p = super().parse(given)
        locs = (*p.in_data_locs, *p.in_state_locs, *p.remain_locs)
        self.check(p, 1, [(locs, len(locs))])
        sub = p.subgraphs[0]
        if sorted(locs) != list(range(len(sub.inputs))) or p.num_args != len(locs) + 1 or not p.in_data_locs \
                or p.num_outputs != len(sub.heads) or p.num_out_data != p.num_outputs - len(p.in_state_locs):
            raise GraphError(f"{self.name}: {len(locs)} inputs and {p.num_outputs} outputs do not fit a subgraph with "
                             f"{len(sub.inputs)} inputs and {len(sub.heads)} results.")
        return p

    def wiring(self, p: Params) -> tuple[tuple[int, ...], ...]:
        locs = (*p.in_data_locs, *p.in_state_locs, *p.remain_locs)
        return (tuple(sorted(range(len(locs)), key=lambda i: locs[i])),)

    def moved(self, p: Params, new_at: Sequence[int]) -> dict[str, list[int]]:
        first = len(p.in_data_locs) + len(p.in_state_locs)  # states of the operators inside are among the rest
        rest = sorted(range(len(p.remain_locs)), key=lambda i: new_at[first + i])
        return {"remain_locs": [p.remain_locs[i] for i in rest]}

    def carried(self, p: Params) -> tuple[int, ...]:
        n = len(p.in_data_locs)
        return tuple(range(n, n + len(p.in_state_locs)))

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        known = list(outputs or [None] * len(self.outputs(p)))
        n, data = p.num_out_data, range(len(p.in_data_locs))
        lengths = [(s[0],) for s in (*(inputs[i] for i in data), *known[:n]) if s]
        length: Shape | None = None
        for one in lengths:
            length = merge_shapes(self.name, "the number of rows", length, one)
        rows = -1 if length is None else length[0]
        shapes = [s if i not in data or s is None else (s[1:] or (1,)) for i, s in enumerate(inputs)]
        for i, s in zip(self.carried(p), known[n:]):
            shapes[i] = merge_shapes(self.name, f"state {i - len(data)}", shapes[i], s)
        heads = self.through(p.subgraphs[0], self.wiring(p)[0], shapes)
        for i, s in zip(self.carried(p), heads[n:]):
            shapes[i] = merge_shapes(self.name, f"state {i - len(data)}, before and after a round,", shapes[i], s)
        heads = self.through(p.subgraphs[0], self.wiring(p)[0], shapes)
        states = [shapes[i] for i in self.carried(p)]
        found = [s if i not in data or s is None else (rows,) if len(inputs[i] or ()) == 1 else (rows, *s)
                 for i, s in enumerate(shapes)]
        return found, [*(s if s is None else (rows, *s) for s in heads[:n]), *states, *self.kept_shapes(p, states, rows)]

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        wires, specs = self.wiring(p)[0], self._one_row(p, ins)
        body = CompiledSubgraph(p.subgraphs[0], specs, target, train)
        rows = [(at, w, specs[at].shape) for at, w in enumerate(wires) if w < len(p.in_data_locs)]
        return _forward_loop(self, p, body, wires, [wires.index(c) for c in self.carried(p)], ins[0].shape[0], rows)

    def _one_row(self, p: Params, ins: Specs) -> list[Spec]:
        """Return the specs of the subgraph's inputs; of data, one row."""
        n = len(p.in_data_locs)
        return [Spec(ins[w].shape[1:] or (1,), ins[w].dtype) if w < n else ins[w] for w in self.wiring(p)[0]]

    def backward_kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        x = ins[p.num_outputs:p.num_outputs + self.n_inputs(p)]
        back = BackwardSubgraph(p.subgraphs[0], self.wiring(p)[0], self._one_row(p, x), dict(enumerate(reqs)), target, train,
                                range(len(p.in_data_locs)), self.carried(p))
        return _backward_loop(self, p, x, reqs, back, lambda run, keep: x[0].shape[0], back.draws, 0)


class WhileLoop(ControlFlow):
    """Runs a subgraph while another one returns true, at most max_iterations times.

    Results are stacked, rows that were not computed are zero, and variables pass from round to round.
    cond_input_locs, func_input_locs: the input of the node that feeds each input of either subgraph.
    func_var_locs: the position of each variable in func_input_locs.
    """

    name = "_while_loop"
    loop_states = counts = True
    params = (Param("cond_input_locs", "shape"), Param("func_input_locs", "shape"), Param("func_var_locs", "shape"),
              Param("max_iterations", "int"), Param("num_out_data", "int"), *ControlFlow.common)

    def parse(self, given: Mapping[str, object]) -> Params:
        p = super().parse(given)
        n = p.num_args - 2
        self.check(p, 2, [(p.cond_input_locs, n), (p.func_input_locs, n), (p.func_var_locs, len(p.func_input_locs))])
        test, body = p.subgraphs
        if len(test.inputs) != len(p.cond_input_locs) or len(body.inputs) != len(p.func_input_locs) or len(test.heads) != 1 \
                or p.num_outputs != len(body.heads) or p.num_out_data != p.num_outputs - len(p.func_var_locs) \
                or p.max_iterations < 0:
            raise GraphError(f"{self.name}: {n} inputs and {p.num_outputs} outputs do not fit subgraphs with "
                             f"{len(test.inputs)} and {len(body.inputs)} inputs and {len(body.heads)} results.")
        return p

    def carried(self, p: Params) -> tuple[int, ...]:
        return tuple(p.func_input_locs[at] for at in p.func_var_locs)

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        known = list(outputs or [None] * len(self.outputs(p)))
        shapes, n, n_rounds = list(inputs), p.num_out_data, p.max_iterations
        for k, (i, s) in enumerate(zip(self.carried(p), known[n:])):
            shapes[i] = merge_shapes(self.name, f"variable {k}", shapes[i], s)
        heads: Shapes = []
        for _ in range(2):
            self.through(p.subgraphs[0], p.cond_input_locs, shapes)
            heads = self.through(p.subgraphs[1], p.func_input_locs, shapes)
            for k, (i, s) in enumerate(zip(self.carried(p), heads[n:])):
                shapes[i] = merge_shapes(self.name, f"variable {k}, before and after a round,", shapes[i], s)
        states = [shapes[i] for i in self.carried(p)]
        return shapes, [*(s if s is None else (n_rounds, *s) for s in heads[:n]), *states, *self.kept_shapes(p, states, n_rounds)]

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        test = CompiledSubgraph(p.subgraphs[0], [ins[w] for w in p.cond_input_locs], target, train)
        body = CompiledSubgraph(p.subgraphs[1], [ins[w] for w in p.func_input_locs], target, train)
        return _forward_loop(self, p, body, p.func_input_locs, p.func_var_locs, p.max_iterations, (), test)

    def backward_kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        x = ins[p.num_outputs:p.num_outputs + self.n_inputs(p)]
        test = CompiledSubgraph(p.subgraphs[0], [x[w] for w in p.cond_input_locs], target, train)
        specs = [x[w] for w in p.func_input_locs]
        back = BackwardSubgraph(p.subgraphs[1], p.func_input_locs, specs, dict(enumerate(reqs)), target, train, (),
                                self.carried(p))
        rounds = lambda run, keep: int(run.to_host(keep["count"])[0])
        return _backward_loop(self, p, x, reqs, back, rounds, test.draws + back.draws, test.draws)


def _forward_loop(op: ControlFlow, p: Params, body: CompiledSubgraph, wires: Sequence[int], places: Sequence[int], most: int,
                  rows: Sequence[tuple[int, int, Shape]] = (), test: CompiledSubgraph | None = None) -> KernelFunction:
    """Return the forward kernel of a loop of at most so many rounds.

    wires:   the loop's input that feeds each input of body. places: the position of each state among them.
    rows:    (position in body, input of the loop, shape) of what is read row by row.
    test:    the subgraph that decides before each round whether it runs; None: all rounds run.
    """
    n, carried, names = p.num_out_data, op.carried(p), op.kept(p)
    asked = p.cond_input_locs if test else ()
    in_test = [(at, carried.index(w)) for at, w in enumerate(asked) if w in carried]
    first = test.draws if test else 0
    per_round = first + body.draws

    def kernel(run: RunContext, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] | None = None) -> None:
        keep = dict(zip(names, outputs[p.num_outputs:]))
        save_random(run, keep, random)
        bound_test, bound_body = test and BoundSubgraph(test, run), BoundSubgraph(body, run)
        answer = [run.workspace(s.shape, s.dtype) for s in test.heads] if test else []
        spare = [[run.workspace(s.shape, s.dtype) for s in body.heads[n:]] for _ in range(2)]
        states, question, arguments = ([inputs[w] for w in part] for part in (carried, asked, wires))
        t = 0
        while t < most:
            if bound_test is not None:
                for at, k in in_test:
                    question[at] = states[k]
                bound_test.forward(question, answer, advance(random, t * per_round))
                if not is_true(run, answer[0]):
                    break
            for at, w, shape in rows:
                arguments[at] = row(inputs[w], t, shape)
            for k, (at, state) in enumerate(zip(places, states)):
                arguments[at] = state
                if keep[f"history{k}"] is not None:
                    copy_into(run, state, row(keep[f"history{k}"], t, state.shape))
            bound_body.forward(arguments, [*(row(o, t, s.shape) for o, s in zip(outputs[:n], body.heads)), *spare[t % 2]],
                               advance(random, t * per_round + first))
            states = spare[t % 2]
            t += 1
        if t < most:
            for o in outputs[:n]:
                fill(run, o[t:], 0)
        for o, state in zip(outputs[n:p.num_outputs], states):
            copy_into(run, state, o)
        if keep.get("count") is not None:
            fill(run, keep["count"], t)

    return kernel


def _backward_loop(op: ControlFlow, p: Params, x: Specs, reqs: Reqs, back: BackwardSubgraph,
                   n_rounds: Callable[[Run, dict[str, Any]], int], per_round: int, first: int) -> KernelFunction:
    """Return the backward kernel of a loop.

    x:         specs of the loop's inputs. n_rounds: the number of rounds, from the hidden outputs.
    per_round: random numbers of one round; those of the body begin at first.
    """
    shown, n, heads, names = p.num_outputs, p.num_out_data, back.heads, op.kept(p)

    def kernel(run: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        dys, keep = inputs[:shown], dict(zip(names, inputs[shown + len(x):]))
        wanted, grads = wanted_gradients(run, reqs, outputs, (*back.rows, *back.carried))
        bound = BoundBackward(back, run, inputs[shown:shown + len(x)], grads)
        random, d_states = load_random(keep.get("random")), dys[n:]
        for t in reversed(range(n_rounds(run, keep))):
            states = [row(keep[f"history{k}"], t, x[c].shape) for k, c in enumerate(back.carried)]
            d_states = bound.round(t, states, [*(row(dy, t, s.shape) for dy, s in zip(dys[:n], heads)), *d_states],
                                   advance(random, t * per_round + first))
        for c, d in zip(back.carried, d_states):
            if wanted.get(c) == Req.ADD:
                if d is not None:
                    copy_into(run, d, grads[c], add=True)
            elif c in wanted:
                fill(run, grads[c], 0) if d is None else copy_into(run, d, grads[c])

    return kernel


class Cond(ControlFlow):
    """Runs one of two subgraphs; a third one chooses.

    cond_input_locs, then_input_locs, else_input_locs: the input of the node that feeds each input of the three subgraphs.
    """

    name = "_cond"
    counts = True
    params = (Param("cond_input_locs", "shape"), Param("then_input_locs", "shape"), Param("else_input_locs", "shape"),
              *ControlFlow.common)

    def parse(self, given: Mapping[str, object]) -> Params:
        p = super().parse(given)
        locs = self.wiring(p)
        self.check(p, 3, [(part, p.num_args - 3) for part in locs])
        if any(len(sub.inputs) != len(part) for sub, part in zip(p.subgraphs, locs)) or len(p.subgraphs[0].heads) != 1 \
                or any(len(sub.heads) != p.num_outputs for sub in p.subgraphs[1:]):
            raise GraphError(f"{self.name}: {p.num_args - 3} inputs and {p.num_outputs} outputs do not fit its subgraphs.")
        return p

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        shapes, found = list(inputs), list(outputs or [None] * p.num_outputs)[:p.num_outputs]
        for k, (sub, wires) in enumerate(zip(p.subgraphs, self.wiring(p))):
            heads = self.through(sub, wires, shapes)
            if k:
                found = [merge_shapes(self.name, f"result {i} of both branches", a, b)
                         for i, (a, b) in enumerate(zip(found, heads))]
        return shapes, [*found, *self.kept_shapes(p, (), 1)]

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        test, then, other = (CompiledSubgraph(sub, [ins[w] for w in wires], target, train)
                             for sub, wires in zip(p.subgraphs, self.wiring(p)))
        names = self.kept(p)

        def kernel(run: RunContext, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] | None = None) -> None:
            keep = dict(zip(names, outputs[p.num_outputs:]))
            save_random(run, keep, random)
            answer = [run.workspace(s.shape, s.dtype) for s in test.heads]
            BoundSubgraph(test, run).forward([inputs[w] for w in p.cond_input_locs], answer, random)
            yes = is_true(run, answer[0])
            compiled, wires = (then, p.then_input_locs) if yes else (other, p.else_input_locs)
            BoundSubgraph(compiled, run).forward([inputs[w] for w in wires], outputs[:p.num_outputs], advance(random, test.draws))
            if keep["count"] is not None:
                fill(run, keep["count"], int(yes))

        return kernel

    def backward_kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        shown, total = p.num_outputs, self.n_inputs(p)
        x = ins[shown:shown + total]
        test = CompiledSubgraph(p.subgraphs[0], [x[w] for w in p.cond_input_locs], target, train)
        then, other = (BackwardSubgraph(sub, wires, [x[w] for w in wires], dict(enumerate(reqs)), target, train)
                       for sub, wires in zip(p.subgraphs[1:], self.wiring(p)[1:]))
        names = self.kept(p)

        def kernel(run: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            keep = dict(zip(names, inputs[shown + total:]))
            _, grads = wanted_gradients(run, reqs, outputs)
            back = then if is_true(run, keep["count"]) else other
            bound = BoundBackward(back, run, inputs[shown:shown + total], grads)
            bound.round(0, (), inputs[:shown], advance(load_random(keep.get("random")), test.draws))

        return kernel


def is_true(run: Run, array: DeviceArray) -> bool:
    """Return whether the one element of a device array is not zero. On a GPU this waits for the stream."""
    return bool(run.to_host(array).item())


for _op in (Foreach, WhileLoop, Cond):
    register(_op())
