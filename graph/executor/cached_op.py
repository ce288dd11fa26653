"""CachedOp: a symbol called like an operator. It is compiled once for each signature of its inputs, and recorded as one node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...cache import Cache
from ...context import Context, current_context
from ...errors import ContextError, GraphError, describe
from ...fork import lock_free_in_child
from ...kernels.configs import float32_matmul
from ...kernels.op import Req, Spec
from ...ndarray import NDArray
from ...ndarray.autograd.tape import GraphNode, Leaf, any_taped, detached, state
from ...ndarray.core.array_core import allocate
from ...ndarray.dispatch.copy import filled
from ...ndarray.dispatch.invoke import run_plan
from ...ndarray.dispatch.plan import plan_of
from ...show import Shown
from ..options import current
from ..passes.device_placement import contexts_of
from ..program import specs_of
from ..symbol.node import split_variables
from .executor import Arena, Binding, Executor, Plans

if TYPE_CHECKING:
    from ..symbol.symbol import Symbol

_SIGNATURES = 256  # the most that are kept; then all are forgotten



class CachedOp(Shown):
    """A symbol as a function of arrays: `op(*arrays)` in the order of `symbol.list_inputs()`.

    sym:    the symbol.
    flags:  pairs of MXNet's names and values. `param_indices` are the inputs that are the same arrays in each call: they are
            read where they are, other arguments are copied. The other flags change nothing: plans are always static.

    While autograd records, a call is one node of its tape. Calls may be made before the backward of earlier ones: each keeps
    its inner values in memory of its own.
    """

    def __init__(self, sym: Symbol, flags: Iterable[tuple[str, Any]] = (), is_np_sym: bool = False):
        self._symbol, self._order = sym, sym._order()
        self._name = str(sym.name or "graph")
        states = {n.name for n in split_variables(self._order)[1]}
        self._names = [n.name for n in self._order if n.op is None]
        if len(set(self._names)) < len(self._names):
            twice = next(n for n in self._names if self._names.count(n) > 1)
            raise GraphError(f"CachedOp: two inputs are called {twice!r}. Names of inputs must differ.")
        fixed = set(dict(flags).get("param_indices") or ())
        self._fixed = [i in fixed or n in states for i, n in enumerate(self._names)]
        self._is_state = [n in states for n in self._names]
        self._calls: Cache[Any, _Signature] = Cache(_SIGNATURES)
        self._plans: Cache[Any, tuple[list[list[Spec]], Plans]] = Cache(_SIGNATURES)  # by shapes, dtypes and requests
        self._arenas: dict[Context, list[Arena]] = {}
        self._busy: set[int] = set()  # ids of arenas with values that a backward pass will read
        self._buffered: set[int] = set()  # parameters whose derivative was not simply written to their gradient once
        self._lock = lock_free_in_child()  # held while a call is pushed: another thread must not use its buffers
        self._monitor: tuple[Any, bool] | None = None

    def _facts(self) -> Mapping[str, Any]:
        return {"name": self._name, "inputs": self._names, "signatures": len(self._calls)}

    def __call__(self, *args: NDArray, out: NDArray | Sequence[NDArray] | None = None, default_ctx: Context | None = None) -> Any:
        """Return the outputs, one array or a list. out: arrays to write them to."""
        if len(args) != len(self._names):
            raise GraphError(f"CachedOp {self._name}: {len(args)} arrays for {len(self._names)} inputs: "
                             f"{', '.join(self._names)}.")
        records = state.recording and any_taped(args, self._name)
        key = self._key(args, records)
        signature = self._calls.get(key)
        if signature is None:
            ctx = args[0].ctx if args else default_ctx or current_context()
            signature = _Signature(self, args, ctx, records)
            for old in [k for k, s in list(self._calls.items()) if s.is_replaced_by(signature)]:
                self._calls.pop(old, None)
            self._calls[key] = signature
        with self._lock:
            outputs = signature.call(args)
        if out is not None:
            targets = [out] if isinstance(out, NDArray) else list(out)
            for o, target in zip(outputs, targets):
                o.copyto(target)
            outputs = targets
        return outputs[0] if len(outputs) == 1 else outputs

    def _key(self, args: Sequence[NDArray], records: bool) -> Any:
        """Return what a compiled graph depends on: mode, layouts, the fixed arrays, and where derivatives go."""
        arrays = [id(a) if fixed else a.layout for a, fixed in zip(args, self._fixed)]
        if records:
            arrays += [None if (e := a._grad_edge) is None else id(e[0]) if fixed and type(e[0]) is Leaf else True
                       for a, fixed in zip(args, self._fixed)]
        return state.training, float32_matmul.other(), records, *arrays

    def _free_arena(self, ctx: Context) -> Arena:
        """Return an arena that no pending backward pass reads."""
        arenas = self._arenas.setdefault(ctx, [])
        found = next((a for a in arenas if id(a) not in self._busy), None)
        if found is None:
            found = Arena(ctx)
            arenas.append(found)
        return found

    def _register_op_hook(self, callback: Any, monitor_all: bool = False) -> None:
        """Call callback(name, operator, array) for the outputs of each node, and with monitor_all for its inputs."""
        self._monitor = callback, monitor_all
        self._calls.clear()

    def operators(self) -> dict[str, str]:
        """Return the operator of each node by the names under which a monitor shows its inputs and outputs."""
        return {name: node.op.name for node in self._order if node.op is not None
                for name in (*node.output_names(), *(f"{node.name}_{n}" for n in node.input_names()))}

    def replay(self, args: Sequence[NDArray], train: bool) -> list[NDArray]:
        """Return the outputs computed operator by operator, and recorded while autograd records."""
        values: dict[int, list[NDArray]] = {}
        given = iter(args)
        for node in self._order:
            if node.op is None:
                values[id(node)] = [next(given)]
                continue
            inputs = [values[id(n)][i] for n, i in node.inputs]
            plan = plan_of(node.op, node.use, tuple([a.layout for a in inputs]), train)
            values[id(node)] = run_plan(plan, inputs, node.use)
        return [values[id(n)][i] for n, i in self._symbol._outputs]


class _Signature:
    """The compiled graph of one signature: executors for its calls, each with an arena and buffers of its own."""

    def __init__(self, op: CachedOp, args: Sequence[NDArray], ctx: Context, records: bool):
        self.op, self.ctx, self.records, self.train = op, ctx, records, state.training
        self.layouts = [a.layout for a in args]
        for name, a in zip(op._names, args):
            if a.ctx != ctx:
                raise ContextError(f"CachedOp {op._name}: {name} is {describe(a)}, the first input is on {ctx}. "
                                   f"Copy it with as_in_context({ctx}).")
        self.fixed = {i: a for i, (a, fixed) in enumerate(zip(args, op._fixed)) if fixed}
        edges = [a._grad_edge if records else None for a in args]
        self.wanted = [i for i, e in enumerate(edges) if e is not None]
        self.direct: dict[int, Leaf] = {i: e[0] for i, e in enumerate(edges) if e is not None and op._fixed[i]
                                        and isinstance(e[0], Leaf) and i not in op._buffered}
        reqs = {n: "null" if e is None else self.direct[i].req if i in self.direct else "write"
                for i, (n, e) in enumerate(zip(op._names, edges)) if not op._is_state[i]}
        options = current()
        specs, plans = op._plans.get_or_make(
            (*[a.layout.spec for a in args], ctx.is_gpu, *reqs.values(), options),
            lambda: (specs_of(op._order, {n: a.shape for n, a in zip(op._names, args)},
                              {n: a.layout.dtype for n, a in zip(op._names, args)}), Plans()))
        node_ctx = contexts_of(op._order, ctx, None)
        self.binding = Binding(op._symbol, specs, ctx, node_ctx, {}, {}, {}, reqs, options=options, plans=plans)
        self.executors: list[_Bound] = []

    def is_replaced_by(self, new: _Signature) -> bool:
        """Return True if new has other parameters or gradients on the same context: the old ones are not used any more."""
        if self.ctx != new.ctx:
            return False
        return (any(a is not new.fixed[i] for i, a in self.fixed.items())
                or any(i in new.direct and leaf is not new.direct[i] for i, leaf in self.direct.items()))

    def call(self, args: Sequence[NDArray]) -> list[NDArray]:
        bound = self._free()
        outputs = bound.executor.call(self.train, [(args[i], buffer) for i, buffer in bound.data])
        if self.records:
            self._record(bound, args, outputs)
        return outputs

    def _free(self) -> _Bound:
        """Return an executor in whose arena no pending backward pass has values."""
        busy = self.op._busy
        found = next((b for b in self.executors if id(b.executor.arena) not in busy), None)
        if found is None:
            found = _Bound(self, self.op._free_arena(self.ctx))
            self.executors.append(found)
        return found

    def _record(self, bound: _Bound, args: Sequence[NDArray], outputs: Sequence[NDArray]) -> None:
        op, arena = self.op, id(bound.executor.arena)
        kept = [(a if fixed else detached(a), a._grad_edge) for a, fixed in zip(args, op._fixed)]

        def again() -> list[NDArray]:
            inputs = []
            for (a, edge), is_state in zip(kept, op._is_state):
                a = a.copy() if is_state else detached(a)
                a._grad_edge = edge
                inputs.append(a)
            with float32_matmul.restored(self.binding.options.float32):
                return op.replay(inputs, self.train)

        op._busy.add(arena)
        node = GraphNode(op._name, [a._grad_edge for a in args], [o.layout for o in outputs], bound.backward, again,
                         lambda: op._busy.discard(arena), [args[i] for i in self.fixed if not op._is_state[i]])
        for i, o in enumerate(outputs):
            o._grad_edge = (node, i)


class _Bound:
    """An executor of a signature, with buffers for the inputs that differ from call to call.

    data:  (input number, its buffer).
    """

    def __init__(self, signature: _Signature, arena: Arena):
        self.signature = signature
        op = signature.op
        names, fixed = op._names, signature.fixed
        arrays = [fixed[i] if i in fixed else allocate(layout) for i, layout in enumerate(signature.layouts)]
        self.data = [(i, a) for i, a in enumerate(arrays) if i not in fixed]
        self.grads: dict[int, Any] = {i: signature.direct[i].grad if i in signature.direct else filled(signature.layouts[i], 0)
                      for i in signature.wanted}
        named = list(zip(names, arrays, op._is_state))
        binding = replace(signature.binding, args={n: a for n, a, is_state in named if not is_state},
                          auxes={n: a for n, a, is_state in named if is_state},
                          grads={names[i]: g for i, g in self.grads.items()})
        self.executor = Executor(binding, arena=arena)
        if op._monitor is not None:
            callback, monitor_all = op._monitor
            operators = op.operators()
            self.executor.set_monitor_callback(lambda name, array: callback(name, operators.get(name, ""), array), monitor_all)

    def backward(self, dys: list[NDArray], targets: Sequence[NDArray | None], reqs: Sequence[Req]) -> None:
        """Write the derivatives to targets, or add to them, as reqs say."""
        signature = self.signature
        moved: dict[int, NDArray] = {}  # the gradients of variables that are to stay, or to be added to
        for i, leaf in signature.direct.items():
            if targets[i] is not leaf.grad or reqs[i] != _REQS[leaf.req]:
                moved[i] = self.grads[i].copy()
                self.grads[i][:] = 0
        if moved:  # from now on these derivatives go through buffers
            signature.op._buffered.update(moved)
            signature.op._calls.clear()
        copied, rest = [], []  # buffers that need only be copied to their targets, and others
        for i, own in self.grads.items():
            target = targets[i]
            if target is not None and (i not in signature.direct or i in moved):
                simple = i not in moved and reqs[i] == Req.WRITE and own.layout.same(target.layout)
                (copied if simple else rest).append((i, own, target))
        self.executor.backward_to(dys, [(own, target) for _, own, target in copied])
        for i, own, target in rest:
            total = own if reqs[i] == Req.WRITE else own + (moved[i] if target is own else target)
            if total is not target:
                total.copyto(target)
        for i, array in moved.items():
            if targets[i] is not self.grads[i]:
                array.copyto(self.grads[i])


_REQS = {"write": Req.WRITE, "add": Req.ADD}
