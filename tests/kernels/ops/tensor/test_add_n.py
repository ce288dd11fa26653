"""add_n and khatri_rao: against MXNet and NumPy, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param({**m, "kwargs": {"num_args": len(m["inputs"])}}, z, id=i)
                                  for i, m, z in golden_cases("add_n", "khatri_rao")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
def test_sums(target, rng):
    xs = [rng.standard_normal((2, 3)) for _ in range(5)]
    close(forward("ElementWiseSum", xs, target, num_args=5)[0], np.sum(xs, axis=0))
    check_gradient("add_n", xs, rng, target, num_args=5)
    check_requests("add_n", xs, [xs[0]], target, num_args=5)
    assert forward("add_n", [np.array([1, 2])] * 2, target, num_args=2)[0].tolist() == [2, 4]


@pytest.mark.parametrize("target", TARGETS)
def test_columns_are_kronecker_products(target, rng):
    xs = [rng.standard_normal((r, 3)) for r in (2, 1, 4)]
    want = np.stack([np.kron(np.kron(xs[0][:, j], xs[1][:, j]), xs[2][:, j]) for j in range(3)], axis=1)
    close(forward("khatri_rao", xs, target, num_args=3)[0], want)
    check_requests("khatri_rao", xs, [], target, num_args=3)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("add_n", [np.zeros(2), np.zeros(3)], num_args=2), ShapeError, "add_n: shapes differ"),
    (lambda: forward("khatri_rao", [np.zeros((2, 2)), np.zeros((2, 3))], num_args=2),
     ShapeError, r"khatri_rao: inputs .* must be matrices with the same number of columns"),
    (lambda: ops.get("add_n").parse({"num_args": 0}), ParameterError, "add_n: num_args=0 must be at least 1"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
