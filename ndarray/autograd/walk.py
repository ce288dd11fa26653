"""walk: run backward along a tape without recording it, as the tasks of a BackwardProgram."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import numpy as np

from ...cache import Cache
from ...engine import current
from ...engine.failure import name_operator
from ...engine.gpu import cuda
from ...engine.memory import resource, storage
from ...engine.profiler import objects
from ...errors import MXNetError
from ...kernels.cpu.c_template import address
from ..core.array_core import ArrayCore, allocate
from ..core.chunk import Layout
from ..dispatch.copy import copy_to, filled
from .from_tape import Edges, build
from .program import BUFFER, FILLED, HEAD, NEW, SAVED, BackwardProgram, Call, Code, Item, Register
from .tape import CallNode, Edge, GraphNode, Leaf, OpNode, TapeNode

#: Programs by the structure of their tapes.
PROGRAMS: Cache[Any, BackwardProgram] = Cache(1024)
SHORT = 300_000  # nanoseconds: a task that once took at most so long runs in the calling thread; to wake another takes some 40 us
_number = attrgetter("number")
_NO_OPTIONS: dict[str, Any] = {}


def walk(heads: Sequence[Any], grads: Sequence[Any], retain: bool, wanted: list[Edge] | None) -> list[Any]:
    """Run backward from heads, the latest operation first; None for a derivative that is zero.

    grads:   the derivatives of the heads; None for ones.
    wanted:  edges whose derivatives to return; None: write to the buffers of the variables.
    """
    order, edges, places, signature = _structure(heads, grads, wanted)
    missing: frozenset[tuple[int, int]] = frozenset()

    apart = wanted is None and _reads_buffers(order)

    def program_now() -> BackwardProgram:
        key = (signature, missing, apart) if missing or apart else signature
        found = PROGRAMS.get(key)
        if found is None:
            at_heads, given, outputs = signature[:3]
            found = PROGRAMS[key] = build(order, edges, places, at_heads, given, outputs, missing, apart)
        return found

    program = program_now()
    codes = [item.code for item in program.items] if apart else program.codes(order)
    arrays: list[Any] = [None] * len(program.registers)
    k, calls = 0, 0
    while k < len(program.items):
        item = program.items[k]
        for at in item.checked:
            order[at].check()
        for r, kind, where in item.fetched:
            if kind == SAVED:
                arrays[r] = order[where[0]].saved[where[1]]  # type: ignore[attr-defined]
            elif kind == NEW:
                arrays[r] = allocate(where)
            elif kind == BUFFER:
                arrays[r] = order[where].grad  # type: ignore[attr-defined]
            elif kind == FILLED:
                arrays[r] = filled(*where)
            elif kind == HEAD:
                arrays[r] = grads[where]
        if item.call is not None:
            lost = _call(item.call, order, arrays, program.registers)
            if lost:
                missing |= {(calls, i) for i in lost}
                program = program_now()  # the same up to here
                arrays += [None] * (len(program.registers) - len(arrays))
                item, codes = program.items[k], [item.code for item in program.items]
            calls += 1
        elif item.steps:
            _push(item, codes[k], order, arrays)
        for r in item.gone:
            arrays[r] = None
        if not retain:
            for at in item.freed:
                order[at].free()
        k += 1
    for node in order if wanted is None else ():
        if isinstance(node, Leaf):
            node.fresh = True
    return [None if r is None else arrays[r] for r in program.results]


def _reads_buffers(order: Sequence[TapeNode]) -> bool:
    """Return True if a node keeps an array on the memory of a gradient, which this walk writes, or two gradients share memory.

    Such a node is checked when the gradients that come before its turn have been pushed.
    """
    variables = [node.grad._var or node.grad.chunk.var for node in order if isinstance(node, Leaf)]
    buffers = set(variables)
    if len(buffers) < len(variables):
        return True
    for node in order:
        if isinstance(node, OpNode):
            for a in node.saved:
                if a is not None and a._var in buffers:
                    return True
    return False


def _structure(heads: Sequence[Any], grads: Sequence[Any], wanted: list[Edge] | None
               ) -> tuple[list[TapeNode], list[Edges], dict[TapeNode, int], tuple[Any, ...]]:
    """Return the nodes that led to heads, the latest first, their inputs (None of a freed one), their places, and a key.

    The key is equal for tapes of equal structure.
    """
    stack: list[TapeNode] = [h._grad_edge[0] for h in heads]
    found: set[TapeNode] = set(stack)
    constants = False
    while stack:
        node = stack.pop()
        for edge in node.inputs:
            if edge is not None and edge[0] not in found:
                if edge[0].freed and edge[0].freed_at < node.number:
                    constants = True
                    continue
                found.add(edge[0])
                stack.append(edge[0])
    if constants and wanted is None and not any(isinstance(node, Leaf) or node.freed for node in found):
        raise MXNetError("backward: all that these arrays were computed from was freed by an earlier backward, and is constant "
                         "now. Pass retain_graph=True to the earlier one.")
    order = sorted(found, key=_number, reverse=True)
    places = {node: at for at, node in enumerate(order)}
    key: list[Any] = [tuple([(places[h._grad_edge[0]], h._grad_edge[1]) for h in heads]), tuple([g is not None for g in grads]),
                      None if wanted is None else tuple([(places.get(node, -1), i) for node, i in wanted])]
    edges: list[Edges] = []
    for node in order:
        if node.freed:
            edges.append(None)
            key.append(None)
            continue
        inputs = node.edges() if constants else node.inputs
        edges.append(inputs)
        key.append(node.key)
        for edge in inputs:
            key.append(None if edge is None else (places[edge[0]], edge[1]))
    return order, edges, places, tuple(key)


def _described(node: TapeNode, name: str) -> str:
    """Return the name of a step in a profile: the layer of its node, or the operator that was recorded, and the one that runs."""
    return f"{getattr(node, 'layer', '') or node.name} ({name if name.startswith('_backward') else f'_backward_{name}'})"


def _call(call: Call, order: Sequence[TapeNode], arrays: list[Any], registers: Sequence[Register]) -> list[int]:
    """Call a node's Python function. Return the inputs for which it returned no derivative."""
    node = order[call.node]
    if isinstance(node, GraphNode):
        node.run([arrays[d] for d in call.inputs], [arrays[r] if r >= 0 else None for r in call.outputs], call.reqs)
        return []
    assert isinstance(node, CallNode) and node.backward is not None
    lost = []
    for i, (r, g) in enumerate(zip(call.results, node.backward([arrays[d] for d in call.inputs]))):
        if r < 0:
            continue
        if g is None:
            lost.append(i)
        elif g.layout.same(registers[r].layout):
            arrays[r] = g
        else:
            arrays[r] = allocate(registers[r].layout)
            copy_to(g, arrays[r])
    return lost


