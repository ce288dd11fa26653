"""Operators that move elements: against MXNet, NumPy's own, gradients, requests, free reshapes, errors."""

import numpy as np
import pytest
import tritium as mx
from support.layer_helpers import (
    TARGETS,
    Run,
    backward,
    check_golden,
    check_gradient,
    check_requests,
    close,
    forward,
    golden_cases,
)
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.ir.strided import layout
from tritium.kernels.op import Req, Spec

NAMES = [
    "Flatten", "Reshape", "transpose", "expand_dims", "SwapAxis", "squeeze", "Concat", "SliceChannel", "slice", "slice_axis",
    "stack", "tile", "BlockGrad", "Cast", "slice_like", "reshape_like", "reverse", "repeat", "depth_to_space", "space_to_depth",
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases(*NAMES)])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name, shapes, params", [
    ("Reshape", [(2, 3, 4)], {"shape": (0, -1)}), ("transpose", [(2, 3, 4)], {"axes": (2, 0, 1)}),
    ("SwapAxis", [(2, 3, 4)], {"dim1": 0, "dim2": 2}), ("Concat", [(2, 3), (2, 1)], {"num_args": 2}),
    ("stack", [(2, 3), (2, 3)], {"num_args": 2, "axis": 1}), ("SliceChannel", [(2, 6)], {"num_outputs": 3}),
    ("slice", [(4, 5)], {"begin": (3, None), "end": (0, None), "step": (-2, 2)}),
    ("slice_axis", [(4, 5)], {"axis": 1, "begin": 1, "end": 3}),
    ("slice_like", [(4, 5), (2, 3)], {}), ("reverse", [(2, 3, 4)], {"axis": (0, 2)}), ("tile", [(2, 3)], {"reps": (2, 1, 2)}),
    ("repeat", [(2, 3)], {"repeats": 3, "axis": 0}), ("repeat", [(2, 3)], {"repeats": 2}),
    ("repeat", [(2, 3)], {"repeats": 4, "axis": -1}), ("repeat", [(3, 20, 2)], {"repeats": 2, "axis": 1}),
    ("depth_to_space", [(1, 8, 2, 3)], {"block_size": 2}),
    ("space_to_depth", [(1, 2, 4, 6)], {"block_size": 2}), ("squeeze", [(2, 1, 3)], {"axis": (1,)}),
    ("SliceChannel", [(2, 3)], {"num_outputs": 3, "squeeze_axis": True})])
def test_gradient_and_requests(name, shapes, params, target, rng):
    inputs = [rng.standard_normal(s) for s in shapes]
    check_gradient(name, inputs, rng, target, **params)
    heads = [rng.standard_normal(y.shape) for y in forward(name, inputs, **params)]
    check_requests(name, inputs, heads, target, **params)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(0, 3), (1,), (70000,), (3, 1, 2, 1, 5, 2, 3)])
def test_transpose_of_awkward_shapes(shape, target, rng):
    x = rng.standard_normal(shape).astype("f")
    close(forward("transpose", [x], target)[0], x.T)


def test_pieces_of_a_large_move_cover_it(rng):
    x = rng.standard_normal((1000, 700)).astype("f")
    close(forward("transpose", [x])[0], x.T)


@pytest.mark.parametrize("target", TARGETS)
def test_casting(target):
    x = np.array([-1.7, 2.9, 300.0, 0.0], "f")
    assert forward("Cast", [x], target, dtype="uint8")[0].tolist() == [255, 2, 44, 0]
    assert forward("Cast", [x], target, dtype="int32")[0].tolist() == [-1, 2, 300, 0]
    close(backward("Cast", [x], [np.arange(4, dtype="d")], target, dtype="float64")[0], np.arange(4, dtype="f"))


def test_reshape_in_place_copies_nothing():
    op = ops.get("Reshape")
    p = op.parse({"shape": (3, 2)})
    assert op.inplace(p) == ((0, 0),)
    assert op.gradient_of(p).op.inplace(p) == ((0, 0),)
    x = np.arange(6.0).reshape(2, 3)
    y = x.reshape(3, 2)
    kernel = ops.compiled(op, p, (Spec((2, 3), x.dtype),), (Spec((3, 2), x.dtype),), (Req.INPLACE,), "cpu")
    x.flags.writeable = y.flags.writeable = False  # a copy would raise
    kernel(Run(), [x], [y])


def test_layout_of_a_view():
    seen = layout((4, 6), lambda a: a[::-2, 1:4].T)
    assert (seen.offset, seen.shape, seen.strides) == (19, (3, 2), (1, -12))


@pytest.mark.parametrize("name, params, shapes, outs, want", [
    ("Flatten", {}, [(2, -1, 4)], None, [None]), ("Concat", {"num_args": 2}, [(2, 3), (2, -1)], [(2, 8)], [(2, 8)]),
    ("transpose", {"axes": (1, 0)}, [None], [(2, 3)], [(2, 3)]),
    ("SliceChannel", {"num_outputs": 2}, [(4, 6)], None, [(4, 3)] * 2)])
