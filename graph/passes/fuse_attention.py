"""Attention: the product of queries and keys, softmax, and the product with values become one step on a GPU.

The scores and the weights then are nowhere in memory. MXNet's interleaved operators are recognised, and `batch_dot`; between the
product and the softmax a scale and a mask that is added may stand. It is done before derivatives are added, so that theirs are
those of the one operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...kernels import op as ops
from ...kernels.op import Req, Spec
from ..program import INNER, Program, Step

#: The product with values -> the product that must begin it, and the fused operator.
_PRODUCTS = {
    "_contrib_interleaved_matmul_selfatt_valatt": ("_contrib_interleaved_matmul_selfatt_qk", "_attention_selfatt"),
    "_contrib_interleaved_matmul_encdec_valatt": ("_contrib_interleaved_matmul_encdec_qk", "_attention_encdec"),
    "batch_dot": ("batch_dot", "_contrib_attention"),
}
_SUMS = ("elemwise_add", "broadcast_add")


@dataclass(frozen=True)
class Attention:
    """Steps that are attention. steps: their numbers, the product with values last; inputs: values, the mask last, if any."""

    op: str
    steps: tuple[int, ...]
    inputs: tuple[int, ...]
    params: tuple[tuple[str, object], ...]


def fuse_attention(program: Program, grad_req: Mapping[str, str], has_backward: bool) -> Program:
    """Put fused operators in the place of attention. grad_req: by argument; read where derivatives follow."""
    found, refusals = find_attention(program, grad_req, has_backward)
    if not found and not refusals:
        return program
    made = replace(program, values=list(program.values))
    last = {a.steps[-1]: _fused(made, a, has_backward) for a in found}
    gone = {i for a in found for i in a.steps}

    def emit(i: int, step: Step) -> list[Step]:
        if i in refusals:
            return [step.with_refusals({**step.refusals, step.inputs[_weights_input(step)]: refusals[i]})]
        return [last[i]] if i in last else [] if i in gone else [step]

    return made.rewrite(emit)


def find_attention(program: Program, grad_req: Mapping[str, str], has_backward: bool) -> tuple[list[Attention], dict[int, str]]:
    """Return all attention in a forward program, and the reasons why products of a softmax's result are none, by step."""
    if not any(s.op.name == "softmax" and program.targets[s.ctx] == "gpu" for s in program.steps):
        return [], {}
    search = _Search(program, grad_req, has_backward)
    found: list[Attention] = []
    refusals: dict[int, str] = {}
    for i, step in enumerate(program.steps):
        if step.op.name in _PRODUCTS and program.targets[step.ctx] == "gpu":
            result = search.attention(i)
            if isinstance(result, Attention):
                found.append(result)
            elif result:
                refusals[i] = f"they are not one attention: {result}"
    return found, refusals


def _weights_input(step: Step) -> int:
    return 0 if step.op.name == "batch_dot" else 1


