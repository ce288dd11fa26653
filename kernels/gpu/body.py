"""The parts that generated kernels share: an expression graph as lines of Triton, and the launches of a printed operator.

Half precision is widened when it is loaded and rounded once when it is stored; every number carries its dtype.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...dtype import bfloat16, float32, is_float, is_half, to_integer
from ..ir.draws import Draw, PlacedDraw
from ..ir.expr import (
    BOOL,
    CAST,
    CONST,
    LOAD,
    PARAM,
    REDUCE,
    ROW_INDEX,
    Expr,
    ScalarValue,
    loads,
    of_scalars,
    resolve_weak_dtype,
    scalars,
    typed,
)
from ..ir.primitives import PRIMITIVES
from ..kernel import DeviceArray, Run, Stream
from ..op import Req, Spec
from .launch import launch, placed
from .load import HEADER
from .source import KernelSource, kernel_of
from .special import helpers_for
from .target import CodegenTarget

NO_DRAWS: Mapping[int, PlacedDraw] = MappingProxyType({})
_TO_INT = {"int32": "_to_int32", "int64": "_to_int64", "uint64": "_to_uint64"}


def tl_type(dtype: np.dtype) -> str:
    """tl.float32, tl.int1 …"""
    return "tl.int1" if dtype == BOOL else f"tl.{dtype.name}"


def literal(value: float, dtype: np.dtype) -> str:
    """A number in Triton's syntax."""
    if dtype.kind == "u":
        return str(int(value) % (1 << 8 * dtype.itemsize))
    if is_float(dtype):
        return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    return repr(value)


#: The offset of a program's elements where they are BLOCK consecutive ones; base is a multiple of BLOCK.
BLOCK_OFFSET = "base + lane"
#: An array of a launch: ("in", i), ("out", i) or ("workspace", i).
ArrayRef = tuple[str, int]


@dataclass(frozen=True)
class StoreTarget:
    """A root of an expression, and the array that it is stored to."""

    root: Expr
    spec: Spec
    req: Req
    array: ArrayRef

    @property
    def dtype(self) -> np.dtype:
        """The dtype the root is computed in."""
        return typed(self.root)


class ScalarArgument(NamedTuple):
    """An argument of a kernel that depends on run-time scalars alone.

    kind: "f32", "f64", "bool", or the dtype of an integer, which is passed as int64.
    """

    value: ScalarValue
    kind: str

    @property
    def is_float(self) -> bool:
        """True if the kernel takes a float."""
        return self.kind in ("f32", "f64")

    def given(self, scalars: Sequence[Any]) -> float | int | LateScalar:
        """Return what the kernel is given when these are the run-time scalars that it depends on."""
        if scalars and isinstance(scalars[0], RunTimeScalar):
            return LateScalar(self, tuple(s.number for s in scalars))
        return self.passed(tuple(scalars))

    def passed(self, scalars: tuple[float, ...]) -> float | int:
        """Return the number that is passed when these are the values of the run-time scalars that it depends on."""
        value = self.value.of(scalars)
        if self.is_float:
            return float(value)
        return int(value != 0) if self.kind == "bool" else to_integer(to_integer(value, np.dtype(self.kind)), np.dtype("int64"))


@dataclass
class KernelLaunch:
    """One kernel of a printed operator, with the arguments of its launch.

    arrays:   the array of each pointer parameter.
    sizes:    the integer parameters, which follow, and their values.
    scalars:  the run-time scalars, and what depends on them alone, which come next.
    draws:    whether it draws random numbers: then the seed and the offset come last, and another pointer after the others,
              to both in memory, for a captured launch.
    """

    kernel: KernelSource
    arrays: list[ArrayRef]
    sizes: dict[str, int]
    scalars: list[ScalarArgument]
    grid: tuple[int, ...]
    constexprs: dict[str, Any]
    num_warps: int
    draws: bool = False

    def run(self, stream: Stream | None, arrays: Mapping[ArrayRef, DeviceArray], scalars: Sequence[float],
            random: tuple[Any, int] | None = None) -> None:
        values: list[Any] = [s.given([scalars[i] for i in s.value.places]) for s in self.scalars]
        pointers = [arrays[ref] for ref in self.arrays]
        more = self.constexprs
        if self.draws:
            assert random is not None, "this kernel draws random numbers"
            held, seed, offset = placed(random, pointers[0])
            pointers.append(held)
            values += [seed, offset]
            more = {**more, "HELD": held is random[0]}
        launch(self.kernel, self.grid, *pointers, *self.sizes.values(), *values, num_warps=self.num_warps, stream=stream, **more)


