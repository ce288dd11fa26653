"""Kernels, operators and training steps on a real GPU: right, and how much of the machine they reach.

    python perf/gpu_suite.py [--megabytes 512] [--rounds 5] [--out perf/results/h200.json]     less than eight minutes
    python perf/gpu_suite.py --plan 30 --out perf/results/h200.json     the same in 30 minutes of a device, of which each call
                                              takes nine at most: the first of three calls. The others are the same command: each
                                              goes on from the file, the most valuable first. It prints what is left of the plan
    python perf/gpu_suite.py --only training,layers     some sections; --seconds 200: in less time
    python perf/gpu_suite.py --smoke          the same code on tiny arrays in the interpreter, anywhere; no time is taken
    python perf/gpu_suite.py --compile 90     without a GPU: what it launches is compiled for sm_90 into $TRITIUM_CACHE_DIR, that
                                              is then taken to the GPU's machine: its minutes are for measuring
    python perf/gpu_suite.py --table perf/results/h200.json

One JSON line per case: what it must move or multiply, median and spread of its time, its ratios to a copy of as many bytes
and to torch's own kernels (eager, torch.compile, cuBLAS, cuDNN) timed in the same run on the same data, and whether that is
what is asked for. Ceilings come first, then values of every operator, then kernels, then whole training steps. Without a GPU
it says so and measures nothing.

A checkout is enough, nothing need be installed but torch, triton and what Tritium itself needs. Every section is a process
of its own: one that dies, or hangs, loses no other's lines, and one whose GPU stopped answering goes on behind the case that
did it. The file is whole after every line. What would begin too late is left out and says so.
"""

from __future__ import annotations

import argparse
import atexit
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ["TRITIUM_GPU"] = "interpret" if {"--smoke", "--compile"} & set(sys.argv) else "cuda"
if importlib.util.find_spec("tritium") is None:  # this checkout, for this process and those it starts
    _found = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, _found)
    os.symlink(Path(__file__).resolve().parents[1], os.path.join(_found, "tritium"))
    os.environ["PYTHONPATH"] = os.pathsep.join([_found, *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.path.insert(0, _found)

import common
import gpu_attention
import gpu_configurations
import gpu_generated
import gpu_host
import gpu_layers
import gpu_operators
import gpu_plan
import gpu_train
from gpu_layers import Case
from gpu_machine import Dead, Machine, Report
from tritium.errors import OperatorError
from tritium.kernels.gpu.compile import build
from tritium.kernels.gpu.launch import specialisations
from tritium.kernels.gpu.record import record
from tritium.kernels.gpu.target import compute_capability

BUDGET = 450  # seconds of the whole run, after which no case begins
GRACE = 20  # seconds more that a section gets for the case it is at
RESTARTS = 4  # of a section whose GPU stopped answering
#: For compute-sanitizer, which is slow: cases of gpu_layers.layers by name.
FEW = ("softmax 256", "layer norm 1024", "batch norm, relu", "embedding gradient")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=512, help="size of the largest array of a case")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=BUDGET, help="after which no case begins")
    parser.add_argument("--plan", type=float, metavar="MINUTES",
                        help="three calls in so many minutes: one of them, going on from --out")
    parser.add_argument("--only", default="", help=f"sections, by comma: {', '.join(SECTIONS)}")
    parser.add_argument("--smoke", action="store_true", help="tiny arrays in the interpreter: does it all run?")
    parser.add_argument("--compile", type=int, metavar="TARGET", help="only compile, for a compute capability times ten")
    parser.add_argument("--few", action="store_true", help="a few kernels, once each, for compute-sanitizer")
    parser.add_argument("--out", type=Path, help="also keep the lines in this file")
    parser.add_argument("--table", type=Path, help="show the lines of a file as a table, and do nothing else")
    parser.add_argument("--section", help=argparse.SUPPRESS)  # of a process that the suite starts: its task,
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)  # from which case on,
    parser.add_argument("--copy", type=json.loads, default={}, help=argparse.SUPPRESS)  # and the earlier measurements
    given = parser.parse_args()
    if given.table:
        print(table(json.loads(given.table.read_text())))
        return
    if given.smoke and given.out and not given.plan:
        parser.error("--smoke measures nothing that could be kept")
    if given.plan and not given.out:
        parser.error("--plan needs --out, the file that the calls go on from")
    names = [n.strip() for n in given.only.split(",") if n.strip()] or list(SECTIONS)
    if unknown := [n for n in names if n not in SECTIONS]:
        parser.error(f"--only: {', '.join(unknown)} is not a section. The sections are {', '.join(SECTIONS)}")
    before: list[dict[str, Any]] = []
    if given.plan:
        before = gpu_plan.read(given.out)
        if sum(line["bench"] == "took" for line in before) >= gpu_plan.CALLS:
            parser.error(f"{given.out} has the lines of all calls of the plan")
        given.seconds = gpu_plan.seconds_of_a_call(given.plan)
        names = [n for n in gpu_plan.SECONDS if n in names]
        for line in gpu_plan.plan(given.plan, names, before):
            common.say(line)
    reached = gpu_plan.first_cases(before)
    torch = _torch(bool(given.smoke or given.compile))
    if torch is None:
        common.say({"bench": "gpu_suite", "skipped": "no GPU here; nothing was measured"})
    elif given.compile:
        _compile(torch, given.compile, given.megabytes << 20)
    elif given.smoke:
        m = Machine(torch, "cpu", 512, smoke=True, rounds=1)
        m.say("gpu_suite", **common.machine())
        for name in names:
            if (first := reached.get(name, 0)) is not None:
                SECTIONS[name](m, given.megabytes << 20, first)
        _close(m.report, m.say)
    elif given.few:
        _few(Machine(torch, "cuda"))
    elif given.section:
        _section(Machine(torch, "cuda", rounds=given.rounds, seconds=given.seconds, copy=given.copy, announces=True), given)
    else:
        _all(Report(given.out, before), names, given, torch, reached)


