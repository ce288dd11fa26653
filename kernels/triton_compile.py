"""Kernels compiled ahead of time, for a GPU that need not be here: what the machine code is made of.

The compiler runs in a child process, so that an interpreted process can use it too. The first compilation of a child
costs seconds and each further one about a tenth of a second: give it many kernels at once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import OperatorError
from .triton_launch import load


@dataclass(frozen=True)
class Job:
    """One kernel to compile.

    source, name:  as for triton_launch.load.
    signature:     {parameter: "*fp32" | "*bf16" | "i32" | "i64" | "fp32" ...}; what is missing is a constexpr.
    constexprs:    {parameter: value}.
    target:        compute capability times ten: 80, 90, 100.
    align16:       parameters whose value divides by 16 (bytes for a pointer); None: every pointer.
    """

    source: str
    name: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    target: int = 90
    align16: tuple[str, ...] | None = None
    num_warps: int = 4


@dataclass(frozen=True)
class Access:
    """One access to global memory in the machine code.

    kind:    "load" or "store"; bits: its width; masked: whether a predicate guards it.
    """

    kind: str
    bits: int
    masked: bool


@dataclass(frozen=True)
class CompiledKernel:
    """What a compiled kernel is made of.

    registers:     per thread. local, stack: bytes per thread in slow memory; spills: how many instructions use them.
    shared:        bytes per program. num_warps: as compiled.
    accesses:      every global load and store.
    wide_offsets:  whether addresses are computed from 64-bit integers.
    tensor_ops, async_copies: instructions of the tensor cores, copies from global to shared memory.
    """

    name: str
    target: int
    registers: int
    stack: int
    local: int
    spills: int
    shared: int
    num_warps: int
    accesses: tuple[Access, ...]
    wide_offsets: bool
    tensor_ops: int
    async_copies: int

    @classmethod
    def from_json(cls, d: dict[str, Any]) -> CompiledKernel:
        return cls(**{**d, "accesses": tuple(Access(**a) for a in d["accesses"])})

    @property
    def occupancy(self) -> float:
        """The share of a multiprocessor's 64 warps that registers and shared memory leave room for."""
        warps = self.num_warps
        per_warp = -(-self.registers * 32 // 256) * 256
        by_registers = 65536 // (per_warp * warps) if self.registers else 32
        by_shared = (167936 if self.target < 90 else 233472) // (self.shared + 1024)
        return min(32, by_registers, by_shared, 64 // warps) * warps / 64


def compile_source(source: str, name: str, signature: Mapping[str, str], constexprs: Mapping[str, Any] | None = None,
                   *, target: int = 90, align16: tuple[str, ...] | None = None, num_warps: int = 4) -> CompiledKernel:
    """One kernel, compiled. Raises OperatorError with the compiler's words."""
    return compile_all([Job(source, name, signature, constexprs or {}, target, align16, num_warps)])[0]


def compile_all(jobs: Sequence[Job], *, timeout: float = 300) -> list[CompiledKernel]:
    """Every job, compiled in one child process; results in the order of jobs.

    timeout: seconds for all of them.
    Raises OperatorError that names the kernel and target, with the compiler's words.
    """
    environment = {**os.environ, "TRITIUM_GPU": "cuda"}
    environment.pop("TRITON_INTERPRET", None)
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", __name__],
        input=json.dumps([{**asdict(j), "signature": dict(j.signature), "constexprs": dict(j.constexprs)}
                          for j in jobs]),
        capture_output=True, text=True, env=environment, timeout=timeout, check=False,
    )
    if child.returncode:
        raise OperatorError(f"compile_all: the compiling process died: {child.stderr[-2000:]}")
    results = json.loads(child.stdout.splitlines()[-1])
    for job, r in zip(jobs, results):
        if "error" in r:
            raise OperatorError(f"{job.name}: does not compile for sm_{job.target}: {r['error']}")
    return [CompiledKernel.from_json(r) for r in results]


def _compile(job: dict[str, Any]) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    fn = load(job["source"], job["name"])
    constexprs = job["constexprs"]
    signature = {p: job["signature"].get(p, "constexpr") for p in fn.arg_names}
    missing = [p for p, t in signature.items() if t == "constexpr" and p not in constexprs]
    assert not missing, f"neither a type nor a value for {missing}"
    align = job["align16"]
    if align is None:
        align = [p for p, t in signature.items() if t.startswith("*")]
    attrs = {(fn.arg_names.index(p),): [["tt.divisibility", 16]] for p in align}
    compiled = triton.compile(
        ASTSource(fn, signature, constexprs, attrs),
        target=GPUTarget("cuda", job["target"], 32),
        options={"num_warps": job["num_warps"], "enable_fp_fusion": True},
    )
    ptx = compiled.asm["ptx"]
    usage, sass = _disassemble(compiled.asm["cubin"], Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin")
    facts = CompiledKernel(
        name=job["name"],
        target=job["target"],
        registers=usage["REG"],
        stack=usage["STACK"],
        local=usage["LOCAL"],
        spills=len(re.findall(r"\b(?:STL|LDL)\b", sass)),
        shared=compiled.metadata.shared,
        num_warps=compiled.metadata.num_warps,
        accesses=read_accesses(ptx),
        wide_offsets=bool(re.search(r"arith\.(?:muli|addi)[^\n]*i64", compiled.asm["ttir"])),
        tensor_ops=len(re.findall(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma", ptx)),
        async_copies=len(re.findall(r"cp\.async", ptx)),
    )
    return asdict(facts)


_ACCESS = re.compile(r"(@!?%p\d+\s+)?\b(ld|st)\.global((?:\.[\w:]+)*)")
_WIDTH = re.compile(r"\.v(\d)")
_ELEMENT = re.compile(r"\.[bufs](8|16|32|64|128)\b")


def read_accesses(ptx: str) -> tuple[Access, ...]:
    """Every global load and store in PTX, with width and whether it is predicated."""
    found = []
    for predicate, kind, suffix in _ACCESS.findall(ptx):
        lanes, element = _WIDTH.search(suffix), _ELEMENT.search(suffix)
        bits = (int(lanes[1]) if lanes else 1) * (int(element[1]) if element else 32)
        found.append(Access("load" if kind == "ld" else "store", bits, bool(predicate)))
    return tuple(found)


def _disassemble(cubin: bytes, tools: Path) -> tuple[dict[str, int], str]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
        f.write(cubin)
        f.flush()

        def run(tool: str, option: str) -> str:
            return subprocess.run([str(tools / tool), option, f.name], capture_output=True, text=True,
                                  check=True).stdout

        usage = {k: int(v) for k, v in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", run("cuobjdump", "-res-usage"))}
        return usage, run("nvdisasm", "-c")


def main() -> None:
    """The child: jobs as JSON on standard input, facts or errors as one line of JSON on standard output."""
    results: list[dict[str, Any]] = []
    for job in json.load(sys.stdin):
        try:
            results.append(_compile(job))
        except Exception as e:  # the parent names the kernel; one that fails must not lose the others
            results.append({"error": f"{type(e).__name__}: {e}"[:4000]})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
