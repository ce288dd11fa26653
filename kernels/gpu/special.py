"""Mathematical functions that Triton lacks, as the text of device functions, compiled and interpreted by the same formula.

Each works on float32 and float64 blocks (`_mod`, `_floor`, `_ceil`, `_trunc` on integers, too) and gives NumPy's values for
infinities, NaN and zero; odd functions and `_expm1` keep the sign of zero. The polynomials are Chebyshev interpolants on the
interval that remains after the argument is reduced, computed with 60 digits. The identities are those of Abramowitz and Stegun,
chapter 4.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from ..ir.special import DIGAMMA, NORMAL_QUANTILE, STIRLING


def _polynomial(result: str, variable: str, coefficients: tuple[float, ...]) -> str:
    """Lines that set result to the polynomial in variable; coefficients: lowest first."""
    *rest, last = coefficients
    lines = [f"    {result} = {last!r} * {variable} + {rest[-1]!r}"]
    return "\n".join(lines + [f"    {result} = {result} * {variable} + {c!r}" for c in rest[-2::-1]])


def _horner(variable: str, single: tuple[float, ...], double: tuple[float, ...]) -> str:
    """Lines that set p to the polynomial in variable, with coefficients for float32 and float64."""
    lines = f"if {variable}.dtype == tl.float64:\n{_polynomial('p', variable, double)}\n" \
            f"else:\n{_polynomial('p', variable, single)}"
    return textwrap.indent(lines, "    ")


def _row_extreme(kind: str) -> str:
    """The text of _row_max or _row_min, which keep NaN: tl.max and tl.min drop it. worst: the identity."""
    return f'''
def _row_{kind}(x, mask, worst: tl.constexpr, axis: tl.constexpr):
    if x.dtype.is_floating():
        good = tl.{kind}(tl.where(mask & (x == x), x, worst), axis, keep_dims=True)
        bad = tl.max(tl.where(mask & (x != x), 1, 0), axis, keep_dims=True)
        r = tl.where(bad > 0, float("nan"), good)
    else:
        r = tl.{kind}(tl.where(mask, x, worst), axis, keep_dims=True)
    return r
'''


# (arctan(x)/x - 1)/x² in z = x² on [0, tan²(π/8)]; error below 2e-8 and 2e-18
_ATAN = (
    (-0.3333333176, 0.1999954048, -0.142639556, 0.1074373149, -0.06451928208),
    (-0.33333333333333333, 0.19999999999999805, -0.14285714285659828, 0.11111111105155447, -0.090909087535008768,
     0.076922963750321424, -0.066664248857382553, 0.058789289978347751, -0.052304542706502445, 0.045515932206265492,
     -0.034570561981427747, 0.016285756855221028),
)
# (arcsin(x)/x - 1)/x² in z = x² on [0, 1/4]; error below 5e-9 and 1e-18
_ASIN = (
    (0.1666666634, 0.07500094543, 0.04459940153, 0.03110066274, 0.01714923836, 0.0336908472),
    (0.16666666666666667, 0.075000000000001178, 0.044642857142551893, 0.03038194447553234, 0.022372157443507222,
     0.017352816540325495, 0.01396378001220357, 0.011566459612121669, 0.009621842970100281, 0.0093195607947674463,
     0.0030448799094556774, 0.019554513336123379, -0.019241671746743041, 0.02961201126495512),
)
# (eˣ - 1 - x)/x² on [-1/2, 1/2]; error below 4e-10 and 2e-18
_EXPM1 = (
    (0.5, 0.1666666714, 0.04166666714, 0.008333182072, 0.001388873772, 0.0001996217623, 2.492243643e-5),
    (0.5, 0.16666666666666667, 0.041666666666667062, 0.0083333333333333597, 0.0013888888888704549,
     0.00019841269841146992, 2.4801587616145413e-5, 2.7557319433620243e-6, 2.7557076636642723e-7,
     2.5051946709721621e-8, 2.0962955815976076e-9, 1.6116496514371546e-10),
)
# sin(πg)/g in g² on [0, 1/4]; error below 1e-18
_SIN_TURN = (3.1415926535897932378, -5.1677127800499696077, 2.5501640398773004745, -0.59926452931894468132,
             0.082145886573102895020, -0.0073704305059169434047, 0.00046629981618983938014, -0.000021903497074626017191,
             7.6978267682241906454e-7)

_TEXT = f'''
def _mod(a, b):
    a, b = tl.broadcast(a, b)  # one may be a scalar, whose comparisons the interpreter mistypes
    if a.dtype.is_floating():
        r = a % b
    else:
        r = a % tl.where(b == 0, 1, b)
    r = tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
    return tl.where(b == 0, 0, r)


def _quotient(a, b):
    a, b = tl.broadcast(a, b)  # one may be a scalar, whose comparisons the interpreter mistypes
    return tl.where(b == 0, 0, a // tl.where(b == 0, 1, b))


def _int_pow(a, b):
    a, b = tl.broadcast(a, b)
    base = a
    left = tl.where(b < 0, 0, b)
    r = tl.where(b == b, 1, a).to(a.dtype)
    for _ in range(63):
        r = tl.where(left % 2 == 1, r * base, r)
        base = base * base
        left = left // 2
    odd = (b % 2 == 1) | (b % 2 == -1)
    below = tl.where(a == 1, 1, tl.where(a == -1, tl.where(odd, -1, 1), 0))
    return tl.where(b < 0, below, r).to(a.dtype)


def _to_int32(x):
    # NaN and values out of range give the smallest integer on every processor
    return tl.where((x >= -2147483648.0) & (x < 2147483648.0), x, -2147483648.0).to(tl.int32)


def _to_int64(x):
    return tl.where((x >= -9223372036854775808.0) & (x < 9223372036854775808.0), x, -9223372036854775808.0).to(tl.int64)


def _to_uint64(x):
    high = (x >= 9223372036854775808.0) & (x < 18446744073709551616.0)
    low = _to_int64(tl.where(high, x - 9223372036854775808.0, x)).to(tl.uint64)
    return low ^ (high.to(tl.uint64) << 63)


def _pow(a, b):
    a, b = tl.broadcast(a, b)  # one may be a scalar, whose comparisons the interpreter mistypes
    # in float64: the exponent's error is multiplied by the size of the result's logarithm
    x = tl.abs(a).to(tl.float64)
    y = b.to(tl.float64)
    r = tl.exp(y * tl.log(x))
    r = tl.where((b == 0) | (x == 1), 1.0, r)
    half = y * 0.5
    whole = tl.floor(y) == y
    odd = whole & (tl.floor(half) != half)
    negative = (a < 0) | ((a == 0) & (1.0 / a < 0))
    r = tl.where(negative & odd, -r, r)
    r = tl.where((a < 0) & (whole == 0) & (x != float("inf")), float("nan"), r)
    r = tl.where((a != a) & (b != 0), a.to(tl.float64), r)
    return tl.where((b != b) & (a != 1), y, r).to(a.dtype)


def _hypot(a, b):
    a, b = tl.broadcast(a, b)  # one may be a scalar, whose comparisons the interpreter mistypes
    x = tl.abs(a)
    y = tl.abs(b)
    m = tl.where(x > y, x, y)
    n = tl.where(x > y, y, x)
    q = n / tl.where(m == 0, 1.0, m)
    r = m * _sqrt(1.0 + q * q)
    r = tl.where((a != a) | (b != b), a + b, r)
    return tl.where((x == float("inf")) | (y == float("inf")), float("inf"), r)


def _arctan01(x):
    # x in [0, 1]: above tan(π/8), arctan x = π/4 + arctan((x - 1)/(x + 1))
    far = x > 0.4142135623730950488
    u = tl.where(far, (x - 1.0) / (x + 1.0), x)
    z = u * u
{_horner("z", *_ATAN)}
    r = u + u * z * p
    return tl.where(far, 0.7853981633974483096 + r, r)


def _arctan(x):
    a = tl.abs(x)
    far = a > 1.0
    r = _arctan01(tl.where(far, 1.0 / a, a))
    r = tl.where(far, 1.5707963267948966192 - r, r)
    return tl.where(x == 0, x, tl.where(x < 0, -r, r))


def _arctan2(y, x):
    a = tl.abs(x)
    b = tl.abs(y)
    steep = b > a
    small = tl.where(steep, a, b)
    large = tl.where(steep, b, a)
    q = small / tl.where(large == 0, 1.0, large)
    r = _arctan01(tl.where((small == float("inf")) & (large == float("inf")), 1.0, q))
    r = tl.where(steep, 1.5707963267948966192 - r, r)
    r = tl.where((x < 0) | ((x == 0) & (1.0 / x < 0)), 3.1415926535897932385 - r, r)
    r = tl.where((y < 0) | ((y == 0) & (1.0 / y < 0)), -r, r)
    return tl.where((x != x) | (y != y), x + y, r)


def _sqrt(x):
    return tl.sqrt(x) if x.dtype == tl.float64 else tl.sqrt_rn(x)


def _rsqrt(x):
    return 1.0 / tl.sqrt(x) if x.dtype == tl.float64 else tl.rsqrt(x)


def _cbrt(x):
    a = tl.abs(x)
    odd = (a == 0) | (a == float("inf")) | (a != a)
    b = tl.where(odd, 1.0, a)
    y = tl.exp(tl.log(b) * 0.33333333333333333)
    y = y - (y * y * y - b) / (3.0 * y * y)
    y = y - (y * y * y - b) / (3.0 * y * y)
    return tl.where(odd, x, tl.where(x < 0, -y, y))


def _expm1(x):
    near = tl.abs(x) < 0.5
    u = tl.where(near, x, 0.0)
{_horner("u", *_EXPM1)}
    return tl.where(x == 0, x, tl.where(near, u + u * u * p, tl.exp(x) - 1.0))


def _log10(x):
    return tl.log(x) * 0.43429448190325182765


def _log1p(x):
    u = 1.0 + x
    d = u - 1.0
    exact = (d == 0) | (u == float("inf"))
    return tl.where(exact, x, tl.log(u) * (x / tl.where(exact, 1.0, d)))


def _tan(x):
    return tl.sin(x) / tl.cos(x)


def _arcsin_near(x):
    z = x * x
{_horner("z", *_ASIN)}
    return x + x * z * p


def _arcsin(x):
    a = tl.abs(x)
    far = a > 0.5
    u = _arcsin_near(tl.where(far, _sqrt((1.0 - a) * 0.5), a))
    r = tl.where(far, 1.5707963267948966192 - 2.0 * u, u)
    return tl.where(x == 0, x, tl.where(x < 0, -r, r))


def _arccos(x):
    a = tl.abs(x)
    far = a > 0.5
    u = _arcsin_near(tl.where(far, _sqrt((1.0 - a) * 0.5), x))
    r = tl.where(x < 0, 3.1415926535897932385 - 2.0 * u, 2.0 * u)
    return tl.where(far, r, 1.5707963267948966192 - u)


def _sinh(x):
    a = tl.abs(x)
    e = _expm1(tl.where(a > 20.0, 0.0, a))
    h = tl.exp(a * 0.5)
    r = tl.where(a > 20.0, (0.5 * h) * h, 0.5 * (e + e / (e + 1.0)))
    return tl.where(x == 0, x, tl.where(x < 0, -r, r))


def _cosh(x):
    h = tl.exp(tl.abs(x) * 0.5)
    return (0.5 * h) * h + (0.5 / h) / h


def _tanh(x):
    a = tl.abs(x)
    e = _expm1(2.0 * tl.where(a > 20.0, 20.0, a))
    r = e / (e + 2.0)
    return tl.where(a < 1e-8, x, tl.where(x < 0, -r, r))  # with the sign of 0


def _arcsinh(x):
    a = tl.abs(x)
    far = a > 1e9
    b = tl.where(far, 1.0, a)
    r = _log1p(b + b * b / (1.0 + _sqrt(b * b + 1.0)))
    r = tl.where(far, tl.log(a) + 0.69314718055994530942, r)
    return tl.where(x == 0, x, tl.where(x < 0, -r, r))


def _arccosh(x):
    far = x > 1e9
    t = tl.where(far, 1.0, x - 1.0)
    r = _log1p(t + _sqrt(t * (t + 2.0)))
    r = tl.where(far, tl.log(x) + 0.69314718055994530942, r)
    return tl.where(x < 1.0, float("nan"), r)


def _arctanh(x):
    a = tl.abs(x)
    r = 0.5 * _log1p(2.0 * a / (1.0 - a))
    r = tl.where(a > 1.0, float("nan"), r)
    return tl.where(x == 0, x, tl.where(x < 0, -r, r))


def _reflected(y):
    # y or 1 - y, whichever is at least 1/2
    return tl.where(y < 0.5, 1.0 - y, y)


def _pole(y):
    # where the gamma function has a pole; tl.floor(inf) is inf
    return (y <= 0) & (y == tl.floor(y))


def _sin_turn(g):
    # sin(πg) for |g| <= 1/2, without the table in memory that tl.sin keeps for huge arguments
    z = g * g
{_polynomial("p", "z", _SIN_TURN)}
    return g * p


def _log_gamma(y):
    # y: float64. Stirling's series from 8 on; below, the product that leads there is divided out
    z = _reflected(y)
    product = tl.where(z == z, 1.0, z)
    for _ in tl.static_range(8):
        near = z < 8.0
        product = product * tl.where(near, z, 1.0)
        z = tl.where(near, z + 1.0, z)
    r = 1.0 / (z * z)
{_polynomial("s", "r", STIRLING)}
    v = (z - 0.5) * tl.log(z) - z + 0.9189385332046727418 + s / z - tl.log(product)
    turn = tl.abs(_sin_turn(y - tl.floor(y + 0.5)))
    v = tl.where(y < 0.5, 1.1447298858494001741 - tl.log(turn) - v, v)
    return tl.where(_pole(y) | (tl.abs(y) == float("inf")), float("inf"), v)


def _gammaln(x):
    return _log_gamma(x.to(tl.float64)).to(x.dtype)


def _gamma(x):
    y = x.to(tl.float64)
    v = tl.exp(_log_gamma(y))
    whole = tl.floor(y)
    v = tl.where((y < 0) & (whole != 2.0 * tl.floor(whole * 0.5)), -v, v)
    v = tl.where((y < 0) & (y == whole), float("nan"), tl.where(y == 0, 1.0 / y, v))
    return v.to(x.dtype)


def _digamma(x):
    y = x.to(tl.float64)
    z = _reflected(y)
    v = tl.where(z == z, 0.0, z)
    for _ in tl.static_range(8):
        near = z < 8.0
        v = v - tl.where(near, 1.0 / z, 0.0)
        z = tl.where(near, z + 1.0, z)
    r = 1.0 / (z * z)
{_polynomial("s", "r", DIGAMMA)}
    v = v + tl.log(z) - 0.5 / z - r * s
    turn = y - tl.floor(y + 0.5)
    v = tl.where(y < 0.5, v - 3.1415926535897932385 * _sin_turn(0.5 - tl.abs(turn)) / _sin_turn(turn), v)
    return tl.where(_pole(y) | (tl.abs(y) == float("inf")), float("inf"), v).to(x.dtype)


def _erfinv(x):
    y = x.to(tl.float64)
    a = tl.abs(y)
    far = tl.sqrt(-tl.log(tl.where(a < 1.0, 1.0 - a, 0.5) * 0.5))
    r = 0.180625 - 0.25 * a * a
{_polynomial("p", "r", NORMAL_QUANTILE[0][0])}
{_polynomial("q", "r", NORMAL_QUANTILE[0][1])}
    middle = 0.5 * a * (p / q)
    r = far - 1.6
{_polynomial("p", "r", NORMAL_QUANTILE[1][0])}
{_polynomial("q", "r", NORMAL_QUANTILE[1][1])}
    near = p / q
    r = far - 5.0
{_polynomial("p", "r", NORMAL_QUANTILE[2][0])}
{_polynomial("q", "r", NORMAL_QUANTILE[2][1])}
    v = tl.where(a <= 0.85, middle, tl.where(far <= 5.0, near, p / q)) * 0.70710678118654752440
    v = tl.where(a == 1.0, float("inf"), tl.where(a < 1.0, v, float("nan")))
    return tl.where(y < 0, -v, v).to(x.dtype)

def _floor(x):
    return tl.floor(x) if x.dtype.is_floating() else x


def _ceil(x):
    return tl.ceil(x) if x.dtype.is_floating() else x


def _trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x)) if x.dtype.is_floating() else x


def _add_exponential(total, largest, x):
    # total, a sum of exp(v - largest), with x added: of v - max(largest, x); equal infinities count as a difference of 0
    apart = tl.exp(-tl.abs(tl.where(x == largest, 0.0, x - largest)))
    return tl.where(x > largest, total * apart + 1.0, total + apart)


def _bfloat16(x):
    # the interpreter cuts bits off where a GPU rounds to nearest even
    u = x.to(tl.uint32, bitcast=True)
    u = (u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000
    return tl.where(x == x, u.to(tl.float32, bitcast=True), x).to(tl.bfloat16)


{_row_extreme("max")}
{_row_extreme("min")}
def _block_sum(x, axis: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    # the interpreter adds rows one after the other, where a GPU adds in a tree
    if axis == 0 and rows > 32:
        x = tl.sum(tl.reshape(x, (32, rows // 32, columns)), 0)
        if rows > 1024:
            x = tl.sum(tl.reshape(x, (32, rows // 1024, columns)), 0)
    return tl.sum(x, axis, keep_dims=True)


def _random_four(seed, counter):
    # the four words of philox(counter, key = seed); counter: int64
    c0 = (counter & 0xFFFFFFFF).to(tl.uint32)
    c1 = (counter >> 32).to(tl.uint32)
    zero = c0 * 0
    key = counter * 0 + seed
    k0 = (key & 0xFFFFFFFF).to(tl.uint32)
    k1 = ((key >> 32) & 0xFFFFFFFF).to(tl.uint32)
    return tl.philox_impl(c0, c1, zero, zero, k0, k1)


def _chosen_of_four(at, w0, w1, w2, w3):
    return tl.where(at == 0, w0, tl.where(at == 1, w1, tl.where(at == 2, w2, w3)))


def _random_word(seed, number):
    # word number % 4 of philox(counter = number // 4, key = seed); number: int64
    w0, w1, w2, w3 = _random_four(seed, number // 4)
    return _chosen_of_four(number % 4, w0, w1, w2, w3)


def _random_words(seed, start, size: tl.constexpr):
    # words start … start + size: each counter gives four of them; where start is within four, they end in those of the next one
    counter = start // 4 + tl.arange(0, size // 4)
    w0, w1, w2, w3 = _random_four(seed, counter)
    v0 = w0
    v1 = w1
    v2 = w2
    at = start % 4
    if at != 0:
        v0, v1, v2, v3 = _random_four(seed, counter + 1)
    even = tl.join(_chosen_of_four(at, w0, w1, w2, w3), _chosen_of_four(at, w2, w3, v0, v1))
    odd = tl.join(_chosen_of_four(at, w1, w2, w3, v0), _chosen_of_four(at, w3, v0, v1, v2))
    return tl.reshape(tl.join(even, odd), (size,))


def _random_words_of_rows(seed, start, base, size: tl.constexpr, aligned: tl.constexpr):
    # [rows, size]: words start … start + size for each of start [rows, 1]. aligned: each start % 4 is base % 4, of a scalar
    counter = start // 4 + tl.arange(0, size // 4)[None, :]
    w0, w1, w2, w3 = _random_four(seed, counter)
    if aligned:
        v0 = w0
        v1 = w1
        v2 = w2
        at = base % 4
        if at != 0:
            v0, v1, v2, v3 = _random_four(seed, counter + 1)
    else:
        v0, v1, v2, v3 = _random_four(seed, counter + 1)
        at = start % 4
    even = tl.join(_chosen_of_four(at, w0, w1, w2, w3), _chosen_of_four(at, w2, w3, v0, v1))
    odd = tl.join(_chosen_of_four(at, w1, w2, w3, v0), _chosen_of_four(at, w3, v0, v1, v2))
    return tl.reshape(tl.join(even, odd), (start.shape[0], size))


def _random_uniform(seed, number, bits: tl.constexpr, unit: tl.constexpr, wide: tl.constexpr):
    return (_random_word(seed, number) >> (32 - bits)).to(wide) * unit


def _random_uniforms(seed, start, size: tl.constexpr, bits: tl.constexpr, unit: tl.constexpr, wide: tl.constexpr):
    # those of numbers start … start + size
    return (_random_words(seed, start, size) >> (32 - bits)).to(wide) * unit


def _random_uniforms_of_rows(seed, start, base, size: tl.constexpr, aligned: tl.constexpr, bits: tl.constexpr,
                             unit: tl.constexpr, wide: tl.constexpr):
    return (_random_words_of_rows(seed, start, base, size, aligned) >> (32 - bits)).to(wide) * unit


def _random_normal(seed, start, i, wide: tl.constexpr):
    # by Box and Muller: elements 2 j and 2 j + 1 share a pair of numbers
    pair = start + i // 2 * 2
    radius, angle = _radius_and_angle(_random_word(seed, pair), _random_word(seed, pair + 1), wide)
    return radius * tl.where(i % 2 == 0, tl.cos(angle), tl.sin(angle))


def _radius_and_angle(u, v, wide: tl.constexpr):
    radius = tl.sqrt(-2 * tl.log(((u >> 8).to(wide) + 1) * 5.9604644775390625e-08))
    return radius, (v >> 8).to(wide) * 3.7450702829239286e-07


def _random_normals(seed, start, size: tl.constexpr, wide: tl.constexpr):
    # those of elements 0 … size, of which pairs have the words from start on
    u, v = tl.split(tl.reshape(_random_words(seed, start, size), (size // 2, 2)))
    radius, angle = _radius_and_angle(u, v, wide)
    return tl.reshape(tl.join(radius * tl.cos(angle), radius * tl.sin(angle)), (size,))


def _random_normals_of_rows(seed, start, base, size: tl.constexpr, aligned: tl.constexpr, wide: tl.constexpr):
    # those of elements that begin with a pair's first
    words = _random_words_of_rows(seed, start, base, size, aligned)
    u, v = tl.split(tl.reshape(words, (start.shape[0], size // 2, 2)))
    radius, angle = _radius_and_angle(u, v, wide)
    return tl.reshape(tl.join(radius * tl.cos(angle), radius * tl.sin(angle)), (start.shape[0], size))


def _row_product(x, lane, size: tl.constexpr, axis: tl.constexpr):
    c = tl.cumprod(x, axis)
    return tl.sum(tl.where(lane == size - 1, c, 0), axis, keep_dims=True)
'''

#: name of a device function -> its text
HELPERS: dict[str, str] = {
    match[1]: "@triton.jit\n" + match[0].strip() + "\n"
    for match in re.finditer(r"^def (_\w+)\(.*?(?=^def |\Z)", _TEXT, re.MULTILINE | re.DOTALL)
}


# the functions that differ where a kernel is compiled
_COMPILED = {"_bfloat16": "@triton.jit\ndef _bfloat16(x):\n    return x.to(tl.bfloat16)\n",
             "_block_sum": "@triton.jit\ndef _block_sum(x, axis: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):\n"
                           "    return tl.sum(x, axis, keep_dims=True)\n"}


def helpers_for(text: str, *, interpreted: bool) -> str:
    """Return the device functions that text calls, and those that they call, each before its first use."""
    ordered: list[str] = []

    def add(names: Iterable[str]) -> None:
        for name in names:
            if name in HELPERS and name not in ordered:
                inside = re.findall(r"\b(_\w+)\(", HELPERS[name])
                add(n for n in inside if n != name)
                ordered.append(name)

    add(dict.fromkeys(re.findall(r"(?<![\w.])(_\w+)\(", text)))
    chosen = HELPERS if interpreted else HELPERS | _COMPILED
    return "".join(chosen[name] + "\n\n" for name in ordered)
