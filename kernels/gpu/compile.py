"""Ahead-of-time compilation, for GPUs that need not be present, and inspection of the machine code.

Kernels that the store lacks are compiled by a child process (compile_pool.py), since this process has threads and may be an
interpreted one.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import OperatorError
from . import store
from .job import CompileJob, constexpr
from .load import load
from .store import Access, CompiledKernel

#: A job's result, or the compiler's message.
Outcome = CompiledKernel | OperatorError


def compile_all(jobs: Sequence[CompileJob], *, timeout: float = 300, workers: int | None = None) -> list[CompiledKernel]:
    """Take every job from the store, or compile it; return the results in the order of jobs.

    timeout: seconds for each.
    Raises OperatorError that names the kernel and target, with the compiler's message.
    """
    results: dict[int, CompiledKernel] = {}
    for i, outcome in build(jobs, timeout=timeout, workers=workers):
        if isinstance(outcome, OperatorError):
            raise outcome
        results[i] = outcome
    return [results[i] for i in range(len(jobs))]


def prepare(jobs: Sequence[CompileJob], *, timeout: float = 300, workers: int | None = None) -> int:
    """Compile the jobs that the store lacks, so that no run waits for a compiler.

    Returns: how many were compiled. Which kernel runs never depends on how long this took.
    Raises: OperatorError for the first that does not compile, when the others are done.
    """
    missing = {j.digest(): j for j in jobs}
    missing = {d: j for d, j in missing.items() if store.find(d) is None}
    failed = [o for _, o in build(list(missing.values()), timeout=timeout, workers=workers) if isinstance(o, OperatorError)]
    if failed:
        raise failed[0]
    return len(missing)


def build(jobs: Sequence[CompileJob], *, timeout: float = 300, workers: int | None = None, until: float = math.inf
          ) -> Iterator[tuple[int, Outcome]]:
    """Yield (position, outcome) of every job as it is done: first those in the store, then those that a pool compiles.

    timeout: seconds for each. workers: compilers at once; default, the number of processors this process may use.
    until: when time.monotonic() reaches it, the compilers are stopped and the remaining jobs have no outcome.
    Leaving the loop early stops the compilers, too.
    """
    waiting: dict[str, list[int]] = {}
    for i, job in enumerate(jobs):
        digest = job.digest()
        found = None if digest in waiting else store.find(digest)
        if found:
            yield i, found[0]
        else:
            waiting.setdefault(digest, []).append(i)
    if not waiting:
        return
    digests = list(waiting)
    order = [jobs[waiting[d][0]] for d in digests]
    workers = workers or len(os.sched_getaffinity(0))
    # closed here: since Python 3.12 a generator that is closed may keep the one that it reads
    with contextlib.closing(_children([j.to_json() for j in order], timeout, min(workers, len(order)), until)) as replies:
        for i, reply in replies:
            outcome: Outcome
            if "error" in reply:
                outcome = OperatorError(f"{order[i].name}: does not compile for sm_{order[i].target}: {reply['error']}")
            else:
                outcome = CompiledKernel.from_json(reply["facts"])
                store.keep(digests[i], outcome, base64.b64decode(reply["cubin"]))
            for position in waiting[digests[i]]:
                yield position, outcome


STOPPING = 2.0  # seconds that a terminated pool may take before it is killed


def _children(jobs: list[dict[str, Any]], timeout: float, workers: int, until: float = math.inf
              ) -> Generator[tuple[int, dict[str, Any]], None, None]:
    # source lines take half of an artefact and a tenth of the time; to profile, set TRITON_DISABLE_LINE_INFO=0
    environment = {"TRITON_DISABLE_LINE_INFO": "1", **os.environ, "TRITIUM_GPU": "cuda"}
    environment.pop("TRITON_INTERPRET", None)
    with tempfile.TemporaryFile("w+") as orders, tempfile.TemporaryFile("w+") as complaints:
        json.dump({"jobs": jobs, "timeout": timeout, "workers": workers}, orders)
        orders.seek(0)
        command = [sys.executable, "-W", "ignore", "-m", f"{__package__}.compile_pool"]
        with subprocess.Popen(command, stdin=orders, stdout=subprocess.PIPE, stderr=complaints, env=environment,
                              start_new_session=True) as child:
            assert child.stdout
            answered = 0
            try:
                for line in read_lines(child.stdout.fileno(), lambda: until):
                    reply = json.loads(line)
                    answered += 1
                    yield reply.pop("i"), reply
            except TimeoutError:
                pass  # the remaining jobs have no answer
            finally:
                if answered < len(jobs):
                    child.stdout.close()  # or it waits for a reader
                    child.terminate()
                try:
                    child.wait(STOPPING)
                except subprocess.TimeoutExpired:
                    child.kill()
        if answered < len(jobs) and time.monotonic() < until:
            complaints.seek(0)
            raise OperatorError(f"compile_all: the compiling process died: {complaints.read()[-2000:]}")


def read_lines(pipe: int, until: Callable[[], float]) -> Iterator[bytes]:
    """Yield the lines from a pipe, to its end. Raises TimeoutError when time.monotonic() reaches until()."""
    rest = b""
    while True:
        left = until() - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if select.select([pipe], [], [], min(left, 3600.0))[0]:
            block = os.read(pipe, 1 << 16)
            if not block:
                return
            *lines, rest = (rest + block).split(b"\n")
            yield from lines


# ---- the compiler ---------------------------------------------------------------------------------------------------
def compile_here(job: dict[str, Any]) -> tuple[CompiledKernel, bytes]:
    """Compile one job (as JSON) in this process, which must not be interpreted; return its facts and machine code."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    began = time.perf_counter()
    fn = load(job["source"], job["name"])
    constexprs = {k: constexpr(v) for k, v in job["constexprs"]}
    types = dict(job["signature"])
    signature = {p: types.get(p, "constexpr") for p in fn.arg_names}
    missing = [p for p, t in signature.items() if t == "constexpr" and p not in constexprs]
    assert not missing, f"neither a type nor a value for {missing}"
    attrs = {(fn.arg_names.index(p),): [["tt.divisibility", 16]] for p in job["align16"]}
    with _cache_of_triton():
        compiled = triton.compile(
            ASTSource(fn, signature, constexprs, attrs),
            target=GPUTarget("cuda", job["target"], 32),
            options={"num_warps": job["num_warps"], "num_stages": job["num_stages"], "enable_fp_fusion": job["fusion"]},
        )
    ptx, cubin, metadata = compiled.asm["ptx"], compiled.asm["cubin"], compiled.metadata
    usage, spills = _disassemble(cubin, Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin")
    assert not getattr(metadata, "profile_scratch_size", 0), "a kernel that is profiled"
    kinds = [k for k in ("tcgen05.mma", "wgmma.mma_async", "mma.sync") if k in ptx]
    facts = CompiledKernel(
        name=job["name"], target=job["target"], registers=usage["REG"], stack=usage["STACK"], local=usage["LOCAL"], spills=spills,
        shared=metadata.shared, num_warps=metadata.num_warps, accesses=read_accesses(ptx),
        wide_offsets=bool(re.search(r"arith\.(?:muli|addi)[^\n]*i64", compiled.asm["ttir"])),
        tensor_ops=len(re.findall(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma", ptx)),
        async_copies=len(re.findall(r"cp\.async\.c[ag]|cp\.async\.bulk\.tensor", ptx)),
        tma=len(re.findall(r"cp\.async\.bulk\.tensor", ptx)), instruction=kinds[0] if kinds else "",
        specialised="setmaxnreg" in ptx or "ttg.warp_specialize" in compiled.asm["ttgir"],
        parameters=tuple((p, t) for p, t in signature.items() if t != "constexpr"),
        scratch=(metadata.global_scratch_size, metadata.global_scratch_align),
        cooperative=bool(metadata.launch_cooperative_grid), seconds=round(time.perf_counter() - began, 3))
    return facts, cubin


@contextlib.contextmanager
def _cache_of_triton() -> Iterator[None]:
    """Give Triton a cache folder it can write, inside the block: without one it does not compile."""
    from triton import knobs

    try:
        os.makedirs(knobs.cache.dir, exist_ok=True)
        writable = os.access(knobs.cache.dir, os.W_OK)
    except OSError:
        writable = False
    if writable:
        yield
        return
    with tempfile.TemporaryDirectory() as once, knobs.cache.scope():
        knobs.cache.dir = once
        yield


_ACCESS = re.compile(r"(@!?%p\d+\s+)?\b(ld|st)\.global((?:\.[\w:]+)*)")
_WIDTH = re.compile(r"\.v(\d)")
_ELEMENT = re.compile(r"\.[bufs](8|16|32|64|128)\b")


def read_accesses(ptx: str) -> tuple[Access, ...]:
    """Return every global load and store in PTX, with its width, and masked where a predicate guards it."""
    found = []
    for predicate, kind, suffix in _ACCESS.findall(ptx):
        lanes, element = _WIDTH.search(suffix), _ELEMENT.search(suffix)
        bits = (int(lanes[1]) if lanes else 1) * (int(element[1]) if element else 32)
        found.append(Access("load" if kind == "ld" else "store", bits, bool(predicate)))
    return tuple(found)


def _disassemble(cubin: bytes, tools: Path) -> tuple[dict[str, int], int]:
    """Return registers and bytes of local memory per thread, and the number of instructions that use that memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
        f.write(cubin)
        f.flush()

        def run(tool: str, option: str) -> str:
            return subprocess.run([str(tools / tool), option, f.name], capture_output=True, text=True, check=True).stdout

        usage = {k: int(v) for k, v in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", run("cuobjdump", "-res-usage"))}
        if not usage["STACK"] + usage["LOCAL"]:  # no memory to spill to; nvdisasm takes longer than compiling
            return usage, 0
        return usage, len(re.findall(r"\b(?:STL|LDL)\b", run("nvdisasm", "-c")))
