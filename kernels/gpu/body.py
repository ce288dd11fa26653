"""The arithmetic of a kernel: an expression graph as lines of Triton, and the launches that a printed kernel is run by.

Half precision is widened as it is loaded and rounded once as it is stored; every number carries its dtype.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...dtype import bfloat16, float32, is_float, is_half, to_integer
from ..ir.expr import BOOL, CAST, CONST, LOAD, PARAM, REDUCE, Expr, loads, resolve_weak_dtype
from ..ir.primitives import PRIMITIVES
from ..op import Req, Spec
from .job import CompileJob
from .launch import launch
from .load import HEADER
from .source import kernel_of
from .special import helpers_for
from .target import CodegenTarget

_WHOLE = {"int32": "_whole32", "int64": "_whole64", "uint64": "_whole64u"}
_SHORT = {"float": "fp", "bfloat": "bf", "int": "i", "uint": "u"}


def tl_type(dtype: np.dtype) -> str:
    """tl.float32, tl.int1 …"""
    return "tl.int1" if dtype == BOOL else f"tl.{dtype.name}"


def signature_type(dtype: np.dtype) -> str:
    """fp32, bf16, i1 …: how the compiler abbreviates dtype."""
    if dtype == BOOL:
        return "i1"
    kind, bits = re.fullmatch(r"([a-z]+)(\d+)", dtype.name).groups()  # type: ignore[union-attr]
    return _SHORT[kind] + bits


def literal(value: Any, dtype: np.dtype) -> str:
    """A number as Triton reads it."""
    if dtype.kind == "u":
        return str(int(value) % (1 << 8 * dtype.itemsize))
    if is_float(dtype):
        value = float(value)
        if not math.isfinite(value):
            return f'float("{value}")'
    return repr(value)


#: An array of a launch: ("in", i), ("out", i), or ("space", i) for scratch.
ArrayRef = tuple[str, int]


@dataclass(frozen=True)
class StoreTarget:
    """A root, what its array is, and where that is found."""

    root: Expr
    spec: Spec
    req: Req
    place: ArrayRef

    @property
    def dtype(self) -> np.dtype:
        """The dtype the root is computed in."""
        return _typed(self.root)


@dataclass
class KernelLaunch:
    """One kernel of a printed operator, and what it is launched with.

    pointers:    per pointer parameter, where the array comes from, and its dtype.
    sizes:       the whole-number parameters, which follow, and their values.
    scalars:     then the run-time scalars: position in the kernel's `scalars`, and "f32", "f64", "bool" or the dtype of whole
                 numbers, which travel as int64.
    """

    name: str
    source: str
    pointers: list[tuple[ArrayRef, np.dtype]]
    sizes: dict[str, int]
    scalars: list[tuple[str, int, str]]
    grid: tuple[int, ...]
    constexprs: dict[str, Any]
    num_warps: int = 4
    _function: Any = field(default=None, repr=False)

    def run(self, stream: Any, arrays: Mapping[ArrayRef, Any], scalars: Sequence[float]) -> None:
        if self._function is None:
            self._function = kernel_of(self.source, self.name)
        values = [_handed(scalars[i], kind) for _, i, kind in self.scalars]
        launch(self._function, self.grid, *(arrays[place] for place, _ in self.pointers), *self.sizes.values(),
               *values, num_warps=self.num_warps, stream=stream, **self.constexprs)

    def job(self, target: int, **constexprs: Any) -> CompileJob:
        """This kernel, to be compiled ahead of time for a compute capability (times ten)."""
        inside = re.search(rf"def {self.name}\((.*?)\):", self.source, re.DOTALL)
        assert inside, self.source
        types = [f"*{signature_type(d)}" for _, d in self.pointers] + ["i32"] * len(self.sizes)
        types += ["fp32"] * len(self.scalars)
        annotated = {"tl.int64": "i64", "tl.float64": "fp64"}
        signature = {}
        for parameter, usual in zip(inside[1].split(","), types):
            name, _, annotation = parameter.partition(":")
            signature[name.strip()] = annotated.get(annotation.strip(), usual)
        return CompileJob(self.source, self.name, signature, {**self.constexprs, **constexprs}, target, None, self.num_warps)


class LaunchPlan:
    """The launches of one operator, in order, and the scratch arrays they pass on."""

    def __init__(self) -> None:
        self.launches: list[KernelLaunch] = []
        self.spaces: list[Spec] = []

    def space(self, shape: tuple[int, ...], dtype: np.dtype) -> int:
        """The number of a new scratch array."""
        self.spaces.append(Spec(shape, dtype))
        return len(self.spaces) - 1

    def run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = ()) -> None:
        """Launch every step. run: the engine's RunContext; None where nothing needs a stream or scratch."""
        arrays: dict[ArrayRef, Any] = {("in", i): a for i, a in enumerate(inputs)}
        arrays |= {("out", i): a for i, a in enumerate(outputs)}
        arrays |= {("space", i): run.workspace(s.shape, s.dtype) for i, s in enumerate(self.spaces)}
        stream = run.stream if run is not None else None
        for step in self.launches:
            step.run(stream, arrays, scalars)