class _Search:
    """The steps of a program by what they write, and the values that have a derivative."""

    def __init__(self, program: Program, grad_req: Mapping[str, str], has_backward: bool):
        self.program = program
        self.writer = {v: i for i, s in enumerate(program.steps) for v in s.outputs if v >= 0}
        self.reads = Counter(v for s in program.steps for v in s.inputs)
        self.differentiated: set[int] = set()
        if has_backward:
            self.differentiated.update(v for name, v in program.args.items() if grad_req.get(name, "null") != "null")
            for s in program.steps:
                derivative = s.op.gradient_of(s.params)
                if derivative is not None and any(s.inputs[i] in self.differentiated for i in derivative.gives):
                    self.differentiated.update(v for v in s.outputs if v >= 0)

    def attention(self, last: int) -> Attention | str:
        """Return the attention that ends in a product; the reason if it is none although it reads a softmax, else ""."""
        program, product = self.program, self.program.steps[last]
        weights = product.inputs[_weights_input(product)]
        steps = [last]
        softmax = self._before(weights)
        if softmax is None or softmax.op.name != "softmax":
            return ""
        steps.append(self.writer[weights])
        scores = softmax.inputs[0]
        spec = program.values[scores].spec
        reason = self._alone(weights, softmax, product) or _plain(softmax, spec, program.values[weights].spec)
        if reason:
            return reason
        scale, mask = 1 / (softmax.params.get("temperature") or 1.0), -1
        begin, operator = _PRODUCTS[product.op.name]
        while True:
            step = self._before(scores)
            if step is None:
                return "no product of queries and keys comes before the softmax"
            reason = self._alone(scores, step, product)
            if reason:
                return reason
            steps.append(self.writer[scores])
            if step.op.name == begin:
                break
            if step.op.name in ("_mul_scalar", "_div_scalar"):
                number = float(step.params["scalar"])
                if step.op.name == "_div_scalar" and not number:
                    return f"{step.name} divides by zero"
                scale, scores = scale * number if step.op.name == "_mul_scalar" else scale / number, step.inputs[0]
            elif step.op.role in _SUMS and mask < 0 and scale == 1.0:
                inner = [k for k, v in enumerate(step.inputs) if self._leads_to(v, begin)]
                if len(inner) != 1 or program.values[step.inputs[inner[0]]].spec != spec:
                    return f"{step.name} is not the sum of scores and a mask that broadcasts to them"
                scores, mask = step.inputs[inner[0]], step.inputs[1 - inner[0]]
                if mask in self.differentiated:
                    return f"the mask {program.values[mask].name} has a derivative"
            else:
                return f"{step.name} ({step.op.name}) is neither a scale nor a mask that is added to the scaled scores"
        return self._whole(operator, self.program.steps[steps[-1]], product, tuple(steps[::-1]), mask, scale)

    def _whole(self, operator: str, first: Step, product: Step, steps: tuple[int, ...], mask: int, scale: float
               ) -> Attention | str:
        """Return the attention of a first and a last product, or the reason why they are none."""
        shapes = [self.program.values[v].spec.shape for v in first.inputs]
        params: list[tuple[str, object]] = []
        if operator == "_contrib_attention":
            if first.params["transpose_a"] or not first.params["transpose_b"] or product.params["transpose_a"] or \
                    product.params["transpose_b"] or len(shapes[0]) > 4:
                return "the rows of queries, keys or values lie along columns"
            inputs = (*first.inputs, product.inputs[1])
        else:
            if first.params["heads"] != product.params["heads"] or first.inputs[-1] != product.inputs[0]:
                return f"{first.name} and {product.name} read different arrays, or other heads"
            inputs = first.inputs
            params.append(("heads", first.params["heads"]))
            depth = shapes[0][2] // (first.params["heads"] * (3 if len(inputs) == 1 else 1))
            scale = scale / max(depth, 1) ** 0.5
        if mask >= 0:
            inputs = (*inputs, mask)
            params.append(("use_mask", True))
        changed = {v for s in self.program.steps[steps[0]:steps[-1]] for v in s.states}
        if not changed.isdisjoint(inputs):
            return "a state that it reads is changed in between"
        return Attention(operator, steps, inputs, (*params, ("scale", scale)))

    def _before(self, v: int) -> Step | None:
        at = self.writer.get(v)
        return None if at is None else self.program.steps[at]

    def _alone(self, v: int, step: Step, product: Step) -> str:
        """Return the reason why a value cannot vanish; "" if it can."""
        value = self.program.values[v]
        if value.kind != INNER or self.reads[v] != 1:
            return f"{value.name} is needed elsewhere, too"
        return f"{step.name} runs on another context" if step.ctx != product.ctx else ""

    def _leads_to(self, v: int, begin: str) -> bool:
        """Return whether a value is a product of queries and keys, scaled or not."""
        step = self._before(v)
        while step is not None and step.op.name in ("_mul_scalar", "_div_scalar"):
            step = self._before(step.inputs[0])
        return step is not None and step.op.name == begin


def _plain(softmax: Step, scores: Spec, weights: Spec) -> str:
    """Return the reason why a softmax is not one along the keys; "" if it is."""
    p = softmax.params
    if p["axis"] not in (-1, len(scores.shape) - 1) or p["use_length"] or weights.dtype != scores.dtype:
        return f"{softmax.name} is not a softmax of all the keys in the dtype of the scores"
    return ""


def _fused(program: Program, found: Attention, keep: bool) -> Step:
    """Return the step of an attention; appends the value that its derivative needs to the program."""
    op, product = ops.builtin(found.op), program.steps[found.steps[-1]]
    params = op.parse(dict(found.params))
    specs = program.value_specs(found.inputs)
    _, shapes = op.infer_shape(params, [s.shape for s in specs])
    _, dtypes = op.infer_dtype(params, [s.dtype for s in specs])
    assert shapes[0] == program.values[product.outputs[0]].spec.shape, (found, shapes)
    assert shapes[1] is not None and dtypes[1] is not None
    hidden = Spec(shapes[1], dtypes[1])
    sums = program.add_value(hidden, INNER, f"{product.name}_log_sum_exp", product.ctx) if keep else -1
    members = tuple(name for i in found.steps for name in program.steps[i].operators)
    return Step(op, params, f"{program.steps[found.steps[0]].name}...{product.name}", found.inputs, (product.outputs[0], sums),
                (Req.WRITE, Req.WRITE if keep else Req.NULL), unused_outputs={} if keep else {1: hidden}, members=members,
                ctx=product.ctx)
