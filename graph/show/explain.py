"""Report a compiled program: its kernels, the operators fused into each, and why the next operator is not among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import numpy as np

from ...kernels.cpu import c_compile
from ...kernels.cpu.c_printer import program as c_program
from ...kernels.cpu.c_team import Phases
from ...kernels.cpu.rows_kernel import NOTHING_SUMMED
from ...kernels.fusion.epilogue import EpilogueOp
from ...kernels.fusion.fused import FusedOp
from ...kernels.kernel import BoundKernel, InTurn, Prepared
from ...kernels.op import Req, compiled
from ...show import Html, code, details, frame, table, title
from ..program import Program, Step


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel call.

    operators:  the operators that run in it, as `name (operator)`.
    nbytes:     bytes it reads and writes.
    apart:      why the kernel that reads its result is another one; "" if none does.
    code:       "NumPy", "C" or "Triton": the language of the kernel; "C, NumPy" where a part of it is either.
    source:     the text of a kernel in C that was printed for it, else the names of its C functions; for other fused kernels the
                reason why they are not in C.
    """

    number: int
    backward: bool
    name: str
    operators: tuple[str, ...]
    nbytes: int
    apart: str
    code: str = "NumPy"
    source: str = ""

    def __str__(self) -> str:
        lines = [f"{self.number:>4} {'backward' if self.backward else 'forward '} {self.nbytes:>14,} bytes  {self.code:<6}  "
                 f"{' + '.join(self.operators)}"]
        if self.apart:
            lines.append(f"{'':>13} {self.apart}")
        if self.source and self.code == "NumPy":
            lines.append(f"{'':>13} not in C: {self.source}")
        return "\n".join(lines)


class Explanation(tuple[KernelReport, ...]):
    """Every kernel of an executor, in order; str() is a report, and a notebook shows a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = [(k.number, "backward" if k.backward else "forward", Html("<br>".join(map(escape, k.operators))), f"{k.nbytes:,}",
                 details(k.code, code(k.source)) if k.source else k.code, k.apart) for k in self]
        return frame(title(str(self).partition("\n")[0]),
                     table(("", "pass", "operators in one kernel", "bytes", "language", "why the next is another kernel"), rows))

    def __str__(self) -> str:
        operators = sum(len(k.operators) for k in self)
        moved = sum(k.nbytes for k in self)
        return "\n".join([f"{operators} operators in {len(self)} kernels, {moved:,} bytes read and written",
                          *map(str, self)])

    __repr__ = __str__


def explain(program: Program) -> Explanation:
    """List the kernels of a compiled program, with the reason why the first reader of each is another kernel."""
    reader: dict[int, int] = {}  # value -> the first step that reads it
    for i, step in enumerate(program.steps):
        for v in step.inputs:
            reader.setdefault(v, i)
    sizes = [v.spec.nbytes for v in program.values]
    kernels = []
    for i, step in enumerate(program.steps):
        readers = [(reader[v], v) for v in step.outputs if v >= 0 and reader.get(v, -1) > i]
        apart = ""
        if readers:
            j, v = min(readers)
            crosses = i < program.n_forward <= j
            refusal = "it runs in backward" if crosses else program.steps[j].refusals.get(v, "fusion is turned off")
            apart = f"apart from {program.steps[j].name}: {refusal}"
        moved = sum(sizes[v] for v in (*step.inputs, *step.outputs) if v >= 0)
        kernels.append(KernelReport(i, i >= program.n_forward, step.name, step.operators, moved, apart, *_code(program, step)))
    return Explanation(kernels)


def _code(program: Program, step: Step) -> tuple[str, str]:
    """Return the language that computes a step, and its text in C or the reason why it has none.

    The kernel is bound to arrays that nobody touches, as a graph binds it: so nothing says otherwise than what runs.
    """
    if program.targets[step.ctx] == "gpu":
        return "Triton", ""
    use = step.params, program.input_specs(step), program.output_specs(step), step.reqs
    if not step.op.can_be_captured(*use[:2]) or step.op.random_count(*use[:3]):  # user code; what draws is not bound
        return "NumPy", ""
    kernel = compiled(step.op, *use, "cpu", program.train)
    ins, outs = ([np.empty(s.shape, s.dtype) for s in specs] for specs in use[1:3])
    with c_compile.noted() as functions:
        parts = list(_parts(kernel.keep(ins, [None if r == Req.NULL else o for o, r in zip(outs, step.reqs)])))
    in_c = [p for p in parts if isinstance(p, Phases)]
    if in_c:
        text = c_program(functions) if functions else f"/* {', '.join(dict.fromkeys(n for p in in_c for n in p.names))} */"
        return "C" if len(in_c) == len(parts) else "C, NumPy", text
    if not isinstance(step.op, (FusedOp, EpilogueOp)):
        return "NumPy", ""
    code = step.op.c_code(*use)
    rows = step.op.rows_code(*use) if isinstance(step.op, FusedOp) else code
    reasons = [r for r in (rows, code) if isinstance(r, str) and r != NOTHING_SUMMED]
    return "NumPy", reasons[0] if reasons else ""


def _parts(bound: BoundKernel) -> Iterator[BoundKernel]:
    """Return the functions that a bound kernel calls in each run."""
    if isinstance(bound, Prepared):
        yield from _parts(bound.run)
    elif isinstance(bound, InTurn):
        for call in bound.calls:
            yield from _parts(call)
    else:
        yield bound
