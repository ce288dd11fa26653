"""Uses of operators for the tuning tests: an operator or its derivative, with its specs and requests."""

import numpy as np
from tritium.kernels import op as ops
from tritium.kernels.op import Req, Spec

CONV = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 64, "no_bias": True}
CONV_SHAPES = [(32, 16, 28, 28), (64, 16, 3, 3)]


def use(name, shapes, params=None, dtype="float32", backward=False, reqs=None):
    """(op, params, ins, outs, reqs) of an operator, or of its derivative by everything."""
    op, dtype = ops.get(name), np.dtype(dtype)
    p = op.parse(params or {})
    in_shapes, out_shapes = op.infer_shape(p, shapes)
    ins, outs = ([Spec(tuple(s), dtype) for s in group] for group in (in_shapes, out_shapes))
    if backward:
        g = op.gradient_of(p)
        groups = {"dy": outs, "x": ins, "y": outs}
        op, ins, outs = g.op, [groups[kind][i] for kind, i in g.needs], [ins[i] for i in g.gives]
    return op, p, ins, outs, reqs or [Req.WRITE] * len(outs)
