"""Derivatives of derivatives, for `grad(create_graph=True)`, of operators whose derivative is a kernel and no formula.

A traced operator's derivative is traced, so it differentiates itself. For the rest the operator's own two halves serve:

* linear (reshape, transpose, concat, slice, take, ...): backward is Aᵀ dy, so its derivative is A, the operator itself;
* bilinear (dot, FullyConnected, Convolution, ...): y = B(x, w); every mixed derivative is one of its three kernels;
* diagonal (Dropout): backward is its own transpose;
* reductions, softmax and normalisations: the derivative written with operators that are recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from ...dtype import is_half
from ...errors import MXNetError
from ...kernels.declare.operator_property import PropertyOp
from ...kernels.declare.simple_op import SpreadOp
from ...kernels.linear import is_linear
from ...kernels.op import Gradient, builtin
from ..core.arithmetic import array_op
from ..core.array_core import allocate
from ..core.indexing import reshape_view
from ..dispatch.arguments import call_op
from ..dispatch.copy import fill
from ..dispatch.invoke import backward_plan, execute, invoke
from .tape import CallNode, OpNode, state

BILINEAR = frozenset({"dot", "batch_dot", "FullyConnected", "Convolution", "Deconvolution"})
DIAGONAL = frozenset({"Dropout"})


def formula(node: OpNode, gradient: Gradient, inputs: Sequence[Any]) -> list[Any] | None:
    """The derivatives by gradient.gives, computed with recorded operators; None if there is no such formula.

    inputs: what the derivative reads, in the order of gradient.needs, with their places on the tape.
    """
    read = dict(zip(gradient.needs, inputs))
    if isinstance(gradient.op, SpreadOp):
        return [_spread(node, gradient.op, read)]
    if node.op.role in _NORMS:
        return _norm(node, read)
    if node.op.role in _FORMULAS and not node.p.get("use_length"):
        return [_FORMULAS[node.op.role](node, read[("dy", 0)], read[("y", 0)])]
    return None


def derivative(node: OpNode, gradient: Gradient, inputs: Sequence[Any], outs: Sequence[Any]) -> CallNode:
    """The tape's node of one backward run that read inputs and gave outs. Raises MXNetError if it cannot be derived."""
    found = _rule(node, gradient, inputs)
    if found is None:
        raise MXNetError(f"grad: create_graph=True needs the derivative of {gradient.op.name}, which has none. "
                         f"{node.op.name} can be differentiated once.")
    return CallNode(gradient.op.name, [a._grad_edge for a in inputs], [o.layout for o in outs], found)


def _rule(node: OpNode, gradient: Gradient, inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]] | None:
    op, p, needs, gives = node.op, node.p, gradient.needs, gradient.gives
    saved = {i: a for (kind, i), a in zip(needs, inputs) if kind == "x"}
    if op.auxiliaries(p) or not any(kind == "dy" for kind, _ in needs):
        return None

    def at_dy(results: Sequence[Any]) -> list[Any]:
        return [results[i] if kind == "dy" else None for kind, i in needs]

    def forward(given: dict[int, Any]) -> list[Any]:
        return invoke(op, [given[i] if i in given else zeros(what) for i, what in enumerate(node.in_layouts)], p)

    def again(replaced: dict[tuple[str, int], Any]) -> list[Any]:
        """The backward kernel on other arrays; not recorded."""
        arrays = [replaced.get(need, a) for need, a in zip(needs, inputs)]
        if state.recording and any(a._grad_edge is not None for a in arrays):
            raise MXNetError(f"grad: create_graph=True a second time needs a third derivative of {op.name}, which has none.")
        layouts = [node.in_layouts[i] for i in gives]
        made = [allocate(what) for what in layouts]
        plan = backward_plan(gradient.op, p, [a.layout for a in arrays], layouts, node.train)
        execute(plan, plan.kernel, arrays, made, p.scalars)
        return made

    if op.role in DIAGONAL:
        return lambda ds: at_dy([again({("dy", 0): ds[0]})[0]])
    if op.role in BILINEAR and gives[:2] == (0, 1):

        def bilinear(ds: list[Any]) -> list[Any]:
            rest = {i: ds[i] for i in range(2, len(ds))}  # the bias
            dy = array_op("elemwise_add", forward({0: ds[0], 1: saved[1]})[0], forward({0: saved[0], 1: ds[1], **rest})[0])
            found = {("dy", 0): dy, ("x", 0): again({("x", 1): ds[1]})[0], ("x", 1): again({("x", 0): ds[0]})[1]}
            return [found[need] for need in needs]

        return bilinear
    if op.role == "Pooling" and p.pool_type == "max" and ("x", 0) in needs:
        g = cast(PropertyOp, op).property(p).geometry(saved[0].shape)  # type: ignore[attr-defined]
        if g.channels_last:
            return None
        given = {"kernel": g.kernel, "stride": g.stride, "pad": g.pad, "outs": g.out}
        return lambda ds: at_dy([call_op(builtin("_at_the_largest"), (ds[0], saved[0]), given)])
    if not is_linear(op, p):
        return None
    return lambda ds: at_dy(forward({**saved, **dict(zip(gives, ds))}))


