"""The artefact store: compiled kernels by a digest of their sources, so that later processes need no compiler.

An artefact is two files under the cache folder, `<digest>.cubin` and `<digest>.json`. Each is written atomically, the JSON last.
A damaged one counts as absent. Any number of processes may read and write at once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...integers import cdiv
from ..cache_dir import cache_dir, save


@dataclass(frozen=True)
class Access:
    """One access to global memory in the machine code.

    kind:    "load" or "store"; bits: its width; masked: a predicate guards it.
    """

    kind: str
    bits: int
    masked: bool


@dataclass(frozen=True)
class CompiledKernel:
    """The properties of a compiled kernel, and the facts needed to launch it.

    registers:     per thread. local, stack: bytes per thread in local memory; spills: the number of instructions that use them.
    shared:        bytes per program. num_warps: as compiled, more than requested where warps are specialised.
    accesses:      every global load and store.
    wide_offsets:  addresses are computed from 64-bit integers.
    tensor_ops, async_copies: the numbers of tensor core instructions (mma.sync, wgmma, tcgen05) and of copies from global to
                   shared memory; of these, tma: by the copy engine. specialised: warps divide the work.
    parameters:    the run-time parameters in order: (name, type).
    scratch:       bytes of global memory that each program needs beside its arrays, and their alignment.
    cooperative:   all programs must run at once.
    seconds:       the time to compile.
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
    tma: int = 0
    instruction: str = ""
    specialised: bool = False
    parameters: tuple[tuple[str, str], ...] = ()
    scratch: tuple[int, int] = (0, 1)
    cooperative: bool = False
    seconds: float = 0.0

    @classmethod
    def from_json(cls, d: dict[str, Any]) -> CompiledKernel:
        return cls(**{**d, "accesses": tuple(Access(**a) for a in d["accesses"]),
                      "parameters": tuple(map(tuple, d["parameters"])), "scratch": tuple(d["scratch"])})

    @property
    def occupancy(self) -> float:
        """The share of a multiprocessor's 64 warps for which registers and shared memory suffice."""
        warps = self.num_warps
        per_warp = cdiv(self.registers * 32, 256) * 256
        by_registers = 65536 // (per_warp * warps) if self.registers else 32
        by_shared = (167936 if self.target < 90 else 233472) // (self.shared + 1024)
        return min(32, by_registers, by_shared, 64 // warps) * warps / 64


def folder() -> Path:
    """The folder of the artefacts."""
    return cache_dir() / "artefacts"


def _paths(digest: str) -> tuple[Path, Path]:
    base = folder() / digest[:2] / digest
    return base.with_suffix(".cubin"), base.with_suffix(".json")


def find(digest: str) -> tuple[CompiledKernel, bytes] | None:
    """Return an artefact's facts and machine code, or None."""
    code, facts = _paths(digest)
    try:
        values = json.loads(facts.read_text())
        cubin = code.read_bytes()
        if hashlib.sha256(cubin).hexdigest() != values.pop("sha256"):
            return None
        return CompiledKernel.from_json(values), cubin
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def keep(digest: str, kernel: CompiledKernel, cubin: bytes) -> bool:
    """Store an artefact; return False if the folder cannot be written."""
    code, facts = _paths(digest)
    text = json.dumps({**asdict(kernel), "sha256": hashlib.sha256(cubin).hexdigest()})
    return save(code, cubin) and save(facts, text)


def usage() -> tuple[int, int]:
    """Return the number of artefacts and their bytes."""
    files = [p.stat().st_size for p in folder().glob("*/*") if p.suffix in (".cubin", ".json")]
    return sum(1 for _ in folder().glob("*/*.json")), sum(files)


def clear() -> int:
    """Remove every artefact; return their number."""
    n = 0
    for path in folder().glob("*/*"):
        n += path.suffix == ".json"
        path.unlink(missing_ok=True)
    return n
