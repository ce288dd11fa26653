"""The functions C kernels call, as C text: one row by name, with a version for each kind of number that has one.

All are free of branches, so that compilers compute many elements at once. Those on float32 keep infinities, NaN, the sign
of zero and denormals, and are within 1 unit in the last place (sin, cos: 2; log1p, expm1: 4; tanh, erf: 6) of the true value.
Functions that C's own library would compute one element at a time are not here: what needs them is printed as NumPy.
"""

from __future__ import annotations

import re

import numpy as np

from ..ir.special import ERF_P, ERF_Q

#: C types by dtype, in which C computes.
TYPES: dict[str, str] = {
    "float32": "float", "float64": "double", "bool": "uint8_t",
    **{f"{u}int{n}": f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)},
}

#: C types by dtype of what is only kept in an array: it is converted to float32, and back with one rounding to nearest even.
STORED: dict[str, str] = {**TYPES, "float16": "uint16_t", "bfloat16": "uint16_t"}

PREAMBLE = """\
#include <stdint.h>
#include <string.h>
#include <math.h>

#ifdef __FMA__
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

/* iterations of a loop do not depend on each other, though an array may be read and written */
#if defined(__clang__)
#define LANEWISE _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define LANEWISE _Pragma("GCC ivdep")
#else
#define LANEWISE
#endif

#define COPY(to, from, n) memcpy(to, from, (n) * sizeof *(to))
#define CLEAR(a, n, block) do { if (n < block) memset(a + n, 0, (block - n) * sizeof *a); } while (0)

static inline uint32_t bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static inline float real(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

/* x, or an end of [-most, most]; one comparison: of two in turn compilers make five, of masks */
static inline float within(float x, float most) { return fabsf(x) > most ? copysignf(most, x) : x; }

/* one comparison, and the conversion outside of the choice: so compilers vectorize it */
static inline int32_t cut32(double x) { return (int32_t)(__builtin_fabs(x) < 0x1p31 ? x : -0x1p31); }
static inline int32_t cut32f(float x) { return (int32_t)(__builtin_fabsf(x) < 0x1p31f ? x : -0x1p31f); }
static inline int64_t cut64(double x) { return (int64_t)(__builtin_fabs(x) < 0x1p63 ? x : -0x1p63); }
static inline uint64_t cutu64(double x)
{
    return x >= 0x1p63 && x < 0x1p64 ? (uint64_t)(int64_t)(x - 0x1p63) ^ ((uint64_t)1 << 63) : (uint64_t)cut64(x);
}
"""

_ALL = """\
static __attribute__((noinline)) void all_{0}(const float *x, float *y, int64_t n)
{{
    for (int64_t i = 0; i < n; i += 64)  /* sums of narrower indices may wrap, and are no vectors */
        LANEWISE
        for (int64_t j = 0; j < 64; j++)
            y[i + j] = {0}(x[i + j]);
}}
"""
_ALL_NEAR = """\
static __attribute__((noinline)) void all_{0}_float32(const float *x, float *y, int64_t n)
{{
    for (int64_t i = 0; i < n; i += 64) {{
        float t[64];
        int far = 0;
        for (int j = 0; j < 64; j++) t[j] = {0}_near_float32(x[i + j]);
        for (int j = 0; j < 64; j++) far |= fabsf(x[i + j]) > 0x1p21f;
        if (far) for (int j = 0; j < 64; j++) if (fabsf(x[i + j]) > 0x1p21f) t[j] = {0}f(x[i + j]);
        for (int j = 0; j < 64; j++) y[i + j] = t[j];
    }}
}}
"""
_REAL = ("float32", "float64")
_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_WHOLE = (*_SIGNED, *_UNSIGNED)


def _horner(variable: str, coefficients: tuple[float, ...]) -> str:
    """The text of Σ coefficients[i] variable**i in float32."""
    text = f"{float(np.float32(coefficients[-1])).hex()}f"
    for c in coefficients[-2::-1]:
        text = f"FMA({text}, {variable}, {float(np.float32(c)).hex()}f)"
    return text


