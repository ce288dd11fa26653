"""mx.contrib.autograd, MXNet's first interface. Derivatives by hand."""

import numpy as np
import pytest
import tritium as mx
from tritium.contrib import autograd
from tritium.errors import DTypeError


def square_sum(x, y):
    return (x * x + 3 * y).sum()


def test_gradients_and_result_of_a_function():
    x, y = mx.nd.array([1, 2]), mx.nd.array([5, 6])
    (dx, dy), result = autograd.grad_and_loss(square_sum)(x, y)
    assert dx.asnumpy().tolist() == [2, 4] and dy.asnumpy().tolist() == [3, 3] and result.asscalar() == 5 + 33
    (only,) = autograd.grad(square_sum, 1)(x, y)
    assert only.asnumpy().tolist() == [3, 3]
    assert [g.asnumpy().tolist() for g in autograd.grad(square_sum, [1, 0])(x, y)] == [[3, 3], [2, 4]]


def test_sections_set_both_switches():
    with autograd.train_section():
        assert mx.autograd.is_training() and mx.autograd.is_recording()
        with autograd.test_section():
            assert not mx.autograd.is_training() and not mx.autograd.is_recording()
    assert autograd.set_is_training(True) is False
    assert mx.autograd.is_recording()
    assert autograd.set_is_training(False) is True and not mx.autograd.is_recording()


def test_marked_variables_and_head_gradients():
    x, dx = mx.nd.array([1, 2]), mx.nd.zeros(2)
    autograd.mark_variables([x], [dx])
    with autograd.train_section():
        y = x * x
    autograd.backward([y], [mx.nd.array([1, 10])])
    assert np.array_equal(dx.asnumpy(), [2, 40])


def test_an_argument_that_is_no_array():
    with pytest.raises(DTypeError, match="grad_and_loss: an argument is a float, not an NDArray"):
        autograd.grad(lambda x: x)(2.0)
