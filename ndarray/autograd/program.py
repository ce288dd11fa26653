"""BackwardProgram: the kernels of a backward pass and the arrays between them, for all tapes of one structure.

`from_tape` makes it, and `walk` runs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ...cache import Cache
from ...context import Context
from ...kernels.cpu.c_template import address
from ...kernels.kernel import Kernel
from ...kernels.op import Op, Req
from ...kernels.params import Params
from ..core.chunk import Layout
from ..dispatch.copy import as_element
from ..dispatch.plan import INLINE_BYTES, DispatchPlan
from .tape import OpNode, TapeNode

_STEPS = 15  # the most steps of a task, as in a bound graph; a longer one would hold up other work and Ctrl-C
_SMALL = 2 * INLINE_BYTES  # bytes that a step touches if a task of such steps runs in the calling thread
_OFTEN = 3  # runs of a program from which on its elementwise steps are fused, which takes longer than to run it
_SMALL_STEPS = 60  # the most steps of such a task

#: Arrays that are the same in every run, by layout and value.
_CONSTANTS: Cache[Any, np.ndarray] = Cache(64)

NO_PARAMS = Params({})

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
        params = [order[s.node].p if s.of_node else NO_PARAMS for s in item.steps]  # type: ignore[attr-defined]
        used = set(item.used)
        local = [r for s in item.steps for r in s.outputs if r not in used]
        steps = fuse_steps(item.steps, params, [r.layout for r in self.registers], frozenset(local))
        return item.code if steps is None else Code(steps, item.used, self.registers, True)


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
