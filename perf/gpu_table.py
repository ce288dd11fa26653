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
from typing import Any

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
from tritium.kernels.gpu.record import record
from tritium.kernels.op import Req

TARGET = 90
PAGE = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- perf/gpu_table.py -->\n", "<!-- end -->"
F32 = gpu_cases.F32


def operator(name: str, shapes: list[tuple[int, ...]], params: dict[str, Any], backward: bool = False
             ) -> list[tuple[CompileJob, tuple[int, ...]]]:
    """The launches of an operator in bfloat16, or of its derivative alone."""
    use = ops.get(name), shapes, params, bfloat16, TARGET
    both, forward = (operator_jobs.recorded(*use, backward=b, gradient=Req.WRITE).launches for b in (True, False))
    return both[len(forward):] if backward else forward


def recorded(work: Callable[[], None]) -> list[tuple[CompileJob, tuple[int, ...]]]:
    """The launches of work."""
    with record(TARGET) as recorder:
        work()
    return recorder.launches


def cases() -> dict[str, list[tuple[CompileJob, tuple[int, ...]]]]:
    """Name -> the launches of one use."""
    c, rows = gpu_cases.convolution, (8192, 1024)
    return {
        "product 4096³, bfloat16": recorded(gpu_cases.product(4096, 4096, 4096, bfloat16)),
        "product 4096³, TF32": recorded(gpu_cases.product(4096, 4096, 4096, F32, how="tf32")),
        "product 256 × 256 × 8192, bfloat16": recorded(gpu_cases.product(256, 256, 8192, bfloat16)),
        "convolution 3 × 3, 64 channels, 56², batch 128": recorded(c(128, 64, 64, (56, 56), (3, 3))),
        "convolution 3 × 3, 512 channels, 7², batch 128": recorded(c(128, 512, 512, (7, 7), (3, 3))),
        "convolution 1 × 1, 256 to 64 channels, 56², batch 128": recorded(c(128, 256, 64, (56, 56), (1, 1), pad=(0, 0))),
        "stem 7 × 7, stride 2, 3 channels, 224², batch 128": recorded(c(128, 3, 64, (224, 224), (7, 7), (2, 2), (3, 3))),
        "BatchNorm, 64 channels, 56², batch 128": recorded(gpu_cases.norm((128 * 56 * 56, 64, 1))),
        "LayerNorm 8192 × 1024": operator("LayerNorm", [rows, rows[1:], rows[1:]], {}),
        "LayerNorm 8192 × 1024, derivative": operator("LayerNorm", [rows, rows[1:], rows[1:]], {}, backward=True),
        "softmax 8192 × 1024": operator("softmax", [rows], {}),
        "tanh, 8 M elements": operator("tanh", [(1 << 23,)], {}),
        "SGD with momentum, all parameters": recorded(gpu_cases.update("sgd_mom_update")),
    }


def rows() -> list[dict[str, Any]]:
    """The figures of each kernel of each case."""
    made, text = cases(), {}
    compile_all([job for launches in made.values() for job, _ in launches])
    found = []
    for case, launches in made.items():
        for job, grid in {job.digest(): (job, grid) for job, grid in launches}.values():
            kernel, cubin = store.find(job.digest())
            digest = job.digest()
            if digest not in text:
                text[digest] = disassemble(cubin)
            loop = busiest(text[digest])
            warps = kernel.num_warps
            found.append({
                "case": case, "kernel": kernel.name, "grid": list(grid), "warps": warps, "registers": kernel.registers,
                "spills": kernel.spills, "shared": kernel.shared, "blocks": round(64 * kernel.occupancy) // warps,
                "instructions": loop.instructions if loop else None,
                "tensor_cycles": round(loop.cycles * warps) if loop and loop.cycles else None,
                "issue_share": round(loop.instructions / 4 / loop.cycles, 2) if loop and loop.cycles else None})
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
             "issue |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    before = ""
    for r in figures:
        case, before = ("" if r["case"] == before else r["case"]), r["case"]
        grid = " × ".join(f"{g:,}" for g in r["grid"])
        share = "" if r["issue_share"] is None else f"{100 * r['issue_share']:.0f} %"
        loop = f"{r['instructions'] or ''} | {r['tensor_cycles'] or ''} | {share}"
        lines.append(f"| {case} | `{r['kernel']}` | {grid} | {r['warps']} | {r['registers']} | {r['spills']} | "
                     f"{r['shared'] / 1024:.0f} | {r['blocks']} | {loop} |")
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
