"""BackwardProgram: the kernels of a backward pass and the arrays between them, found once for all tapes of one structure.

It follows from the structure alone: operators, parameters, layouts, wiring, requests. Which values the arrays hold, and whether
such a tape was seen before, changes nothing; so a cached program gives the bits of a new one.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ...cache import Cache
from ...context import Context
from ...kernels.configs import float32_matmul
from ...kernels.cpu.c_template import address
from ...kernels.declare.traced import TracedOp
from ...kernels.gpu.prepared import PreparedCall
from ...kernels.kernel import Kernel
from ...kernels.op import Gradient, Op, Req, builtin
from ...kernels.ops.tensor.data_movement import fill
from ...kernels.params import Params
from ..core.chunk import Layout
from ..dispatch.copy import as_element
from ..dispatch.plan import INLINE_BYTES, DispatchPlan, backward_plan, plan_of
from .tape import CallNode, Edge, GraphNode, Leaf, OpNode, TapeNode

Edges = Sequence[Edge | None] | None
Output = tuple[int, int]  # a node's place in the order of the walk, and the number of its output

_STEPS = 15  # the most steps of a task, as in a bound graph; a longer one would hold up other work and Ctrl-C
_SMALL = 2 * INLINE_BYTES  # bytes that a step touches if a task of such steps runs in the calling thread
_OFTEN = 3  # runs of a program from which on its elementwise steps are fused, which takes longer than to run it
_SMALL_STEPS = 60  # the most steps of such a task

#: Arrays that are the same in every run, by layout and value.
_CONSTANTS: Cache[Any, np.ndarray] = Cache(64)

_copying, _adding = builtin("_copy"), builtin("elemwise_add")
_nothing = _adding.parse({})

#: Merge elementwise steps of a task (graph/fuse_tape.py). The root's `connect` sets it.
fuse_steps: Callable[[Sequence[Step], Sequence[Params], Sequence[Layout], Collection[int]], list[Step] | None] = lambda *_: None

SAVED, HEAD, BUFFER, RESULT, NEW, FILLED = range(6)


def only_computes(op: Op) -> bool:
    """Return False if kernels of op may block, or change what they read, as a user's may."""
    return op.nonblocking or op.capturable


class Register:
    """One array of the program.

    kind, where:  SAVED by (node, position) | the HEAD gradient of this number | the BUFFER of the variable at this node |
                  the RESULT (call, input) of a node's Python function | NEW: () of the program itself, for items FILLED
                  with a number, if nothing else would be left for a task to do.
    """

    __slots__ = ("kind", "layout", "where")

    def __init__(self, kind: int, layout: Layout, where: Any = ()):
        self.kind, self.layout, self.where = kind, layout, where


class Step:
    """One kernel call.

    inputs, outputs:  registers; -1 for an output that is not wanted. reqs: how it writes.
    plan:             of its operator; None for a copy, a fill, and fused steps.
    node, of_node:    the place of the node that it belongs to; True if its parameters are those of that node.
    scalars:          True if it takes run-time scalars.
    mutated:          the inputs that the kernel changes.
    inplace:          the inputs whose memory its one output may take.
    fusible:          False if it must run at its place, whatever its operator.
    value:            of a fill.
    """

    __slots__ = ("ctx", "fusible", "inplace", "inputs", "kernel", "mutated", "name", "node", "of_node", "outputs", "plan", "reqs",
                 "scalars", "small", "value")

    def __init__(self, name: str, kernel: Kernel, inputs: Sequence[int], outputs: Sequence[int], layout: Layout,
                 node: int, plan: DispatchPlan | None = None, reqs: Sequence[Req] = (Req.WRITE,), of: OpNode | None = None):
        self.value: float | None = None
        self.reqs, self.fusible = tuple(reqs), True
        self.name, self.kernel, self.inputs, self.outputs = name, kernel, tuple(inputs), tuple(outputs)
        self.node, self.plan, self.ctx = node, plan, layout.ctx
        self.of_node, self.scalars = of is not None, of is not None and bool(of.p.scalars)
        if plan is None:
            self.small = layout.target == "cpu" and layout.nbytes <= _SMALL
        elif not self.alone:
            self.small = plan.target == "cpu" and sum(a.nbytes for a in (*plan.ins, *plan.outs)) <= _SMALL
        else:
            self.small = plan.small
        self.mutated = () if plan is None else tuple([inputs[i] for i in plan.mutated])
        self.inplace = tuple([i for i, _ in plan.inplace]) if plan is not None and len(outputs) == 1 else ()

    @property
    def op(self) -> Op | None:
        """Its operator; None for a copy, a fill, and fused steps."""
        return None if self.plan is None else self.plan.op

    @property
    def alone(self) -> bool:
        """True if it may block, as a user's operator may."""
        return self.op is not None and not only_computes(self.op)