class _Local:
    """An array of a task's own, on a GPU."""

    __slots__ = ("array", "block", "layout")

    def __init__(self, block: storage.Block, layout: Layout):
        self.block, self.layout = block, layout
        self.array: Any = None

    def device_array(self) -> Any:
        """As that of an ArrayCore."""
        if self.array is None:
            self.array = storage.view(self.block, 0, self.layout.shape, self.layout.dtype)
        return self.array


def _enqueue(rc: Any, code: Code, used: Sequence[ArrayCore], more: dict[int, dict[str, Any]]) -> tuple[()]:
    """Enqueue the steps of a task for a GPU: by addresses where they are prepared, else on device arrays."""
    arrays: list[Any] = [*used, *code.values]
    places = [0 if a is None else a._address or a.address() for a in arrays]
    for k, (kernel, ins, outs, every, made, dead, name) in enumerate(code.steps):
        for place, layout in made:
            block = rc.scratch(layout.nbytes)
            arrays[place], places[place] = _Local(block, layout), block.address
        options = more.get(k) or {}
        try:
            if kernel.at is None or "random" in options or not kernel.at(
                    rc, [places[i] for i in every], options.get("scalars", ())):
                kernel.run(rc, [arrays[i].device_array() for i in ins],
                           [arrays[i].device_array() if i >= 0 else None for i in outs], **options)
        except BaseException as e:
            name_operator(e, name)
            raise
        for place in dead:
            arrays[place] = None
    return ()


