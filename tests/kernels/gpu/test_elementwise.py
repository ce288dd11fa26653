"""gpu/elementwise: the number of elements that one program takes. Oracle: the capacity of a thread, by hand."""

import numpy as np
import pytest
from tritium.kernels.gpu.elementwise import heavy, lanes
from tritium.kernels.ir import lang as L
from tritium.kernels.ir.expr import load, prim, topological

F32, F64, U8 = (np.dtype(d) for d in ("float32", "float64", "uint8"))


def chain(x, links):
    for _ in range(links):
        x = x + L.exp(x)
    return x


@pytest.mark.parametrize("body, widest, elements", [
    (lambda x: x * x, F32, 1024),                            # eight a thread: two reads of 128 bits
    (lambda x: x * x, F64, 512),                             # four of 64 bits, as many reads
    (lambda x: x * x, U8, 2048),                             # sixteen bytes a thread: one read
    (lambda x: prim("hypot", x, x) / x + x / x, U8, 1024),   # computed in float32: sixteen would crowd
    (lambda x: L.tanh(x) * L.exp(x), F32, 1024),
    (lambda x: L.power(x, x), F32, 512),                     # computed in float64
    (L.gammaln, F32, 256), (L.gammaln, F64, 256), (lambda x: L.gammaln(x) + L.gammaln(x + 1), F32, 128),
    (lambda x: chain(x, 100), F32, 128)])
def test_long_functions_take_fewer_elements(body, widest, elements):
    assert lanes(topological([body(load(0, F64 if widest == F64 else F32))]), widest) == elements


def test_cost_of_long_functions():
    x = load(0, F32)
    assert heavy(topological([L.exp(x) + x])) == 0           # short ones follow one another: registers are used again
    assert heavy(topological([prim("arctan", x)])) == 20
    assert heavy(topological([prim("arctan", load(0, F64))])) == 40
    assert heavy(topological([L.gammaln(x)])) == 120         # in float64 inside
