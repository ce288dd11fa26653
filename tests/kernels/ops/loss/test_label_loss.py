"""SVMOutput, softmax_cross_entropy, IdentityAttachKLSparseReg: MXNet's cases, plain loops, slopes, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, backward, call, check_gradient, check_requests, close, forward, golden_cases
from support.layer_helpers import check_golden as check
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.op import Spec


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("SVMOutput", "softmax_cross_entropy")])
def test_golden(m, z, target):
    check(m, z, target)


def hinge(x, label, margin, factor, linear):
    d = np.zeros_like(x)
    for i, row in enumerate(x):
        for k, v in enumerate(row):
            side = 1 if k == int(label[i]) else -1
            short = margin - side * v
            if short > 0:
                d[i, k] = -side * factor * (1 if linear else 2 * short)
    return d


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("linear", [False, True])
def test_hinge(linear, target, rng):
    x, label = rng.standard_normal((5, 4)), np.array([0.0, 3, 1, 2, 9])  # 9: no class at all
    params = {"margin": 0.7, "regularization_coefficient": 1.5, "use_linear": linear}
    assert (forward("SVMOutput", [x, label], target, **params)[0] == x).all()
    close(backward("SVMOutput", [x, label], [x], target, **params)[0], hinge(x, label, 0.7, 1.5, linear))
    check_requests("SVMOutput", [x, label], [x], target, **params)


@pytest.mark.parametrize("target", TARGETS)
def test_cross_entropy(target, rng):
    x, label = rng.standard_normal((5, 4)) * 30, np.array([0.0, 3, 1, 2, 2])  # far apart: the exponentials must not overflow
    log_p = x - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)) - x.max(1, keepdims=True)
    want = -sum(log_p[i, int(k)] for i, k in enumerate(label))
    close(forward("softmax_cross_entropy", [x, label], target)[0], np.array([want]))
    check_gradient("softmax_cross_entropy", [x / 30, label], rng, target)
    check_requests("softmax_cross_entropy", [x, label], [np.array([2.0])], target)


@pytest.mark.parametrize("target", TARGETS)
def test_sparseness_takes_the_batch_in_and_pushes_back(target, rng):
    x, average, dy = rng.uniform(0.1, 0.9, (4, 3)), np.full(3, 0.2), rng.standard_normal((4, 3))
    op = ops.get("IdentityAttachKLSparseReg")
    p = op.parse({"penalty": 0.5, "momentum": 0.8, "sparseness_target": 0.1})
    g = op.gradient_of(p)
    assert op.auxiliaries(p) == ("moving_avg",) and g.needs == (("dy", 0), ("x", 0), ("x", 1))
    (dx,), (_, _, moved) = call(g.op, p, [dy, x, average], [Spec((4, 3), x.dtype)], target=target)
    want = 0.8 * 0.2 + 0.2 * x.mean(0)
    close(moved, want)
    close(dx, dy + 0.5 * (-0.1 / want + 0.9 / (1 - want)))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("SVMOutput").infer_shape(ops.get("SVMOutput").parse({}), [(4, 5), (3,)]),
     ShapeError, r"SVMOutput: label would have to be both \(3,\) and \(4,\)"),
    (lambda: ops.get("softmax_cross_entropy").infer_shape(ops.get("softmax_cross_entropy").parse({}), [(2, 3, 4), None]),
     ShapeError, r"softmax_cross_entropy: data \(2, 3, 4\) must be \[batch, classes\]"),
    (lambda: ops.get("IdentityAttachKLSparseReg").parse({"sparseness_target": 1.5}), ParameterError, r"sparseness_target=1\.5"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