class KernelBody:
    """Names and text of an expression's nodes, for one kernel.

    inputs:  the dtype of each input array; scalars: the names of the run-time scalars, in order.
    """

    def __init__(self, roots: Sequence[Expr], order: Sequence[Expr], inputs: Sequence[np.dtype],
                 scalars: Sequence[str]):
        self.roots, self.order, self.inputs, self.scalar_names = roots, order, inputs, scalars
        self.number = {id(x): i for i, x in enumerate(order)}
        self.used_scalars: dict[tuple[str, str], str] = {}  # (name, kind) -> parameter
        self.leaves: dict[int, str] = {}
        self.prologue: list[str] = []
        for x in order:
            if x.op == PARAM:
                self.leaves[id(x)] = self._scalar(x)
        spelled_out = self._constants_beside_blocks()
        for x in order:
            if x.op == CONST:
                text = literal(x.value, _typed(x))
                if id(x) not in spelled_out:
                    self.prologue.append(f"c{self.number[id(x)]} = tl.full([], {text}, {tl_type(_typed(x))})")
                    text = f"c{self.number[id(x)]}"
                self.leaves[id(x)] = text

    def _constants_beside_blocks(self) -> set[int]:
        """Constants that only stand beside another operand of an infix operator: a bare number takes its dtype."""
        good = {id(x) for x in self.order if x.op == CONST and _typed(x) != BOOL}
        for x in self.order:
            infix = x.op in PRIMITIVES and "(" not in PRIMITIVES[x.op].triton and len(x.args) == 2
            plain = infix and any(a.op not in (CONST, PARAM) for a in x.args) and not is_half(_typed(x.args[0]))
            if not plain:
                good -= {id(a) for a in x.args}
        return good - {id(r) for r in self.roots}

    def _scalar(self, x: Expr) -> str:
        dtype = _typed(x)
        kind = "f64" if dtype == np.float64 else "f32" if is_float(dtype) else dtype.name
        name = self.used_scalars.setdefault((x.value, kind), f"s{len(self.used_scalars)}_{_identifier(x.value)}")
        if is_float(dtype) and not is_half(dtype):
            return name
        return f"({name} != 0)" if dtype == BOOL else f"{name}.to({tl_type(dtype)})"

    def scalar_parameters(self) -> list[str]:
        annotation = {"f32": "", "f64": ": tl.float64"}
        return [name + annotation.get(kind, ": tl.int64") for (_, kind), name in self.used_scalars.items()]

    def scalars(self) -> list[tuple[str, int, str]]:
        return [(name, self.scalar_names.index(name), kind) for name, kind in self.used_scalars]

    # ---- lines -----------------------------------------------------------------------------------------------------
    def lines(self, wanted: Sequence[Expr], names: dict[int, str], fetch: Callable[[int], str],
              fold: Callable[[Expr, str], str] | None = None) -> list[str]:
        """The lines that compute wanted; names (filled in) are what exists already.

        fetch(i): text of the load of input i. fold(node, argument): text of a reduction over the row.
        """
        out = []
        needed = {id(x) for x in _needed(wanted, names)}
        for x in self.order:
            if id(x) not in needed or id(x) in names:
                continue
            if id(x) in self.leaves:
                names[id(x)] = self.leaves[id(x)]
                continue
            if x.op == LOAD:
                text = fetch(x.value)
            elif x.op == REDUCE:
                assert fold is not None, "a reduction in an elementwise kernel"
                text = fold(x, names[id(x.args[0])])
            else:
                text = self.apply(x, [names[id(a)] for a in x.args])
            names[id(x)] = f"t{self.number[id(x)]}"
            out.append(f"{names[id(x)]} = {text}")
        return out

    def apply(self, x: Expr, args: Sequence[str]) -> str:
        """The text of a cast or primitive over named operands."""
        if x.op == CAST:
            return convert(args[0], _typed(x.args[0]), _typed(x))
        if any(is_half(_typed(a)) for a in x.args):  # a value rounded inside the body
            args = [convert(t, _typed(a), float32) if is_half(_typed(a)) else t for t, a in zip(args, x.args)]
            text = PRIMITIVES[x.op].triton.format(*args)
            return convert(f"({text})", float32, _typed(x)) if is_half(_typed(x)) else text
        if PRIMITIVES[x.op].rule == "compare" and not loads(x.args):  # the interpreter mistypes what is no block
            args = [f"(tl.zeros([1], {tl_type(_typed(x.args[0]))}) + {args[0]})", *args[1:]]
        return PRIMITIVES[x.op].triton.format(*args)