# Coefficients are fits of our own (weighted least squares, iterated towards equal relative error):
# (eʳ - 1 - r) / r² on |r| ≤ ln 2 / 2, 3e-9
_EXP = (0.4999999344859092, 0.1666652064426422, 0.04166838790991282, 0.008368715319532344, 0.0013814600814119379)
# (ln(1 + f) - f + f²/2) / f³ on |f| ≤ 1/3, 9e-10
_LOG = (0.3333333598648153, -0.24999805911369424, 0.19999565433413083, -0.16680357659641118, 0.14305595548822667,
        -0.12183309967304563, 0.10739480876101029, -0.12906091217221283, 0.12070532808548988)
# tanh x = x P(x²) / Q(x²) on |x| ≤ 9.1, 1e-9
_TANH_P = (1.0, 0.13783138486583948, 0.004005644772530829, 3.152495828623355e-05, 5.052637122824473e-08)
_TANH_Q = (1.0, 0.4711647114202051, 0.027727228387671964, 0.0004202167035368502, 1.6124080394668977e-06,
           7.325694380908569e-10)

# (sin r - r) / r³ and (cos r - 1 + r²/2) / r⁴ of r² on |r| ≤ π/4, 5e-12 and 1e-10
_SIN = (-0.16666666640854072, 0.008333329317564059, -0.00019839316660233655, 2.7181613971194127e-06)
_COS = (0.04166664617554195, -0.0013887338403895323, 2.4435488471195966e-05)

# x = n ln 2 + r, and 2ⁿ in two factors, so that results below the normal range are rounded once
_EXP_TEXT = f"""\
    const float v = within(x, 104.0f);
    const float shifted = v * {float(np.float32(1.4426950408889634)).hex()}f + 0x1.8p+23f;
    const float n = shifted - 0x1.8p+23f;
    const float r = FMA(n, {float(np.float32(-1.42860677e-06)).hex()}f, FMA(n, -0x1.62e400p-1f, v));
    const float p = FMA(r * r, {_horner("r", _EXP)}, r) + 1.0f;
    const int32_t k = (int32_t)(bits(shifted) - 0x4b400000u);
    const int32_t half = k >> 1;
    return p * real((uint32_t)(half + 127) << 23) * real((uint32_t)(k - half + 127) << 23);"""

# x = 2ᵏ (1 + f) with 1 + f in [2/3, 4/3)
_LOG_TEXT = f"""\
    const int tiny = x < 0x1p-126f;
    const float v = tiny ? x * 0x1p+23f : x;
    const uint32_t u = bits(v) - 0x3f2aaaabu;
    const float k = (float)((int32_t)u >> 23) - (tiny ? 23.0f : 0.0f);
    const float f = real((u & 0x007fffffu) + 0x3f2aaaabu) - 1.0f;
    const float s = f * f;
    const float p = FMA(s * f, {_horner("f", _LOG)}, FMA(k, {float(np.float32(1.42860677e-06)).hex()}f, -0.5f * s)) + f;
    float y = FMA(k, 0x1.62e400p-1f, p);
    y = x == INFINITY ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;"""

_TANH_TEXT = f"""\
    const float v = within(x, 9.01f);
    const float t = v * v;
    return within(v * {_horner("t", _TANH_P)} / {_horner("t", _TANH_Q)}, 1.0f);"""

_ERF_TEXT = f"""\
    const float v = within(x, 4.0f);
    const float t = v * v;
    return v * {_horner("t", ERF_P)} / {_horner("t", ERF_Q)};"""

# by W. Kahan's way of giving exp and log back the digits that 1 + x loses
_LOG1P_TEXT = """\
    const float u = 1.0f + x;
    const float y = log_float32(u) * (x / (u - 1.0f));
    return u == 1.0f || x == INFINITY ? x : u == 0.0f ? -INFINITY : y;"""
