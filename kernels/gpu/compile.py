"""Kernels compiled ahead of time, for a GPU that need not be here, and what the machine code is made of.

Misses are compiled by a child process that forks: the parent has threads and may be an interpreted process, so it neither
forks nor compiles. Each fork compiles a few kernels in a row, which is faster than one, because what Triton has read once it
keeps. A compiler that takes too long is killed with all it started, and the rest of its kernels go to another.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import OperatorError
from . import store
from .job import CompileJob, constexpr
from .load import load
from .store import Access, CompiledKernel

__all__ = ["Access", "CompiledKernel", "CompileJob", "build", "compile_all", "compile_source", "prepare", "read_accesses"]

#: A job's outcome: what came of it, or the compiler's words.
Outcome = CompiledKernel | OperatorError


def compile_source(source: str, name: str, signature: Mapping[str, str], constexprs: Mapping[str, Any] | None = None,
                   *, target: int = 90, align16: tuple[str, ...] | None = None, num_warps: int = 4) -> CompiledKernel:
    """One kernel, compiled. Raises OperatorError with the compiler's words."""
    return compile_all([CompileJob(source, name, signature, constexprs or {}, target, align16, num_warps)])[0]


def compile_all(jobs: Sequence[CompileJob], *, timeout: float = 300, workers: int | None = None) -> list[CompiledKernel]:
    """Every job, from the store or compiled; results in the order of jobs.

    timeout: seconds for each.
    Raises OperatorError that names the kernel and target, with the compiler's words.
    """
    results: list[CompiledKernel | None] = [None] * len(jobs)
    for i, outcome in build(jobs, timeout=timeout, workers=workers):
        if isinstance(outcome, OperatorError):
            raise outcome
        results[i] = outcome
    assert all(r is not None for r in results)
    return results  # type: ignore[return-value]


def prepare(jobs: Sequence[CompileJob], *, timeout: float = 300, workers: int | None = None) -> int:
    """See to it that every job is in the store, before the first run of what needs them.

    Returns: how many had to be compiled. Which kernel runs never depends on how long this took.
    Raises: OperatorError for the first that does not compile, when the others are done.
    """
    missing = {j.digest(): j for j in jobs}
    missing = {d: j for d, j in missing.items() if store.find(d) is None}
    failed = [o for _, o in build(list(missing.values()), timeout=timeout, workers=workers)
              if isinstance(o, OperatorError)]
    if failed:
        raise failed[0]
    return len(missing)


