"""Whole numbers stay exact: casts, division, powers, means, comparison with what no dtype holds. Oracle: Python's integers."""

import math

import numpy as np
import pytest
import tritium as mx
from hypothesis import given
from hypothesis import strategies as st
from tritium.dtype import as_dtype, cast_into, is_float, to_integer

WHOLE = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
CONTEXTS = [mx.cpu(), mx.gpu(0)]
FAR = [3e9, -3e9, 1e20, -1e20, math.nan, math.inf, -math.inf, 300.0, -1.0, -1.5, 256.7, 2.5, 2.0**31, -2.0**31, 2.0**32 - 512,
       2.0**63, -2.0**63, 1.5 * 2.0**63, 2.0**64, -0.0, 127.9, -128.9, 65504.0]


def ends(dtype):
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def wrapped(n, dtype):
    low, high = ends(dtype)
    return (n - low) % (high - low + 1) + low


def cast_of(x, dtype):
    """A float as an integer, as MXNet 1.9.1 has it on the processors it is mostly run on."""
    through = np.dtype(dtype) if dtype in ("int32", "int64") else np.dtype("int32" if np.dtype(dtype).itemsize < 4 else "int64")
    low, high = ends(through)
    if dtype == "uint64" and 2.0**63 <= x < 2.0**64:
        return int(x)
    return wrapped(int(x) if math.isfinite(x) and low <= int(x) <= high else low, dtype)


def quotient(a, b):
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def array(values, dtype, ctx=None):
    return mx.nd.array(np.array(values, as_dtype(dtype)), dtype=dtype, ctx=ctx)


def some(rng, dtype, n):
    """Numbers of all sizes, and the ends."""
    low, high = ends(dtype)
    sizes = [int(rng.integers(0, 2 ** int(rng.integers(1, 8 * np.dtype(dtype).itemsize)), dtype=np.uint64)) for _ in range(n)]
    return [wrapped(s * (-1) ** int(rng.integers(2)), dtype) for s in sizes[:-5]] + [low, high, 0, 1, high - 1]


# ---- casts -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ctx", CONTEXTS, ids=str)
@pytest.mark.parametrize("to", WHOLE)
@pytest.mark.parametrize("source", FLOATS)
def test_a_float_out_of_range_has_one_meaning_everywhere(source, to, ctx):
    with np.errstate(all="ignore"):
        x = np.array(FAR * 3).astype(as_dtype(source))  # more than a vector holds
    want = [cast_of(float(v), to) for v in x]
    a = mx.nd.array(x, dtype=source, ctx=ctx)
    target = mx.nd.zeros(len(x), dtype=to, ctx=ctx)
    made = {"Cast": mx.nd.Cast(a, dtype=to), "astype": a.astype(to), "copyto": a.copyto(target),
            "array": mx.nd.array(x, dtype=to, ctx=ctx), "one": mx.nd.Cast(a[3:4], dtype=to)}
    part = mx.nd.zeros(len(x), dtype=to, ctx=ctx)
    part[:] = a
    made["assigned"] = part
    there = mx.sym.Cast(mx.sym.var("x"), dtype=to).bind(ctx, {"x": a}).forward()[0]
    for how, got in {**made, "bound": there}.items():
        assert got.asnumpy().tolist() == (want if how != "one" else want[3:4]), how
    assert [to_integer(float(v), np.dtype(to)) for v in x] == want


@pytest.mark.parametrize("ctx", CONTEXTS, ids=str)
@pytest.mark.parametrize("to", ["int32", "int8"])
def test_the_derivative_of_a_cast_and_a_fill_convert_alike(to, ctx):
    assert mx.nd.full(3, 3e9, dtype=to, ctx=ctx).asnumpy().tolist() == [cast_of(3e9, to)] * 3
    filled = mx.nd.zeros(3, dtype=to, ctx=ctx)
    filled[:] = math.nan
    assert filled.asnumpy().tolist() == [cast_of(math.nan, to)] * 3


