"""Model parallelism: steps on several contexts, with copies put in where a value is needed elsewhere.

After this pass every step reads and writes values of its own context only, but for the copies themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from ...context import Context
from ...errors import ContextError, nearest
from ...kernels.op import Op, Req
from ...kernels.params import Params
from ..program import INNER, Program, Step
from ..symbol.node import Node
from .gradient import copy_op


class CrossDeviceCopyOp(Op):
    """Copies its input to another context. It has no kernel: the executor copies the array."""

    name = "_cross_device_copy"
    hidden = True
    input_names = ("data",)


@cache
def cross_device_copy() -> tuple[CrossDeviceCopyOp, Params]:
    """The one CrossDeviceCopyOp, and its parameters."""
    return CrossDeviceCopyOp(), Params({})


def contexts_of(order: Sequence[Node], default: Context, group2ctx: Mapping[str, Context] | None) -> dict[str, Context]:
    """The context of every node by name: that of its `ctx_group`, else default. States lie where their operator runs.

    Raises ContextError for a group that group2ctx does not name.
    """
    found: dict[str, Context] = {}
    for node in order:
        group = node.attrs.get("__ctx_group__")
        if not group2ctx or group is None:
            found[node.name] = default
        elif group in group2ctx:
            found[node.name] = group2ctx[group]
        else:
            raise ContextError(f"bind: {node.name} is in ctx_group {group!r}, which group2ctx does not name."
                               f"{nearest(group, group2ctx)} Known: {', '.join(group2ctx)}.")
    for node in order:
        for state, _ in node.auxiliary_inputs():
            found[state.name] = found[node.name]
    return found


def insert_device_copies(program: Program) -> Program:
    """The program with copies between contexts. The given program is not changed."""
    if len(program.targets) < 2:
        return program
    new = program.without_steps()
    new.values = list(program.values)
    copies: dict[tuple[int, int], int] = {}  # (value, context) -> its copy there
    op, params = cross_device_copy()

    def cross(source: int, target: int) -> None:
        name = f"{new.values[source].name}_to_{new.values[target].ctx}"
        new.steps.append(Step(op, params, name, (source,), (target,), (Req.WRITE,), ctx=new.values[target].ctx))

    def here(v: int, ctx: int) -> int:
        value = program.values[v]
        if value.ctx == ctx:
            return v
        if (v, ctx) not in copies:
            copies[v, ctx] = new.add_value(value.spec, INNER, f"{value.name}_on_{ctx}", ctx)
            cross(v, copies[v, ctx])
        return copies[v, ctx]

    for i, step in enumerate(program.steps):
        if i == program.n_forward:
            new.n_forward = len(new.steps)
        inputs = tuple(here(v, step.ctx) for v in step.inputs)
        outputs, reqs, behind = list(step.outputs), list(step.reqs), []
        for k, (v, req) in enumerate(zip(step.outputs, step.reqs)):
            if v >= 0 and program.values[v].ctx != step.ctx:
                outputs[k] = new.add_value(program.values[v].spec, INNER, f"{program.values[v].name}_from_{step.ctx}", step.ctx)
                reqs[k] = Req.WRITE
                behind.append((outputs[k], v, req))
        new.steps.append(replace(step, inputs=inputs, outputs=tuple(outputs), reqs=tuple(reqs)))
        for source, v, req in behind:
            value = program.values[v]
            if req != Req.ADD:
                cross(source, v)
                continue
            arrived = new.add_value(value.spec, INNER, f"{value.name}_arrived", value.ctx)
            cross(source, arrived)
            add, how = copy_op()
            new.steps.append(Step(add, how, f"{value.name}_add", (arrived,), (v,), (Req.ADD,), ctx=value.ctx))
    if program.n_forward == len(program.steps):
        new.n_forward = len(new.steps)
    return new
