"""Pooling_v1. Values of MXNet: tests/test_golden_operators.py; here what is refused, and where it is not Pooling."""

import pytest
import tritium as mx
from tritium.errors import DTypeError, ParameterError, ShapeError


def test_padding_counts_as_zeros_and_every_greatest_element_gets_the_derivative(ctx):
    x = mx.nd.full((1, 1, 2, 2), -1.0, ctx=ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Pooling_v1(x, kernel=(2, 2), pad=(1, 1), stride=(1, 1))
    assert y.asnumpy().ravel().tolist() == [0, 0, 0, 0, -1, 0, 0, 0, 0]
    y.backward()
    assert x.grad.asnumpy().ravel().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("shape, dtype, params, error, text", [
    ((1, 1, 4), "float32", {"kernel": (2, 2)}, ShapeError, r"data \(1, 1, 4\) must be \[n, c, h, w\]. Use Pooling for other"),
    ((1, 1, 4, 4), "float32", {"kernel": (2,)}, ParameterError, r"kernel=\(2,\) must be two sizes of at least 1"),
    ((1, 1, 4, 4), "float32", {"kernel": (5, 5)}, ShapeError, r"kernel \(5, 5\) is larger than the input"),
    ((1, 1, 4, 4), "int32", {"kernel": (2, 2)}, DTypeError, "data is int32. It must hold floats"),
    ((1, 1, 4, 4), "float32", {"kernel": (2, 2), "stride": (0, 1)}, ParameterError, r"stride=\(0, 1\) must be at least 1"),
])
def test_refusals(shape, dtype, params, error, text):
    with pytest.raises(error, match=text):
        mx.nd.Pooling_v1(mx.nd.ones(shape, dtype=dtype), **params)
