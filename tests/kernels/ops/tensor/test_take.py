"""take and Embedding: against MXNet, gradients, repeated numbers, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, backward, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Req, Spec, builtin, compiled


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("take", "Embedding")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradient_and_requests(axis, mode, target, rng):
    a, at = rng.standard_normal((3, 4, 2)), np.array([[0.0, 1.9], [-3, 7], [1, 1]])
    y = forward("take", [a, at], target, axis=axis, mode=mode)[0]
    n = a.shape[axis]
    place = at.astype(int) % n if mode == "wrap" else np.clip(at.astype(int), 0, n - 1)
    close(y, np.take(a, place, axis=axis))
    check_gradient("take", [a, at], rng, target, axis=axis, mode=mode)
    check_requests("take", [a, at], [rng.standard_normal(y.shape)], target, axis=axis, mode=mode)


@pytest.mark.parametrize("target", TARGETS)
def test_repeated_rows_add_up(target):
    at, w = np.array([2, 0, 2, 2], "int32"), np.zeros((3, 2), "f")
    got = backward("Embedding", [at, w], [np.arange(8, dtype="f").reshape(4, 2)], target, input_dim=3, output_dim=2)
    assert list(got) == [1] and got[1].tolist() == [[2, 3], [0, 0], [10, 13]]


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("take", [np.zeros((3, 2)), np.array([0.0, 7.0])], mode="raise"),
     ShapeError, r"take: index 7 is out of range for an axis of size 3. Use mode='clip' or 'wrap'"),
    (lambda: ops.get("Embedding").infer_shape(ops.get("Embedding").parse({"input_dim": 6, "output_dim": 3}), [(2,), (5, 3)]),
     ShapeError, r"Embedding: weight \(5, 3\) must be \(6, 3\): input_dim by output_dim"),
    (lambda: ops.get("Embedding").parse({"input_dim": 0, "output_dim": 3}),
     ParameterError, "input_dim=0 and output_dim=3 must be at least 1"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_an_output_of_another_dtype_is_not_written_beyond_its_end(cpu_code, rng):
    cpu_code("c")
    x, index = rng.normal(size=(9, 7)), np.arange(9, dtype=np.float32)
    memory = np.full(2 * x.size, 5, np.float32)
    y, op = memory[:x.size].reshape(x.shape), builtin("take")
    specs = Spec(x.shape, x.dtype), Spec(index.shape, index.dtype)
    compiled(op, op.parse({}), specs, (Spec(y.shape, y.dtype),), (Req.WRITE,), "cpu").run(HostRun(), [x, index], [y])
    np.testing.assert_array_equal(y, x.astype(np.float32))
    assert (memory[x.size:] == 5).all()
