"""Report a compiled program: its kernels, the operators fused into each, and why the next operator is not among them."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.cpu import c_compile
from ...kernels.cpu.c_printer import CFunction
from ...kernels.cpu.c_printer import program as c_program
from ...kernels.cpu.rows_kernel import NOTHING_SUMMED
from ...kernels.fusion.epilogue import EpilogueOp
from ...kernels.fusion.fused import FusedOp
from ..program import Program, Step


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel call.

    operators:  the operators that run in it, as `name (operator)`.
    nbytes:     bytes it reads and writes.
    apart:      why the kernel that reads its result is another one; "" if none does.
    code:       "NumPy", "C" or "Triton": the language of the kernel; of a product with an epilogue, that of the epilogue.
    source:     the text of a kernel in C; for other fused kernels the reason why they are not in C.
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
    """Every kernel of an executor, in order; str() is a report."""

    __slots__ = ()

    def __str__(self) -> str:
        operators = sum(len(k.operators) for k in self)
        moved = sum(k.nbytes for k in self)
        return "\n".join([f"{operators} operators in {len(self)} kernels, {moved:,} bytes read and written",
                          *map(str, self)])


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
    """Return the language that computes a step, and its text in C or the reason why it has none."""
    if program.targets[step.ctx] == "gpu":
        return "Triton", ""
    if not isinstance(step.op, (FusedOp, EpilogueOp)):
        with c_compile.noted() as functions:
            if step.op.capturable:  # code of the framework's, which only computes: an index formula may be in C
                step.op.kernel(step.params, program.input_specs(step), program.output_specs(step), step.reqs, "cpu")
        return ("C", c_program(functions)) if functions else ("NumPy", "")
    use = step.params, program.input_specs(step), program.output_specs(step), step.reqs
    code = step.op.c_code(*use)
    if isinstance(code, CFunction):
        return "C", c_program([code])
    rows = step.op.rows_code(*use) if isinstance(step.op, FusedOp) else code
    if rows == NOTHING_SUMMED:
        return "NumPy", code
    return ("NumPy", rows) if isinstance(rows, str) else ("C", c_program(rows.texts))
