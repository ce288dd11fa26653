"""Arrays against NumPy, by Hypothesis: any shape, also without elements, any key, every dtype. Equal to the bit."""

import pickle

import numpy as np
import pytest
import tritium as mx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tritium.dtype import bfloat16

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
          bfloat16]
shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


def numbered(shape, dtype="int32"):
    return (np.arange(np.prod(shape, dtype=int)) % 97).reshape(shape).astype(dtype)


@st.composite
def keys(draw):
    """(shape, key): basic keys, lists and arrays of positions, masks of some axes, None and Ellipsis among them."""
    shape = draw(shapes)
    kind = draw(st.sampled_from(["basic", "positions", "mask", "mixed"]))
    if kind == "mask":
        covered = draw(st.integers(1, len(shape)))
        return shape, draw(hnp.arrays(bool, shape[:covered]))
    if kind == "basic" or 0 in shape:
        return shape, draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True, max_dims=8))
    if kind == "positions":
        return shape, draw(hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=3)))
    positions = draw(hnp.integer_array_indices(shape[:1], result_shape=hnp.array_shapes(max_dims=2, max_side=3)))[0]
    rest = tuple(draw(st.sampled_from([slice(None), slice(None, None, -1), slice(1, None), 0])) for _ in shape[1:])
    return shape, (positions, *rest)


@settings(max_examples=150, deadline=None)
@given(keys(), st.booleans())
def test_indexing_reads_and_writes_as_numpy_does(case, recorded):
    shape, key = case
    x = numbered(shape)
    a = mx.nd.array(x, dtype="int32")
    ours = tuple(mx.nd.array(k, dtype="int64") if isinstance(k, np.ndarray) and k.dtype != bool else k for k in key) \
        if isinstance(key, tuple) else key
    want = x[key]
    np.testing.assert_array_equal(a[ours].asnumpy(), want)
    value = numbered(want.shape) + 100
    x[key] = value
    a[ours] = mx.nd.array(value, dtype="int32") if recorded else value
    np.testing.assert_array_equal(a.asnumpy(), x)
    x[key] = 7
    a[ours] = 7
    np.testing.assert_array_equal(a.asnumpy(), x)


@settings(max_examples=60, deadline=None)
@given(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), st.data())
def test_the_gradient_of_a_part_is_scattered_to_its_place(shape, data):
    key = data.draw(st.one_of(hnp.basic_indices(shape), hnp.integer_array_indices(shape, result_shape=st.just((3,))),
                              hnp.arrays(bool, shape)))
    a = mx.nd.array(numbered(shape), dtype="float64")
    a.attach_grad()
    with mx.autograd.record():
        y = a[key]
    want = np.zeros(shape)
    np.add.at(want, key, 1.0)
    if y._grad_edge is not None and y.size:
        y.backward()
    np.testing.assert_array_equal(a.grad.asnumpy(), want)


@settings(max_examples=60, deadline=None)
@given(shapes, st.sampled_from(DTYPES))
def test_every_dtype_survives_a_round_trip(shape, dtype):
    x = numbered(shape, dtype)
    a = mx.nd.array(x, dtype=dtype)
    assert np.dtype(a.dtype) == np.dtype(dtype) and a.shape == shape and a.size == x.size and a.ndim == x.ndim
    np.testing.assert_array_equal(np.asarray(a), x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(a)).asnumpy(), x)
    np.testing.assert_array_equal(mx.nd.from_dlpack(a).asnumpy(), x)
    assert mx.nd.zeros(shape, dtype=dtype).asnumpy().sum() == 0
    assert len(a) == len(x) and a._repr_html_().count("<table") <= 1


@settings(max_examples=40, deadline=None)
@given(shapes, st.sampled_from([d for d in DTYPES if d != "bool"]))
def test_arithmetic_keeps_the_dtype(shape, dtype):
    x, y = numbered(shape, dtype), (numbered(shape) % 7 + 1).astype(dtype)
    a, b = mx.nd.array(x, dtype=dtype), mx.nd.array(y, dtype=dtype)
    for f in (np.add, np.subtract, np.multiply, np.maximum):
        got = f(a, b)
        assert np.dtype(got.dtype) == np.dtype(dtype)
        np.testing.assert_array_equal(got.asnumpy(), f(x, y))
    np.testing.assert_array_equal((a > b).asnumpy() != 0, x > y)


@settings(max_examples=60, deadline=None)
@given(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3), st.integers(0, 2), st.booleans())
def test_functions_of_arrays_without_elements(shape, axis, keepdims):
    x = numbered(shape, "float32")
    a = mx.nd.array(x)
    axis = axis % len(shape)
    got = a.sum(axis=axis, keepdims=keepdims).asnumpy()
    np.testing.assert_array_equal(got, x.sum(axis=axis, keepdims=keepdims).reshape(got.shape))
    np.testing.assert_array_equal(mx.nd.concat(a, a, dim=axis).asnumpy(), np.concatenate([x, x], axis))
    np.testing.assert_array_equal(mx.nd.stack(a, a, axis=axis).asnumpy(), np.stack([x, x], axis))
    np.testing.assert_array_equal(a.T.asnumpy(), x.T)
    assert mx.nd.random.uniform(shape=shape).shape == shape and mx.nd.random.normal(shape=shape).shape == shape


@pytest.mark.parametrize("name", ["T", "ctx", "context", "dtype", "shape", "size", "ndim", "stype", "grad"])
def test_attributes(name):
    a = mx.nd.ones((2, 3))
    known = {"T": None, "ctx": mx.cpu(), "context": mx.cpu(), "dtype": np.float32, "shape": (2, 3), "size": 6, "ndim": 2,
             "stype": "default", "grad": None}
    found = getattr(a, name)
    assert found.shape == (3, 2) if name == "T" else found == known[name]
