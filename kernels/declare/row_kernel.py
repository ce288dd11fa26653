"""Kernels of bodies with sums inside (`row_sum`, `row_max`), over any axes: one body, both devices.

Over the last axis, or the one before it, the printers compute whole rows in one kernel. Over other axes the body is cut at its
sums: each becomes a fold of its own into scratch, and what is left is elementwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtype import float32, float64
from ..cpu.numpy_printer import numpy_kernel
from ..cpu.rows_kernel import rows_in_c
from ..ir.coalesce import full_shape
from ..ir.draws import recording
from ..ir.expr import (
    LOAD,
    REDUCE,
    ROW_INDEX,
    Expr,
    as_expr,
    goes_by_rows,
    load,
    loads,
    node,
    substitute,
    topological,
    typed,
)
from ..kernel import Kernel, KernelFunction, Reshaped
from ..op import Expression, Req, Reqs, Shape, Spec, Specs
from .traced import printed

Pass = tuple[KernelFunction, Sequence[int], Sequence[int]]  # a kernel, which arrays it reads, which outputs it fills
_COMBINE = {"sum": "add", "max": "maximum"}
_LONG, _FEW = 4096, 1024  # rows beside each other of more than _LONG elements, and fewer than _FEW of them, are cut


def row_kernel(body: Callable[..., Any], views: Sequence[Shape], results: Sequence[Shape], kept: Shape,
               ins: Specs, outs: Specs, reqs: Reqs, target: str, name: str) -> Kernel:
    """Return the kernel of body over its arrays, each viewed in another shape.

    body:     takes one traced value per input, returns one (or a tuple) per output.
    views:    the shape in which each input is viewed; they broadcast to the full shape.
    results:  the same for outputs. One with fewer elements than the full shape is summed over the others.
    kept:     the full shape, with 1 for the axes that the sums inside the body go over.
    Returns:  kernel(run, inputs, outputs), with random=(seed, offset) if the body draws; it may be given more inputs, and an
              output may be None where its request is NULL.
    """
    with recording(float64 if outs[0].dtype == np.float64 else float32) as recorder:
        roots = body(*(load(i, s.dtype) for i, s in enumerate(ins)))
    draws = tuple(recorder.draws)
    roots = tuple(as_expr(r) for r in (roots if isinstance(roots, tuple) else (roots,)))
    full = full_shape([*views, kept])
    by_rows = goes_by_rows(roots)
    if by_rows and kept == (*full[:-2], 1, 1) != (*full[:-1], 1) and full[-1] == 1:  # the axis behind the rows is none
        views, results, kept, full = [v[:-1] for v in views], [v[:-1] for v in results], kept[:-1], full[:-1]
    sources = [Spec(v, s.dtype) for v, s in zip(views, ins)]
    targets = [Spec(v, s.dtype) for v, s in zip(results, outs)]
    axis = _row_axis(roots, full, kept) if by_rows else -1
    assert not draws or axis == -1, "a body that is cut at its sums would draw in each of its parts, and the numbers of a tile " \
        "are to follow one another"
    if axis is not None:
        e = Expression(roots, "row" if by_rows else "elementwise", draws=draws, axis=axis)
        same = [*views, *results] == [s.shape for s in (*ins, *outs)]

        def whole(make: Callable[..., Kernel]) -> Kernel:
            inner, n = make(e, sources, targets, reqs, name=name), len(views)
            if draws or not (same or target == "gpu"):  # a GPU kernel sees addresses alone
                return Reshaped(inner, lambda inputs, outputs: (_seen(inputs, views), _seen(outputs, results)), bool(draws))
            return Reshaped(inner, lambda inputs, outputs: (inputs[:n], outputs))

        in_c = rows_in_c(e, sources, targets, reqs, lambda: whole(numpy_kernel)) if target == "cpu" else None
        return in_c or whole(_printer(target))
    make = _printer(target)
    folds, rest, sources = _cut(roots, sources, kept, name, make)
    passes = _passes(rest, sources, targets, reqs, name, make)

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] | None = None) -> None:
        arrays = _seen(inputs, views)
        for fold, reads, dtypes in folds:
            spaces = [run.workspace(kept, d) for d in dtypes]
            fold(run, [arrays[i] for i in reads], spaces)
            arrays += spaces
        given = _seen(outputs, results)
        for last, reads, writes in passes:
            last(run, [arrays[i] for i in reads], [given[i] for i in writes])

    return Kernel(kernel)


def _seen(arrays: Sequence[Any], views: Sequence[Shape]) -> list[Any]:
    return [a if a is None or tuple(a.shape) == v else a.reshape(v) for a, v in zip(arrays, views)]


def _row_axis(roots: Sequence[Expr], full: Shape, kept: Shape) -> int | None:
    """Return the axis that the rows go along, -1 or -2; None where the body is to be cut at its sums."""
    if kept == (*full[:-1], 1):
        return -1
    indexed = any(x.op == ROW_INDEX for x in topological(roots))
    if kept == (*full[:-2], 1, full[-1]):
        some = full[-2] <= _LONG or math.prod(full) // full[-2] >= _FEW
        return -2 if some or indexed else None
    assert not indexed, (full, kept, "rows of several axes have no index")
    return None


def _printer(target: str) -> Callable[..., Kernel]:
    return lambda e, ins, outs, reqs, *, name: printed(e, ins, outs, reqs, target, name)


def _cut(roots: Sequence[Expr], sources: list[Spec], kept: Shape, name: str, make: Callable[..., KernelFunction]
         ) -> tuple[list[tuple[KernelFunction, list[int], list[np.dtype]]], tuple[Expr, ...], list[Spec]]:
    """Return the folds, each with the arrays it reads and the dtypes of its scratch, then the roots without them and the
    specs of the arrays that these roots read.

    Sums that do not depend on one another share one pass over the data.
    """
    depth: dict[int, int] = {}
    levels: dict[tuple[int, str], list[Expr]] = {}
    for x in topological(roots):
        depth[id(x)] = max((depth[id(a)] for a in x.args), default=0) + (x.op == REDUCE)
        if x.op == REDUCE:
            levels.setdefault((depth[id(x)], x.value), []).append(x)
    folds = []
    found: dict[int, Expr] = {}
    read = list(sources)
    for (level, kind), nodes in sorted(levels.items(), key=lambda item: item[0]):
        parts, reads = _narrow(substitute([x.args[0] for x in nodes], found))
        spaces = [Spec(kept, typed(x)) for x in nodes]
        e = Expression(tuple(parts), combine=_COMBINE[kind])
        folds.append((make(e, [read[i] for i in reads], spaces, [Req.WRITE] * len(nodes), name=f"{name}_{kind}{level}"),
                      reads, [s.dtype for s in spaces]))
        for x, s in zip(nodes, spaces):
            found[id(x)] = load(len(read), s.dtype)
            read.append(s)
    return folds, tuple(substitute(roots, found)), read


def _passes(roots: Sequence[Expr], sources: Specs, targets: Specs, reqs: Reqs, name: str,
            make: Callable[..., KernelFunction]) -> list[Pass]:
    """The passes that fill the outputs: one for those that span the full shape or are summed over it, and one for each
    that is made of sums alone: beside an array of the full shape it would be summed again."""
    together: list[int] = []
    made: list[Pass] = []
    for i, root in enumerate(roots):
        (alone,), reads = _narrow([root])
        span = full_shape([sources[r].shape for r in reads])
        if Spec(span, targets[i].dtype).size > targets[i].size or targets[i].shape == full_shape([t.shape for t in targets]):
            together.append(i)
        else:
            made.append((make(Expression((alone,)), [sources[r] for r in reads], [targets[i]], [reqs[i]], name=f"{name}{i}"),
                         reads, [i]))
    if together:
        parts, reads = _narrow([roots[i] for i in together])
        made.append((make(Expression(tuple(parts)), [sources[r] for r in reads], [targets[i] for i in together],
                          [reqs[i] for i in together], name=name), reads, together))
    return made


def _narrow(roots: Sequence[Expr]) -> tuple[list[Expr], list[int]]:
    """roots with their loads numbered from 0, and which arrays those are."""
    reads = loads(roots)
    new = {id(x): node(LOAD, (), reads.index(x.value), x.dtype) for x in topological(roots) if x.op == LOAD}
    return substitute(roots, new), reads