class Call:
    """The Python function of a node: of registers, one for each output of the node.

    results:  by input, of the arrays that it returns; -1 where none is used.
    outputs:  by input, of the arrays that it writes, as reqs say; -1 where none is wanted. Empty unless it is a GraphNode.
    """

    __slots__ = ("inputs", "node", "outputs", "reqs", "results")

    def __init__(self, node: int, inputs: list[int], results: Sequence[int], outputs: Sequence[int] = (),
                 reqs: Sequence[Req] = ()):
        self.node, self.inputs, self.results, self.outputs, self.reqs = node, inputs, results, outputs, reqs


class Item:
    """Steps that are one task, or a Call.

    small:           True if its arrays are small, so that the calling thread may run it. short: if a run of it was short.
    checked, freed:  the nodes to check before, and those that nothing needs after it.
    used, written:   the registers that are arrays of their own, and those of them that it writes. Others are local to the task.
    fetched:         (register, kind, where or layout) of those that are used for the first time.
    gone:            those that no later item uses.
    code:            the steps, ready to run.
    """

    __slots__ = ("call", "checked", "code", "ctx", "fetched", "freed", "gone", "short", "small", "steps", "used", "written")

    def __init__(self) -> None:
        self.call: Call | None = None
        self.ctx: Context | None = None
        self.steps: list[Step] = []
        self.small, self.short = True, False
        self.checked: list[int] = []
        self.freed: list[int] = []
        self.used: list[int] = []
        self.written: list[int] = []
        self.fetched: list[tuple[int, int, Any]] = []
        self.gone: list[int] = []
        self.code: Code

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.steps[0].name if len(self.steps) == 1 else f"backward of {len(self.steps)} operators"

    @property
    def alone(self) -> bool:
        """True of one step that may block."""
        return bool(self.steps) and self.steps[0].alone

    def takes(self, step: Step) -> bool:
        """Return True if step may join the task."""
        if self.call is not None or self.alone or (self.steps and (step.alone or step.ctx != self.ctx)):
            return False
        return len(self.steps) < (_SMALL_STEPS if self.small and step.small else _STEPS)


