"""Kernels on a real GPU: right against torch, and how much of the machine they reach.

    python perf/gpu_suite.py [--megabytes 512] [--rounds 5] [--quick] [--record] [--out perf/results/h200.json]

One JSON line per kernel: what it must move or multiply, median and spread of its time, and its fraction of a ceiling that
was timed in the same run: a copy of as many bytes, or torch's own kernel (cuBLAS, cuDNN) on the same data. Without a GPU it
says so and measures nothing. --record: no GPU; every case of gpu_layers.py is built small and its launches are counted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TRITIUM_GPU"] = "cuda"

import common
import gpu_layers
import numpy as np
from tritium.dtype import bfloat16
from tritium.kernels import lang as L
from tritium.kernels.expr import Expr, load
from tritium.kernels.op import Expression, Req, Spec
from tritium.kernels.triton_launch import record, specialisations
from tritium.kernels.triton_printer import triton_kernel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512, help="size of the largest array of a case")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small arrays: checks the values, times mean little")
    parser.add_argument("--record", action="store_true", help="build every case without a GPU, run none")
    parser.add_argument("--out", type=Path, help="also keep the lines in this file")
    given = parser.parse_args()
    if given.record:
        _record()
        return
    torch = _torch_with_gpu()
    if torch is None:
        common.say({"bench": "gpu_suite", "skipped": "no GPU here; nothing was measured"})
        return
    _say({"bench": "gpu_suite", **common.machine(), "gpu": torch.cuda.get_device_name(), "torch": torch.__version__})
    nbytes = (8 if given.quick else given.megabytes) << 20
    for dtype, tensor_type in ((np.dtype("float32"), torch.float32), (bfloat16, torch.bfloat16)):
        n = nbytes // dtype.itemsize
        copy = _copy_bandwidth(torch, n, tensor_type, given.rounds)
        _say({"bench": "copy (torch)", "dtype": dtype.name, "bytes_per_s": copy})
        for case in _cases(torch, n, dtype):
            _measure(torch, *case, dtype=dtype, tensor_type=tensor_type, copy=copy, rounds=given.rounds)
    machine = gpu_layers.Machine(torch, "cuda", 8 if given.quick else 1)
    for cases in (gpu_layers.products, gpu_layers.convolutions, gpu_layers.layers):
        for layer in cases(machine):
            _against_peer(torch, *layer, given.rounds)
    _launch_cost(torch, given.rounds)
    common.say({"bench": "specialisations", **specialisations()})
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(_lines, indent=1) + "\n")


_lines: list[dict[str, Any]] = []


def _say(line: dict[str, Any]) -> None:
    _lines.append(line)
    common.say(line)


def _against_peer(torch: Any, name: str, work: Callable[[], Any], peer: Callable[[], Any] | None, exact: Callable[[], Any],
                  amount: float, unit: str, rounds: int) -> None:
    """One case of gpu_layers.py: values first, then ours and the peer's times in turn, so that both meet the same clocks."""
    try:
        got, want = work().double(), exact().double()
        difference = ((got - want).abs().max() / want.abs().max()).item()
        del got, want
        ours, theirs = [], []
        for _ in range(rounds):
            ours += _seconds(torch, work, 1)
            theirs += _seconds(torch, peer, 1) if peer else []
    except Exception as e:  # one kernel that fails is a line of the report, not its end
        _say({"bench": name, "error": f"{type(e).__name__}: {e}"[:500]})
        return
    median, iqr = common.median_and_spread(ours)
    line = {"bench": name, unit: amount, "median_s": median, "iqr_s": iqr, f"{unit}_per_s": amount / median,
            "largest_difference": difference}
    if theirs:
        line["of_peer"] = round(common.median_and_spread(theirs)[0] / median, 3)
    _say(line)


def _record() -> None:
    import torch

    machine = gpu_layers.Machine(torch, "cpu", 64)
    for cases in (gpu_layers.products, gpu_layers.convolutions, gpu_layers.layers):
        for name, work, *_ in cases(machine):
            with record(90) as recorder:
                work()
            common.say({"bench": name, "launches": len(recorder.launches), "kernels": len(recorder.jobs)})


def _torch_with_gpu() -> Any:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        return None
    import torch

    return torch if torch.cuda.is_available() else None


def _seconds(torch: Any, work: Callable[[], Any], rounds: int, calls: int = 20) -> list[float]:
    """Seconds per call, one number per round, by the GPU's own clock."""
    for _ in range(3):
        work()
    found = []
    for _ in range(rounds):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            work()
        stop.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(stop) / 1e3 / calls)
    return found


