"""Matrix product on a GPU: choose a template and its blocks by shapes alone, and launch it.

float32 is multiplied as float32 ("ieee") unless `mx.config.float32_matmul` says "tf32" or "tf32x3"; half types use the tensor
cores, are added up in float32 and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ....errors import DTypeError
from ....integers import cdiv
from ...configs import active as active_configs
from ...configs import float32_matmul
from ...configs.key import alignment, key
from ...gpu.copy import PlannedCopy, plan
from ...gpu.epilogue import Epilogue, with_epilogue
from ...gpu.launch import dtype_of, launch, wide_float
from ...gpu.target import CodegenTarget, block_for, codegen_target, compute_capability, interpreting, multiprocessors, tile_size
from ...ir.strided import Strided
from ...kernel import DeviceArray, Run
from ...op import Shape
from . import triton_gemm_kernels as kernels

View = tuple[Shape, tuple[int, ...]]  # of an array: [batch, rows, columns], their strides in elements
POINTER, TMA, SPECIALISED, GEMV = range(4)  # templates; SPECIALISED is TMA whose warps divide the work
COPIED = 256  # rows and columns of a product, from which copying an operand takes little beside the product itself
NARROW = 1.4  # times as long as half a tile of 256 columns a tile of 128 takes: it reads operands more often


@dataclass(frozen=True)
class Blocks:
    """A template with its tile and launch options. splits: parts of the inner sum, which a second kernel adds in order."""

    template: int
    BM: int
    BN: int
    BK: int
    num_warps: int = 4
    num_stages: int = 3
    splits: int = 1


@functools.lru_cache(4096)
def choose(batch: int, m: int, n: int, k: int, itemsize: int, tensor_cores: bool, aligned: bool, capability: int,
           sms: int) -> Blocks:
    """Choose template and blocks of a product by its shape, item size and GPU, never by timing.

    tensor_cores: whether the type and precision use them. aligned: rows start at multiples of 16 bytes; those of a large product
    need not, since the copy engine is given a copy then.
    """
    if batch == 1 and min(m, n) == 1:
        return Blocks(GEMV, 16, 256, 1)
    if itemsize == 8:
        return Blocks(POINTER, 64, 64, 16)
    if not tensor_cores:
        large = batch * cdiv(m, 128) * cdiv(n, 128) >= sms
        found = Blocks(POINTER, 128, 128, 16, 8) if large else Blocks(POINTER, 64, 64, 16)
    else:
        bk = 128 // itemsize
        if batch == 1 and capability >= 90 and min(m, n) >= (128 if aligned else COPIED) and k >= 128 and \
                cdiv(m, 128) * cdiv(n, 128) >= sms // 2:
            waves = {bn: cdiv(cdiv(m, 128) * cdiv(n, bn), sms) for bn in (128, 256)}
            bn = 256 if 2 * waves[256] <= NARROW * waves[128] else 128
            return Blocks(TMA, 128, bn, bk, 8, 3 if itemsize * bn >= 1024 else 4)
        if batch * cdiv(m, 128) * cdiv(n, 128) >= sms:
            found = Blocks(POINTER, 128, 128, bk // 2, 8)
        else:
            found = Blocks(POINTER, 64, 64, bk if aligned else bk // 2, num_stages=4 if aligned else 3)
    tiles = batch * cdiv(m, found.BM) * cdiv(n, found.BN)
    splits = min(sms // max(1, tiles), k // (4 * found.BK), 32)
    return Blocks(**{**asdict(found), "splits": splits}) if splits > 1 else found


def _leading(view: View) -> tuple[bool, int]:
    """Return True if the elements of a column are contiguous, and the leading dimension in elements."""
    (_, rows, columns), (_, by_row, by_column) = view
    if by_column == 1 or columns == 1:
        return False, max(by_row, columns) if rows > 1 else columns
    assert by_row == 1 or rows == 1, view
    return True, by_column


def gemm(run: Run, a: DeviceArray, a_view: View, b: DeviceArray, b_view: View, c: DeviceArray, c_view: View, *,
         bias: DeviceArray | None = None, add: bool = False, blocks: Blocks | None = None, epilogue: Epilogue | None = None,
         others: Sequence[DeviceArray] = ()) -> None:
    """c = (or +=) a @ b + bias, every tensor seen through a View.

    epilogue: what is done to a @ b + bias before anything is added to c; others: the arrays it reads.
    blocks: instead of those that `choose` gives.
    Raises DTypeError for integers.
    """
    if "float" not in str(c.dtype):
        raise DTypeError(f"matrix product: {str(c.dtype).removeprefix('torch.')} has no kernel on a GPU: integers are "
                         f"multiplied on the CPU only. Convert both with astype(\"float32\").")
    (batch, m, n), k = c_view[0], a_view[0][2]
    if _leading(c_view)[0]:  # c is column-major: compute its transpose
        assert bias is None and epilogue is None, c_view
        gemm(run, b, _turned(b_view), a, _turned(a_view), c, _turned(c_view), add=add, blocks=blocks)
        return
    (ta, lda), (tb, ldb), (_, ldc) = _leading(a_view), _leading(b_view), _leading(c_view)
    steps = (a_view[1][0], b_view[1][0], c_view[1][0])
    itemsize = {"torch.float64": 8, "torch.float32": 4}.get(str(c.dtype), 2)
    how = float32_matmul.of_launch() if itemsize == 4 else "ieee"
    unit = 8 if not (m | n | k | lda | ldb | ldc | (steps[0] | steps[1] | steps[2] if batch > 1 else 0)) % 8 else 1
    if blocks is None:
        device = getattr(run.stream, "device_index", 0)
        aligned = unit == 8 and (a.data_ptr() | b.data_ptr()) % 16 == 0
        capability, sms = compute_capability(device), multiprocessors(device)
        blocks = choose(batch, m, n, k, itemsize, itemsize == 2 or (itemsize == 4 and how != "ieee"), aligned,
                        capability, sms)
        crowded = (n | ldc) % 8 or how == "tf32x3" or (epilogue is not None and epilogue.heavy)
        if crowded and blocks.BN > 128:  # larger blocks spill registers
            blocks = replace(blocks, BN=128)
        if active_configs.active() and blocks.template != GEMV:
            dtype = str(c.dtype).removeprefix("torch.")
            asked = key("gpu gemm", dtype, "nt"[ta] + "nt"[tb], alignment(*(s * itemsize for s in (m, n, k))),
                        batch=batch, m=m, n=n, k=k)
            blocks = Blocks(**active_configs.choice(asked, asdict(blocks)))
        if interpreting() and blocks.template != GEMV:
            blocks = Blocks(POINTER, tile_size(m, 0), tile_size(n, 0), tile_size(k, 0))
    common: dict[str, Any] = {"UNIT": unit, "BIAS": bias is not None, "WIDE": wide_float(c)}
    if blocks.template == GEMV:
        _launch_gemv(run, a, b, c, bias, (m, n, k), (ta, lda), (tb, ldb), ldc, {**common, "ADD": add}, epilogue, others)
        return
    if blocks.template in (TMA, SPECIALISED) and batch == 1:
        along_k = itemsize == 4 and how != "ieee"
        a, ta, lda = _fetchable(run, a, m, k, ta, lda, itemsize, along_k and ta)
        b, tb, ldb = _fetchable(run, b, k, n, tb, ldb, itemsize, along_k and not tb)
    cast = itemsize == 8 or interpreting()
    common |= {"TA": ta, "TB": tb, "CAST": cast, "PRECISION": how, "GROUP": 8, "BM": blocks.BM, "BN": blocks.BN,
               "BK": blocks.BK}
    sizes = (m // unit, n // unit, k // unit)
    options: dict[str, Any] = {"num_warps": blocks.num_warps, "num_stages": blocks.num_stages, "stream": run.stream}
    tiles = cdiv(m, blocks.BM) * cdiv(n, blocks.BN)
    more = (c if bias is None else bias, *others)
    if blocks.template in (TMA, SPECIALISED) and batch == 1:
        programs = min(tiles, 1 if interpreting() else multiprocessors(getattr(run.stream, "device_index", 0)))
        common["UNIT"] = unit = 1 if (n | ldc) % 8 else 8
        specialise = blocks.template == SPECIALISED
        send = not (specialise or add) and unit == 8 and c.data_ptr() % 16 == 0  # nor is there memory to turn what is added
        launch(with_epilogue(kernels.gemm_tma, epilogue), (programs,), a, b, c, *more, m, n // unit, k, lda, ldb,
               ldc // unit, programs, **common, ADD=add, SPECIALISE=specialise, SEND=send,
               HALVES=2 if blocks.BM * blocks.BN * itemsize > (1 << 15 if send else 1 << 16) or unit == 1 else 1,
               workspace=run.workspace, **options)
        return
    splits = blocks.splits
    per_split = cdiv(cdiv(k, splits), blocks.BK) * blocks.BK if splits > 1 else 0
    steps = tuple(s // unit for s in steps) if batch > 1 else (0, 0, 0)
    if splits == 1:
        launch(with_epilogue(kernels.gemm_pointer, epilogue), (tiles * batch,), a, b, c, *more, *sizes, lda // unit, ldb // unit,
               ldc // unit, *steps, 1, 0, **common, ADD=add, SPLIT=False, **options)
        return
    parts = run.workspace((batch * splits, m, n), np.dtype("float64" if itemsize == 8 else "float32"))
    launch(kernels.gemm_pointer, (tiles * batch * splits,), a, b, parts, parts, *sizes, lda // unit, ldb // unit,
           n // unit, *steps[:2], m * n // unit, splits, per_split // 16, **{**common, "BIAS": False}, ADD=False,
           SPLIT=True, **options)
    block = block_for(batch * m * n)
    launch(with_epilogue(kernels.gemm_sum_splits, epilogue), (cdiv(batch * m * n, block),), parts, c, *more, m, n // unit,
           ldc // unit, batch, steps[2], splits, UNIT=unit, DENSE=ldc == n and (batch == 1 or c_view[1][0] == m * n), ADD=add,
           BIAS=bias is not None, WIDE=wide_float(c), BLOCK=block, stream=run.stream)


def _fetchable(run: Run, array: DeviceArray, rows: int, columns: int, turned: bool, leading: int, itemsize: int, other_way: bool
               ) -> tuple[DeviceArray, bool, int]:
    """Return an operand as the copy engine and the tensor cores take it, with `turned` and its leading dimension.

    Rows must start at multiples of 16 bytes; TF32 is multiplied along contiguous elements alone. Else it is copied: a pass over
    memory, where reading it element by element would cost several. other_way: the other axis must be contiguous.
    """
    if not other_way and array.data_ptr() % 16 == 0 and leading * itemsize % 16 == 0:
        return array, turned, leading
    turn = turned != other_way
    shape = (columns, rows) if turn else (rows, columns)
    steps = (1, leading) if turned else (leading, 1)
    across = cdiv(shape[1], 8) * 8
    copy = run.workspace((shape[0], across), dtype_of(array))
    _copying(shape, steps[::-1] if turn else steps, across, codegen_target())(run, array, copy)
    return copy, turn, across


@functools.lru_cache(1024)
def _copying(shape: Shape, steps: tuple[int, ...], leading: int, codegen: CodegenTarget) -> PlannedCopy:
    """Return the copy of a matrix with these steps to one whose rows lie `leading` elements apart."""
    return plan(Strided(0, shape, steps), Strided(0, shape, (leading, 1)))


def _turned(view: View) -> View:
    (b, m, n), (sb, sm, sn) = view
    return (b, n, m), (sb, sn, sm)


def _launch_gemv(run: Run, a: DeviceArray, b: DeviceArray, c: DeviceArray, bias: DeviceArray | None, sizes: tuple[int, int, int],
                 a_lies: tuple[bool, int], b_lies: tuple[bool, int], ldc: int, options: dict[str, Any], epilogue: Epilogue | None,
                 others: Sequence[DeviceArray]) -> None:
    """Compute a product with one column, or with one row as the transposed product."""
    (m, n, k), ((ta, lda), (tb, ldb)) = sizes, (a_lies, b_lies)
    column = n == 1
    rows = m if column else n
    matrix, vector, turned, ld = (a, b, ta, lda) if column else (b, a, not tb, ldb)
    x_step = (1 if tb else ldb) if column else (lda if ta else 1)
    y_step = ldc if column else 1
    unit = 1 if (rows | k | ld) % 8 else 8
    bm, bk = (tile_size(rows, 64), tile_size(k, 32)) if turned else (tile_size(rows, 16), tile_size(k, 256))
    launch(with_epilogue(kernels.gemv, epilogue), (cdiv(rows, bm),), matrix, vector, c, c if bias is None else bias, *others,
           rows // unit, k // unit, ld // unit, x_step, y_step, **{**options, "UNIT": unit}, TA=turned,
           ROW_BIAS=not column, BM=bm, BK=bk, stream=run.stream)
