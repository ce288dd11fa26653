"""What the measuring scripts share: rounds of timing, median and spread, JSON lines, peers as subprocesses.

Standard library only, so that any interpreter can run it; a script imports it as its neighbour: `import common`.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any


def rounds_of(work: Callable[[], Any], *, calls: int, rounds: int = 5, warmup: int = 3,
              finish: Callable[[], Any] = lambda: None) -> list[float]:
    """Seconds per call of work, one number per round of `calls` calls.

    finish:  waits for work that was only queued; its time belongs to the round.
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


def emit(bench: str, seconds: Sequence[float], **fields: Any) -> dict[str, Any]:
    """Print one JSON line: bench, fields, and median, iqr, best seconds per call; give it back as a dict."""
    median, iqr = median_and_spread(seconds)
    line = {"bench": bench, **fields, "median_s": _short(median), "iqr_s": _short(iqr), "best_s": _short(min(seconds)),
            "rounds": len(seconds)}
    say(line)
    return line


def say(line: dict[str, Any]) -> None:
    """Print line as JSON."""
    print(json.dumps(line), flush=True)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {"python": platform.python_version(), "cores": len(os.sched_getaffinity(0)), "machine": platform.machine()}


def run_peer(python: str, script: str, *arguments: str, timeout: float = 600) -> list[dict[str, Any]]:
    """The JSON lines that script prints under another interpreter, and printed here too.

    A peer that cannot run is a line {"peer": ..., "error": ...}, not an end of the measurement.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    try:
        done = subprocess.run([python, script, *arguments], capture_output=True, text=True, timeout=timeout,
                              env=environment, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        said = (getattr(e, "stderr", "") or str(e)).strip().splitlines()
        say({"peer": python, "error": said[-1] if said else type(e).__name__})
        return []
    lines = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    for line in lines:
        say(line)
    return lines


def ratio(bench: str, ours: Sequence[dict[str, Any]], peers: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Print how many times as fast as a peer we are (above 1: faster): median and spread over runs made in pairs.

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