@dataclass
class LaunchPlan:
    """The launches of one operator, in order, and the workspace arrays between them."""

    launches: list[KernelLaunch] = field(default_factory=list)
    workspace: list[Spec] = field(default_factory=list)

    def temporary(self, root: Expr, shape: tuple[int, ...], dtype: np.dtype) -> StoreTarget:
        """Add a workspace array; return the store of root to it."""
        self.workspace.append(Spec(shape, dtype))
        return StoreTarget(root, self.workspace[-1], Req.WRITE, ("workspace", len(self.workspace) - 1))

    def run(self, run: Run, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], scalars: Sequence[float] = (), *,
            random: tuple[Any, int] | None = None) -> None:
        """Launch every kernel. random: seed and offset; or a device array int64 [2] of both, and a number added to the offset."""
        arrays: dict[ArrayRef, DeviceArray] = {("in", i): a for i, a in enumerate(inputs)}
        arrays |= {("out", i): a for i, a in enumerate(outputs)}
        arrays |= {("workspace", i): run.workspace(s.shape, s.dtype) for i, s in enumerate(self.workspace)}
        for one in self.launches:
            one.run(run.stream, arrays, scalars, random)


class KernelBody:
    """Names and text of an expression's nodes in one kernel.

    inputs:  the dtype of each input array; names: of the run-time scalars, in order.
    draws:   the inputs that are random numbers instead of arrays.
    """

    def __init__(self, roots: Sequence[Expr], order: Sequence[Expr], inputs: Sequence[np.dtype], names: Sequence[str],
                 draws: Mapping[int, PlacedDraw] = NO_DRAWS):
        self.draws = {i: d for i, d in draws.items() if any(x.op == LOAD and x.value == i for x in order)}
        self.roots, self.order, self.inputs, self.scalar_names = roots, order, inputs, names
        self.number = {id(x): i for i, x in enumerate(order)}
        self.used_scalars: dict[str, ScalarArgument] = {}  # by parameter
        self.leaves: dict[int, str] = {}
        self.functions = ""  # the text of device functions that the kernel calls, beside the helpers
        self.prologue: list[str] = []
        alone = {id(x): x for x in of_scalars(order)}
        read = {id(a) for x in order if id(x) not in alone for a in x.args} | {id(r) for r in roots}
        # the host computes these, as parts of what the kernel gets
        self.inner = {id(x) for x in order if x.op == CONST or id(x) in alone} - read
        for x in alone.values():
            if id(x) in read:
                self.leaves[id(x)] = self._scalar(x)
        inline = self._inline_constants()
        for x in order:
            if x.op == CONST and id(x) not in self.inner:
                text = literal(x.value, typed(x))
                if id(x) not in inline:
                    self.prologue.append(f"c{self.number[id(x)]} = tl.full([], {text}, {tl_type(typed(x))})")
                    text = f"c{self.number[id(x)]}"
                self.leaves[id(x)] = text

    def _inline_constants(self) -> set[int]:
        """The constants that are only operands of infix operators with a block: there a bare number takes the block's dtype."""
        good = {id(x) for x in self.order if x.op == CONST and typed(x) != BOOL}
        for x in self.order:
            infix = x.op in PRIMITIVES and "(" not in PRIMITIVES[x.op].triton and len(x.args) == 2
            plain = infix and any(a.op not in (CONST, PARAM) for a in x.args) and not is_half(typed(x.args[0]))
            if not plain:
                good -= {id(a) for a in x.args}
        return good - {id(r) for r in self.roots}

    def _scalar(self, x: Expr) -> str:
        dtype = typed(x)
        kind = "f64" if dtype == np.float64 else "f32" if is_float(dtype) else dtype.name
        name = f"s{len(self.used_scalars)}_{_identifier(x.value if x.op == PARAM else '_'.join(scalars([x])))}"
        self.used_scalars[name] = ScalarArgument(ScalarValue(x, self.scalar_names), kind)
        if is_float(dtype) and not is_half(dtype):
            return name
        return f"({name} != 0)" if dtype == BOOL else f"{name}.to({tl_type(dtype)})"

    def launch(self, name: str, lines: Sequence[str], used: Sequence[int], targets: Sequence[StoreTarget], sizes: dict[str, int],
               grid: tuple[int, ...], blocks: dict[str, int], num_warps: int, codegen: CodegenTarget,
               *, wide: Container[str], source: ArrayRef | None = None) -> KernelLaunch:
        """Return the launch of the kernel with these lines, in which x0 is a pointer to input 0, and y0 to the first target.

        used:    the inputs it loads; source: the array of input 0, if it is not the operator's own.
        blocks:  its constexprs. wide: the sizes that are passed as int64.
        """
        arrays = {f"x{i}": source or ("in", i) for i in used if i not in self.draws}
        arrays |= {f"y{k}": t.array for k, t in enumerate(targets)}
        bases = {f"first{i}": d.base for i, d in self.draws.items()}
        sizes = {**sizes, **bases}
        annotation = {"f32": "", "f64": ": tl.float64"}
        seeds = ["seed: tl.int64", "offset: tl.int64"] if self.draws else []
        parameters = [*arrays, *(["held"] if self.draws else []),
                      *(f"{s}: tl.int64" if s in wide or s in bases else s for s in sizes),
                      *(s + annotation.get(kind, ": tl.int64") for s, (_, kind) in self.used_scalars.items()), *seeds,
                      *(f"{b}: tl.constexpr" for b in blocks), *(["HELD: tl.constexpr"] if self.draws else [])]
        if self.draws:
            lines = ["if HELD:  # a captured launch: its arguments are fixed, but device memory may change",
                     "    seed = tl.load(held)", "    offset += tl.load(held + 1)", *lines]
        kernel = kernel_of(kernel_text(name, parameters, [*self.prologue, *lines], list(sizes), codegen, self.functions), name)
        return KernelLaunch(kernel, list(arrays.values()), sizes, list(self.used_scalars.values()), grid, blocks, num_warps,
                            bool(self.draws))

    def read(self, i: int, offset: str, mask: str = "") -> str:
        """Return the text of the element of input i at offset, or of its random number. mask: "" or ", mask=…"."""
        placed = self.draws.get(i)
        if placed is None:
            return f"tl.load(x{i}{' + ' + offset if offset else ''}{mask})"
        d, start = placed.draw, f"offset + first{i}"
        numbers = _form(d)
        if offset == BLOCK_OFFSET:
            return f"_random_{d.kind}s(seed, {start} + base, BLOCK{numbers})"
        at = f"({offset}).to(tl.int64)" if offset else "lane.to(tl.int64) * 0"
        at = f", {at}" if d.kind == "normal" else f" + {at}"
        return f"_random_{d.kind}(seed, {start}{at}{numbers})"

    def read_rows(self, i: int, start: str, first: str, factor: int) -> str | None:
        """Return the text of random numbers of the BLOCK elements from `first` on of rows: [rows, BLOCK], or [1, BLOCK].

        start: the offset of a row [rows, 1], a multiple of factor; "" if all have the same numbers. first: a multiple of BLOCK.
        None if input i is no random number, or its pairs lie in two rows.
        """
        placed = self.draws.get(i)
        if placed is None or (placed.draw.kind == "normal" and factor % 2):
            return None
        d, base = placed.draw, f"offset + first{i} + {first}"
        rows = f"({start}).to(tl.int64)" if start else "tl.zeros([1, 1], tl.int64)"
        return f"_random_{d.kind}s_of_rows(seed, {base} + {rows}, {base}, BLOCK, {factor % 4 == 0}{_form(d)})"

    # ---- lines -----------------------------------------------------------------------------------------------------
    def lines(self, wanted: Sequence[Expr], names: dict[int, str], fetch: Callable[[int], str],
              reduce: Callable[[Expr, str], str] | None = None) -> list[str]:
        """Return the lines that compute `wanted`, and add the new names to `names`, which holds those that exist already.

        fetch(i): text of the load of input i. reduce(node, argument): text of a reduction over the row.
        """
        out = []
        needed: set[int] = set()
        waiting = list(wanted)
        while waiting:
            x = waiting.pop()
            if id(x) not in needed and id(x) not in names:
                needed.add(id(x))
                waiting += () if id(x) in self.leaves else x.args
        for x in self.order:
            if id(x) not in needed:
                continue
            if id(x) in self.leaves:
                names[id(x)] = self.leaves[id(x)]
                continue
            if x.op == LOAD:
                text = fetch(x.value)
            elif x.op == ROW_INDEX:
                text = "column.to(tl.int32)"
            elif x.op == REDUCE:
                assert reduce is not None, "a reduction in an elementwise kernel"
                text = reduce(x, names[id(x.args[0])])
            else:
                text = self.apply(x, [names[id(a)] for a in x.args])
            names[id(x)] = f"t{self.number[id(x)]}"
            out.append(f"{names[id(x)]} = {text}")
        return out

    def apply(self, x: Expr, args: Sequence[str]) -> str:
        """The text of a cast or primitive over named operands."""
        if x.op == CAST:
            return convert(args[0], typed(x.args[0]), typed(x))
        if any(is_half(typed(a)) for a in x.args):  # a value rounded inside the body
            args = [convert(t, typed(a), float32) if is_half(typed(a)) else t for t, a in zip(args, x.args)]
            text = PRIMITIVES[x.op].triton.format(*args)
            return convert(f"({text})", float32, typed(x)) if is_half(typed(x)) else text
        if PRIMITIVES[x.op].rule == "compare" and not loads(x.args):  # the interpreter mistypes scalars
            args = [f"(tl.zeros([1], {tl_type(typed(x.args[0]))}) + {args[0]})", *args[1:]]
        return PRIMITIVES[x.op].triton.format(*args)


