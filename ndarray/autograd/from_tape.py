"""The program of a tape: which kernels compute its derivatives, where they write, and which of them are one task.

It follows from the structure alone: operators, parameters, layouts, wiring, requests. Which values the arrays hold, and whether
such a tape was seen before, changes nothing; so a cached program gives the bits of a new one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from ...kernels.configs import float32_matmul
from ...kernels.declare.traced import TracedOp
from ...kernels.gpu.prepared import PreparedCall
from ...kernels.kernel import Kernel
from ...kernels.op import Gradient, Req, builtin
from ...kernels.ops.tensor.data_movement import fill
from ..core.chunk import Layout
from ..dispatch.copy import as_element
from ..dispatch.plan import backward_plan, plan_of
from .program import (
    BUFFER,
    FILLED,
    HEAD,
    NEW,
    NO_PARAMS,
    RESULT,
    SAVED,
    BackwardProgram,
    Call,
    Code,
    Item,
    Register,
    Step,
    only_computes,
)
from .tape import CallNode, Edge, GraphNode, Leaf, OpNode, TapeNode

Edges = Sequence[Edge | None] | None
Output = tuple[int, int]  # a node's place in the order of the walk, and the number of its output

_copying, _adding = builtin("_copy"), builtin("elemwise_add")


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
        plan = plan_of(_copying, NO_PARAMS, (layout,), False)
        step = Step("copy", plan.kernel, (source,), (target,), layout, at, plan)
        step.fusible = self.registers[source].kind != HEAD  # which may be on the memory of a gradient
        self.append(step)

    def sum(self, a: int, b: int, target: int, at: int) -> None:
        """Append target = a + b. target: a or a new register."""
        layout = self.registers[a].layout
        layout = layout.plain or layout
        if target == a:
            plan = plan_of(_copying, NO_PARAMS, (layout,), False)
            self.append(Step("elemwise_add", plan.kernel_for((Req.ADD,)), (b,), (a,), layout, at, plan, (Req.ADD,)))
        else:
            plan = plan_of(_adding, NO_PARAMS, (layout, layout), False)
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
