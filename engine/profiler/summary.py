"""Sums of a recording per operation name: as MXNet's table, or as JSON in MXNet's form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...errors import EngineError
from .operations import Operation
from .recorder import Recorder

#: `sort_by` -> column.
_COLUMNS = {"count": "Count", "total": "Total", "min": "Min", "max": "Max", "avg": "Avg"}
#: The columns of MXNet's tables.
_TIMES = {"Time (ms)": "Total", "Min Time (ms)": "Min", "Max Time (ms)": "Max", "Avg Time (ms)": "Avg"}
_BYTES = {"Min Use  (kB)": "Min", "Max Use  (kB)": "Max", "Avg Use  (kB)": "Avg"}


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
    """Return "Memory: cpu/0" -> number of changes, and the least, most and mean memory in use in kilobytes of 1,000 bytes."""
    held: dict[str, list[float]] = {}
    for _, ctx, in_use, _ in list(recorder.memory):
        held.setdefault(f"Memory: {ctx.device_type}/{ctx.device_id}", []).append(in_use / 1000)
    return {name: {"Count": len(h), "Min": min(h), "Max": max(h), "Avg": sum(h) / len(h)} for name, h in held.items()}


def as_json(operations: Sequence[Operation], recorder: Recorder, sort_by: str, ascending: bool) -> str:
    """Return times and memory by name, and their units, in MXNet's form."""
    return json.dumps({
        "Time": {"operator": totals(operations, sort_by, ascending)},
        "Memory": {"Device Storage": memory(recorder)},
        "Unit": {"Time": "ms", "Memory": "kB"},
        "Dropped": recorder.dropped,
    }, indent=4)


def as_table(operations: Sequence[Operation], recorder: Recorder, sort_by: str, ascending: bool) -> str:
    """Return MXNet's table: a section for memory, and one for operations."""
    sections = [(title, rows, columns) for title, rows, columns in (
        ("Device Storage", memory(recorder), _BYTES), ("operator", totals(operations, sort_by, ascending), _TIMES)) if rows]
    lines = ["", "Profile Statistics:", "\tNote the difference in units for different entries."]
    for title, rows, columns in sections:
        lines += [title, "=" * 17, *_section(rows, columns), ""]
    if recorder.dropped:
        lines.append(f"{recorder.dropped:,} entries exceeded the limit and are missing.")
    return "\n".join([*lines, ""])


def _section(rows: Mapping[str, Mapping[str, float]], columns: Mapping[str, str]) -> list[str]:
    heads = ["Total Count", *columns]
    lines = [f"{'Name':<25}" + "".join(f"{h:>{w}}" for h, w in zip(heads, (16, 17, 17, 17, 17))),
             f"{'----':<25}" + "".join(f"{'-' * len(h):>{w}}" for h, w in zip(heads, (16, 17, 17, 17, 17)))]
    return lines + [f"{name:<25}{row['Count']:>16}" + "".join(f"{row[c]:>17.4f}" for c in columns.values())
                    for name, row in rows.items()]