# ---- the sections, each in a process of its own ---------------------------------------------------------------------------
def _all(report: Report, names: list[str], given: argparse.Namespace, torch: Any, reached: Mapping[str, int | None]) -> None:
    """Run sections, each from its first case in `reached` on; one that is not there from its beginning."""
    began = time.monotonic()
    say = lambda bench, **fields: report.add({"bench": bench, **fields})
    say("gpu_suite", **common.machine(), gpu=torch.cuda.get_device_name(), torch=torch.__version__, cuda=torch.version.cuda,
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    for name in dict.fromkeys(["ceilings", *names]):
        first, starts = 0 if name == "ceilings" else reached.get(name, 0), 0
        while first is not None and starts <= RESTARTS:
            left = given.seconds - (time.monotonic() - began)
            if left < 5:
                say(name, left_out="the time ran out")
                break
            first, starts = _child(report, name, first, min(left, gpu_plan.limit(name)), given), starts + 1
    _close(report, say)
    say("took", seconds=round(time.monotonic() - began, 1))


def _command(name: str, first: int, left: float, copy: dict[str, float], given: argparse.Namespace) -> list[str]:
    return [sys.executable, __file__, "--section", name, "--first", str(first), "--seconds", str(left),
            "--copy", json.dumps(copy), "--rounds", str(given.rounds), "--megabytes", str(given.megabytes)]


def _child(report: Report, name: str, first: int, left: float, given: argparse.Namespace) -> int | None:
    """Run a section from a case on, for `left` seconds; return the case from which another process must go on, if it must."""
    copy = {line["dtype"]: line["byte_per_s"] for line in report.lines if line["bench"] == "copy (torch)"}
    began, at = time.monotonic(), None
    with tempfile.TemporaryFile("w+") as complaints, subprocess.Popen(
            _command(name, first, left, copy, given), stdout=subprocess.PIPE, stderr=complaints, text=True) as child:
        killer = threading.Timer(left + GRACE, child.kill)
        killer.start()
        assert child.stdout is not None
        for text in child.stdout:
            line = _line(text)
            if "begins" in line:
                at = line["begins"]
            else:
                report.add(line)
        status = child.wait()
        killer.cancel()
        if not status:
            return None
        complaints.seek(0)
        said = complaints.read().replace(f"{Path(__file__).resolve().parents[1]}/", "").strip()[-800:]
        late = time.monotonic() - began >= left + GRACE
        report.add({"bench": name, "error": "it was ended: the time ran out" if late else f"status {status}: {said}"})
    if at is None:  # it never came to a case
        return None
    report.add({"bench": "section", "section": name, "next": at + 1})  # behind the case that ended it
    return None if late else at + 1


def _line(text: str) -> dict[str, Any]:
    try:
        return json.loads(text)
    except ValueError:
        return {"bench": "said", "text": text.strip()}


def _section(m: Machine, given: argparse.Namespace) -> None:
    """Run one section, in a child process."""
    m.torch.backends.cudnn.benchmark = True  # peers at their best, with float32 as ours is unless asked: not TF32
    m.torch.backends.cudnn.allow_tf32 = False
    began = time.monotonic()
    try:
        SECTIONS[given.section](m, given.megabytes << 20, given.first)
    except Dead:
        print("the GPU stopped answering", file=sys.stderr, flush=True)
        os._exit(1)  # no tidying up: it would wait for the GPU
    kernels = specialisations()
    m.say("section", section=given.section, seconds=round(time.monotonic() - began, 1), kernels=len(kernels),
          specialisations=sum(kernels.values()), next=m.next)


def _close(report: Report, say: Callable[..., None]) -> None:
    asked = [line for line in report.lines if "met" in line]
    say("asked for", of=len(asked), met=sum(line["met"] for line in asked),
        not_met=[line["bench"] + " " + line.get("dtype", "") for line in asked if not line["met"]],
        wrong=[line["bench"] + " " + line.get("dtype", "") for line in report.lines if not line.get("right", True)],
        failed=[line["bench"] for line in report.lines if "error" in line])


def _torch(anywhere: bool) -> Any:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        return None
    import torch

    return torch if anywhere or torch.cuda.is_available() else None


def _ceilings(m: Machine, megabytes: int, first: int) -> None:
    """The machine's limits: bytes per second of a copy, and operations per second of a large product."""
    nbytes = m.size(megabytes)
    for dtype, itemsize in (("float32", 4), ("bfloat16", 2)):
        a = m.randn(nbytes // itemsize, dtype=dtype)
        b = m.torch.empty_like(a)
        median, spread = common.median_and_spread(m.seconds(lambda a=a, b=b: b.copy_(a), m.rounds))
        m.copy[dtype] = 2 * a.numel() * itemsize / median
        m.say("copy (torch)", dtype=dtype, byte=2 * a.numel() * itemsize, median_s=median, iqr_s=spread,
              byte_per_s=m.copy[dtype])
    n = m.size(8192)
    a, b = m.randn(n, n, dtype="bfloat16"), m.randn(n, n, dtype="bfloat16")
    median, spread = common.median_and_spread(m.seconds(lambda: a @ b, m.rounds))
    m.say("product (cuBLAS)", dtype="bfloat16", flop=2.0 * n**3, median_s=median, iqr_s=spread, flop_per_s=2.0 * n**3 / median)


def _cases(m: Machine, section: str, cases: Callable[[], Iterator[Case]], first: int) -> None:
    if not m.smoke and not first:
        _compile_ahead(m, cases)
    for case in m.turns(section, cases(), first):
        m.compare(case.name, case.work, case.peers, case.exact, case.amount, case.unit, at_least=case.at_least, dtype=case.dtype)


def _compile_ahead(m: Machine, cases: Callable[[], Iterator[Case]]) -> None:
    """Compile all kernels of the cases at once. Failures are reported when the case runs."""
    m.recording = True
    with record(compute_capability()) as recorder:
        for case in cases():
            try:
                case.work()
            except Exception as e:
                m.say(case.name, dtype=case.dtype, recording=f"{type(e).__name__}: {e}"[:300])
    m.recording = False
    for _ in build(recorder.jobs, timeout=60):
        pass


def _elementwise(m: Machine, nbytes: int) -> Iterator[Case]:
    for dtype, itemsize in (("float32", 4), ("bfloat16", 2)):
        yield from gpu_generated.generated(m, m.size(nbytes) // itemsize, dtype)


def _compile(torch: Any, target: int, nbytes: int) -> None:
    """Compile what every section launches, for a target that need not be here. What fails is said."""
    machine = Machine(torch, "meta")
    machine.recording = True
    kernels = gpu_operators.kernels(target)
    for cases in (_elementwise, *(lambda m, _, cases=cases: cases(m) for cases in TEMPLATES)):
        with record(target) as recorder:
            for case in cases(machine, nbytes):
                case.work()
        kernels += recorder.jobs
    kernels += gpu_train.kernels(target)
    done = [outcome for _, outcome in build(kernels)]
    for failed in (o for o in done if isinstance(o, OperatorError)):
        common.say({"bench": "compile", "error": str(failed)[:500]})
    common.say({"bench": "compile", "target": target, "kernels": len({j.digest() for j in kernels})})


def _few(m: Machine) -> None:
    m.scale = max(m.scale, 64)
    for case in gpu_layers.layers(m):
        if case.name in FEW:
            case.work()
    if not m.smoke:
        m.torch.cuda.synchronize()


def _sanitized(m: Machine, nbytes: int, first: int) -> None:
    """A few kernels under compute-sanitizer, where that is installed."""
    tool = shutil.which("compute-sanitizer")
    if m.smoke or tool is None:
        _few(Machine(m.torch, m.device, m.scale, smoke=m.smoke))
        m.say("compute-sanitizer", left_out="it is not installed" if tool is None else "a smoke test has no GPU")
        return
    limit = max(10.0, min(120.0, m.until - time.monotonic()))
    try:
        done = subprocess.run([tool, "--report-api-errors", "no", "--error-exitcode", "7", sys.executable, __file__, "--few"],
                              capture_output=True, text=True, timeout=limit, check=False)
        lines = [line.strip("= ") for line in done.stdout.splitlines() if line.startswith("=====")]
        m.say("compute-sanitizer", met=done.returncode == 0, asked={"errors": 0}, found=lines[-1:] or done.stderr[-300:],
              first=[] if done.returncode == 0 else lines[:30])
    except subprocess.TimeoutExpired:
        m.say("compute-sanitizer", error=f"more than {limit:.0f} s")


#: Folders of tests with kernels on the GPU, the most valuable first.
TESTED = ("kernels/ops", "graph", "ndarray", "train", "gluon", "engine", "kernels/gpu")


def _tests(m: Machine, first: int) -> None:
    """The tests of the GPU, run there: a line a folder."""
    if m.smoke:
        m.say("tests", left_out="a smoke test has no GPU")
        return
    for folder in m.turns("tests", TESTED, first):
        command = [sys.executable, "-m", "pytest", "-q", "-k", "gpu", "-p", "no:cacheprovider", "-p", "no:benchmark",
                   *(["-n", "8"] if importlib.util.find_spec("xdist") else []), str(gpu_operators.TESTS / folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "TRITIUM_GPU": "cuda"},
                                  timeout=max(10, m.until - time.monotonic()))
        except subprocess.TimeoutExpired as e:
            m.say(f"tests {folder}", error="the time ran out", tail=str(e.stdout)[-500:])
            continue
        lines = done.stdout.splitlines()
        m.say(f"tests {folder}", met=done.returncode == 0, asked={"failed": 0}, result=lines[-1:],
              failed=[line[7:207] for line in lines if line.startswith("FAILED ")][:100])


def _template(cases: Callable[[Machine], Iterator[Case]]) -> Callable[[Machine, int, int], None]:
    return lambda m, nbytes, first: _cases(m, cases.__name__, lambda: cases(m), first)


TEMPLATES = (gpu_layers.products, gpu_layers.convolutions, gpu_layers.layers, gpu_attention.attention,
             gpu_layers.epilogues, gpu_configurations.configurations)
#: name -> function (machine, bytes of the largest array, number of the first case)
SECTIONS: dict[str, Callable[[Machine, int, int], None]] = {
    "ceilings": _ceilings,
    "operators": lambda m, nbytes, first: gpu_operators.check(m, first),
    "elementwise": lambda m, nbytes, first: _cases(m, "elementwise", lambda: _elementwise(m, nbytes), first),
    "training": lambda m, nbytes, first: gpu_train.steps(m, first),
    "host": lambda m, nbytes, first: gpu_host.host(m, first),
    "products": _template(gpu_layers.products),
    "convolutions": _template(gpu_layers.convolutions),
    "layers": _template(gpu_layers.layers),
    "attention": _template(gpu_attention.attention),
    "epilogues": _template(gpu_layers.epilogues),
    "configurations": _template(gpu_configurations.configurations),
    "sanitizer": _sanitized,
    "tests": lambda m, nbytes, first: _tests(m, first),
}


def table(lines: list[dict[str, Any]]) -> str:
    """The lines as a Markdown table: the ratios, and the required ones."""
    rows = ["| case | dtype | time | of a copy | of torch | asked | met |", "|---|---|---|---|---|---|---|"]
    for line in lines:
        if "median_s" not in line:
            continue
        peer = next((f"{v} ({k[3:]})" for k, v in line.items() if k.startswith("of_") and k != "of_copy"), "")
        asked = ", ".join(f"{k} {v}" for k, v in line.get("asked", {}).items())
        met = {True: "yes", False: "**no**"}.get(line.get("met"), "")
        took = f"{line['median_s'] * 1e6:.1f} µs"
        cells = (line["bench"], line.get("dtype", ""), took, line.get("of_copy", ""), peer, asked, met)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
