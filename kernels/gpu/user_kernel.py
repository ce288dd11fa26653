"""A user's own Triton kernel: `jit` keeps its text, `launch` runs it inside an operator, compiled or interpreted.

    @jit
    def scale_kernel(x, y, n, factor, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, at < n) * factor, at < n)

`tl` is Triton's language, under any name, or the stand-in that this package exports, which needs no Triton. Only the text of the
kernel goes to Triton, so it does not matter which of both was imported first.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import math
import re
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ...errors import OperatorError, ParameterError, describe
from ..kernel import Run
from .launch import launch as launch_kernel
from .load import HEADER, INTERPRET
from .source import KernelSource, Name, tl, triton

_KERNEL = "__tritium_kernel__"  # the attribute of a function that holds what jit made of it


class UserKernel(KernelSource):
    """A kernel that `jit` made. defaults: the values of parameters that a launch may leave out."""

    def __init__(self, fn: FunctionType, kinds: dict[str, str]):
        super().__init__(fn.__name__, lambda: HEADER + "\n\n\n".join(_texts(fn).values()) + "\n", kinds)
        self.fn = fn
        declared = inspect.signature(fn).parameters.values()
        self.defaults = {p.name: p.default for p in declared if p.default is not inspect.Parameter.empty}


# ---- from a function to text -----------------------------------------------------------------------------------------
def jit(fn: Any) -> UserKernel:
    """Make a Triton kernel of a Python function, for `launch`: a decorator, instead of triton.jit.

    Parameters stand in this order: arrays, numbers, constexprs (annotated tl.constexpr). An int is 32 bits wide, or 64 where it
    is annotated tl.int64; a float is float32, or float64 where it is annotated tl.float64. The body may call other functions
    under jit, and read numbers and strings of its module, whose values are fixed at the first launch.

    fn:      a function, or the result of triton.jit.
    Raises:  OperatorError for parameters in another order. At the first launch, for a body that uses anything else of its module.
    """
    function = fn if isinstance(fn, FunctionType) else getattr(fn, "fn", None)
    if isinstance(fn, UserKernel):
        return fn
    if not isinstance(function, FunctionType):
        raise OperatorError(f"jit: got {type(fn).__name__}, not a function. Decorate the function of a kernel with it.")
    kernel: UserKernel | None = getattr(function, _KERNEL, None)
    if kernel is None:
        kinds = {p: _kind(function.__annotations__.get(p, "")) for p in inspect.signature(function).parameters}
        order = [kind == "constexpr" for kind in kinds.values()]
        if order != sorted(order):
            late = [p for p in kinds if kinds[p] != "constexpr"][-1]
            raise OperatorError(f"{function.__name__}: {late} stands behind a constexpr. Put arrays first, then numbers, then "
                                f"constexprs.")
        kernel = UserKernel(function, kinds)
        setattr(function, _KERNEL, kernel)
    return kernel


def _kind(annotation: Any) -> str:
    """Return "constexpr", "int64", "float64" or "" for a parameter's annotation: text, a stand-in, or Triton's own."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", None) or str(annotation)
    name = name.strip("'\" ").rpartition(".")[2]
    return {"fp64": "float64"}.get(name, name) if name in ("constexpr", "int64", "float64", "fp64") else ""


def _texts(function: FunctionType) -> dict[str, str]:
    """Return the texts of a kernel and of the functions that it calls, by name: each behind those that it calls."""
    texts: dict[str, str] = {}
    seen: dict[str, FunctionType] = {}

    def visit(f: FunctionType) -> None:
        if f.__name__ in seen:
            if seen[f.__name__] is not f:
                raise OperatorError(f"{function.__name__}: calls two functions named {f.__name__}. Rename one.")
            return
        seen[f.__name__] = f
        rewriter = _Rewriter(f, visit)
        node = _with_triton(rewriter.visit(_definition(f)), f)
        texts.update({line: line for line in rewriter.imports if line not in texts})
        texts[f.__name__] = ast.unparse(node)

    visit(function)
    return texts


def _definition(f: FunctionType) -> ast.FunctionDef:
    """Return the syntax tree of f, without decorators and annotations."""
    try:
        text = textwrap.dedent(inspect.getsource(f))
    except (OSError, TypeError):
        raise OperatorError(f"{f.__name__}: its text cannot be read. Write it in a file or in a notebook's cell.") from None
    node = next((n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)), None)
    if node is None:
        raise OperatorError(f"{f.__name__}: is not written with def. Write the kernel as a function of its own.")
    node.decorator_list, node.returns = [], None
    for a in node.args.args:
        a.annotation = None
    return node


