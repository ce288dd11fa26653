"""broadcast_to, broadcast_axis, broadcast_like: against MXNet, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i)
                                  for i, m, z in golden_cases("broadcast_to", "broadcast_axis", "broadcast_like")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name, shapes, params, want", [
    ("broadcast_to", [(2, 1, 3)], {"shape": (0, 4, 3)}, (2, 4, 3)),
    ("broadcast_axes", [(1, 3, 1)], {"axis": (2, 0), "size": (4, 2)}, (2, 3, 4)),
    ("broadcast_axis", [(1, 2)], {"axis": 0, "size": 3}, (3, 2)),
    ("broadcast_like", [(1, 3), (4, 3)], {}, (4, 3)),
    ("broadcast_like", [(1, 2), (1, 3)], {"lhs_axes": (0,), "rhs_axes": (-1,)}, (3, 2)),
    ("broadcast_to", [(2, 1)], {"shape": (2, 0)}, (2, 1)),
])
def test_numpy_broadcasts_the_same(name, shapes, params, want, target, rng):
    xs = [rng.standard_normal(s) for s in shapes]
    y = forward(name, xs, target, **params)[0]
    assert y.shape == want and (y == np.broadcast_to(xs[0], want)).all()
    check_gradient(name, xs, rng, target, **params)
    check_requests(name, xs, [rng.standard_normal(want)], target, **params)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("broadcast_axis").parse({"axis": (0, 1), "size": 2}),
     ParameterError, r"broadcast_axis: axis=\(0, 1\) and size=\(2,\) must have equal length"),
    (lambda: ops.get("broadcast_like").parse({"lhs_axes": (0, 1), "rhs_axes": (0,)}),
     ParameterError, "broadcast_like: lhs_axes="),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_valid_arguments_are_accepted():
    for name, shapes, params, text in (
        ("broadcast_to", [(2,)], {"shape": (2, 2)}, r"shape=\(2, 2\) has 2 axes, data \(2,\) has 1"),
        ("broadcast_to", [(1, 2)], {"shape": (2, 3)}, r"\(1, 2\) does not broadcast to \(2, 3\)"),
        ("broadcast_axis", [(1, 2)], {"axis": 1, "size": 2}, "has size 2, not 1"),
        ("broadcast_axis", [(1, 2)], {"axis": -1, "size": 2}, "axis -1 is out of range for an array of 2 axes"),
        ("broadcast_like", [(2,), (2, 2)], {}, r"\(2,\) does not broadcast to \(2, 2\)"),
    ):
        with pytest.raises(ShapeError, match=f"{name}: .*{text}"):
            forward(name, [np.zeros(s) for s in shapes], **params)
