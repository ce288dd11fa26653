"""The matrix product that all layers share: C or BLAS on the CPU, Triton on the GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ....dtype import is_half
from ....integers import cdiv
from ...configs import active as active_configs
from ...configs.key import Config, Key
from ...cpu.c_team import Phases
from ...cpu.sum_tree import total
from ...declare.operator_property import OperatorProperty, assign, gpu_module, upcast
from ...kernel import BoundKernel, InTurn
from ...op import Product, Req, Shape, Specs, only
from . import c_narrow, c_product
from .c_product import gemm_key

# A product with a quarter of this many multiplications is cut into two pieces, larger ones into more, as the square root of their
# size: BLAS packs one operand again for each piece, and 1024 cubed costs 5 % more in 4 pieces, 15 % in 8, 75 % in 64. The number
# of pieces depends on the size and never on the number of threads, so that results have the same bits.
_FLOPS = 1 << 24

#: Multiplications in one piece; number of threads, 0 for all.
DEFAULT: Config = {"piece": _FLOPS, "threads": 0}


MIN_PIECE = 1 << 20  # multiplications: smaller pieces are never tried


class Products(OperatorProperty):
    """Base class: a layer whose output and derivatives are matrix products."""

    backward_form: ClassVar[str] = "bilinear"
    costly = True

    def tuning_keys(self, products: Sequence[Product], ins: Specs, reqs: tuple[Req, ...], *, backward: bool
                    ) -> list[tuple[Key, Config, tuple[Req, ...]]]:
        """Return the keys of the products that are wanted and large enough to cut."""
        return [(gemm_key(*sizes, ins[0].dtype), DEFAULT, only(reqs, i)) for i, sizes in enumerate(products)
                if reqs[i] != Req.NULL and math.prod(sizes[1:]) >= 2 * MIN_PIECE]


def cut(work: int, piece: int) -> int:
    """Return the number of pieces for a product of `work` multiplications."""
    return min(64, max(work // piece, 2 if work >= piece // 4 else 1))


def gemm(a: np.ndarray, b: np.ndarray, out: np.ndarray, add: bool = False, bias: np.ndarray | None = None, *,
         in_graph: bool = False) -> BoundKernel:
    """Return a function (run) that computes out [..., m, n] = (or +=) a [..., m, k] @ b [..., k, n] + bias [n].

    a and b may be transposed views. Large products are split over threads, in pieces that depend on the shape alone.
    in_graph: for arrays that stay, in a graph; then C computes smaller products too.
    """
    if is_half(a.dtype) or is_half(b.dtype):
        return lambda run: gemm(upcast(a), upcast(b), out, add, bias)(run)
    better = in_graph and c_narrow.better(out.shape[-2], out.shape[-1], a.shape[-1], c_product.NARROW)
    narrow = c_narrow.prepare(a, b, out, add, bias) if better else None
    if narrow is not None:
        return Phases([[narrow]])
    in_c = c_product.planned(a, b, out, add, in_graph=in_graph)
    if in_c is not None:
        return c_product.bound([(in_c, a, b, out, bias)])
    calls, threads = _pieces(a, b, out, add)
    if bias is None:
        return _each(calls, threads)

    def add_bias(run: Any) -> None:
        np.add(out, bias, out=out)

    return InTurn([_each(calls, threads), add_bias])


def _each(calls: Sequence[Callable[[], None]], threads: int) -> BoundKernel:
    if len(calls) < 2:
        return lambda run: calls[0]()
    return lambda run: active_configs.limited(run.parallel, threads)(lambda i: calls[i](), len(calls))


def in_turn(steps: Sequence[Callable[..., Any]]) -> Callable[..., None]:
    """Return a function that calls each of steps with its arguments."""

    def call(*args: Any) -> None:
        for step in steps:
            step(*args)

    return call


def together(products: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, bool]], *, in_graph: bool = False) -> BoundKernel:
    """Return a function that computes several independent products, (a, b, out, add) each, and waits for all of them once."""
    in_c = [c_product.planned(*p, in_graph=in_graph) for p in products]
    if in_c and all(in_c):
        return c_product.bound([(p, a, b, out, None) for p, (a, b, out, _) in zip(in_c, products) if p is not None])
    made = [] if any(in_c) or any(is_half(p[0].dtype) for p in products) else [_pieces(*p) for p in products]
    if not any(len(calls) > 1 for calls, _ in made):
        return InTurn([gemm(*p, in_graph=in_graph) for p in products])
    calls = [call for some, _ in made for call in some]
    threads = 0 if any(t == 0 for _, t in made) else max(t for _, t in made)
    return lambda run: active_configs.limited(run.parallel, threads)(lambda i: calls[i](), len(calls))


def _pieces(a: np.ndarray, b: np.ndarray, out: np.ndarray, add: bool) -> tuple[list[Callable[[], None]], int]:
    """Split a product into calls that write disjoint places. Also returns the number of threads for them (0: all)."""
    direct = not add and a.dtype == b.dtype == out.dtype

    def piece(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> None:
        if direct:
            np.matmul(x, y, out=z)
        else:
            assign(z, Req.ADD if add else Req.WRITE, np.matmul(x, y))

    m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
    work, least = out.size * k, DEFAULT["piece"]
    chosen = {**DEFAULT, "piece": max(least, math.isqrt(work * least))}
    if active_configs.active():
        chosen = active_configs.choice(gemm_key(out.size // max(m * n, 1), m, n, k, out.dtype), chosen)
    pieces = cut(work, chosen["piece"])
    if pieces < 2:
        return [partial(piece, a, b, out)], 0
    if out.ndim > 2 and len(out) >= pieces:
        step = cdiv(len(out), pieces)
        parts = [(a[i:i + step], b[i:i + step], out[i:i + step]) for i in range(0, len(out), step)]
    elif m > 2 * n:
        step = max(1, cdiv(m, pieces))
        parts = [(a[..., i:i + step, :], b, out[..., i:i + step, :]) for i in range(0, m, step)]
    else:
        step = max(1, cdiv(n, pieces))
        parts = [(a, b[..., i:i + step], out[..., i:i + step]) for i in range(0, n, step)]
    return [partial(piece, *part) for part in parts], chosen["threads"]


def sum_rows(a: np.ndarray, out: np.ndarray, req: Req, *, in_graph: bool = False) -> BoundKernel:
    """Return a function (run) that computes out [n] = (or +=) the sum over the rows of a [m, n]."""
    in_c = c_narrow.sum_rows(a, out, req == Req.ADD, in_graph)
    if in_c is not None:
        return Phases([[in_c]])
    return lambda run: assign(out, req, total(upcast(a), (0,))[0])


Matrix = tuple[int, Shape, tuple[int, ...]]  # index of the array, [batch, rows, columns], their strides in elements


def product(a: Matrix, b: Matrix, out: Matrix, req: Req, target: str) -> Callable[[Any, list[Any]], None]:
    """Return a function (run, arrays) that computes arrays[out] = (or +=) arrays[a] @ arrays[b], each seen as a Matrix."""
    add = req == Req.ADD
    if target == "gpu":
        triton_gemm = gpu_module("linalg.triton_gemm")
        return lambda run, arrays: triton_gemm.gemm(run, arrays[a[0]], a[1:], arrays[b[0]], b[1:], arrays[out[0]],
                                                    out[1:], add=add)

    return lambda run, arrays: bind_product(a, b, out, req, arrays)(run)


def bind_product(a: Matrix, b: Matrix, out: Matrix, req: Req, arrays: Sequence[np.ndarray]) -> BoundKernel:
    """Return a function (run) that computes `product` on the CPU."""
    return gemm(view(arrays, a), view(arrays, b), view(arrays, out), req == Req.ADD)


def view(arrays: Sequence[np.ndarray], m: Matrix) -> np.ndarray:
    """Return arrays[m[0]] as the view that m describes."""
    array = arrays[m[0]]
    (b, rows, columns), steps = m[1], m[2][1:]
    if b == 1 and array.size == rows * columns and steps in ((columns, 1), (1, rows)):  # contiguous or transposed
        return array.reshape(rows, columns) if steps[1] == 1 else array.reshape(columns, rows).T
    seen = np.lib.stride_tricks.as_strided(array, m[1], tuple(s * array.itemsize for s in m[2]))
    return seen[0] if b == 1 else seen


def matrix(index: int, shape: Shape, transposed: bool) -> Matrix:
    """Describe the contiguous array `index` of this shape [batch, rows, columns], transposed or not, as a Matrix."""
    b, m, n = shape
    return (index, (b, n, m), (m * n, 1, n)) if transposed else (index, shape, (m * n, n, 1))
