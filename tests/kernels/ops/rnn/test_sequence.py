"""SequenceMask, SequenceLast, SequenceReverse: against MXNet, and against loops over each sequence."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops

NAMES = ("SequenceMask", "SequenceLast", "SequenceReverse")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases(*NAMES)])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name, axis", [("SequenceMask", 0), ("SequenceMask", 1), ("SequenceLast", 0), ("SequenceLast", 1),
                                        ("SequenceReverse", 0)])
def test_each_sequence_by_hand(name, axis, target, rng):
    x, sizes = rng.standard_normal((5, 5, 2)), np.array([0, 1, 2.7, 5, 9], "f4")
    extra = {"value": 3.0} if name == "SequenceMask" else {}
    y = forward(name, [x, sizes], target, use_sequence_length=True, axis=axis, **extra)[0]
    steps, got = (x if axis == 0 else x.swapaxes(0, 1)), (y if axis == 0 or y.ndim == 2 else y.swapaxes(0, 1))
    for b, n in enumerate(np.minimum(sizes.astype(int), 5)):
        if name == "SequenceLast":
            want = steps[max(n - 1, 0), b]
            assert (got[b] == want).all()
            continue
        want = steps[:, b].copy()
        want[n:] = 3.0 if name == "SequenceMask" else want[n:]
        want[:n] = want[:n][::-1] if name == "SequenceReverse" else want[:n]
        assert (got[:, b] == want).all()
    check_gradient(name, [x, sizes], rng, target, use_sequence_length=True, axis=axis)
    check_requests(name, [x, sizes], [rng.standard_normal(y.shape)], target, use_sequence_length=True, axis=axis)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("SequenceMask", [np.zeros(3)]), ShapeError, r"SequenceMask: data \(3,\) must have at least two axes"),
    (lambda: forward("SequenceLast", [np.zeros((3, 2)), np.zeros(3)], use_sequence_length=True),
     ShapeError, r"SequenceLast: sequence_length \(3,\) must be \(2,\): one length for each sample"),
    (lambda: ops.get("SequenceReverse").parse({"axis": 1}), ParameterError, "SequenceReverse: axis=1: only axis 0"),
    (lambda: ops.get("SequenceMask").parse({"axis": 2}),
     ParameterError, "SequenceMask: axis=2 must be 0 or 1, the axis of the steps"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