def _with_triton(node: ast.FunctionDef, f: FunctionType) -> ast.FunctionDef:
    """Return the tree with triton.jit as its decorator and with Triton's annotations."""
    node.decorator_list = [ast.parse("triton.jit", mode="eval").body]
    for a in node.args.args:
        kind = _kind(f.__annotations__.get(a.arg, ""))
        a.annotation = ast.parse(f"tl.{kind}", mode="eval").body if kind else None
    return node


class _Rewriter(ast.NodeTransformer):
    """Puts values for the names of a function's module: what the text of a kernel may contain.

    visit_function:  called with each function that this one calls.
    imports:         the lines that import other modules of Triton.
    """

    def __init__(self, f: FunctionType, visit_function: Callable[[FunctionType], None]):
        self._f, self._visit_function = f, visit_function
        cells = zip(f.__code__.co_freevars, f.__closure__ or ())
        self._names = {"triton": triton, "tl": tl, **vars(builtins), **f.__globals__}
        self._names |= {n: c.cell_contents for n, c in cells}
        self._local = {*f.__code__.co_varnames, *f.__code__.co_cellvars}
        self.imports: list[str] = []

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._local or not isinstance(node.ctx, ast.Load):
            return node
        if node.id not in self._names:
            raise OperatorError(f"{self._f.__name__}: {node.id} is not defined.")
        return self._spelled(node, self._names[node.id], node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        chain = ast.unparse(node).split(".")
        if chain[0] in self._local or chain[0] not in self._names:
            return self.generic_visit(node)  # type: ignore[return-value]
        value = self._names[chain[0]]
        for attribute in chain[1:]:
            if not isinstance(value, ModuleType) or _module(value):
                return self.generic_visit(node)  # type: ignore[return-value]
            if not hasattr(value, attribute):
                raise OperatorError(f"{self._f.__name__}: {'.'.join(chain)} is not defined.")
            value = getattr(value, attribute)
        return self._spelled(node, value, ".".join(chain))

    def _spelled(self, node: Any, value: Any, name: str) -> ast.expr:
        """Return what stands for a value of the function's module in the text."""
        if _module(value):
            return ast.Name(_module(value), ast.Load())
        if type(value).__name__ == "constexpr":
            value = value.value
        if isinstance(value, ModuleType) and value.__name__.startswith("triton."):
            self.imports.append(f"import {value.__name__} as {name}")
            return node
        if getattr(value, "__module__", None) and value.__module__.startswith("triton.language"):
            of_triton = getattr(value, "__name__", name)
            return ast.Attribute(ast.Name("tl", ast.Load()), of_triton, ast.Load())
        if value is None or isinstance(value, (bool, int, float, str)):
            finite = not isinstance(value, float) or math.isfinite(value)
            return ast.parse(repr(value) if finite else f"float('{value}')", mode="eval").body
        called = getattr(value, "fn", None)
        if isinstance(called, FunctionType):
            self._visit_function(called)
            return ast.Name(called.__name__, ast.Load())
        if getattr(builtins, name, None) is value:
            return node
        raise OperatorError(f"{self._f.__name__}: uses {name}, {_described(value)}, which a kernel cannot see. Give it as an "
                            f"argument, or make it a number or a function under jit.")


def _module(value: Any) -> str:
    """Return "triton" or "tl" for Triton's modules and their stand-ins; else ""."""
    if value is tl or value is triton:
        return "tl" if value is tl else "triton"
    return {"triton": "triton", "triton.language": "tl"}.get(value.__name__, "") if isinstance(value, ModuleType) else ""


def _described(value: Any) -> str:
    return describe(value) if hasattr(value, "shape") else f"of type {type(value).__name__}"


# ---- launching -------------------------------------------------------------------------------------------------------
class _Running(threading.local):
    """The run context of the operator that this thread runs, and its name; None outside of operators."""

    run: Run | None = None


_running = _Running()


@contextlib.contextmanager
def launching(run: Run) -> Iterator[None]:
    """Let `launch` in this thread use the stream and the scratch memory of run, inside the block."""
    before, _running.run = _running.run, run
    try:
        yield
    finally:
        _running.run = before


def running(name: str) -> Run:
    """Return the run context of the operator that this thread runs. Raises OperatorError outside of operators."""
    if _running.run is None:
        raise OperatorError(f"{name}: called outside of an operator, where its arrays may not be ready. Call {name} in "
                            f"Operator.forward or backward.")
    return _running.run


def launch(kernel: Any, grid: int | Sequence[int] | Callable[[dict[str, Any]], Sequence[int]], *args: Any, num_warps: int = 4,
           num_stages: int = 3, **named: Any) -> None:
    """Run a Triton kernel once per point of grid, on the GPU of the operator that calls it. It is enqueued, not waited for.

    kernel:      what `jit` or triton.jit made.
    grid:        programs along up to three axes; or a function of the constexprs that returns them. One with a 0 runs nothing.
    args, named: the kernel's parameters. An array is a TBlob of the GPU, scratch memory or random numbers of the operator, and is
                 passed as the address of its first element.
    num_warps:   groups of 32 threads per program, a power of two. num_stages: loop iterations that may be loading at once.
    Raises:      OperatorError outside of an operator, and for an array in host memory; ParameterError for a parameter that is
                 missing, unknown or of the wrong kind; ShapeError for too many programs.
    """
    source = jit(kernel)
    values = _bind(source, args, named)
    arrays = True
    numbers: list[Any] = []
    constexprs: dict[str, Any] = {}
    for p, value in values.items():
        if source.annotations[p] == "constexpr":
            constexprs[p] = _constexpr(source.name, p, value)
            continue
        value = _device_array(source.name, p, value)
        is_array = hasattr(value, "data_ptr")
        if is_array and not arrays:
            raise ParameterError(f"{source.name}: {p} is an array behind a number. Put the arrays first among the parameters.")
        arrays = is_array
        numbers.append(value if is_array else _run_time(source.name, p, value))
    run = _running.run
    if run is None:
        raise OperatorError(f"{source.name}: launched outside of an operator, where its arrays may not be ready. Call launch in "
                            f"Operator.forward or backward.")
    points = grid(constexprs) if callable(grid) else (grid,) if isinstance(grid, (int, np.integer)) else grid
    launch_kernel(source, tuple(int(n) for n in points), *numbers, num_warps=num_warps, num_stages=num_stages, stream=run.stream,
                  workspace=run.workspace, **constexprs)


def _bind(source: UserKernel, args: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return the values of all parameters, in their order."""
    names = ", ".join(source.arg_names)
    if len(args) > len(source.arg_names):
        raise ParameterError(f"{source.name}: takes {len(source.arg_names)} parameters ({names}), {len(args)} were given.")
    values = dict(zip(source.arg_names, args))
    for p, value in named.items():
        if p not in source.arg_names:
            raise ParameterError(f"{source.name}: {p!r} is not one of its parameters: {names}.")
        if p in values:
            raise ParameterError(f"{source.name}: parameter {p!r} is given twice.")
        values[p] = value
    defaults = source.defaults
    missing = [p for p in source.arg_names if p not in values and p not in defaults]
    if missing:
        raise ParameterError(f"{source.name}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing. "
                             f"Its parameters: {names}.")
    return {p: values[p] if p in values else defaults[p] for p in source.arg_names}


def _device_array(name: str, p: str, value: Any) -> Any:
    """Return the device array of a TBlob; a device array or a number as it is. Raises OperatorError for host memory."""
    if hasattr(value, "asnumpy"):
        raise OperatorError(f"{name}: {p} is an NDArray, {describe(value)}, which the engine orders. Launch the kernel in an "
                            f"Operator, which gets its memory as a TBlob when it is ready.")
    array = value.array if hasattr(type(value), "pointer") else value  # a TBlob
    if array is None:
        raise OperatorError(f"{name}: {p} has no memory, because its write request is NULL. Do not launch for it.")
    if isinstance(array, np.ndarray) or not (INTERPRET or getattr(array, "is_cuda", True)):
        raise OperatorError(f"{name}: {p} is in host memory, {describe(array)}. A kernel reads a GPU's memory: launch it for "
                            f"target 'gpu', and compute with NumPy for 'cpu'.")
    return array


def _run_time(name: str, p: str, value: Any) -> int | float:
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    raise ParameterError(f"{name}: {p} is {_described(value)}, neither an array nor a number. Annotate it tl.constexpr if it "
                         f"is fixed when the kernel is compiled.")


def _constexpr(name: str, p: str, value: Any) -> Any:
    """Return a constexpr as the store of compiled kernels has it. A dtype may be NumPy's, Triton's or the stand-in's."""
    if value is None or isinstance(value, (bool, int, float, str, Name)):
        return value
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    try:
        text = np.dtype(getattr(value, "name", value)).name
    except TypeError:
        text = str(value)
    text = {"bool": "int1", "fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}.get(text, text)
    if not re.fullmatch(r"u?int(1|8|16|32|64)|b?float(16|32|64)", text):
        raise ParameterError(f"{name}: {p} is {_described(value)}. A constexpr is a number, a string or a dtype.")
    return Name(text)
