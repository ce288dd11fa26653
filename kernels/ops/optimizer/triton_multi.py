"""Triton: an optimizer update of many arrays in one launch, through a table of addresses in device memory.

The arithmetic is printed from the declaration of the update, as in its kernel for one array, so the bits are the same. Numbers
that change between steps (learning rate, weight decay ...) are read from device memory too, so a captured launch uses their
current values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import ParameterError
from ....integers import cdiv
from ...gpu.body import KernelBody, indent, kernel_name, kernel_text, store, tl_type, typed_root
from ...gpu.elementwise import MANY_NODES
from ...gpu.launch import launch
from ...gpu.source import KernelSource, kernel_of
from ...gpu.target import codegen_target, interpreting
from ...ir.expr import ScalarValue, topological
from ...op import Expression, Req, Spec

ALIGN = 16  # bytes; every address must be a multiple, so that accesses are 128 bits wide
_NUMBER = {"f32": "tl.float32", "f64": "tl.float64", "i64": "tl.int64"}


@dataclass(frozen=True)
class ManyUpdate:
    """A kernel that updates any number of arrays of given dtypes.

    rows:     rows of the table: the inputs in order, then the output unless it is the first input.
    columns:  columns of the numbers: what the kernel reads of the run-time scalars, or of what depends on them alone.
    block:    elements per program. align: every address must be a multiple of this many bytes.
    """

    kernel: KernelSource
    rows: int
    columns: tuple[ScalarValue, ...]
    block: int
    align: int = ALIGN

    def numbers(self, scalars: Sequence[Sequence[float]]) -> np.ndarray:
        """Return the numbers [count, columns], float64, for the run-time scalars of each array."""
        return np.array([[value(own) for value in self.columns] for own in scalars], np.float64)

    def launch(self, stream: Any, table: Any, sizes: Any, chunks: Any, numbers: Any) -> None:
        """Update every array once. table, sizes, chunks: `tables` in device memory; numbers [count, columns], float64."""
        launch(self.kernel, (chunks.shape[0],), table, sizes, chunks, numbers, sizes.shape[0], BLOCK=self.block, stream=stream)


def many_update(name: str, e: Expression, ins: Sequence[np.dtype], out: np.dtype | None) -> ManyUpdate:
    """Build the kernel of expression e for inputs of these dtypes. out: dtype of the output; None: the output is input 0."""
    rows, states = [*ins, *([] if out is None else [out])], dict(e.states)
    places = [states.get(k, 0 if out is None else len(ins)) for k in range(len(e.outputs))]
    roots = [typed_root(root, rows[at]) for root, at in zip(e.outputs, places)]
    body = KernelBody(roots, topological(roots), list(ins), e.scalars)
    lines = [*body.prologue, "t = tl.load(chunks + 2 * tl.program_id(0))",
             "base = tl.load(chunks + 2 * tl.program_id(0) + 1) * BLOCK", "n = tl.load(sizes + t)", "lane = tl.arange(0, BLOCK)"]
    values = body.used_scalars
    for column, (parameter, (_, kind)) in enumerate(values.items()):
        lines.append(f"{parameter} = tl.load(numbers + t * {len(values)} + {column}).to({_NUMBER[kind]})")
    for i, dtype in enumerate(rows):
        address = f"tl.load(table + {i} * count + t).to(tl.pointer_type({tl_type(dtype)}))"
        lines.append(f"x{i} = tl.multiple_of({address}, {ALIGN}) + base")

    def branch(mask: str) -> list[str]:
        names: dict[int, str] = {}
        inner = body.lines(roots, names, lambda i: f"tl.load(x{i} + lane{mask})")
        for root, at in zip(roots, places):
            assert root.dtype is not None
            inner.append(store(names[id(root)], root.dtype, Spec((), rows[at]), Req.WRITE, f"x{at} + lane", mask))
        return inner

    lines += ["if base + BLOCK <= n:", *indent(branch("")), "else:",
              *indent(["mask = lane < (n - base).to(tl.int32)", *branch(", mask=mask")])]
    name = f"{kernel_name(name)}_many"
    parameters = ["table", "sizes", "chunks", "numbers", "count", "BLOCK: tl.constexpr"]
    text = kernel_text(name, parameters, lines, ["count"], codegen_target())
    block = 1 << 14 if interpreting() else 128 if len(body.order) > MANY_NODES else 1024
    return ManyUpdate(kernel_of(text, name), len(rows), tuple(value for value, _ in values.values()), block)


def tables(addresses: Sequence[Sequence[int]], sizes: Sequence[int], block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Build the tables of a ManyUpdate: addresses [rows, count], sizes [count], chunks [programs, 2]; all int64.

    addresses: for each row, one address per array.
    Raises ParameterError for an address that is not a multiple of ALIGN.
    """
    found = np.array(addresses, np.int64)
    if found.size and (found % ALIGN).any():
        raise ParameterError(f"update: {int((found % ALIGN != 0).sum())} arrays do not start at a multiple of {ALIGN} bytes. "
                             f"Update them one by one.")
    chunks = [(t, b) for t, n in enumerate(sizes) for b in range(cdiv(n, block))]
    return found, np.array(sizes, np.int64), np.array(chunks, np.int64).reshape(-1, 2)
