"""Kernels of index formulas: index_kernel computes the elements of outputs, scatter_kernel puts elements into outputs.

`indexed` declares whole operators by them, and its docstring is the guide to bodies. An OperatorProperty with rules of its own
(dtypes, shapes in both directions, checks of parameters) computes by them, forward and backward:

    def forward_kernel(self, ins, outs, reqs, target, train):
        return index_kernel(lambda at, x, i: x[at[0], i[at[0]].astype("int64")], ins, outs, reqs, target, self.name)

    def backward_kernel(self, ins, outs, reqs, target, train):         # reads dy and i
        return scatter_kernel(lambda at, dy, i: put(dy[at], at[0], i[at[0]].astype("int64")), ins[0].shape,
                              ins, outs, reqs, target, self.name)

`scatter_kernel` computes outputs that are zero but where elements are put: for each index `at` of a space, put(element, *place).
Elements at one place add up; on the CPU in the order of the space, on a GPU in any (half precision in float32).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtype import is_half
from ...errors import OperatorError, TraceError
from ..cpu.c_moving import MovingKernel
from ..cpu.index_limits import Limits
from ..cpu.indexed_kernel import cpu_kernel
from ..cpu.indexed_scatter import scatter_kernel as numpy_scatter
from ..ir.expr import Expr, as_expr, caller, cast, const, param, prim
from ..ir.indexed import TRUE, IndexedProgram, accumulated_in, as_index, check_closed, gather, index, size
from ..ir.indexed import put as put_node
from ..kernel import NOTHING, Kernel, Reshaped
from ..op import Req, Reqs, Shape, Spec, Specs


class At(tuple[Expr, ...]):
    """The index of an element of the output. shape: traced sizes; sizes: ints; output: the number of the output."""

    shape: tuple[Expr, ...]
    sizes: Shape
    output: int

    @classmethod
    def of(cls, sizes: Shape, output: int) -> At:
        at = cls(index(a) for a in range(len(sizes)))
        at.sizes, at.output = sizes, output
        at.shape = tuple(size(-1 - output, a, d) for a, d in enumerate(sizes))
        return at


class IndexedArray:
    """An input of an index formula, inside its body."""

    def __init__(self, name: str, number: int, spec: Spec):
        self._name, self._number = name, number
        self.sizes, self.dtype, self.ndim, self.size = spec.shape, spec.dtype, len(spec.shape), spec.size

    @property
    def shape(self) -> tuple[Expr, ...]:
        return tuple(size(self._number, a, d) for a, d in enumerate(self.sizes))

    def __getitem__(self, key: Any) -> Expr:
        return self._read(key if isinstance(key, tuple) else (key,), TRUE)

    def at(self, *key: Any, inside: Any = True, otherwise: Any = 0) -> Expr:
        """Return the element at key where inside holds, elsewhere otherwise."""
        mask = TRUE if inside is True else as_expr(inside)
        found = self._read(key, mask)
        plain = mask is TRUE or (not isinstance(otherwise, Expr) and otherwise == 0)
        return found if plain else prim("where", mask, found, otherwise)

    def _read(self, key: Sequence[Any], mask: Expr) -> Expr:
        if len(key) != self.ndim:
            raise TraceError(f"{self._name}: {len(key)} indices for an array of {self.ndim} axes, {self.sizes} ({caller()}). "
                             f"Give one for each axis.")
        for k, d in zip(key, self.sizes):
            if mask is TRUE and isinstance(k, int) and not 0 <= k < d:
                raise TraceError(f"{self._name}: index {k} is outside of an axis of {d} ({caller()}). "
                                 f"Count from the end with x.shape[axis] - {abs(k)}; read with x.at(..., inside=...).")
        return gather(self._number, self.sizes, self.dtype, mask, [as_index(k, self._name) for k in key])

    def __iter__(self) -> Any:
        raise TraceError(f"{self._name}: an input of an index formula cannot be iterated ({caller()}). Use lang.sum or "
                         f"lang.fold.")

    def __repr__(self) -> str:
        return f"<{self._name}: {self.dtype}{list(self.sizes)}>"


def index_kernel(body: Callable[..., Any], ins: Specs, outs: Specs, reqs: Reqs, target: str, name: str, *,
                 views: Sequence[Shape] | None = None, results: Sequence[Shape] | None = None,
                 scalars: Mapping[str, float] | None = None, limits: Limits | None = None) -> Kernel:
    """Return the kernel of an index formula, body(at, *inputs, **scalars), for a layer: one body for both devices.

    views:    the shapes in which the inputs are viewed, each of as many elements as the input; default: their own.
    results:  the same for the outputs. `at` is an index of a result.
    scalars:  numbers that a GPU gets at run time: the body sees traced ones, and a new value compiles nothing.
    limits:   of an input with indices, which a CPU checks first.
    """
    ins = ins if views is None else [Spec(v, s.dtype) for v, s in zip(views, ins)]
    outs = outs if results is None else [Spec(v, s.dtype) for v, s in zip(results, outs)]
    arrays = [IndexedArray(f"x{i}", i, s) for i, s in enumerate(ins)]
    given = dict(scalars or {})
    traced = {n: _traced_scalar(n, v, target) for n, v in given.items()}
    names = tuple(given) if target == "gpu" else ()
    programs = programs_of(name, [s.shape for s in outs], names, lambda at: body(at, *arrays, **traced))
    kernel = printed(programs, ins, outs, reqs, target, name)
    if names and kernel is not NOTHING:
        kernel = kernel.with_scalars(tuple(given.values()))
    if results is not None and not isinstance(kernel, MovingKernel):  # that reads arrays by position, in any shape
        inner, shapes = kernel, [s.shape for s in outs]
        kernel = Reshaped(inner, lambda ins, outs: (ins, [o if o is None else o.reshape(s) for o, s in zip(outs, shapes)]))
    return kernel if limits is None or target == "gpu" else limits.checked(kernel, name, ins[limits.input])


@dataclass(frozen=True, slots=True)
class Put:
    """An element, its place in the output, and a condition without which it is left out."""

    element: Any
    place: tuple[Any, ...]
    inside: Any = True


def put(element: Any, *place: Any, inside: Any = True) -> Put:
    """Return what puts element at the indices `place` of an output, where `inside` holds."""
    return Put(element, place, inside)


def scatter_kernel(body: Callable[..., Any], space: Shape, ins: Specs, outs: Specs, reqs: Reqs, target: str, name: str, *,
                   views: Sequence[Shape] | None = None, results: Sequence[Shape] | None = None,
                   scalars: Mapping[str, float] | None = None, combine: str = "add", start: Any = 0,
                   base: int | None = None, distinct: bool = False, limits: Limits | None = None) -> Kernel:
    """Return the kernel of outputs into which body(at, *inputs, **scalars) puts elements, for each index `at` of a space.

    body:      returns for each output what `put` returns, or a list of that.
    views, results, scalars, limits:  see index_kernel.
    combine:   "add": elements at one place add up; "maximum": the largest stays; "put": an element replaces what is there, and
               of several at one place the last stays.
    start:     the number, or the name of the scalar, that the elements of the outputs start with.
    base:      the number of an input, of the output's layout, with whose elements the one output starts instead, on a CPU.
    distinct:  no two elements are put at the same place; then a GPU needs nothing atomic.
    """
    given = dict(scalars or {})
    first = _traced_scalar(start, given[start], target) if isinstance(start, str) else const(start)
    ins = ins if views is None else [Spec(v, s.dtype) for v, s in zip(views, ins)]
    outs = outs if results is None else [Spec(v, s.dtype) for v, s in zip(results, outs)]
    traced = {n: _traced_scalar(n, v, target) for n, v in given.items()}
    made = body(At.of(space, 0), *(IndexedArray(f"x{i}", i, s) for i, s in enumerate(ins)), **traced)
    puts = made if isinstance(made, tuple) else (made,)
    if len(puts) != len(outs):
        raise OperatorError(f"{name}: the body puts elements into {len(puts)} outputs of {len(outs)}.")
    parts = []
    for i, (stored, out) in enumerate(zip(puts, outs)):
        if reqs[i] == Req.NULL or not out.size:
            continue
        dtype = accumulated_in(out.dtype) if combine != "put" or is_half(out.dtype) else out.dtype
        roots = [_put_root(name, one, out.shape, dtype) for one in (stored if isinstance(stored, list) else [stored])]
        check_closed(name, roots)
        programs = [IndexedProgram((root,), space, tuple(given) if target == "gpu" else ()) for root in roots]
        more = {} if base is None else {"base": base}
        parts.append((i, out.shape, scatter_printer(target)(programs, ins, out, reqs[i], combine=combine, start=first,
                                                             distinct=distinct, name=name, **more)))
    values = {"scalars": tuple(given.values())} if given and target == "gpu" else {}

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        for i, shape, part in parts:
            part.run(run, inputs, [outputs[i].reshape(shape)], **values)

    views_itself = target == "cpu" and len(outs) == len(parts) == 1
    made = parts[0][-1] if views_itself else Kernel(kernel) if parts else NOTHING
    return made if limits is None or target == "gpu" else limits.checked(made, name, ins[limits.input])


def _traced_scalar(name: str, value: float, target: str) -> Expr:
    """Return a scalar as a body sees it: only a GPU's kernel holds for all its values."""
    return param(name) if target == "gpu" else const(value)


