"""BatchNorm: against MXNet, the formula in float64, gradient, pieces in any order, errors."""

import numpy as np
import pytest
import tritium as mx
from support.layer_helpers import (
    TARGETS,
    Run,
    backward,
    call,
    check_golden,
    check_gradient,
    close,
    forward,
    golden_cases,
    specs_of,
)
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("BatchNorm")])
def test_golden(m, z, target):
    check_golden(m, z, target)


def arguments(rng, shape=(4, 3, 5), c=3):
    return [rng.standard_normal(shape), *(rng.standard_normal(c) for _ in range(3)), rng.random(c) + 0.5]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("params", [
    {"fix_gamma": False}, {"fix_gamma": False, "use_global_stats": True}, {"axis": -1, "fix_gamma": False}])
def test_gradient(params, target, rng):
    c = 5 if "axis" in params else 3
    inputs = arguments(rng, c=c)
    x, gamma, beta, mean, var = inputs
    axes = (0, 1) if c == 5 else (0, 2)
    put = lambda v: v if c == 5 else v[:, None]
    m, s = (x.mean(axes), x.var(axes)) if "use_global_stats" not in params else (mean, var)
    want = put(gamma) * (x - put(m)) / np.sqrt(put(s) + 1e-3) + put(beta)
    close(forward("BatchNorm", inputs, target, **params)[0], want)
    check_gradient("BatchNorm", inputs, rng, target, **params)


@pytest.mark.parametrize("target", TARGETS)
def test_moving_statistics_take_in_the_batch_only_in_training(target, rng):
    inputs = arguments(rng)
    op = ops.get("BatchNorm")
    p = op.parse({"momentum": 0.75})
    specs = specs_of(op, p, inputs)
    _, after = call(op, p, inputs, specs, target=target)
    close(after[3], 0.75 * inputs[3] + 0.25 * inputs[0].mean((0, 2)))
    close(after[4], 0.75 * inputs[4] + 0.25 * inputs[0].var((0, 2)))
    _, after = call(op, p, inputs, specs, target=target, train=False)
    assert (after[3] == inputs[3]).all() and (after[4] == inputs[4]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_half_data_keeps_float32_statistics(target, rng):
    x = (rng.standard_normal((64, 2, 8)) + 30).astype("float16")
    rest = [np.ones(2, "f"), np.zeros(2, "f"), np.zeros(2, "f"), np.ones(2, "f")]
    op = ops.get("BatchNorm")
    assert [d.name for d in op.infer_dtype(op.parse({}), [x.dtype, None, None, None, None])[0]] == ["float16"] + ["float32"] * 4
    wide = x.astype("d")
    want = (wide - wide.mean((0, 2))[:, None]) / np.sqrt(wide.var((0, 2))[:, None] + 1e-3)
    close(forward("BatchNorm", [x, *rest], target)[0], want.astype("float16"))


def test_same_bits_in_any_order_of_pieces(rng):
    inputs = [a.astype("f") for a in arguments(rng, (300, 3, 400))]
    one, other = (backward("BatchNorm", inputs, [inputs[0]], run=Run(backwards=b), fix_gamma=False) for b in (False, True))
    assert all((one[i] == other[i]).all() for i in one)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("BatchNorm").infer_shape(ops.get("BatchNorm").parse({}), [(2, 3, 4), (4,), None, None, None]),
     ShapeError, r"gamma \(4,\) must be \(3,\): data \(2, 3, 4\) has that many channels on axis 1"),
    (lambda: ops.get("BatchNorm").parse({"momentum": 2}), ParameterError, r"momentum=2.0 must be between 0 and 1"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("shape", [(4, 3, 5), (6, 2)])
def test_the_synchronised_one_is_the_same_on_one_device(shape, rng, ctx):
    c = shape[1]
    given = [rng.normal(size=shape), rng.normal(size=c), rng.normal(size=c), np.zeros(c), np.ones(c)]
    found = []
    for op, more in ((mx.nd.BatchNorm, {}), (mx.nd.contrib.SyncBatchNorm, {"ndev": 2, "key": "bn"})):
        arrays = [mx.nd.array(a, ctx=ctx) for a in given]
        with mx.autograd.train_mode():
            found.append([op(*arrays, fix_gamma=False, **more).asnumpy(), arrays[3].asnumpy(), arrays[4].asnumpy()])
    for a, b in zip(*found):
        np.testing.assert_array_equal(a, b)
