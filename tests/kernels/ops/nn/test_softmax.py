"""softmax. Values and gradients by MXNet are in the golden data; here is what they leave out."""

from __future__ import annotations

import numpy as np
import tritium as mx


def test_the_length_of_a_row_that_is_all_of_the_data():
    """MXNet 1.x has no shape without axes: one row has one length."""
    y = mx.nd.softmax(mx.nd.array([1.0, 2, 3, 4]), mx.nd.array([2], dtype="int32"), use_length=True).asnumpy()
    e = np.exp([-1.0, 0.0])
    np.testing.assert_allclose(y, [*(e / e.sum()), 0, 0], rtol=1e-6)  # closer than the table
    assert mx.sym.softmax(mx.sym.var("x"), mx.sym.var("l"), use_length=True).infer_shape(x=(4,))[0] == [(4,), (1,)]
