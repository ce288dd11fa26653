"""dot and batch_dot: against MXNet and einsum, gradients, requests, pieces, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, Run, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.dtype import as_dtype
from tritium.errors import ShapeError
from tritium.kernels import op as ops
from tritium.kernels.ops.linalg import gemm


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("dot", "batch_dot")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("name, lead", [("dot", ()), ("batch_dot", (3,)), ("batch_dot", (2, 2))])
def test_values_gradient_requests(name, lead, ta, tb, target, rng):
    a = rng.standard_normal((*lead, *((6, 4) if ta else (4, 6))))
    b = rng.standard_normal((*lead, *((5, 6) if tb else (6, 5))))
    want = np.einsum(f"...{'km' if ta else 'mk'},...{'nk' if tb else 'kn'}->...mn", a, b)
    params = {"transpose_a": ta, "transpose_b": tb}
    close(forward(name, [a, b], target, **params)[0], want)
    check_gradient(name, [a, b], rng, target, **params)
    check_requests(name, [a, b], [rng.standard_normal(want.shape)], target, **params)


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_that_fill_no_block(target, rng):
    a, b = rng.standard_normal((65, 300)).astype("f"), rng.standard_normal((300, 17)).astype("f")
    close(forward("dot", [a, b], target)[0], (a.astype("d") @ b).astype("f"))


@pytest.mark.parametrize("shape", [(40, 9, 7), (9, 40, 7), (12, 5, 6, 7)])
def test_pieces_cover_the_product(shape, rng, monkeypatch):
    monkeypatch.setattr(gemm, "DEFAULT", {"piece": 100, "threads": 0})
    *lead, m, n, k = shape
    a, b = rng.standard_normal((*lead, m, k)), rng.standard_normal((*lead, k, n))
    out = np.full((*lead, m, n), np.nan)
    gemm.gemm(a, b, out)(Run(backwards=True))
    close(out, np.einsum("...mk,...kn->...mn", a, b))


@pytest.mark.parametrize("side, pieces", [(100, 1), (180, 2), (362, 2), (512, 2), (1024, 8)])
def test_larger_products_have_larger_pieces(side, pieces):
    a, out, made = np.ones((side, side)), np.empty((side, side)), []  # float64: BLAS

    class Counting(Run):
        def parallel(self, fn, n):
            made.append(n)
            super().parallel(fn, n)
    gemm.gemm(a, a, out)(Counting())
    assert made == ([pieces] if pieces > 1 else []) and (out == side).all()


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_products_together_are_those_one_by_one(dtype, rng):
    x, y = (rng.standard_normal(s).astype(as_dtype(dtype)) for s in ((300, 400), (400, 200)))
    met = []

    class Counting(Run):
        def parallel(self, fn, n):
            met.append(n)
            super().parallel(fn, n)
    outs = [[np.ones(s, as_dtype(dtype)) for s in ((300, 200), (200, 300), (7, 200))] for _ in range(2)]

    def given(made):
        return [(x, y, made[0], False), (y.T, x.T, made[1], True), (x[:7], y, made[2], False)]
    gemm.together(given(outs[0]))(Counting(backwards=True))
    for p in given(outs[1]):
        gemm.gemm(*p)(Run())
    assert all((a == b).all() for a, b in zip(*outs)) and met == ([2 + 2 + 1] if dtype == "float64" else [2, 2])


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("dot").infer_shape(ops.get("dot").parse({}), [(64, 784), (128, 784)]),
     ShapeError, r"dot: inner sizes differ: lhs \(64, 784\) is summed over 784, "
                                         r"rhs \(128, 784\) over 128. rhs looks transposed; try transpose_b=True"),
    (lambda: ops.get("batch_dot").infer_shape(ops.get("batch_dot").parse({}), [(2, 3, 4), (3, 4, 5)]),
     ShapeError, r"batch_dot: lhs \(2, 3, 4\) and rhs \(3, 4, 5\) must agree on the batch"),
    (lambda: ops.get("batch_dot").infer_shape(ops.get("batch_dot").parse({}), [(3, 4), None]),
     ShapeError, r"batch_dot: lhs \(3, 4\) must have at least three axes"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
