"""The machine code of the kernels that take the time of networks, compiled for sm_90 without a GPU: the table of docs/gpu.md.

    python perf/gpu_table.py [--write]

JSON lines, one a kernel; with --write the table in docs/gpu.md is made anew. It needs Triton, and no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TRITIUM_GPU", "interpret")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support import gpu_cases, operator_jobs
from tritium.dtype import bfloat16
from tritium.kernels import op as ops
from tritium.kernels.gpu import store
from tritium.kernels.gpu.compile import compile_all
from tritium.kernels.gpu.job import CompileJob
from tritium.kernels.gpu.machine_code import busiest
from tritium.kernels.gpu.record import FakeArray, FakeRun, LaunchRecorder, record
from tritium.kernels.op import Req
from tritium.kernels.ops.nn import triton_norm

TARGET = 90
PAGE = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- perf/gpu_table.py -->\n", "<!-- end -->"
F32 = gpu_cases.F32


class Launch(NamedTuple):
    """One launch of a case. nbytes: of the arrays that it is given, each once; None where a kernel reads them more often."""

    job: CompileJob
    grid: tuple[int, ...]
    nbytes: int | None


class Use(NamedTuple):
    """A case's launches; the elements of its data, and the bytes of all that it must read and write, each once, or 0."""

    launches: list[Launch]
    elements: int = 0
    least: int = 0


#: Kernels with a parameter that is there for its dtype alone.
UNREAD = {"norm_statistics": "x"}


def _launches(recorder: LaunchRecorder, streaming: bool) -> list[Launch]:
    found = []
    for (job, grid), args in zip(recorder.launches, recorder.arguments):
        kernel, named = job.name, zip(job.signature, args)
        arrays = {id(a): a for name, a in named if isinstance(a, FakeArray) and name != UNREAD.get(kernel)}
        found.append(Launch(job, grid, sum(a.numel() * a.dtype.itemsize for a in arrays.values()) if streaming else None))
    return found


def operator(name: str, shapes: list[tuple[int, ...]], params: dict[str, Any], backward: bool = False) -> Use:
    """An operator in bfloat16, or its derivative alone."""
    op = ops.get(name)
    use = op, shapes, params, bfloat16, TARGET
    both, forward = (_launches(operator_jobs.recorded(*use, backward=b, gradient=Req.WRITE), True) for b in (True, False))
    ins, outs = operator_jobs.specs_of(op, op.parse(params), shapes, bfloat16)
    moved = [*ins, outs[0]]
    if backward:
        derivative, groups = op.gradient_of(op.parse(params)), {"dy": outs, "x": ins, "y": outs}
        assert derivative is not None
        moved = [*(groups[kind][i] for kind, i in derivative.needs), *(ins[i] for i in derivative.gives)]
    return Use(both[len(forward):] if backward else forward, ins[0].size, sum(s.nbytes for s in moved))


def recorded(work: Callable[[], None]) -> Use:
    """The launches of work, of which nothing is known but the machine code."""
    with record(TARGET) as recorder:
        work()
    return Use(_launches(recorder, False))


def norm(rows: int, channels: int) -> Use:
    """BatchNorm of training with an array added and a rectifier, and its derivative."""
    shape, reqs = (rows, channels, 1), [Req.WRITE] * 3
    x, other, y, dy, dx, d_other = (FakeArray(shape[:2], bfloat16) for _ in range(6))
    gamma, beta, moving_mean, moving_var, mean, inverse, d_gamma, d_beta = (FakeArray((channels,), F32) for _ in range(8))
    with record(TARGET) as recorder:
        run, p = FakeRun(), gpu_cases.P
        triton_norm.forward(run, shape, p, True, [x, gamma, beta, moving_mean, moving_var], [y, mean, inverse], reqs, other=other,
                            relu=True)
        triton_norm.backward(run, shape, p, True, [dy, x, gamma, mean, inverse], [dx, d_gamma, d_beta], reqs, y=y,
                             d_other=d_other)
    return Use(_launches(recorder, True), rows * channels, 2 * 8 * rows * channels)


