"""Every operator case that MXNet 1.9.1 recorded (tests/golden/ops), through mx.sym and bind: values, derivatives, states,
refusals. What a GPU does otherwise stands in ON_GPU with its reason; all else must agree."""

import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx

GOLDEN = Path(__file__).parent / "golden" / "ops"
TOLERANCE = {"float16": (1e-2, 1e-2), "float32": (1e-4, 1e-5), "float64": (1e-6, 1e-8)}  # relative, absolute

#: case -> why it is otherwise on the (interpreted) GPU.
ON_GPU = {
    **dict.fromkeys(("Pooling_pad-c02", "Pooling_pad-c03", "Pooling_pad-c04", "Pooling_pad-c11"),
                    "the lowest float64, the maximum of a window of padding, is -inf where a kernel is handed float32"),
}


#: case -> what is right where MXNet is not: its compensated sum makes NaN of an infinity.
RIGHT = {"nansum-c07": lambda z: {"out.0": np.nansum(z["in.data"], axis=1)}}


def cases():
    for path in sorted(GOLDEN.glob("*.npz")):
        with np.load(path) as z:
            meta = json.loads(str(z["meta"]))
        for m in meta:
            yield pytest.param(path, m, id=f"{path.stem}-{m['case']}")


def same(got, want, what):
    got, want = np.asarray(got), np.asarray(want)
    assert (tuple(got.shape), str(got.dtype)) == (tuple(want.shape), str(want.dtype)), what
    if want.dtype.kind == "f":
        relative, absolute = TOLERANCE[str(want.dtype)]
        np.testing.assert_allclose(got.astype("float64"), want.astype("float64"), relative, absolute, err_msg=what)
    else:
        np.testing.assert_array_equal(got, want, err_msg=what)


def operator(namespace, name):
    return getattr(namespace, name) if hasattr(namespace, name) else getattr(namespace._internal, name)


def parameters(m):
    return {k: tuple(v) if isinstance(v, list) else v for k, v in m["kwargs"].items()}


def bound(m, arrays, aux, ctx):
    """The executor of one case, and the arrays of its derivatives, which hold 7 before."""
    variables = {n: mx.sym.Variable(n) for n in m["inputs"]}
    make = operator(mx.sym, m["op"])
    given, kw = (variables.values(), {}) if m["positional"] else ((), variables)
    symbol = make(*given, name="op", **kw, **parameters(m))
    requests = m.get("grad_req") or dict.fromkeys(m["inputs"], "null")
    grads = {n: mx.nd.array(np.full(a.shape, 7, a.dtype), ctx=ctx, dtype=a.dtype) for n, a in arrays.items()
             if requests.get(n, "null") != "null"}
    return symbol.bind(ctx, args=arrays, args_grad=grads, grad_req=requests, aux_states=aux), grads


@pytest.mark.parametrize("path, m", list(cases()))
def test_as_mxnet(path, m, ctx):
    if ctx.is_gpu and f"{path.stem}-{m['case']}" in ON_GPU:
        pytest.skip(ON_GPU[f"{path.stem}-{m['case']}"])
    with np.load(path) as file:
        z = {k.split(".", 1)[1]: file[k] for k in file.files if k.startswith(m["case"] + ".")}
    z |= RIGHT.get(f"{path.stem}-{m['case']}", lambda z: {})(z)
    arrays = {n: mx.nd.array(z["in." + n], ctx=ctx, dtype=z["in." + n].dtype) for n in m["inputs"]}
    if "imperative" in (m.get("note") or ""):
        return check_update(m, z, arrays, ctx)
    aux = {n: mx.nd.array(z["aux." + n], ctx=ctx, dtype=z["aux." + n].dtype) for n in m["aux"]}
    if m["error"]:
        with pytest.raises((ValueError, TypeError, RuntimeError, LookupError, mx.MXNetError)):
            ex, _ = bound(m, arrays, aux, ctx)
            [o.asnumpy() for o in ex.forward(is_train=m["is_train"])]
        return None
    ex, grads = bound(m, arrays, aux, ctx)
    for i, o in enumerate(ex.forward(is_train=m["is_train"])):
        same(o.asnumpy(), z[f"out.{i}"], f"output {i}")
    if m["backward"]:
        heads = [z[f"head.{i}"] for i in range(m["outputs"])]
        ex.backward([mx.nd.array(h, ctx=ctx, dtype=h.dtype) for h in heads])
        for n, g in grads.items():
            if "grad." + n in z:
                same(g.asnumpy(), z["grad." + n], f"derivative of {n}")
    mx.nd.waitall()
    for n in m["aux"]:
        same(aux[n].asnumpy(), z["aux_after." + n], f"state {n}")
    return None


def check_update(m, z, arrays, ctx):
    """An optimizer update, called on arrays, whose states change in place."""
    fresh = m["op"] == "lamb_update_phase1"  # its result is a direction, not the weight
    out = mx.nd.zeros(z["out.0"].shape, ctx=ctx) if fresh else arrays["weight"]
    operator(mx.nd, m["op"])(*arrays.values(), out=out, **parameters(m))
    same(out.asnumpy(), z["out.0"], "output")
    for k, want in z.items():
        if k.startswith("state_after."):
            same(arrays[k.split(".", 1)[1]].asnumpy(), want, k)


def test_what_differs_is_among_the_cases():
    assert set(ON_GPU) | set(RIGHT) <= {c.id for c in cases()}
