"""_arange, _linspace, _eye, one_hot, shape_array, size_array: against MXNet, edges, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError
from tritium.kernels import op as ops

NAMES = ("arange_", "linspace_", "eye_", "one_hot", "shape_array", "size_array")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases(*NAMES)])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
def test_as_mxnet_says(target):
    assert forward("_arange", [], target, start=3)[0].tolist() == [0, 1, 2]
    assert forward("_arange", [], target, start=0.5, stop=3.2, step=0.7, dtype="int32")[0].tolist() == [0, 0, 0, 0]
    close(forward("_arange", [], target, start=0.5, stop=3.2, step=0.7)[0], np.array([0.5, 1.2, 1.9, 2.6], "f4"))
    assert forward("_arange", [], target, start=0, stop=2, repeat=3)[0].tolist() == [0, 0, 0, 1, 1, 1]
    assert forward("_linspace", [], target, start=0, stop=1, num=4, dtype="int32")[0].tolist() == [0, 0, 0, 1]
    assert forward("_linspace", [], target, start=0, stop=1, num=4, endpoint=False)[0].tolist() == [0, 0.25, 0.5, 0.75]
    assert forward("_linspace", [], target, start=5, stop=1, num=1)[0].tolist() == [5]
    assert forward("_eye", [], target, N=2, M=3, k=7)[0].tolist() == [[0, 0, 0], [0, 0, 0]]
    hot = forward("one_hot", [np.array([-1, 0, 1.7, 5, -0.5], "f4")], target, depth=3)[0]
    assert hot.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]]
    hot = forward("one_hot", [np.array([1, 0])], target, depth=2, on_value=2.7, off_value=-1.5, dtype="int32")[0]
    assert hot.tolist() == [[-1, 2], [2, -1]]


@pytest.mark.parametrize("target", TARGETS)
def test_requests(target):
    check_requests("_arange", [], [], target, start=5)
    check_requests("_eye", [], [], target, N=3, k=-1)
    check_requests("one_hot", [np.array([1.0, 4.0])], [], target, depth=3)
    check_requests("shape_array", [np.zeros((2, 3))], [], target)


def test_a_range_takes_its_length_from_what_uses_it():
    op = ops.get("_arange")
    p = op.parse({"start": 2, "infer_range": True})
    assert op.infer_shape(p, [], [None])[1] == [None] and op.infer_shape(p, [], [(4,)])[1] == [(4,)]


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("_eye").parse({"N": -1}), ParameterError, "_eye: N=-1"),
    (lambda: ops.get("one_hot").parse({"depth": -1}), ParameterError, "one_hot: depth=-1 must not be negative"),
    (lambda: ops.get("_linspace").parse({"start": 0, "stop": 1, "num": -2}), ParameterError, "_linspace: num=-2"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_valid_arguments_are_accepted():
    for given, text in (({"start": 3, "stop": 1}, "the range from 3.0 to 1.0 in steps of 1.0 is empty"),
                        ({"start": 3, "step": 0}, "step=0.0 must not be 0"),
                        ({"start": 0, "stop": 1e300}, "has more than")):
        with pytest.raises(ParameterError, match=text):
            ops.get("_arange").parse(given)