_EXPM1_TEXT = """\
    const float u = exp_float32(x);
    const float d = u - 1.0f;
    const float y = d * (x / log_float32(u));
    return u == 1.0f ? x : d == -1.0f || u == INFINITY ? d : y;"""

# x = n π/2 + r in float64: n times the first part of π/2, of 30 bits, is exact; beyond 2²¹ the C library computes
_SINE_TEXT = f"""\\
    const double d = x;
    const double n = (d * 0x1.45f306dc9c883p-1 + 0x1.8p52) - 0x1.8p52;
    const float r = (float)((d - n * 0x1.921fb54p+0) - n * 0x1.10b4611a62633p-30);
    const int32_t q = (int32_t)n + QUARTER;
    const float z = r * r;
    const float s = r == 0.0f ? r : FMA(z * r, {_horner("z", _SIN)}, r);
    const float c = FMA(z * z, {_horner("z", _COS)}, FMA(-0.5f, z, 1.0f));
    return real(bits(q & 1 ? c : s) ^ (uint32_t)(q & 2) << 30);"""

_ROWS: dict[str, list[tuple[tuple[str, ...], str]]] = {
    "abs": [(("float32",), "    return fabsf(x);"), (("float64",), "    return fabs(x);"),
            (_SIGNED, "    return x < 0 ? -x : x;"), (_UNSIGNED, "    return x;")],
    # the first NaN counts; what is asked of y, often one number for all elements, stands outside of the loop then
    "max": [(_REAL, "    const T r = x <= y ? y : x;\n    return y == y ? r : x == x ? y : x;"),
            (_WHOLE, "    return x > y ? x : y;")],
    "min": [(_REAL, "    const T r = x >= y ? y : x;\n    return y == y ? r : x == x ? y : x;"),
            (_WHOLE, "    return x < y ? x : y;")],
    # the same where y changes with x: the first choice is one instruction
    "larger": [(_REAL, "    const T r = x > y ? x : y;\n    return x == x ? r : x;"), (_WHOLE, "    return x > y ? x : y;")],
    "smaller": [(_REAL, "    const T r = x < y ? x : y;\n    return x == x ? r : x;"), (_WHOLE, "    return x < y ? x : y;")],
    "quotient": [(_SIGNED, "    return y == 0 ? 0 : y == -1 ? (T)(0 - (uint64_t)x) : x / y;"),
                 (_UNSIGNED, "    return y == 0 ? 0 : x / y;")],
    "mod": [(_SIGNED, "    const T d = y == 0 || y == -1 ? 1 : y;\n    const T r = x % d;\n"
                      "    return r != 0 && (r < 0) != (d < 0) ? r + d : r;"),
            (_UNSIGNED, "    return x % (y == 0 ? 1 : y);")],
    "sqrt": [(("float32",), "    return sqrtf(x);"), (("float64",), "    return sqrt(x);")],
    "floor": [(("float32",), "    return floorf(x);"), (("float64",), "    return floor(x);"), (_WHOLE, "    return x;")],
    "ceil": [(("float32",), "    return ceilf(x);"), (("float64",), "    return ceil(x);"), (_WHOLE, "    return x;")],
    "trunc": [(("float32",), "    return truncf(x);"), (("float64",), "    return trunc(x);"), (_WHOLE, "    return x;")],
    "exp": [(("float32",), _EXP_TEXT)],
    "log": [(("float32",), _LOG_TEXT)],
    "tanh": [(("float32",), _TANH_TEXT)],
    "erf": [(("float32",), _ERF_TEXT)],
    "log1p": [(("float32",), _LOG1P_TEXT)],
    "expm1": [(("float32",), _EXPM1_TEXT)],
    "sin_near": [(("float32",), _SINE_TEXT.replace("QUARTER", "0"))],
    "cos_near": [(("float32",), _SINE_TEXT.replace("QUARTER", "1"))],
    "sin": [(("float32",), "    return fabsf(x) > 0x1p21f ? sinf(x) : sin_near_float32(x);")],
    "cos": [(("float32",), "    return fabsf(x) > 0x1p21f ? cosf(x) : cos_near_float32(x);")],
}  # fmt: skip
# by F. Giesen's way: a product with a power of two, and a sum with one, that leave subnormal numbers to the processor's rounding
_HALVES = {
    "from_float16": """\
static inline float from_float16(uint16_t h)
{
    const uint32_t a = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    const float scaled = real(a) * 0x1p112f;
    return real((a >= 0x0f800000u ? a | 0x7f800000u : bits(scaled)) | sign);
}
""",
    "to_float16": """\
static inline uint16_t to_float16(float x)
{
    const uint32_t u = bits(x), a = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
    const uint32_t whole = (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
    const uint32_t tiny = bits(real(a) + 0.5f) - 0x3f000000u;
    const uint32_t most = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t small = a < 0x38800000u ? tiny : whole;
    return (uint16_t)((a >= 0x477ff000u ? most : small) | sign);
}
""",
    "from_bfloat16": """\
static inline float from_bfloat16(uint16_t h) { return real((uint32_t)h << 16); }
""",
    "to_bfloat16": """\
static inline uint16_t to_bfloat16(float x)
{
    const uint32_t u = bits(x), rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : rounded);
}
""",
}
_TWO = {"max", "min", "larger", "smaller", "mod", "quotient"}


