"""Index formulas whose axes consist of parts: quotient and remainder of an index, and values that the last index chooses. Oracle:
loops in plain Python. The CPU computes each part apart, which must not show in any dtype or request."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.kernels.declare.check_op import HostRun
from tritium.kernels.op import Req, Spec, compiled, get
from tritium.lang import where


@mx.indexed("_test_blocks", shape=lambda x, *, block: (x[0] // block**2, x[1] * block, x[2] * block), replace=True)
def blocks(at, x, *, block: int = 2):
    """depth_to_space: channel (p · block + q) of x [c, h, w] becomes row p and column q of a block."""
    c, i, j = at
    return x[(i % block * block + j % block) * at.shape[0] + c, i // block, j // block]


@mx.indexed("_test_corners", shape=lambda x: (x[0], 4), replace=True)
def corners(at, x):
    """x [n, 2] plus and minus one: [x0 - 1, x1 - 1, x0 + 1, x1 + 1]."""
    i, c = at
    v = x[i, c % 2]
    return where(c // 2 == 0, v - 1, v + 1)


@mx.indexed("_test_mixed", shape=lambda x: (*x, 6), replace=True)
def mixed(at, x):
    """An index that is asked for quotients by two numbers and for itself."""
    i, c = at
    return x[i] * (c % 2) + 10 * (c // 3) + 100 * c


@mx.indexed("_test_chosen", shape=lambda x: (x[0], 3), replace=True)
def chosen(at, x):
    """[x0, x1, x0 + x1], with the first choice twice: only the outer one counts."""
    i, c = at
    return where(c == 0, x[i, 0], where(c == 2, x[i, 0] + x[i, 1], where(c == 0, x[i, 1] * 99, x[i, 1])))


@mx.indexed("_test_partly", shape=lambda x: (x[0], 3), replace=True)
def partly(at, x):
    """Not every index has a choice of its own, and a choice reads along the axis."""
    i, c = at
    return where(c == 1, x[i, c], 7)


ORACLES = {
    blocks: ((8, 2, 3), lambda x, c, i, j: x[(i % 2 * 2 + j % 2) * 2 + c, i // 2, j // 2]),
    corners: ((5, 2), lambda x, i, c: x[i, c % 2] + (1 if c > 1 else -1)),
    mixed: ((4,), lambda x, i, c: x[i] * (c % 2) + 10 * (c // 3) + 100 * c),
    chosen: ((5, 2), lambda x, i, c: (x[i, 0], x[i, 1], x[i, 0] + x[i, 1])[c]),
    partly: ((5, 3), lambda x, i, c: x[i, 1] if c == 1 else 7),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32"])
@pytest.mark.parametrize("op", ORACLES, ids=lambda o: o.name)
def test_parts_make_the_whole(ctx, rng, op, dtype):
    shape, oracle = ORACLES[op]
    x = rng.integers(-9, 9, shape).astype(dtype)
    got = getattr(mx.nd, op.name)(mx.nd.array(x, ctx=ctx, dtype=dtype)).asnumpy()
    want = np.array([oracle(x, *at) for at in np.ndindex(*got.shape)]).reshape(got.shape)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", ORACLES, ids=lambda o: o.name)
def test_requests_and_blocks_of_many_tiles(op, rng, monkeypatch):
    monkeypatch.setattr("tritium.kernels.cpu.indexed_printer.TILE", 4)
    shape, oracle = ORACLES[op]
    x, p = rng.normal(size=shape), get(op.name).parse({})
    out = Spec(tuple(op.infer_shape(p, [shape])[1][0]), x.dtype)
    want = np.array([oracle(x, *at) for at in np.ndindex(*out.shape)]).reshape(out.shape)
    for req, base in ((Req.WRITE, 0), (Req.ADD, 3), (Req.NULL, 3)):
        made = np.full(out.shape, 3.0)
        compiled(op, p, (Spec(x.shape, x.dtype),), (out,), (req,), "cpu", False)(HostRun(), [x], [made])
        assert_close(made, base + (req != Req.NULL) * want)


def test_a_choice_by_the_last_index_is_stored_in_its_place():
    text = corners.cpu_source((5, 2))
    assert "where" not in text and text.count("out=o0[") == 2
