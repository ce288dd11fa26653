"""Updates of several arrays at once equal the updates one by one; finite or not; sums of squares; errors."""

from itertools import chain

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import ParameterError
from tritium.kernels import op as ops

COMMON = {"rescale_grad": 0.5, "clip_gradient": 0.3}
KINDS = [("multi_sgd_update", "sgd_update", [], "float32"), ("multi_sgd_mom_update", "sgd_mom_update", ["mom"], "float32"),
         ("multi_mp_sgd_update", "mp_sgd_update", ["weight32"], "float16"),
         ("multi_mp_sgd_mom_update", "mp_sgd_mom_update", ["mom", "weight32"], "float16")]


def arrays(states, dtype, ctx, rng, shapes=((3, 4), (7,))):
    """Weight, gradient and states of two parameters."""
    found = []
    for shape in shapes:
        w = rng.standard_normal(shape).astype(dtype)
        more = [w.astype("f") if s == "weight32" else rng.standard_normal(shape).astype("f") for s in states]
        found.append([mx.nd.array(a, ctx=ctx, dtype=a.dtype) for a in (w, rng.standard_normal(shape).astype(dtype), *more)])
    return found


@pytest.mark.parametrize("multi, one, states, dtype", KINDS)
def test_as_one_by_one(multi, one, states, dtype, ctx, rng):
    together, apart = (arrays(states, dtype, ctx, np.random.default_rng(4)) for _ in range(2))
    params = COMMON | ({"momentum": 0.9} if "mom" in states else {})
    for lrs, wds in (((0.1, 0.2), (0.01, 0.02)), ((0.3, 0.4), (0.0, 0.05))):
        getattr(mx.nd, multi)(*chain(*together), lrs=lrs, wds=wds, num_weights=2, out=[t[0] for t in together], **params)
        for a, lr, wd in zip(apart, lrs, wds):
            getattr(mx.nd, one)(*a, lr=lr, wd=wd, out=a[0], **params)
    for t, a in zip(together, apart):
        for got, want in zip(t, a):
            assert (got.asnumpy() == want.asnumpy()).all()


@pytest.mark.parametrize("multi, one, states, dtype", KINDS)
def test_one_call_of_c_gives_the_bits_of_numpy(multi, one, states, dtype, monkeypatch):
    """Lists of rates as in MXNet's optimizers; other rates, other arrays and a new output come between."""
    params = COMMON | ({"momentum": 0.9} if "mom" in states else {})
    results = []
    for code, shapes in (("c", ((70, 80), (9000,))), ("numpy", ((80, 70), (9000, 1)))):  # of other layouts, so that both are made
        monkeypatch.setenv("TRITIUM_CPU_CODE", code)
        groups = [arrays(states, dtype, mx.cpu(), np.random.default_rng(k), shapes) for k in (1, 2)]
        for lrs, k, into in (([0.1, 0.2], 0, True), ([0.3, 0.4], 0, True), ([0.3, 0.4], 1, True), ([0.1, 0.2], 0, False)):
            out = {"out": [t[0] for t in groups[k]]} if into else {}
            made = getattr(mx.nd, multi)(*chain(*groups[k]), lrs=lrs, wds=[0.0, 0.05], num_weights=2, **out, **params)
        results.append([a.asnumpy().ravel() for a in (*chain(*groups[0], *groups[1]), *made)])
    for got, want in zip(*results):
        np.testing.assert_array_equal(got, want)


def test_rates_are_no_part_of_the_kernel():
    op = ops.get("multi_sgd_update")
    a, b = (op.parse({"lrs": (lr, 0.2), "wds": (0, 0), "num_weights": 2}) for lr in (0.1, 0.7))
    assert a.static == b.static and a.scalars == (0.1, 0.2, 0, 0) and b.scalars[0] == 0.7


def test_all_finite(ctx):
    a = lambda x: mx.nd.array(x, ctx=ctx)
    for bad in (np.inf, -np.inf, np.nan):
        assert mx.nd.all_finite(a([1, bad, 2])).asnumpy().tolist() == [0]
    assert mx.nd.all_finite(a([1, 2])).asnumpy().tolist() == [1]
    assert mx.nd.all_finite(mx.nd.zeros((0,), ctx=ctx)).asnumpy().tolist() == [1]
    assert mx.nd.multi_all_finite(a([1]), a([[2, np.nan]]), num_arrays=2).asnumpy().tolist() == [0]
    out = mx.nd.zeros((1,), ctx=ctx)
    mx.nd.all_finite(a([1.0]), init_output=False, out=out)
    assert out.asnumpy().tolist() == [0]
    mx.nd.all_finite(a([1.0]), out=out)
    assert out.asnumpy().tolist() == [1]


def test_sums_of_squares(ctx, rng):
    xs = [rng.standard_normal(s).astype(d) for s, d in (((3, 4), "float32"), ((70000,), "float16"))]
    got = mx.nd.multi_sum_sq(*[mx.nd.array(x, ctx=ctx, dtype=x.dtype) for x in xs], num_arrays=2)
    assert_close(got, [(x.astype("d") ** 2).sum() for x in xs], scale=0.1)  # 0.1: closer than the table: few roundings


@pytest.mark.parametrize("name, params, message", [
    ("multi_sgd_update", {"lrs": (0.1,), "wds": (0, 0), "num_weights": 2}, r"num_weights=2, but lrs=\(0.1,\), wds=\(0.0, 0.0\)"),
    ("multi_sgd_update", {"lrs": (0.1,), "wds": (0,), "num_weights": 1},
     r"num_weights=1 takes 2 arrays \(weight, grad of each\), 4 were given"),
    ("multi_sum_sq", {"num_arrays": 3}, "multi_sum_sq: num_arrays=3, but 4 arrays were given")])
def test_errors(name, params, message):
    with pytest.raises(ParameterError, match=message):
        getattr(mx.nd, name)(*[mx.nd.ones((2,))] * 4, **params)