def test_a_conversion_that_numpy_leaves_open_is_our_own(monkeypatch):
    """As on a processor whose conversions differ: what is computed then is the same."""
    from tritium import dtype as module

    monkeypatch.setattr(module, "_numpy_agrees", lambda have, want: False)
    for source in FLOATS:
        with np.errstate(all="ignore"):
            x = np.array(FAR).astype(as_dtype(source))
        for to in WHOLE:
            out = np.empty(len(x), to)
            with np.errstate(all="ignore"):
                cast_into(out, x)
            assert out.tolist() == [cast_of(float(v), to) for v in x]
    assert not is_float(np.dtype("int8"))


@given(st.floats(width=64), st.sampled_from(WHOLE))
def test_any_float_is_cast_as_the_rule_says(x, to):
    out = np.empty(1, to)
    with np.errstate(all="ignore"):
        cast_into(out, np.array([x]))
    assert out.tolist() == [cast_of(x, to)] == [to_integer(x, np.dtype(to))]


# ---- division --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ctx", CONTEXTS, ids=str)
@pytest.mark.parametrize("dtype", WHOLE)
def test_division_is_exact(dtype, ctx, rng):
    a, b = some(rng, dtype, 200), some(rng, dtype, 200)
    b = b[7:] + b[:7]
    x, y = array(a, dtype, ctx), array(b, dtype, ctx)
    cut = [wrapped(quotient(p, q), dtype) for p, q in zip(a, b)]
    floor = [0 if q == 0 else wrapped(p // q, dtype) for p, q in zip(a, b)]
    assert (x / y).asnumpy().tolist() == cut
    assert (x // y).asnumpy().tolist() == floor
    assert (x % y).asnumpy().tolist() == [0 if q == 0 else p % q for p, q in zip(a, b)]
    assert mx.nd.broadcast_div(x.reshape((1, -1)), y.reshape((1, -1))).asnumpy()[0].tolist() == cut
    for scalar in (1, 3, 10, ends(dtype)[1], -2 if dtype.startswith("int") else 2):
        assert (x / scalar).asnumpy().tolist() == [wrapped(quotient(p, scalar), dtype) for p in a]
        assert (x // scalar).asnumpy().tolist() == [wrapped(p // scalar, dtype) for p in a]
        assert (scalar / x).asnumpy().tolist() == [wrapped(quotient(scalar, p), dtype) for p in a]
        assert (scalar // x).asnumpy().tolist() == [0 if p == 0 else wrapped(scalar // p, dtype) for p in a]
    z = x.copy()
    z /= y
    assert z.asnumpy().tolist() == cut
    z = x.copy()
    z //= 3
    assert z.asnumpy().tolist() == [p // 3 for p in a]


def test_a_bound_division_is_exact(rng):
    a, b = some(rng, "int32", 300), some(rng, "int32", 300)[::-1]
    x, y = mx.sym.var("x"), mx.sym.var("y")
    bound = (x / y + x).bind(mx.cpu(), {"x": array(a, "int32"), "y": array(b, "int32")})
    assert bound.forward()[0].asnumpy().tolist() == [wrapped(quotient(p, q) + p, "int32") for p, q in zip(a, b)]


def test_division_as_the_issue_has_it():
    x = array([2147483647, 123456789, -7], "int32")
    assert (x / 1).asnumpy().tolist() == [2147483647, 123456789, -7]
    assert (x / 2).asnumpy().tolist() == [1073741823, 61728394, -3]
    assert (x // 2).asnumpy().tolist() == [1073741823, 61728394, -4]
    assert (array([-7.5, 7.5], "float32") // 2).asnumpy().tolist() == [-4, 3]


# ---- numbers beyond 2^53 -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ctx", CONTEXTS, ids=str)
@pytest.mark.parametrize("n", [2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, np.int64(2**53 + 1)])
def test_a_number_beyond_2_53_stays_what_it_is(n, ctx):
    a = [2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 5, 2**62 + 1, 2**63 - 1]
    for x in (array(a, "int64", ctx), array(a * 500, "int64", ctx)):  # tiny arrays have a way of their own
        given = x.asnumpy().tolist()
        m = int(n)
        assert (x + n).asnumpy().tolist() == [wrapped(p + m, "int64") for p in given]
        assert (n - x).asnumpy().tolist() == [wrapped(m - p, "int64") for p in given]
        assert (x * n).asnumpy().tolist() == [wrapped(p * m, "int64") for p in given]
        assert (x == n).asnumpy().tolist() == [p == m for p in given]
        assert (x < n).asnumpy().tolist() == [p < m for p in given]
        assert (x >= n).asnumpy().tolist() == [p >= m for p in given]
        assert (x // n).asnumpy().tolist() == [p // m for p in given]
        assert (x % n).asnumpy().tolist() == [p % m for p in given]
        assert mx.nd.clip(x, 0, n).asnumpy().tolist() == [m if p > m else max(p, 0) for p in given]  # m may be below 0
        assert mx.nd.maximum(x, n).asnumpy().tolist() == [max(p, m) for p in given]


@pytest.mark.parametrize("ctx", CONTEXTS, ids=str)
def test_a_number_beyond_2_53_passes_through_symbols_and_json(ctx):
    n = 2**53 + 1
    net = mx.sym.load_json((mx.sym.var("x") + n).tojson())
    assert net.bind(ctx, {"x": array([1, n], "int64", ctx)}).forward()[0].asnumpy().tolist() == [n + 1, 2 * n]
    assert (mx.nd.ones(1) + 10**30).asscalar() == np.float32(1e30)
    assert (mx.nd.ones(1000) * (2**53 + 1)).asnumpy()[0] == np.float32(2**53)


# ---- powers, means, logic ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ctx", CONTEXTS, ids=str)
@pytest.mark.parametrize("dtype", WHOLE)
def test_powers_are_those_of_whole_numbers(dtype, ctx, rng):
    a = some(rng, dtype, 60)
    b = [int(v) for v in rng.integers(-3 if dtype.startswith("int") else 0, 8, len(a))]

    def power(p, q):
        return wrapped(p**q, dtype) if q >= 0 else 0 if p == 0 else quotient(1, p**-q)

    x, y = array(a, dtype, ctx), array(b, dtype, ctx)
    assert (x**y).asnumpy().tolist() == [power(p, q) for p, q in zip(a, b)]
    assert (x**3).asnumpy().tolist() == [power(p, 3) for p in a]
    assert (2 ** array([0, 3, 6], dtype, ctx)).asnumpy().tolist() == [1, 8, 64]


@pytest.mark.parametrize("ctx", CONTEXTS, ids=str)
@pytest.mark.parametrize("dtype", WHOLE)
def test_means_do_not_wrap(dtype, ctx, rng):
    low, high = (max(ends(dtype)[0], -(2**58)), min(ends(dtype)[1], 2**58))
    x = np.array([[int(rng.integers(low, high, endpoint=True)) for _ in range(5)] for _ in range(7)], dtype)
    x[:, 0], x[:, 1] = high, low
    a = mx.nd.array(x, dtype=dtype, ctx=ctx)
    column, row = [list(map(int, c)) for c in x.T], [list(map(int, r)) for r in x]
    assert a.mean().asnumpy().tolist() == [quotient(sum(map(sum, row)), x.size)]
    assert a.mean(axis=0).asnumpy().tolist() == [quotient(sum(c), 7) for c in column]
    assert a.mean(axis=1).asnumpy().tolist() == [quotient(sum(r), 5) for r in row]
    assert mx.nd.array(np.full(3000, 200), dtype="uint8", ctx=ctx).mean().asscalar() == 200


@pytest.mark.parametrize("ctx", CONTEXTS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("number", [0.5, -0.5, 0.0, 1e-30, math.nan, math.inf, 7])
def test_a_number_is_true_where_python_says_so(number, dtype, ctx):
    """Beside integers only its integer part counts, as in MXNet."""
    true = bool(number) if is_float(np.dtype(dtype)) or not math.isfinite(number) else bool(int(number))
    a = array([0, 1, 5], dtype, ctx)
    assert mx.nd.logical_and(a, number).asnumpy().tolist() == [0, true, true]
    assert mx.nd.logical_or(a, number).asnumpy().tolist() == [true, 1, 1]
    assert mx.nd.logical_xor(a, number).asnumpy().tolist() == [true, not true, not true]


# ---- infinities --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ctx", CONTEXTS, ids=str)
@pytest.mark.parametrize("dtype", WHOLE)
def test_integers_beside_numbers_that_their_dtype_does_not_hold(dtype, ctx):
    low, high = ends(dtype)
    a = [low, 0, 5, high]
    x = array(a, dtype, ctx)
    for number in (math.inf, -math.inf, math.nan, 1e30, -2.5, 2**70, -1, 300):
        n = number if not math.isfinite(number) else cast_of(float(number), dtype)  # MXNet: beside uint8, -2.5 is 254
        assert (x < number).asnumpy().tolist() == [p < n for p in a]
        assert (x <= number).asnumpy().tolist() == [p <= n for p in a]
        assert (x > number).asnumpy().tolist() == [p > n for p in a]
        assert (x >= number).asnumpy().tolist() == [p >= n for p in a]
        assert (x == number).asnumpy().tolist() == [p == n for p in a]
        assert (x != number).asnumpy().tolist() == [p != n for p in a]
    for n in (math.inf, 1e30):
        assert mx.nd.clip(x, -n, n).asnumpy().tolist() == a
        assert mx.nd.clip(x, 3, n).asnumpy().tolist() == [max(p, 3) for p in a]
        assert mx.nd.clip(x, -n, 3).asnumpy().tolist() == [min(p, 3) for p in a]
    assert (x > 4.5).asnumpy().tolist() == [p > 4 for p in a]  # the whole part counts, as in MXNet
    for name, want in (("isinf", 0), ("isnan", 0), ("isfinite", 1)):
        assert getattr(mx.nd.contrib, name)(x).asnumpy().tolist() == [want] * 4
    assert (x + math.inf).shape == (4,)


def test_clip_passes_the_derivative_where_a_bound_is_infinite():
    x = array([1, 5, 9], "int64")
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.clip(x, 3, math.inf)
    y.backward()
    assert x.grad.asnumpy().tolist() == [0, 1, 1]


# ---- all of it, at random ------------------------------------------------------------------------------------------------
@given(st.data(), st.sampled_from(WHOLE))
def test_random_arithmetic_is_that_of_python(data, dtype):
    numbers = st.integers(*ends(dtype))
    a, b = (data.draw(st.lists(numbers, min_size=3, max_size=3)) for _ in range(2))
    n = data.draw(numbers)
    x, y = array(a, dtype), array(b, dtype)
    cases = {"+": (x + y, [p + q for p, q in zip(a, b)]), "-": (x - n, [p - n for p in a]),
             "*": (x * y, [p * q for p, q in zip(a, b)]), "/": (x / y, [quotient(p, q) for p, q in zip(a, b)]),
             "//": (x // y, [q and p // q for p, q in zip(a, b)]), "/n": (x / n, [quotient(p, n) for p in a]),
             "%": (n % x, [p and n % p for p in a]), "**": (x**5, [p**5 for p in a]),
             "max": (mx.nd.maximum(x, n), [max(p, n) for p in a]), "<": (x < n, [p < n for p in a])}
    for sign, (got, want) in cases.items():
        assert got.asnumpy().tolist() == [wrapped(int(v), dtype) for v in want], sign
