"""Casts between float32 and half precision in C: rounded to the nearest, as in NumPy, on every processor."""

from __future__ import annotations

from typing import Any

from ..kernel import BoundKernel, Kernel
from ..op import Req, Spec
from .c_moving import ReboundKernel
from .c_team import Phases, int64s, step_of_elements
from .c_template import Template, address

LEAST = 1 << 8  # elements for which C is compiled at once
PIECE = 1 << 15  # elements

_TEXT = """
/* What is below the normal numbers is rounded by adding 1/2, whose last digit is theirs; exponents differ by 112. */
static inline uint16_t float16_of(uint32_t u)
{
    const uint32_t a = u & 0x7fffffffu, normal = (a - (112u << 23) + 0xfffu + (a >> 13 & 1u)) >> 13;
    const uint32_t tiny = bits(real(a) + 0.5f) - bits(0.5f), nan = 0x7e00u | (a >> 13 & 0x3ffu);
    uint32_t h = a < 0x38800000u ? tiny : normal;
    h = a >= 0x47800000u ? 0x7c00u : h;
    h = a > 0x7f800000u ? nan : h;
    return (uint16_t)(u >> 16 & 0x8000u | h);
}

static inline uint32_t of_float16(uint16_t x)
{
    const uint32_t a = (uint32_t)(x & 0x7fffu) << 13, sign = (uint32_t)(x & 0x8000u) << 16;
    const uint32_t tiny = bits(real(a + (113u << 23)) - real(113u << 23));
    const uint32_t large = a + (a >= 31u << 23 ? 224u << 23 : 112u << 23);
    return sign | (a < 1u << 23 ? tiny : large);
}

static inline uint16_t bfloat16_of(uint32_t u)
{
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16 & 0x8000u) | 0x7fc0u : rounded);
}

static inline uint32_t of_bfloat16(uint16_t x) { return (uint32_t)x << 16; }

#define CAST(name, T, U, OF) \\
void name(void *const *arrays, int64_t begin, int64_t end) \\
{ \\
    const T *restrict const x = arrays[0]; \\
    U *restrict const y = arrays[1]; \\
    for (int64_t i = begin; i < end; i++) y[i] = OF(x[i]); \\
}
#if defined(__AVX512F__)
#include <immintrin.h>
#define VECTORS(T, U, VECTOR) \\
    const T *const x = arrays[0]; \\
    U *const y = arrays[1]; \\
    int64_t i = begin; \\
    for (; i + 16 <= end; i += 16) VECTOR;
void cast_float32_float16(void *const *arrays, int64_t begin, int64_t end)
{
    VECTORS(uint32_t, uint16_t,
            _mm256_storeu_si256((void *)(y + i), _mm512_cvtps_ph(_mm512_loadu_ps((const void *)(x + i)), 0)))
    for (; i < end; i++) y[i] = float16_of(x[i]);
}
void cast_float16_float32(void *const *arrays, int64_t begin, int64_t end)
{
    VECTORS(uint16_t, uint32_t,
            _mm512_storeu_ps((void *)(y + i), _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(x + i)))))
    for (; i < end; i++) y[i] = of_float16(x[i]);
}
#else
CAST(cast_float32_float16, uint32_t, uint16_t, float16_of)
CAST(cast_float16_float32, uint16_t, uint32_t, of_float16)
#endif
CAST(cast_float32_bfloat16, uint32_t, uint16_t, bfloat16_of)
CAST(cast_bfloat16_float32, uint16_t, uint32_t, of_bfloat16)
"""
_NAMES = ("cast_float32_float16", "cast_float16_float32", "cast_float32_bfloat16", "cast_bfloat16_float32")
_TEMPLATE = Template(lambda: _TEXT, _NAMES)


def cast_kernel(x: Spec, y: Spec, req: Req) -> Kernel | None:
    """Return the kernel that casts an array to another of the same size; None where NumPy does."""
    name, size = f"cast_{x.dtype}_{y.dtype}", x.size
    if name not in _NAMES or req not in (Req.WRITE, Req.INPLACE) or not _TEMPLATE.serves(size, LEAST, exact=True):
        return None
    functions = _TEMPLATE.functions()
    assert functions is not None
    function = functions[name]

    def bind(inputs: Any, outputs: Any) -> BoundKernel:
        addresses = int64s(address(inputs[0]), address(outputs[0]))
        return Phases([[step_of_elements(function, addresses, size, PIECE, (inputs[0], outputs[0]))]])

    return ReboundKernel(bind, reentrant=True)
