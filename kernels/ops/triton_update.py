"""Triton: optimizer steps for many arrays in one launch, found through a table of addresses in device memory.

Numbers that change between steps (learning rate, weight decay ...) are read from device memory as well, so that a
captured launch stays right when they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ParameterError
from ..triton_kernel import tl, triton
from ..triton_launch import interpreting, launch

#: Arrays each rule walks over, in the order of the table's rows.
ARRAYS = {"sgd": ("weight", "grad"), "momentum": ("weight", "grad", "mom"), "adam": ("weight", "grad", "mean", "var")}
#: Numbers each rule reads per array, in order: those of the whole group are repeated.
NUMBERS = {"sgd": ("lr", "wd", "rescale", "clip"), "momentum": ("lr", "wd", "rescale", "clip", "momentum"),
           "adam": ("lr", "wd", "rescale", "clip", "beta1", "beta2", "epsilon")}


@triton.jit
def _walk(w, g, m, v, numbers, keep, RULE: tl.constexpr, MASK: tl.constexpr):
    lr = tl.load(numbers)
    wd = tl.load(numbers + 1)
    clip = tl.load(numbers + 3)
    if MASK:
        weight = tl.load(w, mask=keep, other=0).to(tl.float32)
        grad = tl.load(g, mask=keep, other=0).to(tl.float32)
    else:
        weight = tl.load(w).to(tl.float32)
        grad = tl.load(g).to(tl.float32)
    grad = grad * tl.load(numbers + 2)
    grad = tl.where(clip > 0, tl.minimum(tl.maximum(grad, -clip), clip), grad) + wd * weight
    if RULE == 0:
        weight = weight - lr * grad
    elif RULE == 1:
        momentum = tl.load(numbers + 4)
        if MASK:
            mom = tl.load(m, mask=keep, other=0)
        else:
            mom = tl.load(m)
        mom = momentum * mom - lr * grad
        weight = weight + mom
        if MASK:
            tl.store(m, mom, mask=keep)
        else:
            tl.store(m, mom)
    else:
        beta1 = tl.load(numbers + 4)
        beta2 = tl.load(numbers + 5)
        if MASK:
            mean = tl.load(m, mask=keep, other=0)
            var = tl.load(v, mask=keep, other=0)
        else:
            mean = tl.load(m)
            var = tl.load(v)
        mean = beta1 * mean + (1 - beta1) * grad
        var = beta2 * var + (1 - beta2) * grad * grad
        weight = weight - lr * mean / (tl.sqrt(var) + tl.load(numbers + 6))
        if MASK:
            tl.store(m, mean, mask=keep)
            tl.store(v, var, mask=keep)
        else:
            tl.store(m, mean)
            tl.store(v, var)
    if MASK:
        tl.store(w, weight.to(w.dtype.element_ty), mask=keep)
    else:
        tl.store(w, weight.to(w.dtype.element_ty))


@triton.jit
def update_many(table, sizes, chunks, numbers, count, RULE: tl.constexpr, COLUMNS: tl.constexpr, TYPE: tl.constexpr,
                BLOCK: tl.constexpr):
    # table [arrays of the rule, count]: addresses. chunks [programs, 2]: which array, and which of its blocks
    t = tl.load(chunks + 2 * tl.program_id(0))
    start = tl.load(chunks + 2 * tl.program_id(0) + 1) * BLOCK
    n = tl.load(sizes + t)
    w = tl.multiple_of(tl.load(table + t).to(tl.pointer_type(TYPE)), 16)
    g = tl.multiple_of(tl.load(table + count + t).to(tl.pointer_type(TYPE)), 16)
    m = tl.load(table + t).to(tl.pointer_type(tl.float32))
    v = m
    if RULE > 0:
        m = tl.multiple_of(tl.load(table + 2 * count + t).to(tl.pointer_type(tl.float32)), 16)
    if RULE > 1:
        v = tl.multiple_of(tl.load(table + 3 * count + t).to(tl.pointer_type(tl.float32)), 16)
    i = tl.arange(0, BLOCK)
    mine = numbers + t * COLUMNS
    keep = start + i < n
    if start + BLOCK <= n:
        _walk(w + start + i, g + start + i, m + start + i, v + start + i, mine, keep, RULE, False)
    else:
        _walk(w + start + i, g + start + i, m + start + i, v + start + i, mine, keep, RULE, True)


def block_size() -> int:
    """Elements of one program."""
    return 1 << 14 if interpreting() else 1024


def tables(addresses: Sequence[Sequence[int]], sizes: Sequence[int], block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `update_many` reads: addresses [arrays of the rule, count], sizes [count], chunks [programs, 2]; all int64.

    addresses: per array of the rule (ARRAYS), one for each weight; every one must divide by 16.
    Raises ParameterError for one that does not: those arrays are updated one by one.
    """
    found = np.array(addresses, np.int64)
    if found.size and (found % 16).any():
        raise ParameterError(f"update: {int((found % 16 != 0).sum())} arrays do not start at a multiple of 16 bytes. "
                             f"Update them one by one.")
    chunks = [(t, b) for t, n in enumerate(sizes) for b in range(-(-n // block))]
    return found, np.array(sizes, np.int64), np.array(chunks, np.int64).reshape(-1, 2)


def update(run: Any, rule: str, table: Any, sizes: Any, chunks: Any, numbers: Any, *, count: int, programs: int,
           dtype: str = "float32", block: int | None = None) -> None:
    """One step of a rule for `count` arrays. table, sizes, chunks: `tables` in device memory; numbers [count, of the rule],
    float32. dtype: of weights and gradients; other states are float32."""
    types = {"float32": tl.float32, "float16": tl.float16, "bfloat16": tl.bfloat16}
    launch(update_many, (programs,), table, sizes, chunks, numbers, count, RULE=list(ARRAYS).index(rule),
           COLUMNS=len(NUMBERS[rule]), TYPE=types[dtype], BLOCK=block or block_size(), stream=run.stream)