def _define(name: str, dtype: str, body: str) -> str:
    t = TYPES[dtype]
    parameters = f"{t} x, {t} y" if name in _TWO else f"{t} x"
    text = re.sub(r"\bT\b", t, body)
    return f"static inline {t} {name}_{dtype}({parameters})\n{{\n{text}\n}}\n"


#: Functions of float32 that are called for whole blocks, so that a compiler sees each but once.
BLOCKWISE = ("exp", "log", "tanh", "erf", "log1p", "expm1", "sin", "cos")

#: `exp_float32` and the like -> their definition.
FUNCTIONS: dict[str, str] = {f"{name}_{d}": _define(name, d, body)
                             for name, rows in _ROWS.items() for dtypes, body in rows for d in dtypes}
FUNCTIONS.update(_HALVES)
#: Writes memory by non-temporal stores, past the caches, where a compiler has them: memory is not read before it is written, and
#: the caches keep what they hold.
FUNCTIONS["stream"] = """\
#if defined(__AVX__) && defined(__GNUC__) && !defined(__clang__)
typedef float vector_of_8 __attribute__((vector_size(32)));
static inline void stream(void *to, const void *from, int64_t bytes)
{
    int64_t k = 0;
    if (!((uintptr_t)to & 31)) for (; k + 64 <= bytes; k += 64) {
        vector_of_8 a, b;
        memcpy(&a, (const char *)from + k, 32);
        memcpy(&b, (const char *)from + k + 32, 32);
        __builtin_ia32_movntps256((float *)((char *)to + k), a);
        __builtin_ia32_movntps256((float *)((char *)to + k + 32), b);
    }
    memcpy((char *)to + k, (const char *)from + k, bytes - k);
}
#define STREAMED __builtin_ia32_sfence()
#else
#define stream(to, from, bytes) memcpy(to, from, bytes)
#define STREAMED ((void)0)
#endif
"""


def definitions(used: set[str]) -> str:
    """The text that defines the functions in used, and what they call, each before its callers."""
    needed, waiting = set(), list(used)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [n for n in re.findall(r"\b\w+_float32\b", FUNCTIONS[name]) if n != name]
    blockwise = {f"{n}_float32" for n in BLOCKWISE} & used
    return "\n".join([*(FUNCTIONS[n] for n in FUNCTIONS if n in needed), *(_all(n) for n in sorted(blockwise))])


def _all(function: str) -> str:
    name = function.removesuffix("_float32")
    return _ALL_NEAR.format(name) if name in ("sin", "cos") else _ALL.format(function)
