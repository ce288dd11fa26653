"""Sums of a recording per operation name: as a table to read, or as JSON in MXNet's form."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ...errors import EngineError
from .recorder import Recorder
from .timeline import Operation

#: `sort_by` -> column.
_COLUMNS = {"count": "Count", "total": "Total", "min": "Min", "max": "Max", "avg": "Avg"}


def totals(operations: Sequence[Operation], sort_by: str, ascending: bool) -> dict[str, dict[str, float]]:
    """Return name -> Count, and Total, Min, Max, Avg in milliseconds, sorted. Raises EngineError for an unknown column."""
    if sort_by not in _COLUMNS:
        raise EngineError(f"profiler.dumps: sort_by is {sort_by!r}. Give one of {', '.join(_COLUMNS)}.")
    times: dict[str, list[int]] = {}
    for o in operations:
        times.setdefault(o.name, []).append(o.end - o.start)
    # summed as integer nanoseconds, so that rounding cannot move the mean of equal times
    rows = {name: {"Count": len(t), "Total": sum(t) / 1e6, "Min": min(t) / 1e6, "Max": max(t) / 1e6, "Avg": sum(t) / len(t) / 1e6}
            for name, t in times.items()}
    return dict(sorted(rows.items(), key=lambda row: row[1][_COLUMNS[sort_by]], reverse=not ascending))


def memory(recorder: Recorder) -> dict[str, dict[str, float]]:
    """Return context -> number of changes, and the least and most memory in use in kilobytes."""
    held: dict[str, list[float]] = {}
    for _, ctx, in_use, _ in list(recorder.memory):
        held.setdefault(str(ctx), []).append(in_use / 1024)
    return {name: {"Count": len(h), "Min": min(h), "Max": max(h)} for name, h in held.items()}


def as_json(operations: Sequence[Operation], recorder: Recorder, sort_by: str, ascending: bool) -> str:
    """Return times and memory by name, and their units, in MXNet's form."""
    return json.dumps({
        "Time": {"operator": totals(operations, sort_by, ascending)},
        "Memory": {"pool": memory(recorder)},
        "Unit": {"Time": "ms", "Memory": "kb"},
        "Dropped": recorder.dropped,
    })


def as_table(operations: Sequence[Operation], recorder: Recorder, sort_by: str, ascending: bool) -> str:
    """Return a table whose lines have at most 100 characters."""
    lines = ["Profile statistics", f"{'Name':<40}{'Count':>10}{'Total ms':>12}{'Min ms':>12}{'Max ms':>12}{'Avg ms':>12}"]
    for name, t in totals(operations, sort_by, ascending).items():
        short = name if len(name) < 40 else f"{name[:36]}..."
        lines.append(f"{short:<40}{t['Count']:>10,}{t['Total']:>12.4f}{t['Min']:>12.4f}{t['Max']:>12.4f}{t['Avg']:>12.4f}")
    for name, m in memory(recorder).items():
        lines.append(f"memory {name}: between {m['Min']:,.0f} and {m['Max']:,.0f} KiB in use, {m['Count']:,} changes")
    if recorder.dropped:
        lines.append(f"{recorder.dropped:,} entries exceeded the limit and are missing.")
    return "\n".join(lines)
