"""Kernels tied to arrays: the same results as kernels that are given them, run after run, and views are made once."""

import numpy as np
import pytest
from tritium.dtype import as_dtype
from tritium.kernels import op as ops
from tritium.kernels.kernel import tieable, tied
from tritium.kernels.op import Req, Spec, compiled

RNG = np.random.default_rng(0)


class Run:
    """Runs everything here."""

    def parallel(self, fn, n):
        for i in range(n):
            fn(i)


def kernel_of(name, shapes, outs, reqs, dtype="float32", **params):
    op, d = ops.get(name.removeprefix("_backward_")), as_dtype(dtype)
    p = op.parse(params)
    op = op.gradient(p).op if name.startswith("_backward_") else op
    return compiled(op, p, tuple(Spec(s, d) for s in shapes), tuple(Spec(s, d) for s in outs), reqs, "cpu", True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("req", [Req.WRITE, Req.ADD])
@pytest.mark.parametrize(("name", "shapes", "out", "params"), [
    ("tanh", [(3, 4)], (3, 4), {}),
    ("broadcast_add", [(3, 4), (1, 4)], (3, 4), {}),
    ("sum", [(3, 4)], (3, 1), {"axis": (1,), "keepdims": True}),
    ("FullyConnected", [(5, 2, 3), (4, 6), (4,)], (5, 4), {"num_hidden": 4}),
    ("FullyConnected", [(300, 200), (100, 200)], (300, 100), {"num_hidden": 100, "no_bias": True}),
    ("dot", [(2, 3), (3, 4)], (2, 4), {}),
    ("SoftmaxOutput", [(5, 4), (5,)], (5, 4), {}),
    ("_backward_SoftmaxOutput", [(5, 4), (5,)], (5, 4), {}),
    ("_backward_SoftmaxOutput", [(5, 4), (5,)], (5, 4), {"grad_scale": 0.3, "normalization": "batch"}),
    ("Flatten", [(5, 2, 3)], (5, 6), {}),
])
def test_tied_is_called(name, shapes, out, params, req, dtype):
    kernel = kernel_of(name, shapes, [out], (req,), dtype, **params)
    arrays = [RNG.normal(size=s).astype(as_dtype(dtype)) for s in shapes]
    want, got = (np.ones(out, as_dtype(dtype)) for _ in range(2))
    call = tied(kernel, arrays, [got])
    for _ in range(3):
        arrays[0][...] = RNG.normal(size=shapes[0]).astype(as_dtype(dtype))
        kernel(Run(), arrays, [want])
        call(Run())
        assert np.array_equal(want, got)


def test_views_are_made_once():
    seen = []
    kernel = tieable(lambda inputs, outputs: seen.append("tied") or (lambda run: seen.append("run")))
    call = tied(kernel, [], [])
    call(None)
    call(None)
    assert seen == ["tied", "run", "run"]
    kernel(None, [], [])
    assert seen == ["tied", "run", "run", "tied", "run"]


def test_a_kernel_that_cannot_be_tied_is_called_with_its_arrays():
    seen = []
    tied(lambda run, inputs, outputs: seen.append((run, inputs, outputs)), [1], [2])(3)
    assert seen == [(3, [1], [2])]