def zeros(what: Any) -> Any:
    """A fresh array of zeros."""
    made = allocate(what)
    fill(made, 0)
    return made


# ---- formulas -------------------------------------------------------------------------------------------------------
def _spread(node: OpNode, op: SpreadOp, read: dict[tuple[str, int], Any]) -> Any:
    """A reduction's derivative as a broadcasting operator, which derives itself."""
    if len(op.folds) > 1:
        raise MXNetError(f"grad: create_graph=True needs the second derivative of {op.forward.name}, a product, which is not "
                         f"derived. Give it a gradient of its own (@{op.forward.name}.gradient).")
    what = node.in_layouts[0]
    kept = op.forward.kept(node.p, what.shape)
    arrays = [read[need] for need in op.needs]
    half = bool(op.folds) and is_half(what.dtype)  # what is folded again is compared with what was folded, unrounded
    if half:
        arrays = [call_op(builtin("Cast"), (a,), {"dtype": "float32"}) for a in arrays]
    folds = [call_op(f, (arrays[op.needs.index(("x", 0))],), {**node.p, "keepdims": True}) for f in op.folds]
    arrays = [a if kind == "x" else reshape_view(a, kept) for a, (kind, _) in zip(arrays, op.needs)] + folds
    values = {**node.p, "count": max(what.size, 1) // max(math.prod(kept), 1)}
    result = call_op(op.broadcasting, arrays, {k: values[k] for k in op.keywords})
    result = call_op(builtin("Cast"), (result,), {"dtype": what.dtype}) if half else result
    return result if result.shape == what.shape else array_op("broadcast_add", result, zeros(what))


def _inner(node: OpNode, a: Any, b: Any | None = None) -> Any:
    """Σ a·b along the softmax's axis, which stays."""
    return call_op(builtin("sum"), (a if b is None else a * b,), {"axis": node.p.get("axis", -1), "keepdims": True})


def _softmax(sign: float) -> Callable[[OpNode, Any, Any], Any]:
    def run(node: OpNode, dy: Any, y: Any) -> Any:
        dx = y * array_op("broadcast_sub", dy, _inner(node, dy, y))
        scale = sign / (node.p.get("temperature") or 1.0)
        return dx if scale == 1.0 else dx * scale

    return run


def _log_softmax(node: OpNode, dy: Any, y: Any) -> Any:
    dx = dy - array_op("broadcast_mul", call_op(builtin("exp"), (y,), {}), _inner(node, dy))
    scale = 1.0 / (node.p.get("temperature") or 1.0)
    return dx if scale == 1.0 else dx * scale


_NORMS = frozenset({"LayerNorm", "GroupNorm", "InstanceNorm", "BatchNorm"})


def _norm(node: OpNode, read: dict[tuple[str, int], Any]) -> list[Any] | None:
    """The derivatives of a normalisation by its own mean and variance; None where it reads those of others."""
    dy, x, gamma = (read[need] for need in (("dy", 0), ("x", 0), ("x", 1)))
    prop = cast(PropertyOp, node.op).property(node.p)
    fixed = node.p.get("fix_gamma", False)
    if gamma.dtype != x.dtype or (node.op.role == "BatchNorm" and (not node.train or node.p.use_global_stats)):
        return None
    full, kept, row = prop.view(x.shape)  # type: ignore[attr-defined]
    scale = array_op("ones_like", gamma) if fixed else gamma
    eps = prop.eps  # type: ignore[attr-defined]
    dx, d_gamma, d_beta = call_op(builtin("_norm_gradient"), (dy, x, scale), {"full": full, "kept": kept, "row": row, "eps": eps})
    return [dx, zeros(node.in_layouts[1]) if fixed else d_gamma, d_beta]


_FORMULAS: dict[str, Callable[[OpNode, Any, Any], Any]] = {
    "softmax": _softmax(1.0), "softmin": _softmax(-1.0), "log_softmax": _log_softmax}
