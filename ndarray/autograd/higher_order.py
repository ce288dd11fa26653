"""Derivatives of derivatives, for `grad(create_graph=True)`, of operators whose derivative is a kernel and not a formula.

A traced operator's derivative is traced, so it can be differentiated in turn. For the others:

* a reduction's derivative is computed by a broadcasting operator, which has a derivative itself;
* an operator may declare its derivative as calls of other operators (`OperatorProperty.differentiable_gradient`);
* linear (reshape, transpose, concat, slice, take, ...): backward is Aᵀ dy, so its derivative is A, the operator itself;
* bilinear (dot, FullyConnected, Convolution, ...): y = B(x, w); every mixed derivative is one of its three kernels;
* diagonal (Dropout): backward is its own transpose; max pooling names the operator that is the transpose of its backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...dtype import is_half
from ...errors import MXNetError
from ...kernels.configs import float32_matmul
from ...kernels.declare.property_op import PropertyOp
from ...kernels.declare.reduction import ReductionGradOp
from ...kernels.op import Gradient, Shaped, builtin
from ..core.arithmetic import array_op
from ..core.array_core import ArrayCore
from ..core.indexing import reshape_view
from ..dispatch.arguments import call_op
from ..dispatch.copy import filled
from ..dispatch.invoke import invoke, invoke_backward
from .tape import CallNode, OpNode, state

if TYPE_CHECKING:
    from ..core.ndarray import NDArray


def differentiable_gradient(node: OpNode, gradient: Gradient, inputs: Sequence[ArrayCore]) -> list[Shaped] | None:
    """Return the derivatives by gradient.gives, computed with recorded operators; None if the operator declares no formula.

    inputs: the arrays that the derivative reads, in the order of gradient.needs, with their gradient edges.
    """
    read = dict(zip(gradient.needs, inputs))
    if isinstance(gradient.op, ReductionGradOp):
        return [_reduction_gradient(node, gradient.op, read)]
    if isinstance(node.op, PropertyOp):
        return node.op.property(node.p).differentiable_gradient(read, node.train)
    return None


def backward_node(node: OpNode, gradient: Gradient, inputs: Sequence[ArrayCore], outs: Sequence[ArrayCore]) -> CallNode:
    """Return the tape's node of one backward run that read inputs and computed outs.

    Raises: MXNetError if it cannot be differentiated.
    """
    rule = _rule(node, gradient, inputs)
    if rule is None:
        raise MXNetError(f"grad: create_graph=True needs the derivative of {gradient.op.name}, which has none. "
                         f"{node.op.name} can be differentiated once.")
    how = node.plan.float32

    def ruled(ds: list[Any]) -> list[Any]:
        with float32_matmul.restored(how):
            return rule(ds)

    return CallNode(gradient.op.name, [a._grad_edge for a in inputs], [o.layout for o in outs], ruled)


def _rule(node: OpNode, gradient: Gradient, inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]] | None:
    op, p, needs, gives = node.op, node.p, gradient.needs, gradient.gives
    saved = {i: a for (kind, i), a in zip(needs, inputs) if kind == "x"}
    if op.auxiliaries(p) or not any(kind == "dy" for kind, _ in needs):
        return None

    def at_dy(results: Sequence[Any]) -> list[Any]:
        return [results[i] if kind == "dy" else None for kind, i in needs]

    def forward(given: dict[int, Any]) -> list[NDArray]:
        return invoke(op, [given[i] if i in given else filled(layout, 0) for i, layout in enumerate(node.in_layouts)], p)

    def backward(replaced: dict[tuple[str, int], Any]) -> list[NDArray]:
        """Run the backward kernel on other arrays; this is not recorded."""
        arrays = [replaced.get(need, a) for need, a in zip(needs, inputs)]
        if state.recording and any(a._grad_edge is not None for a in arrays):
            raise MXNetError(f"grad: create_graph=True a second time needs a third derivative of {op.name}, which has none.")
        return invoke_backward(gradient.op, p, arrays, [node.in_layouts[i] for i in gives], node.train)

    prop = op.property(p) if isinstance(op, PropertyOp) else None
    if prop is not None and prop.backward_form == "diagonal":
        return lambda ds: at_dy(backward({("dy", 0): ds[0]}))
    if prop is not None and prop.backward_form == "bilinear" and gives[:2] == (0, 1):

        def bilinear(ds: list[Any]) -> list[Any]:
            bias = {i: ds[i] for i in range(2, len(ds))}
            dy = array_op("elemwise_add", forward({0: ds[0], 1: saved[1]})[0], forward({0: saved[0], 1: ds[1], **bias})[0])
            by_need = {("dy", 0): dy, ("x", 0): backward({("x", 1): ds[1]})[0], ("x", 1): backward({("x", 0): ds[0]})[1]}
            return [by_need[need] for need in needs]

        return bilinear
    transpose = prop.backward_transpose(saved[0].shape) if prop is not None and ("x", 0) in needs else None
    if transpose is not None:
        return lambda ds: at_dy([call_op(builtin(transpose[0]), (ds[0], saved[0]), transpose[1])])
    if not op.is_linear(p):
        return None
    return lambda ds: at_dy(forward({**saved, **dict(zip(gives, ds))}))


def _reduction_gradient(node: OpNode, op: ReductionGradOp, read: dict[tuple[str, int], Any]) -> Any:
    """Compute a reduction's derivative with a broadcasting operator, which has a derivative itself."""
    if len(op.folds) > 1:
        raise MXNetError(f"grad: create_graph=True needs the second derivative of {op.forward.name}, a product, which is not "
                         f"derived. Give it a gradient of its own (@{op.forward.name}.gradient).")
    layout = node.in_layouts[0]
    kept = op.forward.kept(node.p, layout.shape)
    arrays = [read[need] for need in op.needs]
    half = bool(op.folds) and is_half(layout.dtype)  # results are compared with elements: neither may be rounded
    if half:
        arrays = [call_op(builtin("Cast"), (a,), {"dtype": "float32"}) for a in arrays]
    reductions = [call_op(f, (arrays[op.needs.index(("x", 0))],), {**node.p, "keepdims": True}) for f in op.folds]
    arrays = [a if kind == "x" else reshape_view(a, kept) for a, (kind, _) in zip(arrays, op.needs)] + reductions
    values = {**node.p, "count": max(layout.size, 1) // max(math.prod(kept), 1)}
    result = call_op(op.broadcasting, arrays, {k: values[k] for k in op.keywords})
    result = call_op(builtin("Cast"), (result,), {"dtype": layout.dtype}) if half else result
    return result if result.shape == layout.shape else array_op("broadcast_add", result, filled(layout, 0))
