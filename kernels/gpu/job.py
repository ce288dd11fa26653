"""CompileJob: one kernel, one specialisation, one target; all that the machine code depends on."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cache_dir import cache_dir, save
from .load import HEADER
from .source import KernelSource, Name

_FORMAT = 1  # of the store, and of the facts read from machine code


@dataclass(frozen=True)
class CompileJob:
    """One kernel to compile.

    source, name:  as for gpu/load.py: load.
    signature:     {parameter: "*fp32" | "*bf16" | "i32" | "i64" | "fp32" ...}; the other parameters are constexprs.
    constexprs:    {parameter: value}.
    target:        compute capability times ten: 80, 90, 100.
    align16:       parameters whose value divides by 16 (bytes for a pointer); None: every pointer.
    num_stages:    the number of loop iterations that may be loading at once.
    contracts:     whether a multiplication and an addition may become one instruction, which rounds once.
    """

    source: str
    name: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    target: int = 90
    align16: tuple[str, ...] | None = None
    num_warps: int = 4
    num_stages: int = 3
    contracts: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        align = self.align16
        if align is None:
            align = tuple(p for p, t in self.signature.items() if t.startswith("*"))
        source = self.source if self.source.startswith("import triton") else HEADER + self.source
        return {"source": source, "name": self.name, "signature": list(self.signature.items()),
                "constexprs": sorted((k, _plain(v)) for k, v in self.constexprs.items()), "target": self.target,
                "align16": sorted(align), "num_warps": self.num_warps, "num_stages": self.num_stages,
                "fusion": self.contracts}

    def digest(self) -> str:
        """Return the name of the job's machine code: a hash of the text, its specialisation, the target and the compilers."""
        text = json.dumps([_FORMAT, self.to_json(), *toolchain()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


_SIGNATURE = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "bool": "i1", "int8": "i8",
              "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32",
              "uint64": "u64"}
_WIDE_TYPES = {"int64": "i64", "float64": "fp64"}


def job_of(fn: KernelSource, args: Sequence[Any], constexprs: dict[str, Any], num_warps: int, num_stages: int,
           target: int) -> CompileJob:
    """The compile job of a launch. It depends on the kind of a run-time number, never on its value."""
    signature, aligned = {}, []
    for name, a in zip(fn.arg_names, args):
        if hasattr(a, "data_ptr"):
            signature[name] = "*" + _SIGNATURE[str(a.dtype).removeprefix("torch.")]
            if a.data_ptr() % 16 == 0:
                aligned.append(name)
        else:
            usual = "fp32" if isinstance(a, float) else "i32"
            signature[name] = _WIDE_TYPES.get(fn.annotations[name], usual)
    return CompileJob(fn.source, fn.name, signature, dict(constexprs), target, tuple(aligned), num_warps, num_stages,
                      fn.contracts)


def _plain(value: Any) -> Any:
    return {"tl": value.name} if isinstance(value, Name) else value


def constexpr(value: object) -> Any:
    """Return a constexpr read from JSON. Imports triton if it is a dtype."""
    return Name(value["tl"]).real() if isinstance(value, dict) else value


@functools.cache
def toolchain() -> tuple[str, str]:
    """Return the versions of triton and of its assembler; without triton, those last seen, or ("", "")."""
    seen = cache_dir() / "toolchain.json"
    try:
        known = json.loads(seen.read_text())
        last = str(known["triton"]), str(known["ptxas"])
    except (OSError, ValueError, KeyError):
        known, last = {}, ("", "")
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        return last
    version = importlib.metadata.version("triton")
    ptxas = Path(spec.submodule_search_locations[0], "backends", "nvidia", "bin", "ptxas")
    stamp = [str(ptxas), ptxas.stat().st_size, ptxas.stat().st_mtime_ns] if ptxas.exists() else []
    if last[0] == version and known.get("stamp") == stamp:
        return last
    output = ""
    if stamp:
        output = subprocess.run([str(ptxas), "--version"], capture_output=True, text=True, check=False).stdout
        output = output.strip().splitlines()[-1] if output.strip() else ""
    save(seen, json.dumps({"triton": version, "ptxas": output, "stamp": stamp}))
    return version, output
