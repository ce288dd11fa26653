"""Model parallelism: steps on several contexts, with copies between them.

After this pass each step reads and writes values of its own context only; the copies are the exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...context import Context
from ...errors import ContextError, nearest
from ...kernels.op import Op, Req
from ...kernels.params import Params
from ..program import INNER, Program, Step
from ..symbol.node import Node
from .gradient import copy_step

_NONE = Params({})


class CrossDeviceCopyOp(Op):
    """Copy an array to another context. The executor copies; the operator has no kernel."""

    name = "_cross_device_copy"
    input_names = ("data",)


cross_device_copy = CrossDeviceCopyOp()


def contexts_of(order: Sequence[Node], default: Context, group2ctx: Mapping[str, Context] | None) -> dict[str, Context]:
    """Return the context of each node by name: that of its `ctx_group`, or default. A state lies where its operator runs.

    Raises ContextError for a group that group2ctx does not name.
    """
    contexts: dict[str, Context] = {}
    for node in order:
        group = node.attrs.get("__ctx_group__")
        if not group2ctx or group is None:
            contexts[node.name] = default
        elif group in group2ctx:
            contexts[node.name] = group2ctx[group]
        else:
            raise ContextError(f"bind: {node.name} is in ctx_group {group!r}, which group2ctx does not name."
                               f"{nearest(group, group2ctx)} Known: {', '.join(group2ctx)}.")
    for node in order:
        for state, _ in node.auxiliary_inputs():
            contexts[state.name] = contexts[node.name]
    return contexts


def insert_device_copies(program: Program) -> Program:
    """Copy values to the contexts of the steps that read or write them."""
    if len(program.targets) < 2:
        return program
    new = replace(program, values=list(program.values))
    copies: dict[tuple[int, int], int] = {}  # (value, context) -> its copy there

    def copy_across(source: int, target: int) -> Step:
        name, ctx = f"{new.values[source].name}_to_{new.values[target].ctx}", new.values[target].ctx
        return Step(cross_device_copy, _NONE, name, (source,), (target,), (Req.WRITE,), ctx=ctx)

    def emit(_: int, step: Step) -> list[Step]:
        before, after = [], []
        inputs, outputs, reqs = list(step.inputs), list(step.outputs), list(step.reqs)
        for k, v in enumerate(step.inputs):
            value = program.values[v]
            if value.ctx != step.ctx:
                if (v, step.ctx) not in copies:
                    copies[v, step.ctx] = new.add_value(value.spec, INNER, f"{value.name}_on_{step.ctx}", step.ctx)
                    before.append(copy_across(v, copies[v, step.ctx]))
                inputs[k] = copies[v, step.ctx]
        for k, (v, req) in enumerate(zip(step.outputs, step.reqs)):
            value = program.values[v]
            if v >= 0 and value.ctx != step.ctx:
                outputs[k] = new.add_value(value.spec, INNER, f"{value.name}_from_{step.ctx}", step.ctx)
                reqs[k] = Req.WRITE
                if req == Req.ADD:
                    arrived = new.add_value(value.spec, INNER, f"{value.name}_arrived", value.ctx)
                    after += [copy_across(outputs[k], arrived), copy_step(f"{value.name}_add", arrived, v, value.ctx, Req.ADD)]
                else:
                    after.append(copy_across(outputs[k], v))
        return [*before, replace(step, inputs=tuple(inputs), outputs=tuple(outputs), reqs=tuple(reqs)), *after]

    return new.rewrite(emit)
