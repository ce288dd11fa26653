"""EpilogueOp: block by block equals one after the other, for every request, also where the epilogue overwrites what was read."""

import numpy as np
import pytest
from support.helpers import assert_close
from tritium.kernels import op as ops
from tritium.kernels.fusion.epilogue import EpilogueOp, Wiring, _block
from tritium.kernels.op import Req, Spec

F32 = np.dtype("float32")


class Run:
    stream = None

    def parallel(self, fn, n):
        for i in reversed(range(n)):  # in any order
            fn(i)

    def workspace(self, shape, dtype):
        return np.empty(shape, dtype)


def relu_behind(head, params, n_inputs, result, n_outputs=1, backward=False):
    act = ops.get("Activation")
    p = act.parse({"act_type": "relu"})
    op = ops.get(head)
    q = op.parse(params)
    if backward:  # the derivative of the layer below, which keeps y, the head's data
        g = act.gradient_of(p)
        body = g.op.fusible_body(p, [Spec(result, F32)] * 2, [Spec(result, F32)])
        grad = op.gradient_of(q).op
        return EpilogueOp(grad, q, body, Wiring(tuple(range(n_inputs)), (-1, 1), n_outputs)), grad, q, g.op, p
    body = act.fusible_body(p, [Spec(result, F32)], [Spec(result, F32)])
    return EpilogueOp(op, q, body, Wiring(tuple(range(n_inputs)), (-1,), n_outputs)), op, q, act, p


def call(op, p, arrays, outs, reqs):
    specs = tuple(Spec(a.shape, a.dtype) for a in arrays)
    out_specs = tuple(Spec(o.shape, o.dtype) for o in outs)
    given = [None if r == Req.NULL else o for o, r in zip(outs, reqs)]
    ops.compiled(op, p, specs, out_specs, tuple(reqs), "cpu", True)(Run(), arrays, given)


CASES = [
    ("FullyConnected", {"num_hidden": 300}, [(1000, 50), (300, 50), (300,)], (1000, 300)),
    ("FullyConnected", {"num_hidden": 3, "no_bias": True}, [(5, 4), (3, 4)], (5, 3)),
    ("Convolution", {"kernel": (3, 3), "num_filter": 16}, [(40, 3, 18, 18), (16, 3, 3, 3), (16,)], (40, 16, 16, 16)),
]


@pytest.mark.parametrize("head, params, shapes, result", CASES)
@pytest.mark.parametrize("req", [Req.WRITE, Req.ADD])
@pytest.mark.parametrize("keep", [True, False])
def test_forward(head, params, shapes, result, req, keep, rng):
    fused, op, q, act, p = relu_behind(head, params, len(shapes), result)
    arrays = [rng.normal(size=s).astype(F32) for s in shapes]
    plain, want = np.empty(result, F32), np.full(result, 7, F32)
    call(op, q, arrays, [plain], [Req.WRITE])
    call(act, p, [plain], [want], [req])
    first, got = np.empty(result, F32), np.full(result, 7, F32)
    call(fused, q, arrays, [first, got], [Req.WRITE if keep else Req.NULL, req])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)  # random products: cancellation leaves absolute errors
    if keep:
        np.testing.assert_allclose(first, plain, rtol=1e-5, atol=1e-5)  # random products: cancellation leaves absolute errors


@pytest.mark.parametrize("head, params, shapes, result", CASES)
@pytest.mark.parametrize("over", [True, False])
def test_backward_may_overwrite_the_data(head, params, shapes, result, over, rng):
    """The weight's derivative is taken before the epilogue writes over the data."""
    n = len(shapes)
    x, w = (rng.normal(size=s).astype(F32) for s in shapes[:2])
    dy = rng.normal(size=result).astype(F32)
    fused, grad, q, act, p = relu_behind(head, params, 3, shapes[0], n, backward=True)
    want = [np.empty(s, F32) for s in shapes]
    call(grad, q, [dy, x, w], want, [Req.WRITE] * n)
    epilogue = np.empty(shapes[0], F32)
    call(act, p, [want[0], x], [epilogue], [Req.WRITE])
    got = [np.empty(s, F32) for s in shapes]
    data = x.copy()
    out = data if over else np.empty_like(x)
    assert (1, n) in fused.inplace(q) and (2, n) not in fused.inplace(q)
    call(fused, q, [dy, data, w], [*got, out], [Req.NULL, *[Req.WRITE] * (n - 1), Req.INPLACE if over else Req.WRITE])
    assert_close(out, epilogue)
    for a, b in zip(got[1:], want[1:]):
        assert (a == b).all()


def test_blocks_follow_from_sizes_alone():
    assert _block(64, Spec((10, 4), F32)) == 10
    assert _block(64, Spec((10_000, 4096), F32)) == 64
    assert _block(1, Spec((32, 64, 64, 64), F32)) == 1
    assert _block(1, Spec((0, 4), F32)) == 1
