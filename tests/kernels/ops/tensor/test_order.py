"""sort, argsort, topk: against MXNet, against Python's sort, ties, NaN, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import DTypeError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.kernel import HostRun


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("sort", "argsort", "topk")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8", "int64"])
@pytest.mark.parametrize("down", [False, True])
def test_python_sorts_the_same(dtype, down, target, rng):
    x = rng.integers(0, 9, (2, 130, 2)).astype(dtype)
    places = forward("argsort", [x], target, axis=1, is_ascend=not down, dtype="int32")[0]
    values = forward("sort", [x], target, axis=1, is_ascend=not down)[0]
    best = forward("topk", [x], target, axis=1, k=7, ret_typ="both", is_ascend=not down)
    mask = forward("topk", [x], target, axis=1, k=7, ret_typ="mask", is_ascend=not down)[0]
    assert values.dtype == x.dtype and places.dtype == np.int32 and best[1].dtype == np.float32
    for i, j in np.ndindex(2, 2):
        line = x[i, :, j].tolist()
        want = sorted(range(130), key=lambda k: -line[k] if down else line[k])  # stable
        assert places[i, :, j].tolist() == want and values[i, :, j].tolist() == [line[k] for k in want]
        assert best[1][i, :, j].tolist() == want[:7] and best[0][i, :, j].tolist() == [line[k] for k in want[:7]]
        assert sorted(np.flatnonzero(mask[i, :, j])) == sorted(want[:7])


@pytest.mark.parametrize("target", TARGETS)
def test_nan_is_the_largest(target):
    x = np.array([3, np.nan, 1, np.nan, -np.inf, np.inf], "f4")
    assert forward("argsort", [x], target)[0].tolist() == [4, 2, 0, 5, 1, 3]
    assert forward("argsort", [x], target, is_ascend=False)[0].tolist() == [1, 3, 5, 0, 2, 4]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name, params", [("sort", {"axis": 0}), ("sort", {"axis": None}), ("topk", {"k": 2, "ret_typ": "value"}),
                                          ("topk", {"k": 3, "ret_typ": "both", "axis": 1, "is_ascend": True})])
def test_gradient_and_requests(name, params, target, rng):
    x = rng.permutation(24).reshape(2, 4, 3) / 3.0
    if params.get("ret_typ") != "both":  # the places are not smooth
        check_gradient(name, [x], rng, target, **params)
    heads = [rng.standard_normal(y.shape) for y in forward(name, [x], target, **params)]
    check_requests(name, [x], heads, target, **params)
    if name == "topk":
        for kind in ("mask", "indices"):
            check_requests(name, [x], [], target, **{**params, "ret_typ": kind})


@pytest.mark.parametrize("target", TARGETS)
def test_all_of_them(target):
    x = np.array([[2, 3, 1]], "f4")
    for k in (0, -1, 3):
        close(forward("topk", [x], target, k=k, ret_typ="value")[0], np.array([[3, 2, 1]], "f4"))
    assert forward("topk", [x], target, axis="None", k="2")[0].tolist() == [1, 0]  # strings, as in a symbol file


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("topk", [np.zeros(3)], k=4), ShapeError, "topk: k=4 is more than the 3 elements along the axis"),
    (lambda: ops.get("argsort").infer_shape(ops.get("argsort").parse({"dtype": "uint8"}), [(300,)]),
     DTypeError, r"argsort: uint8 cannot hold every index below 300. Use dtype='int32'"),
    (lambda: forward("sort", [np.zeros(3)], axis=2), ShapeError, "sort: axis 2 is out of range for an array of 1 axes"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_values_of_another_dtype_are_not_written_beyond_their_end(cpu_code, rng):
    cpu_code("c")
    x, op = rng.normal(size=(5, 9)), ops.builtin("sort")
    memory = np.full(2 * x.size, 5, np.float32)
    y, places = memory[:x.size].reshape(x.shape), np.empty(x.shape, np.int64)
    specs = [ops.Spec(a.shape, a.dtype) for a in (x, y, places)]
    kernel = ops.compiled(op, op.parse({}), (specs[0],), tuple(specs[1:]), (ops.Req.WRITE,) * 2, "cpu")
    kernel.run(HostRun(), [x], [y, places])
    np.testing.assert_array_equal(y, np.sort(x).astype(np.float32))
    assert (memory[x.size:] == 5).all()
