"""Epilogue: elementwise work on the result of a template kernel, done in registers before it is stored.

A template marks the place with a line `x = epilogue(x, index, mask)`, or `epilogue_flat` for an x with one axis; index and mask
are those of x's columns. A template with an epilogue is its text with that line replaced and with further parameters behind
`bias` for the arrays that the epilogue reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...dtype import float32, float64
from ..ir.expr import Expr, topological, typed
from .body import KernelBody, convert
from .source import KernelSource, triton
from .special import helpers_for
from .target import interpreting

_MARK = re.compile(r"^( *)(\w+) = epilogue(_flat)?\(\2, (.+), (.+)\)$", re.MULTILINE)
_printed: dict[tuple, tuple[Expr, KernelSource]] = {}  # by the id of the expression, which the value keeps alive


@triton.jit
def epilogue(x, index, mask):
    return x


@triton.jit
def epilogue_flat(x, index, mask):
    return x


@dataclass(frozen=True)
class Epilogue:
    """An expression of a kernel's result that is stored instead of it.

    root:     the expression.
    dtypes:   the dtype of each load.
    vectors:  per load, -1 for the kernel's result, in the dtype it would have been stored in; else the number of an array with
              one value per column.
    """

    root: Expr
    dtypes: tuple[np.dtype, ...]
    vectors: tuple[int, ...]

    @property
    def heavy(self) -> bool:
        """True if it takes many registers beside those of the result."""
        return len(self.vectors) > 1 or len(topological([self.root])) > 5

    def put_into(self, kernel: KernelSource, interpreted: bool) -> KernelSource:
        """Return the template with this epilogue."""
        text, n = _MARK.subn(self._lines, kernel.source)
        assert n == 1, f"{kernel.name} marks {n} places for an epilogue"
        extra = [f"e{i}" for i in range(max((*self.vectors, -1)) + 1)]
        text, n = re.subn(rf"(def {kernel.name}\([^)]*?\bbias,)", lambda m: " ".join([m[1], *(f"{e}," for e in extra)]), text)
        assert n == 1, f"{kernel.name} takes no bias"
        head, decorator, rest = text.partition("@triton.jit")
        text = head + helpers_for(rest, interpreted=interpreted) + decorator + rest
        parameters = {}
        for p in kernel.arg_names:
            parameters[p] = kernel.annotations[p]
            if p == "bias":
                parameters |= dict.fromkeys(extra, "")
        return KernelSource(kernel.name, lambda: text, parameters)

    def _lines(self, mark: re.Match[str]) -> str:
        indent, x, flat, index, mask = mark.groups()
        body = KernelBody([self.root], topological([self.root]), self.dtypes, ())
        wide = float64 if self.dtypes[self.vectors.index(-1)] == float64 else float32

        def fetch(i: int) -> str:
            if self.vectors[i] < 0:
                return convert(x, wide, self.dtypes[i])
            return f"tl.load(e{self.vectors[i]} + {index}, mask={mask}, other=0){'' if flat else '[None, :]'}"

        names: dict[int, str] = {}
        lines = [*body.prologue, *body.lines([self.root], names, fetch)]
        lines.append(f"{x} = {convert(names[id(self.root)], typed(self.root), wide)}")
        return "\n".join(indent + line for line in lines)


def with_epilogue(kernel: KernelSource, epilogue: Epilogue | None) -> KernelSource:
    """Return the template with the epilogue, if one is given. Equal ones are printed once."""
    if epilogue is None:
        return kernel
    interpreted = interpreting()
    key = (kernel, id(epilogue.root), epilogue.dtypes, epilogue.vectors, interpreted)
    if key not in _printed:
        _printed[key] = epilogue.root, epilogue.put_into(kernel, interpreted)
    return _printed[key][1]