def test_partial_shapes(name, params, shapes, outs, want):
    op = ops.get(name)
    assert op.infer_shape(op.parse(params), shapes, outs)[1] == want


def test_what_inference_passes_and_the_kernel_refuses():
    """MXNet infers (5, 4) for 24 elements; and transposes backwards only along axes that are named."""
    op = ops.get("Reshape")
    assert op.infer_shape(op.parse({"shape": (5, -1)}), [(2, 3, 4)])[1] == [(5, 4)]
    with pytest.raises(ShapeError, match=r"\(2, 3, 4\) has 24 elements, but \(5, 4\) has 20"):
        forward("Reshape", [np.zeros((2, 3, 4))], shape=(5, -1))
    op = ops.get("transpose")
    with pytest.raises(ShapeError, match=r"from the output \(2, 3\) only if axes are given. Give axes=\(1, 0\)"):
        op.infer_shape(op.parse({}), [None], [(2, 3)])


@pytest.mark.parametrize("name, params, shapes, error, text", [
    ("Reshape", {"shape": (7, 1)}, [(2, 3)], ShapeError, r"\(2, 3\) does not reshape to \(7, 1\): 6 elements are not 7"),
    ("Reshape", {"shape": (-1, -1)}, [(2, 3)], ShapeError, "only one size can be -1"),
    ("Reshape", {"shape": (0, 0, 0)}, [(2, 3)], ShapeError, "code 0 has no axis left"),
    ("transpose", {"axes": (0, 0)}, [(2, 3)], ShapeError, r"axes=\(0, 0\) must be a permutation of the 2 axes"),
    ("expand_dims", {"axis": 5}, [(2, 3)], ShapeError, "axis 5 is out of range for an array of 3 axes. Use -3 to 2"),
    ("squeeze", {"axis": 1}, [(1, 3)], ShapeError, r"axis 1 of \(1, 3\) has size 3. Only axes of size 1 can be removed"),
    ("Concat", {"num_args": 2}, [(2, 1, 4), (2, 3, 3)], ShapeError, "differ on an axis other than dim=1"),
    ("Concat", {}, [], ParameterError, "parameter 'num_args' .* is required"),
    ("SliceChannel", {"num_outputs": 2}, [(2, 5)], ShapeError, "has size 5, not a multiple of num_outputs=2"),
    ("slice", {"begin": (0,), "end": (1, 2)}, [], ParameterError, "must have equal length"),
    ("slice_axis", {"axis": 0, "begin": 3, "end": 9}, [(4,)], ShapeError, r"3:9 is not a valid range of axis 0 of \(4,\)"),
    ("reverse", {"axis": (-1,)}, [(4,)], None, ""),
    ("tile", {"reps": (0,)}, [], ParameterError, r"reps=\(0,\) must all be at least 1")])
def test_errors(name, params, shapes, error, text):
    op = ops.get(name)
    if error is None:  # MXNet refuses it when it runs
        with pytest.raises(ShapeError, match=r"axis -1 is out of range for an array of 1 axes. Use 0 to 0"):
            forward(name, [np.zeros(s) for s in shapes], **params)
        return
    with pytest.raises(error, match=text):
        op.infer_shape(op.parse(params), shapes)


def test_reshape_of_a_shape_that_is_partly_known():
    """Recorded from MXNet 1.9.1: sizes follow one by one, and the one unknown size from all others."""
    x = mx.sym.Variable("x")

    def inferred(codes, shape, **how):
        ins, outs, _ = mx.sym.reshape(x, shape=codes, **how).infer_shape_partial(x=shape)
        return ins[0], outs[0]

    assert inferred((0, -1), (2, 3, 0)) == ((2, 3, 0), (2, 0))
    assert inferred((0, -4, 1, -1, -2), (0, 6, 4)) == ((0, 6, 4), (0, 1, 6, 4))
    assert inferred((0, -3), (2, 0, 4)) == ((2, 0, 4), (2, 0)) and inferred((0, -3), (0, 3, 4)) == ((0, 3, 4), (0, 12))
    assert inferred((0, -4, 3, -1, 0), (2, 0, 4)) == ((2, 0, 4), (2, 3, 0, 4))
    assert inferred((0, 12), (2, 0, 4)) == ((2, 3, 4), (2, 12)) and inferred((0, 12), (0, 3, 4)) == ((0, 3, 4), (0, 12))
    assert inferred((0, 12), (0, 3, 4), reverse=True) == ((3, 3, 4), (3, 12))
    assert inferred((6, 4), (0, 0, 4)) == ((0, 0, 4), (6, 4))
