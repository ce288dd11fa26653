"""walk_recorded: run backward along a tape with recorded operators, for derivatives of derivatives (create_graph=True)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from ...kernels.configs import float32_matmul
from ...kernels.declare.composite import Composite
from ...kernels.declare.traced import TracedOp
from ...kernels.op import Gradient
from ..core.arithmetic import array_op
from ..dispatch.copy import filled
from ..dispatch.invoke import backward_plan, invoke_backward
from .higher_order import backward_node, differentiable_gradient
from .tape import CallNode, Edge, GraphNode, Leaf, OpNode, TapeNode, detached


def walk_recorded(heads: Sequence[Any], grads: Sequence[Any], retain: bool, wanted: list[Edge]) -> list[Any]:
    """Run backward from heads, the latest operation first, and return the derivatives by wanted; None for one that is zero."""
    sums = _Sums()
    for h, g in zip(heads, grads):
        sums.add(h._grad_edge, filled(h.layout, 1) if g is None else g)
    keep: dict[Edge, Any] = dict.fromkeys(wanted)
    while sums.queue:
        _, node = heapq.heappop(sums.queue)
        dys = sums.found.pop(node)
        for i, dy in enumerate(dys):
            if (node, i) in keep:
                keep[node, i] = dy
        if isinstance(node, Leaf):
            continue
        node.check()
        if isinstance(node, GraphNode):  # its operators take its place
            for out, dy in zip(node.again(), dys):
                if dy is not None and out._grad_edge is not None:
                    sums.add(out._grad_edge, dy)
        elif isinstance(node, CallNode):
            _through_call(node, dys, sums)
        elif isinstance(node, OpNode) and node.gradient is not None:
            with float32_matmul.restored(node.plan.float32):
                _through_op(node, node.gradient, dys, sums)
        if not retain:
            node.free()
    return [keep[edge] for edge in wanted]


class _Sums:
    """The derivatives summed so far, by node and output: new arrays, which nothing changes."""

    def __init__(self) -> None:
        self.found: dict[TapeNode, list[Any]] = {}
        self.queue: list[tuple[int, TapeNode]] = []

    def add(self, edge: Edge, g: Any) -> None:
        """Add one more contribution; put the node into the queue at the first."""
        node, i = edge
        sums = self.found.get(node)
        if sums is None:
            sums = self.found[node] = [None] * len(node.layouts)
            heapq.heappush(self.queue, (-node.number, node))
        sums[i] = g if sums[i] is None else array_op("elemwise_add", sums[i], g)


def _through_op(node: OpNode, gradient: Gradient, dys: list[Any], sums: _Sums) -> None:
    inputs, edges = [], node.edges()
    for (kind, i), kept in zip(gradient.needs, node.saved):
        if kind == "dy":
            inputs.append(filled(node.layouts[i], 0) if dys[i] is None else dys[i])  # of an unused output
        else:
            a = detached(kept)
            a._grad_edge = edges[i] if kind == "x" else (node, i)
            inputs.append(a)
    outs = differentiable_gradient(node, gradient, inputs) or _run_recorded(node, gradient, inputs)
    for i, g in zip(gradient.gives, outs):
        edge = edges[i]
        if edge is not None:
            sums.add(edge, g)


def _run_recorded(node: OpNode, gradient: Gradient, inputs: list[Any]) -> list[Any]:
    """Run the operator of the derivative on inputs, and record it if any of them is recorded."""
    layouts = [node.in_layouts[i] for i in gradient.gives]
    outs = invoke_backward(gradient.op, node.p, inputs, layouts, node.train)
    if any(a._grad_edge is not None for a in inputs):
        recorded: TapeNode
        traced = isinstance(gradient.op, TracedOp) and gradient.op.expression(node.p, [a.layout.dtype for a in inputs])
        if traced or isinstance(gradient.op, Composite):
            plan = backward_plan(gradient.op, node.p, [a.layout for a in inputs], layouts, node.train)
            recorded = OpNode(plan, node.p, plan.gradient_of(node.p), inputs, outs)
        else:
            recorded = backward_node(node, gradient, inputs, outs)
        for i, o in enumerate(outs):
            o._grad_edge = (recorded, i)
    return outs


def _through_call(node: CallNode, dys: list[Any], sums: _Sums) -> None:
    assert node.backward is not None
    full = [dy if dy is not None else filled(layout, 0) for dy, layout in zip(dys, node.layouts)]
    for edge, g in zip(node.edges(), node.backward(full)):
        if edge is not None and g is not None:
            sums.add(edge, g)
