"""Rows shuffled in C: the order that sorted random words give. Oracle: NumPy's stable argsort of the words in NumPy."""

import numpy as np
import pytest
from support.layer_helpers import Run
from tritium.kernels import philox
from tritium.kernels.cpu import c_compile, c_shuffle
from tritium.kernels.cpu.c_shuffle import shuffled, shuffles
from tritium.kernels.cpu.c_team import int64s
from tritium.kernels.cpu.c_template import Call

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")


@pytest.mark.parametrize("n, inner, dtype", [
    (1, 1, "float32"), (2, 3, "int8"), (15, 1, "float64"), (33, 32, "float32"), (257, 5, "float16"), (5000, 2, "int32"),
    (70001, 1, "int64")])
def test_the_order_is_that_of_the_words(n, inner, dtype, cpu_code, rng):
    cpu_code("c")
    assert shuffles(n, inner, np.dtype(dtype))
    kernel = shuffled(n, inner, np.dtype(dtype))
    for random in ((0, 0), (2**64 - 1, 7), (-3, 2**34 + 1)):
        x, y = rng.integers(-99, 99, (n, inner)).astype(dtype), np.zeros((n, inner), dtype)
        kernel(Run(), [x], [y], random=random)
        np.testing.assert_array_equal(y, x[np.argsort(philox.words(*random, n), kind="stable")])


@pytest.mark.parametrize("n", [16, 17, 1000])
def test_equal_words_keep_their_order(n, rng):
    words = rng.integers(0, 5, n).astype(np.uint32) * np.uint32(2**30)
    order, room = np.zeros(n, np.int64), np.zeros(n, np.int64)
    Call(c_shuffle._TEMPLATE, "words_order", 1, int64s(n)).prepare(words, order, room).run(0)
    assert order.tolist() == sorted(range(n), key=lambda i: words[i])
