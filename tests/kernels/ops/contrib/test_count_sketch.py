"""count_sketch. Oracle: a loop over the elements."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import check_gradient
from tritium.errors import ParameterError, ShapeError

sketch = mx.nd.contrib.count_sketch


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("one_axis", [True, False])
def test_elements_are_added_where_h_says(shape, one_axis, ctx, rng):
    x, h, s = rng.normal(size=shape), rng.integers(0, 3, shape[-1]), rng.choice([-1, 1], shape[-1])
    want = np.zeros((*shape[:-1], 3))
    for at in np.ndindex(shape):
        want[(*at[:-1], h[at[-1]])] += x[at] * s[at[-1]]
    table = [mx.nd.array(v if one_axis else v[None], ctx=ctx, dtype="float64") for v in (h, s)]
    np.testing.assert_allclose(sketch(mx.nd.array(x, ctx=ctx, dtype="float64"), *table, out_dim=3).asnumpy(), want, atol=1e-12)
    check_gradient(lambda a: sketch(a, *table, out_dim=3), [x], ctx, rng)


def test_refusals():
    x, h = mx.nd.ones((2, 3)), mx.nd.array([0, 1, 4])
    with pytest.raises(ShapeError, match=r"h holds 0 … 4, places of the result are 0 … 3"):
        sketch(x, h, h, out_dim=4).asnumpy()
    with pytest.raises(ShapeError, match=r"h \(2,\) and s \(2,\) must both have one number for each element of a row"):
        sketch(x, h[:2], h[:2], out_dim=4)
    with pytest.raises(ParameterError, match="out_dim=0 must be at least 1"):
        sketch(x, h, h, out_dim=0)
