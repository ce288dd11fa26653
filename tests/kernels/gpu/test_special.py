"""Every row of the primitives' table, printed as Triton and interpreted. Oracle: the NumPy column of the same row, in
float64 where the input is float32, so that two approximations are not compared with each other."""

import types

import numpy as np
import pytest
from tritium.dtype import bfloat16
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.gpu.printer import triton_kernel
from tritium.kernels.gpu.special import HELPERS, helpers_for
from tritium.kernels.ir.expr import cast, load, prim
from tritium.kernels.ir.primitives import PRIMITIVES
from tritium.kernels.op import Expression, Req, Spec

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
torch = pytest.importorskip("torch")

RUN = types.SimpleNamespace(stream=None, workspace=lambda shape, dtype: np.zeros(shape, dtype))
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-6, -1e-6, 20.5, -20.5]
# relative error in units of the dtype's epsilon; the exponent's own rounding is multiplied by the argument
LOOSE = {"exp": 90, "exp2": 130, "sinh": 90, "cosh": 90, "pow": 300, "tan": 60, "arctanh": 30, "arccosh": 30,
         "gamma": 3000}


def arguments(row, dtype):
    rng = np.random.default_rng(3)
    spread = np.concatenate([rng.normal(size=60), rng.normal(size=30) * 30, np.linspace(-1.5, 1.5, 61)])
    if row.arity == 1:
        return [np.concatenate([SPECIAL, spread]).astype(dtype)]
    a, b = (m.reshape(-1) for m in np.meshgrid(SPECIAL, SPECIAL))
    first, second = np.concatenate([a, spread]), np.concatenate([b, spread[::-1]])
    if row.arity == 3:
        return [first > 0, first.astype(dtype), second.astype(dtype)]
    return [first.astype(dtype), second.astype(dtype)]


def interpreted(root, arrays, dtype):
    out = np.zeros(arrays[0].shape, dtype)
    ins = [Spec(a.shape, a.dtype) for a in arrays]
    triton_kernel(Expression((root,)), ins, [Spec(out.shape, out.dtype)], [Req.WRITE], name="row")(RUN, arrays, [out])
    return out


#: for integers alone, with what each gives in Python; wrapped to 64 bits
WHOLE = {"quotient": lambda a, b: 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
         "whole_pow": lambda a, b: a**b if b >= 0 else 0 if a == 0 else a**(b % 2) if abs(a) == 1 else 0}


@pytest.mark.parametrize("name", [name for name, row in PRIMITIVES.items() if row.rule == "whole"])
def test_primitives_of_integers_agree_with_python(name):
    pairs = [(a, b) for a in (0, 1, -1, 2, -2, 7, -7, 12345, 2**53 + 1, -(2**53) - 1) for b in (0, 1, -1, 2, 3, -3, 5, 62)]
    arrays = [np.array(column, "int64") for column in zip(*pairs)]
    root = prim(name, *(load(i, a.dtype) for i, a in enumerate(arrays)))
    want = [(WHOLE[name](a, b) + 2**63) % 2**64 - 2**63 for a, b in pairs]
    got = interpreted(root, arrays, root.dtype).tolist()
    assert [(p, g, w) for p, g, w in zip(pairs, got, want) if g != w] == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sin", "tan", "arcsin", "arctan", "sinh", "tanh", "arcsinh", "arctanh", "expm1", "log1p",
                                  "cbrt"])
def test_the_sign_of_zero_is_kept(name, dtype):
    zeros = np.array([-0.0, 0.0], dtype)
    got = interpreted(prim(name, load(0, np.dtype(dtype))), [zeros], dtype)
    assert np.signbit(got).tolist() == np.signbit(getattr(np, name)(zeros)).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [np.dtype("float16"), bfloat16], ids=str)
