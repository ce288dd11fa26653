"""Compile a graph to a planned program: gradients, rematerialization, fusion and the memory plan, in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from ..errors import GraphError
from ..gc_pause import gc_paused
from ..kernels.cpu.c_template import begin
from ..kernels.op import Spec
from .memory.plan import MemoryPlan, apply_inplace, peak_bytes, plan_memory
from .options import Options
from .passes.channels_last import put_channels_last
from .passes.device_placement import insert_device_copies
from .passes.eliminate import eliminate_identities, eliminate_reshapes
from .passes.fuse import fuse
from .passes.fuse_attention import fuse_attention
from .passes.fuse_batch_norm import fuse_batch_norm
from .passes.fuse_epilogue import add_epilogues
from .passes.fuse_pairs import add_pairs
from .passes.gradient import add_gradients
from .passes.rematerialize import CostOf, mirror_candidates, moved_bytes, remat_cheap, remat_to_budget, rematerialize
from .program import Program, lower, naive_bytes
from .symbol.node import Entry, topological


@gc_paused()
def compile_program(heads: Sequence[Entry], specs: list[list[Spec]], train: bool, grad_req: Mapping[str, str], options: Options,
                    *, targets: tuple[str, ...] = ("cpu",), places: Mapping[str, int] | None = None, budget: int | None = None,
                    monitored: bool = False, capacity: Sequence[int] | None = None, backward: bool = False
                    ) -> tuple[Program, MemoryPlan]:
    """Return the program of a graph in its final form, and its plan. Raises GraphError if it does not fit the budget.

    specs:      of all outputs of all nodes, in topological order.
    train:      True to train: Dropout drops, BatchNorm measures.
    grad_req:   by argument; used in training, and with backward.
    places:     the number of each node's context, by name; 0 for a name that is missing.
    targets:    "cpu" or "gpu", by context.
    budget:     bytes that the plan may take; None: no limit.
    backward:   True for a backward pass outside training too: the derivative of what inference computes.
    capacity:   bytes of the memory of each output; None if it is not allocated yet.
    monitored:  True to keep the outputs of all nodes apart, for a monitor.
    """
    has_backward = train or backward
    program = lower(heads, specs, train, places, targets, keep=has_backward)
    _begin_c_files(program, has_backward)
    if options.layout and not monitored:
        program = put_channels_last(program, has_backward)
    if not train and not monitored:
        program = eliminate_identities(program)
    fused = options.fuse and not monitored
    if fused:
        program = fuse_attention(program, grad_req, has_backward)
    if has_backward:
        program = add_gradients(program, grad_req)
    program = insert_device_copies(program)
    naive = naive_bytes(program)

    @lru_cache(maxsize=2)  # the program chosen by its cost is merged once
    def merge(candidate: Program) -> Program:
        candidate = fuse(fuse_batch_norm(candidate) if fused else candidate, fused)
        if fused:
            candidate = add_epilogues(candidate)
            candidate = candidate if has_backward else add_pairs(candidate)
        return candidate if monitored else eliminate_reshapes(candidate)

    def cost_of(candidate: Program) -> tuple[int, int]:
        final = merge(candidate)
        return peak_bytes(final), moved_bytes(final)

    if has_backward and not monitored:
        program = _rematerialized(program, heads, options, budget, cost_of)
    program = merge(program)
    plan = plan_memory(program, share=options.plan and not monitored, naive=naive, capacity=capacity)
    apply_inplace(program, plan)
    if budget is not None and plan.planned_bytes > budget:
        raise GraphError(_too_large(program, plan, budget))
    return program, plan


def _begin_c_files(program: Program, train: bool) -> None:
    """Let the C files that the program will need be compiled in the background, while the passes work."""
    steps = [s for s in program.steps if program.targets[s.ctx] == "cpu"]
    begin(dict.fromkeys(f for s in steps for f in s.op.c_files(s.params, program.input_specs(s), train)))


def _rematerialized(program: Program, heads: Sequence[Entry], options: Options, budget: int | None, cost_of: CostOf) -> Program:
    attrs = {n.name: n.attrs for n in topological(n for n, _ in heads) if n.op is not None}
    mirrored = mirror_candidates(program, attrs, options.mirror)
    if mirrored:
        return rematerialize(program, mirrored)
    if options.recompute and options.plan:
        candidate = remat_cheap(program, cost_of)
        if budget is None or cost_of(candidate)[0] <= budget:
            return candidate
    return program if budget is None else remat_to_budget(program, budget, cost_of)


def _too_large(program: Program, plan: MemoryPlan, budget: int) -> str:
    def alive(i: int) -> list[int]:
        return [v for v, span in enumerate(plan.live) if span is not None and span[0] <= i <= span[1]]

    at = max(range(len(program.steps)), key=lambda i: sum(plan.sizes[v] for v in alive(i)))
    largest = sorted(alive(at), key=lambda v: -plan.sizes[v])[:3]
    return (f"memory_budget: {budget:,} bytes are {plan.planned_bytes - budget:,} too few: the smallest plan found takes "
            f"{plan.planned_bytes:,}, most of it at {program.steps[at].name}. Largest there: "
            f"{', '.join(f'{plan.names[v]} {plan.sizes[v]:,}' for v in largest)}. Give more, or bind a smaller batch.")