def build(jobs: Sequence[CompileJob], *, timeout: float = 300, workers: int | None = None, until: float = math.inf
          ) -> Iterator[tuple[int, Outcome]]:
    """(position, outcome) of every job as it is done: those in the store first. The others go to a pool.

    timeout: seconds for each. workers: at once; default, the processors this process may use.
    until: when time.monotonic() reaches it, the compilers are stopped and the rest has no outcome.
    Leaving the loop early stops the compilers.
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
    for i, reply in _children([j.to_json() for j in order], timeout, min(workers, len(order)), until):
        outcome: Outcome
        if "error" in reply:
            outcome = OperatorError(f"{order[i].name}: does not compile for sm_{order[i].target}: {reply['error']}")
        else:
            outcome = CompiledKernel.from_json(reply["facts"])
            store.keep(digests[i], outcome, base64.b64decode(reply["cubin"]))
        for position in waiting[digests[i]]:
            yield position, outcome


STOPPING = 2.0  # seconds a pool that was told to stop may take, before it is killed


def _children(jobs: list[dict[str, Any]], timeout: float, workers: int, until: float = math.inf
              ) -> Iterator[tuple[int, dict[str, Any]]]:
    # lines of source are half of an artefact and a tenth of the time: for profilers, who set TRITON_DISABLE_LINE_INFO=0
    environment = {"TRITON_DISABLE_LINE_INFO": "1", **os.environ, "TRITIUM_GPU": "cuda"}
    environment.pop("TRITON_INTERPRET", None)
    with tempfile.TemporaryFile("w+") as orders, tempfile.TemporaryFile("w+") as complaints:
        json.dump({"jobs": jobs, "timeout": timeout, "workers": workers}, orders)
        orders.seek(0)
        with subprocess.Popen([sys.executable, "-W", "ignore", "-m", __name__], stdin=orders, stdout=subprocess.PIPE,
                              stderr=complaints, env=environment, start_new_session=True) as child:
            assert child.stdout
            answered = 0
            try:
                for line in _lines(child.stdout.fileno(), until):
                    reply = json.loads(line)
                    answered += 1
                    yield reply.pop("i"), reply
            finally:
                if answered < len(jobs):
                    child.stdout.close()  # or it waits for a reader of what it was saying
                    child.terminate()
                try:
                    child.wait(STOPPING)
                except subprocess.TimeoutExpired:
                    child.kill()
        if answered < len(jobs) and time.monotonic() < until:
            complaints.seek(0)
            raise OperatorError(f"compile_all: the compiling process died: {complaints.read()[-2000:]}")


def _lines(pipe: int, until: float) -> Iterator[bytes]:
    """What comes through a pipe, line by line, to its end; or until time.monotonic() reaches `until`."""
    said = b""
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], min(left, 3600.0))[0]:
            if time.monotonic() >= until:
                return
            continue
        block = os.read(pipe, 1 << 16)
        if not block:
            return
        *lines, said = (said + block).split(b"\n")
        yield from lines


# ---- the compiler ---------------------------------------------------------------------------------------------------
def compile_here(job: dict[str, Any]) -> tuple[CompiledKernel, bytes]:
    """Facts and machine code of one job (as JSON), compiled in this process, which must not be interpreted."""
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
        name=job["name"],
        target=job["target"],
        registers=usage["REG"],
        stack=usage["STACK"],
        local=usage["LOCAL"],
        spills=spills,
        shared=metadata.shared,
        num_warps=metadata.num_warps,
        accesses=read_accesses(ptx),
        wide_offsets=bool(re.search(r"arith\.(?:muli|addi)[^\n]*i64", compiled.asm["ttir"])),
        tensor_ops=len(re.findall(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma", ptx)),
        async_copies=len(re.findall(r"cp\.async\.c[ag]|cp\.async\.bulk\.tensor", ptx)),
        tma=len(re.findall(r"cp\.async\.bulk\.tensor", ptx)),
        instruction=kinds[0] if kinds else "",
        specialised="setmaxnreg" in ptx or "ttg.warp_specialize" in compiled.asm["ttgir"],
        parameters=tuple((p, t) for p, t in signature.items() if t != "constexpr"),
        scratch=(metadata.global_scratch_size, metadata.global_scratch_align),
        cooperative=bool(metadata.launch_cooperative_grid),
        seconds=round(time.perf_counter() - began, 3),
    )
    return facts, cubin


@contextlib.contextmanager
def _cache_of_triton() -> Iterator[None]:
    """Inside, Triton can write its cache, without which it does not compile: elsewhere, if its own folder cannot be."""
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
    """Every global load and store in PTX, with width and whether it is predicated."""
    found = []
    for predicate, kind, suffix in _ACCESS.findall(ptx):
        lanes, element = _WIDTH.search(suffix), _ELEMENT.search(suffix)
        bits = (int(lanes[1]) if lanes else 1) * (int(element[1]) if element else 32)
        found.append(Access("load" if kind == "ld" else "store", bits, bool(predicate)))
    return tuple(found)


def _disassemble(cubin: bytes, tools: Path) -> tuple[dict[str, int], int]:
    """Registers and bytes of slow memory per thread, and how many instructions use that."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
        f.write(cubin)
        f.flush()

        def run(tool: str, option: str) -> str:
            return subprocess.run([str(tools / tool), option, f.name], capture_output=True, text=True,
                                  check=True).stdout

        usage = {k: int(v) for k, v in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", run("cuobjdump", "-res-usage"))}
        if not usage["STACK"] + usage["LOCAL"]:  # nowhere to spill to; and nvdisasm takes longer than compiling
            return usage, 0
        return usage, len(re.findall(r"\b(?:STL|LDL)\b", run("nvdisasm", "-c")))


# ---- the child ------------------------------------------------------------------------------------------------------
@dataclass
class _Worker:
    """A fork, the jobs it still has to answer, when it is late, and what it said since its last answer."""

    pid: int
    jobs: list[int]
    deadline: float
    said: bytes = b""


#: How many jobs a fork gets at most: Triton gives back little of the memory it takes.
_BATCH = 32


def run_pool(jobs: Sequence[Any], work: Callable[[Any], dict[str, Any]], workers: int, timeout: float,
             answer: Callable[[int, dict[str, Any]], None]) -> None:
    """answer(i, work(jobs[i])) for every job, a few in each fork of this process (which must have one thread)."""
    batch = max(1, min(_BATCH, len(jobs) // (4 * workers)))
    todo = [list(range(i, min(i + batch, len(jobs)))) for i in range(0, len(jobs), batch)][::-1]
    running: dict[int, _Worker] = {}  # by the pipe it speaks through
    try:
        while todo or running:
            while todo and len(running) < workers:
                numbers = todo.pop()
                pipe, pid = _fork(work, [jobs[i] for i in numbers])
                running[pipe] = _Worker(pid, numbers, time.monotonic() + timeout)
            patience = min(w.deadline for w in running.values()) - time.monotonic()
            for pipe in select.select(list(running), [], [], max(0.0, patience))[0]:
                worker = running[pipe]
                block = os.read(pipe, 1 << 16)
                *lines, worker.said = (worker.said + block).split(b"\n")
                for line in lines:
                    answer(worker.jobs.pop(0), json.loads(line))
                    worker.deadline = time.monotonic() + timeout
                if not block:
                    status = os.waitpid(worker.pid, 0)[1]
                    _leave(running, pipe, todo, answer, {"error": f"the compiler ended with status {status}"})
            for pipe, worker in list(running.items()):
                if time.monotonic() > worker.deadline:
                    _kill(worker.pid)
                    _leave(running, pipe, todo, answer, {"error": f"the compiler took more than {timeout:g} s", "late": True})
    finally:
        for worker in running.values():
            _kill(worker.pid)


def _leave(running: dict[int, _Worker], pipe: int, todo: list[list[int]], answer: Callable[[int, dict[str, Any]], None],
           reply: dict[str, Any]) -> None:
    """A worker is gone: reply is the answer to what it was at, if it was at something, and others do the rest."""
    os.close(pipe)
    worker = running.pop(pipe)
    if worker.jobs:
        answer(worker.jobs[0], reply)
    if worker.jobs[1:]:
        todo.append(worker.jobs[1:])


def _fork(work: Callable[[Any], dict[str, Any]], jobs: Sequence[Any]) -> tuple[int, int]:
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return read, pid
    status = 1
    try:  # the child
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with os.fdopen(write, "w") as out:
            for job in jobs:
                print(json.dumps(work(job)), file=out, flush=True)
        status = 0
    finally:
        os._exit(status)


def _kill(pid: int) -> None:
    for target in (-pid, pid):
        try:
            os.kill(target, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os.waitpid(pid, 0)


def _reply(job: dict[str, Any]) -> dict[str, Any]:
    try:
        with tempfile.TemporaryDirectory() as once:  # what comes of it is kept in our own store, so not in Triton's as well
            os.environ["TRITON_CACHE_DIR"] = once
            facts, cubin = compile_here(job)
    except Exception as e:  # the parent names the kernel; one that fails must not lose the others
        return {"error": f"{type(e).__name__}: {e}"[:4000]}
    return {"facts": asdict(facts), "cubin": base64.b64encode(cubin).decode()}


def main() -> None:
    """The child: jobs as JSON on standard input; on standard output one line of JSON a job, as each is done."""
    from triton.runtime import cache

    orders = json.load(sys.stdin)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    key = getattr(cache, "triton_key", None)
    if key is not None:  # seconds, and remembered: once here and not in every fork
        key()
    run_pool(orders["jobs"], _reply, orders["workers"], orders["timeout"],
             lambda i, reply: print(json.dumps({"i": i, **reply}), flush=True))


if __name__ == "__main__":
    main()
