"""From a graph to a planned program: gradients, recomputation, fusion and the memory plan, in this order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import GraphError
from ..kernels.op import Spec
from .memory.plan import Plan, apply_inplace, peak_bytes, plan_memory
from .options import Options
from .passes.channels_last import turn_channels
from .passes.device_placement import place
from .passes.eliminate_identities import leave_out_idle
from .passes.eliminate_reshapes import read_through
from .passes.fuse import fuse
from .passes.fuse_batch_norm import join_norms
from .passes.fuse_epilogue import add_epilogues
from .passes.gradient import add_gradients
from .passes.rematerialize import fit, mirrored, moved_bytes, nearly_free, recompute
from .program import Program, lower, naive_bytes, without_collection
from .symbol.node import Entry, topological


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be compiled.

    specs:     of every output of every node, in topological order.
    train:     whether operators train: Dropout drops, BatchNorm measures.
    grad_req:  by argument; counts in training, and with backward.
    places:    the context of each node by name, as a number; 0 where none is given.
    targets:   "cpu" or "gpu", by context.
    budget:    bytes the plan may take; None: no limit.
    backward:  True to go back outside training too: the derivative of what inference computes.
    room:      bytes that the memory of each output has; None where it is still to be made.
    seen:      True to keep every node's outputs apart, for a monitor.
    """

    heads: Sequence[Entry]
    specs: list[list[Spec]]
    train: bool
    grad_req: Mapping[str, str]
    targets: tuple[str, ...] = ("cpu",)
    places: Mapping[str, int] | None = None
    budget: int | None = None
    seen: bool = False
    room: Sequence[int] | None = None
    backward: bool = False


def compile_program(request: Request, how: Options) -> tuple[Program, Plan]:
    """The program in its final form, and its plan. Raises GraphError if it does not fit the budget."""
    with without_collection():
        return _compile(request, how)


def _compile(request: Request, how: Options) -> tuple[Program, Plan]:
    goes_back = request.train or request.backward
    program = lower(request.heads, request.specs, request.train, request.places, request.targets, keep=goes_back)[0]
    if how.layout and not request.seen:
        program = turn_channels(program)
    if not request.train and not request.seen:
        program = leave_out_idle(program)
    if goes_back:
        program = add_gradients(program, request.grad_req)
    program = place(program)
    naive = naive_bytes(program)
    fused = how.fuse and not request.seen

    def merge(candidate: Program) -> Program:
        candidate = fuse(join_norms(candidate) if fused else candidate, fused)
        if fused:
            candidate = add_epilogues(candidate)
        return candidate if request.seen else read_through(candidate)

    def weigh(candidate: Program) -> tuple[int, int]:
        final = merge(candidate)
        return peak_bytes(final), moved_bytes(final)

    if goes_back and not request.seen:
        program = _recomputed(program, request, how, weigh)
    program = merge(program)
    plan = plan_memory(program, share=how.plan and not request.seen, naive=naive, room=request.room)
    apply_inplace(program, plan)
    if request.budget is not None and plan.planned_bytes > request.budget:
        raise GraphError(_too_large(program, plan, request.budget))
    return program, plan


def _recomputed(program: Program, request: Request, how: Options, weigh: Callable[[Program], tuple[int, int]]) -> Program:
    attrs = {n.name: n.attrs for n in topological(n for n, _ in request.heads) if n.op is not None}
    asked = mirrored(program, attrs, how.mirror)
    if asked:
        return recompute(program, asked)
    if how.recompute and how.plan:
        program_now = nearly_free(program, weigh)
        if request.budget is None or weigh(program_now)[0] <= request.budget:
            return program_now
    return program if request.budget is None else fit(program, request.budget, weigh)[0]


def _too_large(program: Program, plan: Plan, budget: int) -> str:
    at = max(range(len(program.steps)), key=lambda i: sum(
        plan.sizes[v] for v, span in enumerate(plan.live) if span is not None and span[0] <= i <= span[1]))
    alive = sorted((v for v, span in enumerate(plan.live) if span is not None and span[0] <= at <= span[1]),
                   key=lambda v: -plan.sizes[v])[:3]
    largest = ", ".join(f"{plan.names[v]} {plan.sizes[v]:,}" for v in alive)
    return (f"memory_budget: {budget:,} bytes are {plan.planned_bytes - budget:,} too few: the smallest plan found takes "
            f"{plan.planned_bytes:,}, most of it at {program.steps[at].name}. Largest there: {largest}. "
            f"Give more, or bind a smaller batch.")
