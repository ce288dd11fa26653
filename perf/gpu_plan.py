"""The plan of `gpu_suite.py --plan MINUTES`: what each of three calls runs, from the lines that the calls before it left."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CALLS = 3
LONGEST = 540  # seconds of a call
START = 60  # seconds of the device that a call costs beside its own: the start of the machine, and the copies to it
#: Seconds of each section, the most valuable first. Those of results/, on an H100 with most kernels compiled beforehand; the
#: last one was never measured whole.
SECONDS = {"ceilings": 1, "training": 40, "convolutions": 10, "products": 10, "layers": 10, "attention": 20, "host": 25,
           "operators": 25, "elementwise": 15, "epilogues": 5, "configurations": 60, "sanitizer": 120, "tests": 900}


def limit(section: str) -> int:
    """Seconds of one section, of which one that hangs must not take the others'."""
    return max(80, 3 * SECONDS[section])


def seconds_of_a_call(minutes: float) -> float:
    """Seconds after which a call of a plan begins no case."""
    return max(0.0, min(LONGEST, 60 * minutes / CALLS - START))


def read(out: Path) -> list[dict[str, Any]]:
    """The lines of the calls so far. Raises ValueError for a file that holds something else."""
    lines = json.loads(out.read_text()) if out.exists() else []
    if not isinstance(lines, list) or not all(isinstance(line, dict) and "bench" in line for line in lines):
        raise ValueError(f"{out} does not hold lines of gpu_suite.py")
    return lines


def first_cases(lines: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """Section -> the first case that has not run, None where all have; sections that never began are absent."""
    return {line["section"]: line.get("next") for line in lines if line["bench"] == "section"}


def plan(minutes: float, sections: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line for each call that is left: its sections with the seconds that are expected, and their sum.

    A section that begins in one call may end in the next. What does not fit into the last one is in a line of its own.
    """
    made, most = sum(line["bench"] == "took" for line in lines), seconds_of_a_call(minutes)
    reached = first_cases(lines)
    todo = [(n, SECONDS[n]) for n in SECONDS if n in sections and n != "ceilings" and reached.get(n, 0) is not None]
    calls: list[dict[str, Any]] = []
    for number in range(made + 1, CALLS + 1):
        expected = {"ceilings": SECONDS["ceilings"]}
        while todo and sum(expected.values()) < most:
            name, seconds = todo.pop(0)
            now = min(seconds, round(most - sum(expected.values())))
            expected[name] = now
            if now < seconds:
                todo.insert(0, (name, seconds - now))
        if len(expected) > 1:
            calls.append({"bench": "plan", "call": number, "sections": expected, "expected": sum(expected.values()),
                          "most": most})
    if todo:
        calls.append({"bench": "plan", "does_not_fit": dict(todo)})
    return calls
