"""count_sketch. Oracle: a loop over the elements."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
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
    assert_close(sketch(mx.nd.array(x, ctx=ctx, dtype="float64"), *table, out_dim=3), want)
    check_gradient(lambda a: sketch(a, *table, out_dim=3), [x], ctx, rng)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: sketch(mx.nd.ones((2, 3)), mx.nd.array([0, 1, 4]), mx.nd.array([0, 1, 4]), out_dim=4).asnumpy(),
     ShapeError, r"h holds 0 to 4. It must hold indices from 0 to 3"),
    (lambda: sketch(mx.nd.ones((2, 3)), mx.nd.array([0, 1, 4])[:2], mx.nd.array([0, 1, 4])[:2], out_dim=4),
     ShapeError, r"h \(2,\) and s \(2,\) must both have one value for each element of a row"),
    (lambda: sketch(mx.nd.ones((2, 3)), mx.nd.array([0, 1, 4]), mx.nd.array([0, 1, 4]), out_dim=0),
     ParameterError, "out_dim=0 must be at least 1"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