def test_tanh_of_every_half_is_rounded_once(dtype):
    x = np.arange(1 << 16, dtype="uint16").view(dtype)
    a = np.abs(x.astype("float32"))
    x = x[(a == 0) | (a >= np.finfo("float32").tiny)]  # without NaN; the interpreter rounds the least of bfloat16 to 0
    got = interpreted(prim("tanh", load(0, dtype)), [x], dtype)
    assert x[got.view("uint16") != np.tanh(x.astype("float64")).astype(dtype).view("uint16")].tolist() == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name, row in PRIMITIVES.items() if row.rule != "whole"])
def test_primitives_agree_with_numpy(name, dtype):
    row = PRIMITIVES[name]
    arrays = arguments(row, dtype)
    root = prim(name, *(load(i, a.dtype) for i, a in enumerate(arrays)))
    got = interpreted(root, arrays, root.dtype)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    want = np.empty(got.shape, bool if root.dtype == bool else np.float64)
    with np.errstate(all="ignore"):
        row.numpy(*wide, out=want)
        want = want.astype(root.dtype)
    if root.dtype == bool:
        assert (got == want).all()
        return
    epsilon = np.finfo(dtype).eps
    rtol = LOOSE.get(name, 16) * epsilon
    atol = 4 * epsilon if name in ("sin", "cos", "tan", "erf", "gammaln", "digamma") else 2 * np.finfo(dtype).tiny
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(all="ignore"):
        same |= np.abs(got - want) <= atol + rtol * np.abs(want)
    bad = np.flatnonzero(~same)[:8]
    assert not bad.size, [(*(a[i].item() for a in arrays), got[i].item(), want[i].item()) for i in bad]


@pytest.mark.parametrize("name", [n for n, row in PRIMITIVES.items() if row.rule in ("same", "compare")])
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "int64"])
def test_primitives_of_integer_arrays(name, dtype):
    row = PRIMITIVES[name]
    rng = np.random.default_rng(5)
    low = 0 if dtype == "uint8" else -9
    arrays = [rng.integers(low, 10, 80).astype(dtype) for _ in range(row.arity)]
    if name in ("floor", "ceil", "trunc"):
        want = arrays[0]
    else:
        want = np.empty(80, bool if row.rule == "compare" else dtype)
        with np.errstate(all="ignore"):
            row.numpy(*arrays, out=want)
    root = prim(name, *(load(i, a.dtype) for i, a in enumerate(arrays)))
    assert (interpreted(root, arrays, root.dtype) == want).all()


@pytest.mark.parametrize("source,to", [("float32", "int32"), ("float32", "uint8"), ("int32", "float32"),
                                       ("float32", "bool"), ("bool", "float32"), ("int64", "int8"),
                                       ("float32", "float64"), ("float64", "float16"), ("float32", "float16")])
def test_casts_agree_with_numpy(source, to):
    x = np.array([0, 1, 2.75, 3.5, 100, 255.5, 7, 8]).astype(source)
    assert (interpreted(cast(load(0, x.dtype), np.dtype(to)), [x], np.dtype(to)) == x.astype(to)).all()


def test_bfloat16_rounds_to_nearest_even():
    x = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    x[:4] = [np.inf, -np.inf, 3.4e38, 0.0]
    got = torch.zeros(4096, dtype=torch.bfloat16)
    e = Expression((load(0, x.dtype),))
    kernel = triton_kernel(e, [Spec(x.shape, x.dtype)], [Spec(x.shape, bfloat16)], [Req.WRITE], name="row")
    kernel(RUN, [torch.from_numpy(x)], [got])
    assert torch.equal(got, torch.from_numpy(x).to(torch.bfloat16))


def test_every_helper_of_the_table_exists():
    used = " ".join(row.triton for row in PRIMITIVES.values())
    text = helpers_for(used, interpreted=True)
    for row in PRIMITIVES.values():
        if row.triton.startswith("_"):
            assert f"def {row.triton.split('(')[0]}(" in text, row.name
    assert all(text.count(f"def {name}(") <= 1 for name in HELPERS)