class BackwardProgram:
    """Items in order. results: the register of each wanted derivative; None where it is zero.

    Fused kernels have run-time scalars as constants, so they are kept for those of one run.
    """

    __slots__ = ("_fused", "_scalars", "_seen", "items", "registers", "results")

    def __init__(self, items: list[Item], registers: list[Register], results: list[int | None]):
        self.items, self.registers, self.results = items, registers, results
        self._scalars = sorted({s.node for item in items for s in item.steps if s.scalars})
        self._seen: tuple[Any, int] = None, 0  # the scalars of the last run, and how many runs in a row had them
        self._fused: tuple[Any, list[Code]] | None = None

    def codes(self, order: Sequence[TapeNode]) -> Sequence[Code]:
        """Return the code of each item: fused once the program runs often with the same run-time scalars.

        The bits are the same.
        """
        scalars = tuple([order[at].p.scalars for at in self._scalars])  # type: ignore[attr-defined]
        fused = self._fused
        if fused is not None and fused[0] == scalars:
            return fused[1]
        last, runs = self._seen  # read and written as one: several threads may run the program
        self._seen = scalars, runs + 1 if last == scalars else 1
        if last != scalars or runs + 1 < _OFTEN:
            return [item.code for item in self.items]
        codes = [self._fuse(item, order) for item in self.items]
        self._fused = scalars, codes
        return codes

    def _fuse(self, item: Item, order: Sequence[TapeNode]) -> Code:
        if item.ctx is None or item.ctx.is_gpu or any(self.registers[r].kind == RESULT for r in item.used):
            return item.code
        params = [order[s.node].p if s.of_node else _nothing for s in item.steps]  # type: ignore[attr-defined]
        used = set(item.used)
        local = [r for s in item.steps for r in s.outputs if r not in used]
        steps = fuse_steps(item.steps, params, [r.layout for r in self.registers], frozenset(local))
        return item.code if steps is None else Code(steps, item.used, self.registers, True)


def build(order: Sequence[TapeNode], edges: Sequence[Edges], places: dict[TapeNode, int], heads: Sequence[Output],
          given: Sequence[bool], wanted: Sequence[Output] | None, missing: frozenset[Output], apart: bool) -> BackwardProgram:
    """Return the program of a tape.

    order, edges:   the nodes, the latest first, and their inputs; None of a node that was freed before. places: of the nodes.
    given:          for each head whether its gradient is given; else it is ones.
    wanted:         outputs whose derivatives are results; None: derivatives go to the buffers of the variables.
    missing:        (call, input) of the derivatives that Python functions were seen not to return.
    apart:          True to make each node a task of its own.
    """
    return _Builder(order, edges, places, wanted is None, missing, apart).build(heads, given, wanted or ())


