"""Kernels bound to arrays: the same results as kernels that are given them, run after run."""

import numpy as np
import pytest
from tritium.dtype import as_dtype
from tritium.kernels import op as ops
from tritium.kernels.kernel import HostRun, Kernel
from tritium.kernels.op import Req, Spec, compiled

RNG = np.random.default_rng(0)


def kernel_of(name, shapes, outs, reqs, dtype="float32", **params):
    op, d = ops.get(name.removeprefix("_backward_")), as_dtype(dtype)
    p = op.parse(params)
    op = op.gradient_of(p).op if name.startswith("_backward_") else op
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
def test_a_bound_kernel_computes_the_same_at_each_run(name, shapes, out, params, req, dtype):
    kernel = kernel_of(name, shapes, [out], (req,), dtype, **params)
    arrays = [RNG.normal(size=s).astype(as_dtype(dtype)) for s in shapes]
    want, got = (np.ones(out, as_dtype(dtype)) for _ in range(2))
    call = kernel.bind(arrays, [got])
    for _ in range(3):
        arrays[0][...] = RNG.normal(size=shapes[0]).astype(as_dtype(dtype))
        kernel(HostRun(), arrays, [want])
        call(HostRun())
        assert np.array_equal(want, got)


def test_arrays_are_looked_at_once_for_each_bind():
    seen = []
    kernel = Kernel(bind=lambda inputs, outputs: seen.append("bound") or (lambda run: seen.append("run")))
    call = kernel.bind([], [])
    call(None)
    call(None)
    assert seen == ["bound", "run", "run"]
    kernel(None, [], [])
    assert seen == ["bound", "run", "run", "bound", "run"]


def test_a_kernel_without_a_bind_of_its_own_is_called_with_its_arrays():
    seen = []
    Kernel(lambda run, inputs, outputs: seen.append((run, inputs, outputs))).bind([1], [2])(3)
    assert seen == [(3, [1], [2])]
