"""Philox 4x32-10: random numbers as a function of (seed, position), so that results depend on nothing else.

Number n of seed s is word n % 4 of philox(counter=(n // 4, 0), key=s). The GPU kernels compute the same function.
Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

import numpy as np

from ..dtype import bfloat16, is_float
from ..errors import DTypeError
from ..integers import cdiv

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox4x32(c0: np.ndarray, c1: np.ndarray, c2: np.ndarray, c3: np.ndarray, k0: int, k1: int) -> tuple[np.ndarray, ...]:
    """Ten rounds over counters c0..c3 [n] with key (k0, k1). All are 32-bit values held as uint64."""
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = ((p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _LOW,
                          (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _LOW)
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


_CHUNK = 1 << 14  # counters at a time: the working set stays in cache
FEW = 32  # numbers up to which Python's integers are faster than arrays


def words(seed: int, offset: int, count: int) -> np.ndarray:
    """Numbers offset .. offset + count of seed, as uint32 [count]."""
    seed &= 0xFFFFFFFFFFFFFFFF
    if count <= FEW:
        return _few_words(seed, offset, count)
    out = np.empty(count, np.uint32)
    done = 0
    while done < count:
        first = (offset + done) // 4
        skip = (offset + done) % 4
        n = min(_CHUNK, cdiv(count - done + skip, 4))
        counter = np.arange(first, first + n, dtype=np.uint64)
        zero = np.zeros(n, np.uint64)
        drawn = philox4x32(counter & _LOW, counter >> _HALF, zero, zero, seed & 0xFFFFFFFF, seed >> 32)
        block = np.stack(drawn, axis=1).reshape(-1)[skip:skip + count - done]
        out[done:done + block.size] = block
        done += block.size
    return out


def _few_words(seed: int, offset: int, count: int) -> np.ndarray:
    """As words, without arrays."""
    m0, m1, low, found = int(_M0), int(_M1), 0xFFFFFFFF, []
    for n in range(offset // 4, cdiv(offset + count, 4)):
        c0, c1, c2, c3, k0, k1 = n & low, n >> 32 & low, 0, 0, seed & low, seed >> 32
        for _ in range(10):
            p0, p1 = c0 * m0, c2 * m1
            c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & low, (p0 >> 32) ^ c3 ^ k1, p0 & low
            k0, k1 = (k0 + _W0) & low, (k1 + _W1) & low
        found += c0, c1, c2, c3
    return np.array(found[offset % 4:][:count], np.uint32)


#: How many random bits a uniform number of each dtype holds: as many as are exact below 1.
BITS = {np.dtype(np.float16): 11, bfloat16: 8, np.dtype(np.float32): 24, np.dtype(np.float64): 32}


def uniform_bits(dtype: np.dtype) -> int:
    """Return how many random bits a uniform number of dtype holds. Raises DTypeError for a dtype that is not a float."""
    bits = BITS.get(dtype)
    if bits is None:
        raise DTypeError(f"random: {dtype} is not a floating dtype. Use float32, float64, float16 or bfloat16.")
    return bits


def uniform(seed: int, offset: int, count: int, dtype: np.dtype = np.dtype(np.float32)) -> np.ndarray:
    """Uniform in [0, 1), dtype [count]. Never 1, in any dtype."""
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    return fractions(seed, offset, count, uniform_bits(dtype), wide).astype(dtype, copy=False)


def fractions(seed: int, offset: int, count: int, bits: int, dtype: np.dtype) -> np.ndarray:
    """Uniform multiples of 2**-bits in [0, 1), dtype [count], float32 or float64."""
    kept = words(seed, offset, count) >> np.uint32(32 - bits)
    return kept.astype(dtype) * dtype.type(2.0**-bits)


def normal(seed: int, offset: int, count: int, dtype: np.dtype = np.dtype(np.float32)) -> np.ndarray:
    """Standard normal, dtype [count], by Box and Muller. Takes count numbers, rounded up to even."""
    if not is_float(dtype):
        uniform_bits(dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    drawn = words(seed, offset, count + count % 2).reshape(-1, 2)
    radius = np.sqrt(wide(-2) * np.log(((drawn[:, 0] >> np.uint32(8)).astype(wide) + wide(1)) * wide(2.0**-24)))
    angle = (drawn[:, 1] >> np.uint32(8)).astype(wide) * wide(2 * np.pi * 2.0**-24)
    pairs = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
    return pairs.reshape(-1)[:count].astype(dtype)
