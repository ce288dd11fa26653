"""Kernels, operators and training steps on a real GPU: right, and how much of the machine they reach.

    python perf/gpu_suite.py [--megabytes 512] [--rounds 5] [--out perf/results/h200.json]     less than eight minutes
    python perf/gpu_suite.py --smoke          the same code on tiny arrays in the interpreter, anywhere; no time is taken
    python perf/gpu_suite.py --record         every template's case built small, its launches counted
    python perf/gpu_suite.py --table perf/results/h200.json

One JSON line per case: what it must move or multiply, median and spread of its time, its ratios to a copy of as many bytes
and to torch's own kernels (eager, torch.compile, cuBLAS, cuDNN) timed in the same run on the same data, and whether that is
what is asked for. Ceilings come first, then values of every operator, then kernels, then whole training steps. What would
begin too late is left out and says so. Without a GPU it says so and measures nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TRITIUM_GPU"] = "interpret" if "--smoke" in sys.argv else "cuda"

import common
import gpu_generated
import gpu_layers
import gpu_operators
import gpu_train
from gpu_machine import Machine
from tritium.kernels.triton_launch import record, specialisations

#: For compute-sanitizer, which is slow: cases of gpu_layers.layers by name.
FEW = ("softmax 256", "layer norm 1024", "batch norm, relu", "embedding gradient")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=512, help="size of the largest array of a case")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="tiny arrays in the interpreter: does it all run?")
    parser.add_argument("--record", action="store_true", help="build every template's case without a GPU, run none")
    parser.add_argument("--few", action="store_true", help="a few kernels, once each: what compute-sanitizer is run on")
    parser.add_argument("--out", type=Path, help="also keep the lines in this file")
    parser.add_argument("--table", type=Path, help="show the lines of a file as a table, and do nothing else")
    given = parser.parse_args()
    if given.table:
        print(table(json.loads(given.table.read_text())))
        return
    if given.smoke and given.out:
        parser.error("--smoke measures nothing that could be kept")
    torch = _torch(given.smoke or given.record)
    if torch is None:
        common.say({"bench": "gpu_suite", "skipped": "no GPU here; nothing was measured"})
        return
    if given.record:
        _record(torch)
        return
    m = Machine(torch, "cpu", 512, smoke=True, rounds=1) if given.smoke else Machine(torch, "cuda", rounds=given.rounds)
    if given.few:
        _few(m)
        return
    gpu = {} if m.smoke else {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    m.say("gpu_suite", **common.machine(), **gpu)
    sections: list[Callable[[], Any]] = [
        lambda: _ceilings(m, m.size(given.megabytes << 20)), lambda: gpu_operators.check(m),
        *(lambda d=d: _cases(m, gpu_generated.generated(m, m.size(given.megabytes << 20) // (4 if d == "float32" else 2), d))
          for d in ("float32", "bfloat16")),
        lambda: gpu_train.steps(m), lambda: _cases(m, gpu_layers.products(m)), lambda: _cases(m, gpu_layers.convolutions(m)),
        lambda: _cases(m, gpu_layers.tails(m)), lambda: _cases(m, gpu_layers.layers(m)), lambda: _sanitized(m)]
    for section in sections:
        section()
    m.say("specialisations", **specialisations())
    asked = [line for line in m.lines if "met" in line]
    m.say("asked for", of=len(asked), met=sum(line["met"] for line in asked),
          not_met=[line["bench"] + " " + line.get("dtype", "") for line in asked if not line["met"]],
          failed=[line["bench"] for line in m.lines if "error" in line])
    if given.out:
        m.write(given.out)


def _torch(anywhere: bool) -> Any:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        return None
    import torch

    return torch if anywhere or torch.cuda.is_available() else None


def _ceilings(m: Machine, nbytes: int) -> None:
    """What the machine reaches: bytes per second of a copy, and operations of a large product."""
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


def _cases(m: Machine, cases: Any) -> None:
    for case in cases:
        if m.late:
            m.say(case.name, dtype=case.dtype, left_out="the time ran out")
            continue
        m.compare(case.name, case.work, case.peers, case.exact, case.amount, case.unit, at_least=case.at_least, dtype=case.dtype)


def _record(torch: Any) -> None:
    machine = Machine(torch, "cpu", 64)
    for cases in (gpu_layers.products, gpu_layers.convolutions, gpu_layers.tails, gpu_layers.layers):
        for case in cases(machine):
            with record(90) as recorder:
                case.work()
            common.say({"bench": case.name, "launches": len(recorder.launches), "kernels": len(recorder.jobs)})


def _few(m: Machine) -> None:
    m.scale = max(m.scale, 64)
    for case in gpu_layers.layers(m):
        if case.name in FEW:
            case.work()
    if not m.smoke:
        m.torch.cuda.synchronize()


def _sanitized(m: Machine) -> None:
    """A few kernels under compute-sanitizer, where that is installed."""
    tool = shutil.which("compute-sanitizer")
    if m.smoke or tool is None:
        _few(Machine(m.torch, m.device, m.scale, smoke=m.smoke))
        m.say("compute-sanitizer", left_out="it is not installed" if tool is None else "a smoke test has no GPU")
        return
    try:
        done = subprocess.run([tool, "--error-exitcode", "7", sys.executable, __file__, "--few"], capture_output=True, text=True,
                              timeout=120, check=False)
        errors = [line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line]
        m.say("compute-sanitizer", met=done.returncode == 0, asked={"errors": 0}, found=errors or done.stderr[-300:])
    except subprocess.TimeoutExpired:
        m.say("compute-sanitizer", error="more than 120 s")


def table(lines: list[dict[str, Any]]) -> str:
    """The lines as a Markdown table: the ratios, and what is asked for."""
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