def _put_root(name: str, given: Put, shape: Shape, dtype: np.dtype) -> Expr:
    """Return the root that puts an element, in dtype, into an output of this shape."""
    if len(given.place) != len(shape):
        raise TraceError(f"{name}: an element is put at {len(given.place)} indices of an output of {len(shape)} axes, "
                         f"{shape}. Give one for each axis.")
    mask = TRUE if given.inside is True else as_expr(given.inside)
    return put_node(shape, mask, cast(as_expr(given.element), dtype), [as_index(k, name) for k in given.place])


def scatter_printer(target: str) -> Callable[..., Kernel]:
    if target == "cpu":
        return numpy_scatter
    from ..gpu.indexed import scatter_kernel as triton_scatter  # optional dependency

    return triton_scatter


def printed(programs: Sequence[tuple[tuple[int, ...], IndexedProgram]], ins: Specs, outs: Specs, reqs: Reqs, target: str,
             name: str) -> Kernel:
    """Return the kernel of programs, each with the numbers of its outputs."""
    parts = []
    for numbers, program in programs:
        wanted = [reqs[i] for i in numbers]
        if any(r != Req.NULL for r in wanted) and outs[numbers[0]].size:
            parts.append((numbers, printer(target)(program, ins, [outs[i] for i in numbers], wanted, name=name)))
    if not parts:
        return NOTHING
    if len(parts) == 1 and len(parts[0][0]) == len(outs):
        return parts[0][1]

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple = ()) -> None:
        for numbers, part in parts:
            part(run, inputs, [outputs[i] for i in numbers], scalars=scalars)

    return Kernel(kernel)


