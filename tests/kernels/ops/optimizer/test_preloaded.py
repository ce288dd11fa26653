"""preloaded_multi_*, _multi_adamw_update, reset_arrays. Oracle: the update of one array after the other."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ParameterError

LRS, WDS, ETAS = (0.1, 0.25), (0.01, 0.0), (1.0, 0.5)


def arrays(rng, ctx, roles):
    half = "weight32" in roles
    made = []
    for shape in ((3, 4), (5,)):
        values = {r: np.abs(rng.normal(size=shape)) for r in roles}
        values["weight32"] = values["weight"].astype("float16" if half else "float32")
        made.append([mx.nd.array(values[r], ctx=ctx, dtype="float16" if half and r in ("weight", "grad") else "float32")
                     for r in roles])
    return made


@pytest.mark.parametrize("name", ["sgd_update", "sgd_mom_update", "mp_sgd_update", "mp_sgd_mom_update"])
def test_rates_in_arrays_are_rates(rng, ctx, name):
    roles = ("weight", "grad", *(("mom",) if "mom" in name else ()), *(("weight32",) if "mp" in name else ()))
    p = {"rescale_grad": 0.5, "clip_gradient": 0.4, **({"momentum": 0.9} if "mom" in name else {})}
    given = arrays(rng, ctx, roles)
    copies = [[a.copy() for a in one] for one in given]
    flat = [a for one in given for a in one]
    rates = [mx.nd.array(v, ctx=ctx) for v in (LRS, WDS)]
    getattr(mx.nd, f"preloaded_multi_{name}")(*flat, *rates, num_weights=2, out=[one[0] for one in given], **p)
    for one, lr, wd, got in zip(copies, LRS, WDS, given):
        getattr(mx.nd, name)(*one, lr=lr, wd=wd, out=one[0], **p)
        for a, b in zip(got, one):
            np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-6 if a.dtype == np.float32 else 2e-3, atol=1e-7)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("scale", [0.5, float("nan")])
def test_adamw_of_many(rng, ctx, half, scale):
    roles = ("weight", "grad", "mean", "var", *(("weight32",) if half else ()))
    name = "mp_adamw_update" if half else "adamw_update"
    given = arrays(rng, ctx, roles)
    copies = [[a.copy() for a in one] for one in given]
    rescale = mx.nd.array([scale], ctx=ctx)
    getattr(mx.nd._internal, f"_multi_{name}")(*[a for one in given for a in one], rescale, num_weights=2, lrs=LRS, wds=WDS,
                                               etas=ETAS, out=[one[0] for one in given])
    for one, lr, wd, eta, got in zip(copies, LRS, WDS, ETAS, given):
        getattr(mx.nd.contrib, name)(*one, rescale_grad=scale, lr=lr, wd=wd, eta=eta, out=one[0])
        for a, b in zip(got, one):
            np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())


def test_arrays_are_reset_in_place(rng, ctx):
    a, b = mx.nd.ones((2, 3), ctx=ctx), mx.nd.ones(4, ctx=ctx, dtype="float16")
    mx.nd.reset_arrays(a, b, num_arrays=2)
    assert a.asnumpy().sum() == 0 and b.asnumpy().sum() == 0


@pytest.mark.parametrize("call, text", [
    (lambda a: mx.nd.preloaded_multi_sgd_update(a, a, a, num_weights=1),
     r"num_weights=1 takes 4 arrays \(weight, grad of each, "),
    (lambda a: mx.nd._internal._multi_adamw_update(a, a, a, a, a, lrs=(1, 2), wds=(1,), etas=(1,)),
     r"num_weights=1, but lrs=\(1.0, 2"),
    (lambda a: mx.nd.reset_arrays(a, num_arrays=2), "num_arrays=2, but 1 arrays were given"),
])
def test_refusals(call, text):
    with pytest.raises(ParameterError, match=text):
        call(mx.nd.ones(3))