def _run(rc: Any, code: Code, used: list[ArrayCore], more: dict[int, dict[str, Any]], names: Sequence[str] = ()) -> None:
    """Run the steps of a task: in C by addresses, once that is possible, else on device arrays.

    names: of the steps in a profile, if one is made.
    """
    recorder = objects.active_recorder if names else None
    begun = (0, 0) if recorder is None else (get_ident(), perf_counter_ns())
    values: list[Any] = [a.device_array() for a in used]
    places: list[int] | None = None
    if code.places is not None and storage.access_checker is None:
        places = [a._address or a.address() for a in used]
        places = None if 0 in places else places + code.places
    values += code.values
    used.clear()  # what no later step reads is released as soon as it can be
    name, k, start = "", 0, 0
    try:
        for kernel, ins, outs, every, made, dead, name in code.steps:  # noqa: B007
            if recorder is not None:
                start = perf_counter_ns()
            for place, layout in made:
                make = np.empty if layout.tiny else rc.workspace
                values[place] = made_here = make(layout.shape, layout.dtype)
                if places is not None:
                    places[place] = address(made_here)
            options = more.get(k, _NO_OPTIONS)
            at = kernel.at
            if at is None or places is None or "random" in options or not at(
                    rc, [places[i] for i in every], options.get("scalars", ()), code.apart):
                kernel.run(rc, [values[i] for i in ins], [values[i] for i in outs], **options)
            if recorder is not None:
                recorder.part(names[k], begun, get_ident(), start, perf_counter_ns())
            for place in dead:
                values[place] = None
            k += 1
    except BaseException as e:
        name_operator(e, name)
        raise


def _push(item: Item, code: Code, order: Sequence[TapeNode], arrays: Sequence[Any]) -> None:
    """Run the steps of item here, if they are short and their arrays free; else push them as one task."""
    assert item.ctx is not None
    used: list[ArrayCore] = [arrays[r] for r in item.used]
    mutable = dict.fromkeys([arrays[r]._var or arrays[r].chunk.var for r in item.written])
    const = [v for v in dict.fromkeys([a._var or a.chunk.var for a in used]) if v not in mutable]
    more: dict[int, dict[str, Any]] = {}
    for k, step in code.more:
        options = more[k] = {}
        if step.scalars:
            node = order[step.node]
            assert isinstance(node, OpNode)
            options["scalars"] = node.p.scalars
        if step.plan is not None and step.plan.draws:
            options["random"] = resource.get_random(step.plan.draws, item.ctx)

    names = [] if objects.active_recorder is None or item.ctx.is_gpu else [
        _described(order[node], step[-1]) for node, step in zip(code.nodes, code.steps)]
    timed = not (item.small or item.short) and not item.alone and not item.ctx.is_gpu  # a GPU's kernels are only enqueued
    error: Exception | None = None

    def run(rc: Any) -> None:
        if error is not None:
            raise error
        start = perf_counter_ns() if timed else 0
        _run(rc, code, used, more, names)
        if timed and perf_counter_ns() - start <= SHORT:
            item.short = True  # from now on, as a segment of a graph

    on = current()
    inline = item.small or (item.short and on.is_idle())
    try:
        if item.alone:
            pass
        elif inline:
            if on.try_run_inline(_run, const, tuple(mutable), on.run_context(item.ctx), code, used, more, names):
                return
        elif item.ctx.is_gpu and cuda.is_real() and on.try_enqueue(item.ctx, item.name, _enqueue, const, tuple(mutable), code,
                                                                   used, more) is not None:
            return
    except Exception as e:  # the next wait raises it
        error = e
    on.push_sync(run, item.ctx, const, tuple(mutable), prop="inline" if inline else None, name=item.name,
                 cost_key=None if item.alone else item)
