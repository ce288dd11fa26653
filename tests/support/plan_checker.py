"""An independent check of a memory plan: quadratic, obvious, and without the planner's ideas.

check_plan(program, plan) raises AssertionError naming the two values that share bytes while both are alive.
"""

import numpy as np
from tritium.kernels.op import Req


def alive(program):
    """Return {inner value: (first step that uses it, last step that uses it)}."""
    spans = {}
    for i, step in enumerate(program.steps):
        for v in [*step.inputs, *step.outputs]:
            if v >= 0 and program.values[v].kind == "inner":
                spans[v] = (spans[v][0] if v in spans else i, i)
    return spans


def may_take_place(program, early, late, i):
    """Return whether step i declares that it may write `late` over `early`, which it reads once."""
    step = program.steps[i]
    for a, b in step.op.inplace(step.params):
        if a < len(step.inputs) and b < len(step.outputs) and step.inputs[a] == early and step.outputs[b] == late:
            return step.inputs.count(early) == 1 and step.reqs[b] != Req.ADD
    return False


def check_hosted(program, plan, spans, v, o):
    """Check a value in an output's memory: it ends before the output is written, or where a step writes the output over it;
    and it shares bytes with another live value only where one is written over the other."""
    written = min(i for i, s in enumerate(program.steps) if o in s.outputs)
    low, high = plan.offsets[v], plan.offsets[v] + program.values[v].spec.nbytes
    assert program.values[o].kind == "output" and low >= 0 and low % 256 == 0 and high <= plan.capacity[o]
    assert plan.capacity[o] >= program.values[o].spec.nbytes
    assert program.values[v].ctx == program.values[o].ctx
    last = spans[v][1]
    ends = last < written or (last == written and low == 0 and may_take_place(program, v, o, written))
    assert ends, f"{v} is alive when {o} is written"
    for w in plan.in_output:
        apart = plan.offsets[w] >= high or plan.offsets[w] + program.values[w].spec.nbytes <= low
        if w != v and plan.in_output[w] == o and spans[v][0] <= spans[w][0] and not apart:
            meet = spans[w][0]
            assert spans[v][1] < meet or (spans[v][1] == meet and may_take_place(program, v, w, meet)), f"{v} and {w} in {o}"


def check_plan(program, plan):
    spans = alive(program)
    written = set()
    for i, step in enumerate(program.steps):
        for v in step.inputs:
            if program.values[v].kind == "inner":
                assert v in written, f"step {i} ({step.name}) reads {program.values[v].name} before anything wrote it"
        for v, req in zip(step.outputs, step.reqs):
            if v >= 0 and program.values[v].kind == "inner":
                assert v in written or req != Req.ADD, f"step {i} ({step.name}) adds to {program.values[v].name}, never written"
                assert v not in written or req == Req.ADD, f"step {i} ({step.name}) overwrites {program.values[v].name}"
                written.add(v)
    for v, o in plan.in_output.items():
        check_hosted(program, plan, spans, v, o)
    values = sorted(set(spans) - set(plan.in_output))
    first = np.array([spans[v][0] for v in values], int)
    last = np.array([spans[v][1] for v in values], int)
    low = np.array([plan.offsets[v] for v in values], int)
    high = low + np.array([program.values[v].spec.nbytes for v in values], int)
    assert all(o >= 0 and o % 256 == 0 for o in low), "an offset is missing or not aligned"
    assert all(h <= plan.arenas[program.values[v].ctx] for v, h in zip(values, high)), "a value ends outside the arena"
    for n, v in enumerate(values):
        clash = (first <= last[n]) & (first[n] <= last) & (low < high[n]) & (low[n] < high)
        for m in np.flatnonzero(clash):
            w = values[m]
            if w == v or program.values[v].ctx != program.values[w].ctx:
                continue
            early, late = (v, w) if spans[v][0] < spans[w][0] else (w, v)
            at = spans[late][0]
            ok = spans[early][1] == at and may_take_place(program, early, late, at) and plan.offsets[v] == plan.offsets[w]
            names = f"{program.values[v].name} and {program.values[w].name}"
            assert ok, (f"{names} share bytes {max(low[n], low[m])}..{min(high[n], high[m])} "
                        f"in steps {max(first[n], first[m])}..{min(last[n], last[m])}")
    assert plan.lower_bound_bytes <= plan.planned_bytes