def _form(d: Draw) -> str:
    """Return the last arguments of the device functions of a draw, which say what becomes of the bits."""
    if d.kind == "word":
        return ""
    return f", {d.bits}, {2.0**-d.bits!r}, {tl_type(d.dtype)}" if d.kind == "uniform" else f", {tl_type(d.dtype)}"


class RunTimeScalar:
    """A run-time scalar whose value is not known yet, while launches are recorded. Nothing can be computed from it."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number

    def __eq__(self, other: object) -> bool:
        raise TypeError("the value is not known yet")

    def __bool__(self) -> bool:
        raise TypeError("the value is not known yet")


class LateScalar(NamedTuple):
    """The argument of a recorded launch that depends on run-time scalars, and their numbers."""

    argument: ScalarArgument
    numbers: tuple[int, ...]


def convert(text: str, source: np.dtype, to: np.dtype) -> str:
    """Return text, of dtype source, converted to dtype `to` by NumPy's rules."""
    if source == to:
        return text
    if to == BOOL:
        return f"({text} != 0)"
    if to == bfloat16:
        return f"_bfloat16({text})" if source == float32 else f"_bfloat16({text}.to(tl.float32))"
    if is_half(source) and not is_float(to):
        return convert(f"{text}.to(tl.float32)", float32, to)
    if is_float(source) and to.kind in "iu":  # as dtype.cast_into; narrow and unsigned results wrap
        through = "uint64" if to.name == "uint64" else "int64" if to.itemsize == 8 or to.name == "uint32" else "int32"
        text = f"{_TO_INT[through]}({text})"
        return text if to.name == through else f"{text}.to({tl_type(to)})"
    return f"{text}.to({tl_type(to)})"


