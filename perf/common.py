"""Shared by the measuring scripts: rounds of timing, median and spread, JSON lines, peers as subprocesses.

It uses the standard library only, so that any interpreter can run it. Scripts import it as their neighbour: `import common`.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


def rounds_of(work: Callable[[], Any], *, calls: int, rounds: int = 5, warmup: int = 3,
              finish: Callable[[], Any] = lambda: None) -> list[float]:
    """Return seconds per call of work, one number per round of `calls` calls.

    finish:  waits for work that was only queued; its time counts.
    """
    for _ in range(warmup):
        work()
    finish()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        finish()
        seconds.append((time.perf_counter() - start) / calls)
    return seconds


def median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the distance between the quartiles (0 for a single value)."""
    if len(values) < 2:
        return values[0], 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return statistics.median(values), high - low


def emit(bench: str, values: Sequence[float], unit: str = "s", **fields: Any) -> dict[str, Any]:
    """Print one JSON line with bench, fields, and the median, iqr and best of values; return it as a dict.

    values: one per round, in seconds per call, or in another unit that their names then end with.
    """
    median, iqr = median_and_spread(values)
    line = {"bench": bench, **fields, f"median_{unit}": _short(median), f"iqr_{unit}": _short(iqr),
            f"best_{unit}": _short(min(values)), "rounds": len(values)}
    say(line)
    return line


def say(line: dict[str, Any]) -> None:
    """Print line as JSON."""
    print(json.dumps(line), flush=True)


def machine() -> dict[str, Any]:
    """Describe the machine of the measurement."""
    return {"python": platform.python_version(), "cores": len(os.sched_getaffinity(0)), "machine": platform.machine()}


def run_peer(python: str, script: str, *arguments: str, timeout: float = 600) -> list[dict[str, Any]]:
    """Run script under another interpreter; print and return its JSON lines.

    A peer that cannot run gives a line {"peer": ..., "error": ...}, and the measurement goes on.
    """
    ours = python == sys.executable
    environment = {k: v for k, v in os.environ.items() if ours or k != "PYTHONPATH"}
    try:
        done = subprocess.run([python, script, *arguments], capture_output=True, text=True, timeout=timeout,
                              env=environment, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        message = (getattr(e, "stderr", "") or str(e)).strip().splitlines()
        say({"peer": python, "error": message[-1] if message else type(e).__name__})
        return []
    lines = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    for line in lines:
        say(line)
    return lines


def ratio(bench: str, ours: Sequence[dict[str, Any]], peers: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Print our speed relative to a peer's (above 1: faster): median and spread over runs made in pairs.

    ours, peers:  lines of `emit`, the i-th of each measured one after the other.
    """
    ratios = [b["median_s"] / a["median_s"] for a, b in zip(ours, peers)]
    median, iqr = median_and_spread(ratios)
    best = min(b["best_s"] for b in peers) / min(a["best_s"] for a in ours)
    line = {"bench": bench, **fields, "times_as_fast_as": peers[0].get("package"), "ratio": _short(median),
            "ratio_iqr": _short(iqr), "ratio_of_best": _short(best), "pairs": len(ratios)}
    say(line)
    return line


def _short(x: float) -> float:
    return float(f"{x:.4g}")