def printer(target: str) -> Callable[..., Kernel]:
    if target == "cpu":
        return cpu_kernel
    from ..gpu.indexed import indexed_kernel  # optional dependency

    return indexed_kernel


def programs_of(name: str, shapes: Sequence[Shape], scalars: tuple[str, ...], trace: Callable[[At], Any]
              ) -> list[tuple[tuple[int, ...], IndexedProgram]]:
    """Return the programs of outputs of these shapes: one if all are the same. trace: the body as a function of `at`."""
    n = len(shapes)

    def traced(at: At) -> tuple:
        found = trace(at)
        return found if isinstance(found, tuple) else (found,)

    if len(set(shapes)) == 1:
        results = traced(At.of(shapes[0], 0))
        if len(results) != n:
            raise OperatorError(f"{name}: the body returned {len(results)} values for {n} outputs.")
        parts = [(tuple(range(n)), results)]
    else:
        parts = []
        for i, shape in enumerate(shapes):
            results = traced(At.of(shape, i))
            if len(results) not in (1, n):
                raise OperatorError(f"{name}: the body returned {len(results)} values for {n} outputs.")
            parts.append(((i,), results[-1:] if len(results) == 1 else results[i:i + 1]))
    made = []
    for numbers, results in parts:
        roots = tuple(as_expr(r) for r in results)
        check_closed(name, roots)
        made.append((numbers, IndexedProgram(roots, shapes[numbers[0]], scalars)))
    return made