class _Builder:
    """The walk along the tape, with registers in place of arrays.

    slots:  by node and output [register or None, True if more may be added to it in place]: the derivatives summed so far.
    """

    def __init__(self, order: Sequence[TapeNode], edges: Sequence[Edges], places: dict[TapeNode, int], to_buffers: bool,
                 missing: frozenset[Output], apart: bool):
        self.apart = apart
        self.order, self.edges, self.places, self.to_buffers, self.missing = order, edges, places, to_buffers, missing
        self.registers: list[Register] = []
        self.external: dict[Any, int] = {}
        self.slots: dict[int, list[list[Any]]] = {}
        self.queue: list[int] = []
        self.items: list[Item] = []
        self.last: dict[int, int] = {}  # node -> the last item that needs it
        self.shared: set[int] = set()  # registers that are the derivatives of several outputs at once
        self.pending: dict[int, int] = {}  # register -> the last call that it waited behind as a derivative
        self.calls = 0

    def build(self, heads: Sequence[Output], given: Sequence[bool], wanted: Sequence[Output]) -> BackwardProgram:
        for k, (head, is_given) in enumerate(zip(heads, given)):
            layout = self.order[head[0]].layouts[head[1]]
            if is_given:  # a copy: it may be a variable's own buffer, which is written while it is still read
                g = self.new(layout)
                self.copy(self.outside(HEAD, layout, k), g, head[0])
            else:
                g = self.filled(layout, 1, head[0])
            self.add(head, g, owned=True, at=head[0])
        keep: dict[Output, int | None] = dict.fromkeys(wanted)
        while self.queue:
            at = heapq.heappop(self.queue)
            node = self.order[at]
            dys = [slot[0] for slot in self.slots.pop(at)]
            for i, dy in enumerate(dys):
                if (at, i) in keep and dy is not None:
                    keep[at, i] = self.own(dy, at)
            if isinstance(node, Leaf):
                continue
            self.visit(at)
            edges = self.edges[at]
            if edges is None:  # the check raises
                continue
            if any(dy is not None for dy in dys):
                if isinstance(node, GraphNode):
                    self.through_graph(at, node, edges, dys)
                elif isinstance(node, CallNode):
                    self.through_call(at, node, edges, dys)
                elif isinstance(node, OpNode) and node.gradient is not None:
                    self.through_op(at, node, edges, dys)
            if self.to_buffers:
                self.reach(at, edges)
        results = [keep[output] for output in wanted]
        self.finish(results)
        return BackwardProgram(self.items, self.registers, results)

    # ---- registers ----
    def new(self, layout: Layout) -> int:
        self.registers.append(Register(NEW, layout))
        return len(self.registers) - 1

    def outside(self, kind: int, layout: Layout, where: Any) -> int:
        found = self.external.get((kind, where))
        if found is None:
            self.registers.append(Register(kind, layout, where))
            found = self.external[kind, where] = len(self.registers) - 1
        return found

    # ---- items ----
    def item(self, at: int, step: Step | None = None) -> Item:
        """Return the item to go on with; a new one if the last does not take step."""
        if not self.items or self.items[-1].call is not None or (step is not None and not self.items[-1].takes(step)):
            self.items.append(Item())
        self.last[at] = len(self.items) - 1
        return self.items[-1]

    def visit(self, at: int) -> None:
        if self.apart:
            self.items.append(Item())
        self.item(at).checked.append(at)

    def append(self, step: Step) -> None:
        item = self.item(step.node, step)
        item.steps.append(step)
        item.ctx = step.ctx
        item.small = item.small and step.small

    def filled(self, layout: Layout, value: float, at: int) -> int:
        register = self.new(layout)
        self.fill(register, value, at)
        return register

    def fill(self, register: int, value: float, at: int) -> None:
        layout = self.registers[register].layout
        element = as_element(value, layout)
        kernel = Kernel(lambda rc, ins, outs: fill(rc, outs[0], element))
        if layout.target == "gpu":
            kernel.at = PreparedCall(kernel.run, (), (layout.spec,), (Req.WRITE,))
        step = Step("fill", kernel, (), (register,), layout, at)
        step.value = value
        self.append(step)

    def copy(self, source: int, target: int, at: int) -> None:
        layout = self.registers[target].layout
        layout = layout.plain or layout
        plan = plan_of(_copying, _nothing, (layout,), False)
        step = Step("copy", plan.kernel, (source,), (target,), layout, at, plan)
        step.fusible = self.registers[source].kind != HEAD  # which may be on the memory of a gradient
        self.append(step)

    def sum(self, a: int, b: int, target: int, at: int) -> None:
        """Append target = a + b. target: a or a new register."""
        layout = self.registers[a].layout
        layout = layout.plain or layout
        if target == a:
            plan = plan_of(_copying, _nothing, (layout,), False)
            self.append(Step("elemwise_add", plan.kernel_for((Req.ADD,)), (b,), (a,), layout, at, plan, (Req.ADD,)))
        else:
            plan = plan_of(_adding, _nothing, (layout, layout), False)
            self.append(Step(plan.name, plan.kernel, (a, b), (target,), layout, at, plan))

    # ---- sums ----
    def of(self, at: int) -> list[list[Any]]:
        """Return a node's slots, and put it into the queue when first asked for."""
        slots = self.slots.get(at)
        if slots is None:
            slots = self.slots[at] = [[None, False] for _ in self.order[at].layouts]
            heapq.heappush(self.queue, at)
        return slots

    def target(self, edge: Output) -> tuple[int | None, Req]:
        """Return the register that a kernel may write its contribution to, and how; (None, WRITE) if it needs a new one."""
        at, i = edge
        slot, node = self.of(at)[i], self.order[at]
        if slot[0] is None:
            if self.to_buffers and isinstance(node, Leaf):
                slot[:] = self.outside(BUFFER, node.layouts[0], at), True
                return slot[0], Req.ADD if node.req == "add" else Req.WRITE
            return None, Req.WRITE
        return (slot[0], Req.ADD) if slot[1] else (None, Req.WRITE)

    def add(self, edge: Output, g: int, *, owned: bool, at: int) -> None:
        """Add one more contribution. owned: the array g may be changed later."""
        slot = self.of(edge[0])[edge[1]]
        if slot[0] is None:
            buffer, req = self.target(edge)
            if buffer is None:
                slot[:] = g, owned
            elif req == Req.ADD:
                self.sum(buffer, g, buffer, at)
            else:
                self.copy(g, buffer, at)
        elif slot[1]:
            self.sum(slot[0], g, slot[0], at)
        else:
            total = self.new(self.registers[slot[0]].layout)
            self.sum(slot[0], g, total, at)
            slot[:] = total, True

    def edge(self, edge: Edge) -> Output:
        return self.places[edge[0]], edge[1]

    # ---- nodes ----
    def reach(self, at: int, edges: Sequence[Edge | None]) -> None:
        """Write zeros to the gradient of each variable among the inputs that gets no derivative."""
        for edge in edges:
            if edge is None:
                continue
            output = self.edge(edge)
            if self.of(output[0])[output[1]][0] is None and isinstance(edge[0], Leaf):
                buffer, req = self.target(output)
                if buffer is not None and req == Req.WRITE:
                    self.fill(buffer, 0, at)

    def through_op(self, at: int, node: OpNode, edges: Sequence[Edge | None], dys: list[int | None]) -> None:
        gradient = node.gradient
        assert gradient is not None
        edges = [edges[i] for i in gradient.gives]
        if all(edge is None for edge in edges):
            return
        inputs: list[int] = []
        for position, (kind, i) in enumerate(gradient.needs):
            dy = dys[i] if kind == "dy" else None
            if kind != "dy":
                dy = self.outside(SAVED, (node.in_layouts if kind == "x" else node.layouts)[i], (at, position))
            if dy is None:
                dy = self.filled(node.layouts[i], 0, at)
            inputs.append(dy if only_computes(gradient.op) else self.own(dy, at))
        layouts = [node.in_layouts[i] for i in gradient.gives]
        if self.passes_on(gradient, node, inputs, layouts):
            for edge, i in zip(edges, inputs * len(edges)):
                if edge is not None:
                    self.shared.add(i)
                    self.add(self.edge(edge), i, owned=False, at=at)
            return
        outs, reqs, later = self.targets(edges, layouts)
        with float32_matmul.restored(node.plan.float32):
            plan = backward_plan(gradient.op, node.p, [self.registers[r].layout for r in inputs], layouts, node.plan.train)
        self.append(Step(plan.name, plan.kernel_for(tuple(reqs)), inputs, outs, layouts[0], at, plan,
                         reqs, node))
        for output, contribution in later:
            self.add(output, contribution, owned=True, at=at)

    def targets(self, edges: Sequence[Edge | None], layouts: Sequence[Layout]
                ) -> tuple[list[int], list[Req], list[tuple[Output, int]]]:
        """Return the registers to which derivatives are written, how, and (edge, register) of those to be added afterwards."""
        outs: list[int] = []
        reqs: list[Req] = []
        later: list[tuple[Output, int]] = []
        for edge, layout in zip(edges, layouts):
            if edge is None:
                outs.append(-1)
                reqs.append(Req.NULL)
                continue
            output = self.edge(edge)
            target, req = self.target(output)
            if target in outs:  # x·x: two outputs for one sum; the second goes by itself
                target = None
            if target is None:
                target, req = self.new(layout), Req.WRITE
                later.append((output, target))
            outs.append(target)
            reqs.append(req)
        return outs, reqs, later

    def passes_on(self, gradient: Gradient, node: OpNode, inputs: Sequence[int], layouts: Sequence[Layout]) -> bool:
        """Return True if every derivative is that of the one output, as of a sum: no kernel needs to copy it."""
        op, layout = gradient.op, self.registers[inputs[0]].layout
        needs = [kind for kind, _ in gradient.needs]
        if not isinstance(op, TracedOp) or needs != ["dy"] or any(a is not layout for a in layouts):
            return False
        e = op.expression(node.p, [layout.dtype])
        return e is not None and all(root.op == "load" and root.dtype == layout.dtype for root in e.outputs)

    def own(self, register: int, at: int) -> int:
        """Return register, or a copy of it if it is several derivatives at once, for code that may change it."""
        if register not in self.shared:
            return register
        copy = self.new(self.registers[register].layout)
        self.copy(register, copy, at)
        return copy

    def through_call(self, at: int, node: CallNode, edges: Sequence[Edge | None], dys: list[int | None]) -> None:
        full = [self.filled(layout, 0, at) if dy is None else self.own(dy, at) for dy, layout in zip(dys, node.layouts)]
        item, number = Item(), self.calls
        self.calls += 1
        results = [-1 if edge is None else self.outside(RESULT, edge[0].layouts[edge[1]], (number, i))
                   for i, edge in enumerate(edges)]
        item.call = Call(at, full, results)
        self.items.append(item)
        self.last[at] = len(self.items) - 1
        # what the call returns decides how the walk goes on, so that other programs may go on from here with these arrays
        self.pending.update(dict.fromkeys([s[0] for slots in self.slots.values() for s in slots if s[0] is not None],
                                          len(self.items)))
        for i, edge in enumerate(edges):
            if edge is not None and (number, i) not in self.missing:
                self.add(self.edge(edge), results[i], owned=False, at=at)

    def through_graph(self, at: int, node: GraphNode, edges: Sequence[Edge | None], dys: list[int | None]) -> None:
        full = [self.filled(layout, 0, at) if dy is None else self.own(dy, at) for dy, layout in zip(dys, node.layouts)]
        layouts = [node.layouts[0] if edge is None else edge[0].layouts[edge[1]] for edge in edges]
        outs, reqs, later = self.targets(edges, layouts)
        item = Item()
        self.calls += 1
        item.call = Call(at, full, (), outs, reqs)
        self.items.append(item)
        self.last[at] = len(self.items) - 1
        for output, contribution in later:
            self.add(output, contribution, owned=True, at=at)

    # ---- the end ----
    def finish(self, results: Sequence[int | None]) -> None:
        """Decide which registers are local to a task, and number what each task uses."""
        uses: dict[int, list[int]] = {}
        for k, item in enumerate(self.items):
            calls = (item.call,) if item.call is not None else item.steps
            touched = [r for s in calls for r in (*s.inputs, *s.outputs) if r >= 0]
            for r in dict.fromkeys(touched):
                uses.setdefault(r, []).append(k)
        kept = {r for r in results if r is not None}
        for r, places in uses.items():
            register = self.registers[r]
            alone = any(self.items[k].call is not None or self.items[k].alone for k in places)
            if register.kind == NEW and len(places) == 1 and not alone and r not in kept and r not in self.pending:
                continue
            for k in places:
                self.items[k].used.append(r)
            if register.kind != RESULT:
                where = register.layout if register.kind == NEW else register.where
                self.items[places[0]].fetched.append((r, register.kind, where))
            if r not in kept and places[-1] >= self.pending.get(r, 0):
                self.items[places[-1]].gone.append(r)
        for at, k in self.last.items():
            self.items[k].freed.append(at)
        for item in self.items:
            self.fill_at_once(item)
            written = {r for s in item.steps for r in (*s.outputs, *s.mutated)}
            item.written = [r for r in item.used if r in written]
            item.code = Code(item.steps, item.used, self.registers, not self.apart)

    def fill_at_once(self, item: Item) -> None:
        """Take the steps out of an item that only fills new tiny arrays: no task knows of them yet, so the walk can do that."""
        values = {s.outputs[0]: s.value for s in item.steps}
        new = {r for r, kind, _ in item.fetched if kind == NEW and self.registers[r].layout.tiny}
        if values and None not in values.values() and new.issuperset(values):
            item.steps = []
            item.fetched = [(r, FILLED, (where, values[r])) if r in values else (r, kind, where)
                            for r, kind, where in item.fetched]