def store(value: str, root: np.dtype, spec: Spec, req: Req, pointer: str, mask: str) -> str:
    """Return the store of a root by its write request. mask: "" or ", mask=…"."""
    to = spec.dtype
    if req == Req.ADD:
        wide = float32 if is_half(to) and (is_half(root) or not is_float(root)) else np.promote_types(
            float32 if is_half(to) else to, float32 if is_half(root) else root)
        old = convert(f"tl.load({pointer}{mask})", to, wide)
        value = f"{old} {'|' if wide == BOOL else '+'} {convert(value, root, wide)}"
        value, root = f"({value})", wide
    return f"tl.store({pointer}, {convert(value, root, to)}{mask})"


def typed_root(root: Expr, dtype: np.dtype) -> Expr:
    """Return root with a dtype: a weak one (a number or a scalar) takes dtype, or float32 for half precision."""
    return root if root.dtype is not None else resolve_weak_dtype(root, float32 if is_half(dtype) else dtype)


def kernel_text(name: str, parameters: Sequence[str], lines: Sequence[str], unspecialised: Sequence[str],
                codegen: CodegenTarget, functions: str = "") -> str:
    """Return a complete file: header, the device functions it needs, and the kernel. functions: the text of others."""
    decorator = f"@triton.jit(do_not_specialize={list(unspecialised)!r})" if unspecialised else "@triton.jit"
    body = "\n".join("    " + line for line in lines)
    text = f"{functions}{decorator}\ndef {name}({', '.join(parameters)}):\n{body}\n"
    return HEADER + helpers_for(text, interpreted=codegen.interpreted) + text


def size_parameter(name: str, value: int) -> tuple[str, int, list[str]]:
    """Return a size as a kernel's parameter: (parameter, its value, lines that compute `name` from it).

    The text states which power of two up to 16 divides the size, since that decides how wide accesses to rows can be.
    """
    factor = math.gcd(value, 16) if value else 1
    if factor == 1:
        return name, value, []
    return f"{name}_by_{factor}", value // factor, [f"{name} = {name}_by_{factor} * {factor}"]


def index_lines(index: str, axes: Sequence[int]) -> list[str]:
    """Return the lines that compute the index i0, i1 ... along each of the axes from an index over all of them."""
    lines = []
    for axis in reversed(axes[1:]):
        lines += [f"i{axis} = {index} % d{axis}", f"{index}_{axis} = {index} // d{axis}"]
        index = f"{index}_{axis}"
    return [*lines, *(f"i{axis} = {index}" for axis in axes[:1])]


def offset_text(present: Sequence[bool], order: Sequence[int] = ()) -> str:
    """Return the offset of an operand that has these axes, from their indices. order: of the terms, by axis."""
    terms = []
    for axis in order or range(len(present)):
        if present[axis]:
            stride = [f"d{a}" for a in range(axis + 1, len(present)) if present[a]]
            terms.append(f"i{axis}" + (f" * ({' * '.join(stride)})" if stride else ""))
    return " + ".join(terms)


def indent(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def kernel_name(name: str) -> str:
    """The function name of an operator's kernel."""
    return "k_" + _identifier(name)
