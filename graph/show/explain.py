"""What was compiled, for reading: each kernel, what was fused into it, and what kept the next operator out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ...kernels.cpu.c_printer import CFunction
from ...kernels.cpu.c_printer import program as c_program
from ...kernels.fusion.epilogue import EpilogueOp
from ...kernels.fusion.fused import Body, FusedOp, by_row
from ..passes.eliminate_reshapes import input_specs
from ..passes.fuse import MAX_INPUTS, MAX_STEPS, bodies_of, padded
from ..passes.fuse_epilogue import HEADS, why_not, why_not_tail
from ..program import Program, Step


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel call of a pass.

    operators:  `name (operator)` of what runs in it.
    nbytes:     what it reads and writes.
    apart:      why what it feeds is a kernel of its own; "" where nothing follows.
    code:       what computes it: "NumPy", "C" or "Triton"; of a product with a tail, the tail.
    source:     the text of a kernel in C; else why a fused one is not.
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


@dataclass(frozen=True, slots=True)
class Explanation:
    """Every kernel of an executor, in order; str() is a report. Iterate for the kernels."""

    kernels: tuple[KernelReport, ...]

    def __iter__(self) -> Iterator[KernelReport]:
        return iter(self.kernels)

    def __getitem__(self, number: int) -> KernelReport:
        return self.kernels[number]

    def __len__(self) -> int:
        return len(self.kernels)

    def __str__(self) -> str:
        operators = sum(len(k.operators) for k in self.kernels)
        moved = sum(k.nbytes for k in self.kernels)
        return "\n".join([f"{operators} operators in {len(self.kernels)} kernels, {moved:,} bytes read and written",
                          *map(str, self.kernels)])


def explain(program: Program, fusing: bool = True) -> Explanation:
    """The kernels of a compiled program, and for each what kept its reader apart.

    fusing: False where the caller turned fusion off, which then is the reason everywhere.
    """
    bodies = bodies_of(program)
    writers = Counter(v for s in program.steps for v in s.outputs if v >= 0)
    reader: dict[int, int] = {}  # value -> the first step that reads it
    for i, step in enumerate(program.steps):
        for v in step.inputs:
            reader.setdefault(v, i)
    sizes = [v.spec.nbytes for v in program.values]
    kernels = []
    for i, step in enumerate(program.steps):
        follow = [reader[v] for v in step.outputs if v >= 0 and reader.get(v, -1) > i]
        apart = ""
        if follow and not fusing:
            apart = "fusion is turned off"
        elif follow:
            apart = _why(program, i, min(follow), bodies, writers)
        moved = sum(sizes[v] for v in (*step.inputs, *step.outputs) if v >= 0)
        kernels.append(KernelReport(i, i >= program.n_forward, step.name, step.members or (_spoken(step),), moved, apart,
                              *_code(program, step)))
    return Explanation(tuple(kernels))


def _code(program: Program, step: Step) -> tuple[str, str]:
    """What computes a step, and its text in C or why there is none."""
    if program.targets[step.ctx] == "gpu":
        return "Triton", ""
    if not isinstance(step.op, (FusedOp, EpilogueOp)):
        return "NumPy", ""
    outs = [program.values[v].spec if v >= 0 else step.unused_outputs[k] for k, v in enumerate(step.outputs)]
    found = step.op.c_code(step.params, input_specs(program, step), outs, step.reqs)
    return ("C", c_program([found])) if isinstance(found, CFunction) else ("NumPy", found)


def _spoken(step: Step) -> str:
    return f"{step.name} ({step.op.name})"


def _why(program: Program, i: int, j: int, bodies: list[Body | str], writers: Counter) -> str:
    """What kept step j, which reads step i, out of its kernel."""
    first, second, a, b = program.steps[i], program.steps[j], bodies[i], bodies[j]
    apart = f"apart from {second.name}: "
    if (i < program.n_forward) != (j < program.n_forward):
        return f"{apart}it runs in backward"
    if isinstance(b, str):
        return f"{apart}{f'{second.op.head.name} is no formula over single elements' if isinstance(second.op, EpilogueOp) else b}"
    if first.op.role == "BatchNorm":
        return f"{apart}the statistics must be complete before they are used"
    if first.op.role in HEADS:
        return apart + (why_not_tail(program, j, bodies) or why_not(program, i, j, bodies, writers)
                        or f"{second.name} follows another product")
    if isinstance(a, str):
        return f"{apart}{a}"
    if any(a.folds(k) for k, v in enumerate(first.outputs) if v in second.inputs):
        return f"{apart}the fold must end before it can be read"
    if a.shape != b.shape:
        return f"{apart}shapes {a.shape} and {b.shape} differ"
    if a.combine and b.combine and a.combine != b.combine:
        return f"{apart}one folds by {a.combine}, the other by {b.combine}"
    if (a.rows or b.rows) and any(x.folds(k) and s == by_row(x.shape) for x in (a, b) for k, s in enumerate(x.outs)):
        return f"{apart}a row's {a.combine or b.combine} is no part of a kernel of rows"
    seen = dict(zip(first.outputs, a.outs))
    if any(v in seen and padded(view, len(b.shape)) != seen[v] for v, view in zip(second.inputs, b.ins)):
        return f"{apart}it reads the result in another shape"
    if any(writers[v] > 1 for v in first.outputs if v in second.inputs):
        return f"{apart}what it reads is the sum of several"
    target = program.targets[first.ctx]
    if len({*first.inputs, *second.inputs}) > MAX_INPUTS[target] or len(first.members) + len(second.members) > MAX_STEPS[target]:
        return f"{apart}together they would be too large a kernel"
    return f"{apart}another operator in between needs its result"