def cases() -> dict[str, Use]:
    """Name -> one use."""
    c, rows = gpu_cases.convolution, (8192, 1024)
    return {
        "product 4096³, bfloat16": recorded(gpu_cases.product(4096, 4096, 4096, bfloat16)),
        "product 4096³, TF32": recorded(gpu_cases.product(4096, 4096, 4096, F32, how="tf32")),
        "product 4095 × 4097 × 4001, bfloat16": recorded(gpu_cases.product(4095, 4097, 4001, bfloat16)),
        "64 products 512 × 512 × 64, bfloat16": recorded(gpu_cases.product(512, 512, 64, bfloat16, batch=64)),
        "product 256 × 256 × 8192, bfloat16": recorded(gpu_cases.product(256, 256, 8192, bfloat16)),
        "convolution 3 × 3, 64 channels, 56², batch 128": recorded(c(128, 64, 64, (56, 56), (3, 3))),
        "convolution 3 × 3, 512 channels, 7², batch 128": recorded(c(128, 512, 512, (7, 7), (3, 3))),
        "convolution 1 × 1, 256 to 64 channels, 56², batch 128": recorded(c(128, 256, 64, (56, 56), (1, 1), pad=(0, 0))),
        "stem 7 × 7, stride 2, 3 channels, 224², batch 128": recorded(c(128, 3, 64, (224, 224), (7, 7), (2, 2), (3, 3))),
        "BatchNorm, 64 channels, 56², batch 128": norm(128 * 56 * 56, 64),
        "LayerNorm 8192 × 1024": operator("LayerNorm", [rows, rows[1:], rows[1:]], {}),
        "LayerNorm 8192 × 1024, derivative": operator("LayerNorm", [rows, rows[1:], rows[1:]], {}, backward=True),
        "softmax 8192 × 1024": operator("softmax", [rows], {}),
        "tanh, 8 M elements": operator("tanh", [(1 << 23,)], {}),
        "SGD with momentum, all parameters": recorded(gpu_cases.update("sgd_mom_update")),
        "attention, 8 × 16 heads of 2048 × 64": operator("_contrib_attention", [(8, 16, 2048, 64)] * 3, {}),
        "attention, derivative": operator("_contrib_attention", [(8, 16, 2048, 64)] * 3, {}, backward=True),
    }


def rows() -> list[dict[str, Any]]:
    """The figures of each kernel of each case."""
    made, text = cases(), {}
    compile_all([launch.job for use in made.values() for launch in use.launches])
    found = []
    for case, use in made.items():
        for job, grid, nbytes in {launch.job.digest(): launch for launch in use.launches}.values():
            kernel, cubin = store.find(job.digest())
            digest = job.digest()
            if digest not in text:
                text[digest] = disassemble(cubin)
            loop = busiest(text[digest])
            warps = kernel.num_warps
            moved = {} if nbytes is None else {
                "bytes": round(nbytes / use.elements, 2), "least": round(use.least / use.elements, 2),
                "all": round(sum(launch.nbytes or 0 for launch in use.launches) / use.elements, 2)}
            found.append({
                "case": case, "kernel": kernel.name, "grid": list(grid), "warps": warps, "registers": kernel.registers,
                "spills": kernel.spills, "shared": kernel.shared, "blocks": round(64 * kernel.occupancy) // warps,
                "instructions": loop.instructions if loop else None,
                "tensor_cycles": round(loop.cycles * warps) if loop and loop.cycles else None,
                "issue_share": round(loop.instructions / 4 / loop.cycles, 2) if loop and loop.cycles else None,
                "calls": loop.calls if loop else None, "serial": bool(loop and loop.serial), **moved})
    return found


def disassemble(cubin: bytes) -> str:
    """The text of nvdisasm."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
        f.write(cubin)
        f.flush()
        return subprocess.run([str(tool), "-c", f.name], capture_output=True, text=True, check=True).stdout


def table(figures: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    lines = ["| case | kernel | grid | warps | registers | spills | shared, KiB | blocks | instructions | tensor cycles | "
             "issue | bytes | all, least |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    before = ""
    for r in figures:
        case, before = ("" if r["case"] == before else r["case"]), r["case"]
        both = f"{r['all']:.1f}, {r['least']:.1f}" if case and "all" in r else ""
        grid = " × ".join(f"{g:,}" for g in r["grid"])
        share = "" if r["issue_share"] is None else f"{100 * r['issue_share']:.0f} %"
        loop = f"{r['instructions'] or ''} | {r['tensor_cycles'] or ''} | {share}"
        lines.append(f"| {case} | `{r['kernel']}` | {grid} | {r['warps']} | {r['registers']} | {r['spills']} | "
                     f"{r['shared'] / 1024:.0f} | {r['blocks']} | {loop} | {r.get('bytes', '')} | {both} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make the table of docs/gpu.md anew")
    write = parser.parse_args().write
    figures = rows()
    for r in figures:
        print(json.dumps(r))
    if write:
        page = PAGE.read_text(encoding="utf-8")
        above, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{above}{BEGIN}{table(figures)}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