class Code:
    """Steps with places instead of registers: first the arrays that a task gets, then its locals, at last None: no array.

    nodes:   the node of each step.
    steps:   (kernel, inputs, outputs, all of them, what to allocate before, what to drop after, name) of each.
    more:    (number in steps, step) of those that take run-time scalars or random numbers.
    values:  of the locals and the last place: None, or an array that is the same in every run.
    places:  the addresses of those arrays, and zeros; None on a GPU.
    apart:   True if what steps write lies apart from all that they read.
    """

    __slots__ = ("apart", "more", "nodes", "places", "steps", "values")

    def __init__(self, steps: Sequence[Step], used: Sequence[int], registers: Sequence[Register], apart: bool):
        place = {r: k for k, r in enumerate(used)}
        given, n_places = frozenset(used), len(used)
        self.apart = apart and not any(s.mutated for s in steps) and not any(registers[r].kind in (HEAD, RESULT) for r in used)
        last = {r: s for s in steps for r in (*s.inputs, *s.outputs)}
        writers = Counter([r for s in steps for r in s.outputs])
        self.steps: list[tuple[Any, ...]] = []
        self.more: list[tuple[int, Step]] = []
        self.nodes: list[int] = []
        self.values: list[Any] = []
        constant: set[int] = set()
        for s in steps:
            if s.value is not None and writers[r := s.outputs[0]] == 1 and r not in given and registers[r].layout.tiny:
                place[r], n_places = n_places, n_places + 1
                self.values.append(_constant(registers[r].layout, s.value))
                constant.add(r)
                continue
            kernel, made = s.kernel, []
            dead = [r for r in dict.fromkeys((*s.inputs, *s.outputs)) if r >= 0 and last[r] is s and r not in constant]
            for r in s.outputs:
                if r < 0 or r in place:
                    continue
                over = _taken_over(s, r, [d for d in dead if d not in given], registers)
                if over is None:
                    place[r], n_places = n_places, n_places + 1
                    self.values.append(None)
                    made.append((place[r], registers[r].layout))
                else:  # its memory becomes the output's
                    assert s.plan is not None
                    place[r], kernel = place[over], s.plan.kernel_for((Req.INPLACE,))
                    dead.remove(over)
            if s.scalars or (s.plan is not None and s.plan.draws):
                self.more.append((len(self.steps), s))
            ins, outs = tuple([place[r] for r in s.inputs]), tuple([place.get(r, -1) for r in s.outputs])
            self.steps.append((kernel, ins, outs, (*ins, *outs), tuple(made), tuple([place[r] for r in dead]), s.name))
            self.nodes.append(s.node)
        self.values.append(None)
        on_gpu = any(s.ctx.is_gpu for s in steps)
        self.places = None if on_gpu else [0 if a is None else address(a) for a in self.values]


def _constant(layout: Layout, value: float) -> np.ndarray:
    """Return a tiny array with every element value, which nobody writes."""

    def make() -> np.ndarray:
        array = np.full(layout.shape, as_element(value, layout), layout.dtype)
        array.flags.writeable = False
        return array

    return _CONSTANTS.get_or_make((layout, value), make)


def _taken_over(step: Step, output: int, free: Collection[int], registers: Sequence[Register]) -> int | None:
    """Return the register of `free`, read for the last time by step, whose memory its output takes; None if there is none."""
    for i in step.inplace:
        r = step.inputs[i] if i < len(step.inputs) else -1
        if r in free and step.inputs.count(r) == 1 and registers[r].layout.same(registers[output].layout):
            return r
    return None
