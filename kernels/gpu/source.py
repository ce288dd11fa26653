"""Kernels as text: `triton.jit` and `tl` without Triton.

Files under ops/ write their kernels in Triton's language, but take `triton` and `tl` from this file. Its decorator keeps the
function as text, helpers included. Triton reads that text only when a kernel must be compiled or interpreted, so a process whose
kernels are all in the store never imports Triton.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import Any

from .load import HEADER, load


class Name:
    """A name of Triton's language on the host: a dtype that is passed as a constexpr."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"tl.{self.name}"

    def real(self) -> Any:
        """Return Triton's own object. Imports triton."""
        import triton.language

        return getattr(triton.language, self.name)


class _Language:
    """`tl` on the host: names only."""

    def __getattr__(self, name: str) -> Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name)


class KernelSource:
    """One kernel as text.

    name, arg_names:  the function's.
    annotations:      {parameter: "constexpr", "int64", "float64" or ""}.
    """

    def __init__(self, name: str, text: Callable[[], str], parameters: dict[str, str]):
        self.name, self._text = name, text
        self.arg_names = list(parameters)
        self.fn: Any = None  # the Python function, of a kernel that was written as one
        self.arrays = -1  # the number of leading parameters that take arrays; set by the first launch
        self.contracts = True  # as of CompileJob
        self.ready: dict[tuple, Any] = {}  # the loaded specialisations (launch.py)
        self.annotations = {p: a.strip("'\" ").removeprefix("tl.") for p, a in parameters.items()}

    @cached_property
    def source(self) -> str:
        """A complete file: header, helpers, kernel."""
        return self._text()

    def function(self) -> Any:
        """Return Triton's function of this text. Imports triton."""
        return load(self.source, self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.name}: a kernel is launched, not called. Write launch({self.name}, grid, ...).")

    def __getitem__(self, grid: Any) -> Any:
        raise TypeError(f"{self.name}: runs on no stream of the engine by [grid]. Write launch({self.name}, grid, ...).")

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


class _Triton:
    """`triton` on the host."""

    @staticmethod
    def jit(fn: FunctionType) -> KernelSource:
        """Keep fn as text."""
        parameters = {p: str(fn.__annotations__.get(p, "")) for p in inspect.signature(fn).parameters}
        kernel = KernelSource(fn.__name__, lambda: HEADER + "\n\n".join(_with_helpers(fn)), parameters)
        kernel.fn = fn
        return kernel


def _with_helpers(fn: Any) -> list[str]:
    """Return the text of every kernel that fn calls, each once and before its callers, and of fn."""
    texts: dict[str, str] = {}

    def visit(f: Any) -> None:
        for called in f.__code__.co_names:
            helper = f.__globals__.get(called)
            if isinstance(helper, KernelSource) and called not in texts:
                visit(helper.fn)
        texts[f.__name__] = inspect.getsource(f)

    visit(fn)
    return list(texts.values())


_from_text: dict[tuple[str, str], KernelSource] = {}


def kernel_of(source: str, name: str) -> KernelSource:
    """Return the kernel called name in a generated text. The same text gives the same kernel.

    It rounds each operation of its formula. Contracted, the compiler chooses which multiplication of a sum of two is not rounded,
    and may choose otherwise for the next element: then the bits of a result would depend on its place and on the kernel it is
    computed in.
    """
    kernel = _from_text.get((source, name))
    if kernel is None:
        inside = re.search(rf"def {re.escape(name)}\((.*?)\):", source, re.DOTALL)
        assert inside, source
        parameters = {}
        for parameter in inside[1].split(","):
            p, _, annotation = parameter.partition(":")
            parameters[p.strip()] = annotation
        text = source if source.startswith("import triton") else HEADER + source
        kernel = _from_text[source, name] = KernelSource(name, lambda: text, parameters)
        kernel.contracts = False
    return kernel


triton, tl = _Triton(), _Language()