def _copy_bandwidth(torch: Any, n: int, dtype: Any, rounds: int) -> float:
    a, b = torch.randn(n, device="cuda").to(dtype), torch.empty(n, device="cuda", dtype=dtype)
    median, _ = common.median_and_spread(_seconds(torch, lambda: b.copy_(a), rounds))
    return 2 * n * a.element_size() / median


def _softmax(x: Expr) -> Expr:
    e = L.exp(x - L.row_max(x))
    return e / L.row_sum(e)


def _cases(torch: Any, n: int, dtype: np.dtype) -> list[tuple]:
    """(name, root, input shapes, output shape, kind, the same in torch on float32)."""
    x, y = load(0, dtype), load(1, dtype)
    rows = n // 1024
    square = (rows, 1024)
    return [
        ("chain", L.exp(x) * y + L.tanh(x), [(n,), (n,)], (n,), "elementwise", lambda a, b: a.exp() * b + a.tanh()),
        ("chain, odd length", L.exp(x) * y, [(n - 3,), (n - 3,)], (n - 3,), "elementwise", lambda a, b: a.exp() * b),
        ("power", L.power(L.maximum(x, 0.1), y), [(n,), (n,)], (n,), "elementwise", lambda a, b: a.clamp_min(0.1) ** b),
        ("row vector", x + y, [square, (1024,)], square, "elementwise", lambda a, b: a + b),
        ("column vector", x * y, [square, (rows, 1)], square, "elementwise", lambda a, b: a * b),
        ("channel", x * y, [(n // (64 * 49), 64, 7, 7), (64, 1, 1)], (n // (64 * 49), 64, 7, 7), "elementwise",
         lambda a, b: a * b),
        ("sum of all", x, [(n,)], (1,), "elementwise", lambda a: a.sum().reshape(1)),
        ("sum of rows", x, [square], (rows, 1), "elementwise", lambda a: a.sum(1, keepdim=True)),
        ("sum of columns", x, [square], (1024,), "elementwise", lambda a: a.sum(0)),
        ("softmax 1024", _softmax(x), [square], square, "row", lambda a: a.softmax(-1)),
        ("softmax 1000", _softmax(x), [(n // 1000, 1000)], (n // 1000, 1000), "row", lambda a: a.softmax(-1)),
        ("softmax 50000", _softmax(x), [(n // 50_000, 50_000)], (n // 50_000, 50_000), "row", lambda a: a.softmax(-1)),
    ]


def _measure(torch: Any, name: str, root: Expr, shapes: list, shape: tuple, kind: str, same: Callable[..., Any],
             dtype: np.dtype, tensor_type: Any, copy: float, rounds: int) -> None:
    torch.manual_seed(0)
    arrays = [torch.randn(s, device="cuda").to(tensor_type) for s in shapes]
    out = torch.empty(shape, device="cuda", dtype=tensor_type)
    run = types.SimpleNamespace(stream=None, space=lambda s, d: torch.empty(s, device="cuda",
                                                                            dtype=getattr(torch, np.dtype(d).name)))
    kernel = triton_kernel(Expression((root,), kind), [Spec(tuple(s), dtype) for s in shapes], [Spec(shape, dtype)],
                           [Req.WRITE], name="suite")
    line: dict[str, Any] = {"bench": name, "dtype": dtype.name}
    try:
        kernel(run, arrays, [out])
        want = same(*(a.float() for a in arrays))
        difference = ((out.float() - want).abs() / want.abs().clamp_min(1)).max().item()
        seconds = _seconds(torch, lambda: kernel(run, arrays, [out]), rounds)
    except Exception as e:  # one kernel that fails is a line of the report, not its end
        _say({**line, "error": f"{type(e).__name__}: {e}"[:500]})
        return
    moved = sum(a.numel() * a.element_size() for a in (*arrays, out))
    median, iqr = common.median_and_spread(seconds)
    _say({**line, "bytes": moved, "median_s": median, "iqr_s": iqr, "bytes_per_s": moved / median,
                "of_copy": round(moved / median / copy, 3), "largest_difference": difference})


def _launch_cost(torch: Any, rounds: int) -> None:
    """What one call of a kernel costs the host: a kernel so small that the GPU waits for it."""
    x = torch.randn(16, device="cuda")
    spec = Spec((16,), np.dtype("float32"))
    kernel = triton_kernel(Expression((load(0, spec.dtype) + 1,)), [spec], [spec], [Req.WRITE], name="small")
    run = types.SimpleNamespace(stream=None, space=None)
    out = torch.empty_like(x)
    seconds = common.rounds_of(lambda: kernel(run, [x], [out]), calls=1000, rounds=rounds,
                               finish=torch.cuda.synchronize)
    common.emit("launch of a small kernel", seconds)


if __name__ == "__main__":
    main()
