"""nd.contrib's functions that are not operators. Oracle: NumPy."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ShapeError


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_boolean_mask_selects_and_differentiates(ctx, rng, axis):
    x = rng.normal(size=(3, 4)).astype("float32")
    mask = np.array([1, 0, 2, 1][: x.shape[axis]])
    a = mx.nd.array(x, ctx=ctx)
    a.attach_grad()
    with mx.autograd.record():
        y = mx.nd.contrib.boolean_mask(a, mx.nd.array(mask, ctx=ctx), axis=axis)
    np.testing.assert_array_equal(y.asnumpy(), np.compress(mask != 0, x, axis))
    y.backward()
    np.testing.assert_array_equal(a.grad.asnumpy(), np.expand_dims(mask != 0, 1 - axis % 2) * np.ones_like(x))


def test_a_boolean_mask_of_zeros_selects_no_rows(ctx):
    assert mx.nd.contrib.boolean_mask(mx.nd.ones((3, 2), ctx=ctx), mx.nd.zeros(3, ctx=ctx)).shape == (0, 2)
    with pytest.raises(ShapeError, match=r"boolean_mask: index \(2,\) must be one axis, as long as axis 0 of data \(3, 2\)"):
        mx.nd.contrib.boolean_mask(mx.nd.ones((3, 2), ctx=ctx), mx.nd.zeros(2, ctx=ctx))


def test_zipf_draws_small_numbers_more_often(ctx):
    mx.random.seed(1)
    drawn, expected_true, expected = mx.nd.contrib.rand_zipfian(mx.nd.array([0, 3], ctx=ctx), 4000, 50, ctx=ctx)
    counts = np.bincount(drawn.asnumpy(), minlength=50)
    assert drawn.dtype == np.int64 and counts.sum() == 4000 and len(counts) == 50
    assert abs(counts[0] - expected_true.asnumpy()[0]) < 100 and abs(counts[3] - expected_true.asnumpy()[1]) < 60
    assert expected.shape == (4000,)
