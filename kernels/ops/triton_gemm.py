"""Triton: matrix product of strided matrices with a bias, and the sum over rows."""

from __future__ import annotations

from typing import Any

from ..triton_kernel import tl, triton
from ..triton_launch import cdiv, interpreting, launch, next_power_of_2


@triton.jit
def _gemm(a, b, c, bias, M, N, K, tiles_n,
          a_b: tl.int64, a_m: tl.int64, a_k: tl.int64, b_b: tl.int64, b_k: tl.int64, b_n: tl.int64,
          c_b: tl.int64, c_m: tl.int64, c_n: tl.int64,
          ADD: tl.constexpr, BIAS: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
          BK: tl.constexpr):
    tile = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    m = (tile // tiles_n) * BM + tl.arange(0, BM)
    n = (tile % tiles_n) * BN + tl.arange(0, BN)
    m64 = m.to(tl.int64)
    n64 = n.to(tl.int64)
    total = tl.zeros((BM, BN), WIDE)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        k64 = k.to(tl.int64)
        x = tl.load(a + batch * a_b + m64[:, None] * a_m + k64[None, :] * a_k,
                    mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        y = tl.load(b + batch * b_b + k64[:, None] * b_k + n64[None, :] * b_n,
                    mask=(k[:, None] < K) & (n[None, :] < N), other=0)
        total += tl.dot(x.to(WIDE), y.to(WIDE), input_precision="ieee", out_dtype=WIDE)
    if BIAS:
        total += tl.load(bias + n, mask=n < N, other=0).to(WIDE)[None, :]
    at = c + batch * c_b + m64[:, None] * c_m + n64[None, :] * c_n
    keep = (m[:, None] < M) & (n[None, :] < N)
    if ADD:
        total += tl.load(at, mask=keep, other=0).to(WIDE)
    tl.store(at, total.to(c.dtype.element_ty), mask=keep)


@triton.jit
def _sum_rows(a, out, M, N, ADD: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), WIDE)
    for start in range(0, M, BM):
        m = start + tl.arange(0, BM)
        total += tl.load(a + m.to(tl.int64)[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N),
                         other=0).to(WIDE)
    folded = tl.sum(total, axis=0)
    if ADD:
        folded += tl.load(out + n, mask=n < N, other=0).to(WIDE)
    tl.store(out + n, folded.to(out.dtype.element_ty), mask=n < N)


def wide(tensor: Any) -> Any:
    """The dtype sums over a tensor's elements are computed in."""
    return tl.float64 if str(tensor.dtype) == "torch.float64" else tl.float32


def tile(n: int, compiled: int, interpreted: int = 256) -> int:
    """Block along an axis of n: at least 16, a power of two; large in the interpreter."""
    return max(16, min(next_power_of_2(n), interpreted if interpreting() else compiled))


def gemm(run: Any, a: Any, a_view: Any, b: Any, b_view: Any, c: Any, c_view: Any, *, bias: Any = None,
         add: bool = False) -> None:
    """c = (or +=) a @ b + bias, every tensor seen through a view ([batch, rows, columns], strides in elements).

    float32 is multiplied in float32, not TF32; halves are added up in float32 and rounded once.
    """
    (batch, m, n), k = c_view[0], a_view[0][2]
    bm, bn, bk = tile(m, 64), tile(n, 64), tile(k, 32)
    tiles_n = cdiv(n, bn)
    launch(_gemm, (cdiv(m, bm) * tiles_n, batch), a, b, c, c if bias is None else bias, m, n, k, tiles_n,
           *a_view[1], *b_view[1], *c_view[1], stream=run.stream, ADD=add, BIAS=bias is not None, WIDE=wide(c),
           BM=bm, BN=bn, BK=bk)


def sum_rows(run: Any, a: Any, out: Any, m: int, n: int, *, add: bool = False) -> None:
    """out [n] = (or +=) the sum over rows of a [m, n], always in the same order."""
    bn = tile(n, 32)
    launch(_sum_rows, (cdiv(n, bn),), a, out, m, n, stream=run.stream, ADD=add, WIDE=wide(out), BM=tile(m, 64), BN=bn)