def _handed(value: float, kind: str) -> float | int:
    """A run-time scalar as a kernel takes it."""
    if kind in ("f32", "f64"):
        return float(value)
    return int(value != 0) if kind == "bool" else to_integer(to_integer(value, np.dtype(kind)), np.dtype("int64"))


def _typed(x: Expr) -> np.dtype:
    assert x.dtype is not None, f"weak node {x!r} in a printed kernel"
    return x.dtype


def _needed(wanted: Sequence[Expr], names: Mapping[int, str]) -> list[Expr]:
    seen: set[int] = set()
    stack, found = list(wanted), []
    while stack:
        x = stack.pop()
        if id(x) not in seen and id(x) not in names:
            seen.add(id(x))
            found.append(x)
            stack.extend(x.args)
    return found


def convert(text: str, source: np.dtype, to: np.dtype) -> str:
    """The value text, of dtype source, in dtype `to`, with NumPy's meaning."""
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
        text = f"{_WHOLE[through]}({text})"
        return text if to.name == through else f"{text}.to({tl_type(to)})"
    return f"{text}.to({tl_type(to)})"


def store(value: str, root: np.dtype, spec: Spec, req: Req, pointer: str, mask: str) -> str:
    """The store of a root by its request. mask: "" or ", mask=…"."""
    to = spec.dtype
    if req == Req.ADD:
        wide = float32 if is_half(to) and (is_half(root) or not is_float(root)) else np.promote_types(
            float32 if is_half(to) else to, float32 if is_half(root) else root)
        old = convert(f"tl.load({pointer}{mask})", to, wide)
        value = f"{old} {'|' if wide == BOOL else '+'} {convert(value, root, wide)}"
        value, root = f"({value})", wide
    return f"tl.store({pointer}, {convert(value, root, to)}{mask})"


def typed_root(root: Expr, dtype: np.dtype) -> Expr:
    """root with a dtype: a weak one (a number, a scalar) takes dtype, or float32 for half precision."""
    return root if root.dtype is not None else resolve_weak_dtype(root, float32 if is_half(dtype) else dtype)


def kernel_text(name: str, parameters: Sequence[str], lines: Sequence[str], unspecialised: Sequence[str],
                codegen: CodegenTarget) -> str:
    """A whole file: header, the device functions it needs, and the kernel."""
    decorator = f"@triton.jit(do_not_specialize={list(unspecialised)!r})" if unspecialised else "@triton.jit"
    body = "\n".join("    " + line for line in lines)
    text = f"{decorator}\ndef {name}({', '.join(parameters)}):\n{body}\n"
    return HEADER + helpers_for(text, interpreted=codegen.interpreted) + text


def size_parameter(name: str, value: int) -> tuple[str, int, list[str]]:
    """A size as a kernel takes it: (parameter, its value, lines that make `name` of it).

    What power of two up to 16 divides it is said in the text, for that decides how wide accesses to rows can be.
    """
    factor = math.gcd(value, 16) if value else 1
    if factor == 1:
        return name, value, []
    return f"{name}_by_{factor}", value // factor, [f"{name} = {name}_by_{factor} * {factor}"]


def indent(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def kernel_name(name: str) -> str:
    """A function name for an operator's kernel."""
    return "k_" + _identifier(name)
