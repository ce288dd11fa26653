"""The time of each layer: the kernels of a recording, summed by the layer that they compute."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ...show import Html, details, frame, table
from .operations import Operation

Part = tuple[str, int, int, int, int, tuple[int, int]]  # as Recorder.parts has them

_WIDTH = 40  # characters of a layer's name in the table
_TOGETHER = "..."  # between the first and the last layer of a fused kernel


@dataclass(frozen=True)
class KernelTime:
    """A kernel of a layer. milliseconds: of all its runs, during which `threads` threads computed on average."""

    name: str
    backward: bool
    runs: int
    milliseconds: float
    threads: float


@dataclass(frozen=True)
class LayerTime:
    """A layer. forward, backward, total: milliseconds of all runs. fused: the layers whose elementwise work its kernels do too.

    runs: of its kernel that ran most often.
    """

    name: str
    fused: tuple[str, ...]
    kernels: tuple[KernelTime, ...]

    @property
    def forward(self) -> float:
        return sum(k.milliseconds for k in self.kernels if not k.backward)

    @property
    def backward(self) -> float:
        return sum(k.milliseconds for k in self.kernels if k.backward)

    @property
    def total(self) -> float:
        return sum(k.milliseconds for k in self.kernels)

    @property
    def runs(self) -> int:
        return max(k.runs for k in self.kernels)


@dataclass(frozen=True)
class LayerTimes:
    """The layers of a recording, that of the most time first. `print` gives a table, a notebook a table with its kernels."""

    rows: tuple[LayerTime, ...]

    @property
    def slowest(self) -> LayerTime | None:
        """The layer that took most time; None if nothing was recorded."""
        return self.rows[0] if self.rows else None

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        if not self.rows:
            return "No layer was recorded. Call mx.profiler.set_state('run') before the work, and mx.nd.waitall() after it."
        whole = sum(r.total for r in self.rows) or 1.0
        lines = [f"{'layer':<{_WIDTH}}{'runs':>8}{'forward ms':>12}{'backward ms':>13}{'total ms':>11}{'share':>8}"]
        for r in self.rows:
            name = _described(r)
            short = name if len(name) < _WIDTH else f"{name[:_WIDTH - 4]}..."
            lines.append(f"{short:<{_WIDTH}}{r.runs:>8,}{r.forward:>12.3f}{r.backward:>13.3f}{r.total:>11.3f}"
                         f"{100 * r.total / whole:>6.1f} %")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.rows:
            return f"<p>{escape(str(self))}</p>"
        whole = sum(r.total for r in self.rows) or 1.0
        heads = "layer", "share", "runs", "forward ms", "backward ms", "total ms"
        return frame(table(heads, (_row_html(r, whole) for r in self.rows)))


def _described(row: LayerTime) -> str:
    return f"{row.name} (with {', '.join(row.fused)})" if row.fused else row.name


def _row_html(r: LayerTime, whole: float) -> tuple[str, ...]:
    share = 100 * r.total / whole
    kernels = "".join(f"<li>{escape(k.name)}: {'backward' if k.backward else 'forward'}, {k.runs:,} runs, "
                      f"{k.milliseconds:.3f} ms, {k.threads:.1f} threads</li>" for k in r.kernels)
    bar = (f'<div style="width:8em"><div style="width:{max(share, 0.5):.1f}%;min-width:1px;height:0.7em;background:#4c8eda;'
           f'border-radius:2px" title="{share:.1f} %"></div></div>')
    name = details(_described(r), f'<ul style="margin:0">{kernels}</ul>')
    return name, Html(bar), f"{r.runs:,}", f"{r.forward:.3f}", f"{r.backward:.3f}", f"{r.total:.3f}"


def layer_times(operations: Sequence[Operation], parts: Iterable[Part]) -> LayerTimes:
    """Sum the times of kernels by layer.

    parts:       the kernels inside of operations: name, thread, start, end, pieces and the run they belong to, which is a thread
                 and the time at which it began. A kernel's time in a run is that in which at least one thread computed it.
    operations:  those of which no part was recorded are kernels themselves.
    """
    in_parts: dict[tuple[str, tuple[int, int]], list[tuple[int, int]]] = {}
    runs: dict[int, list[int]] = {}
    for name, _, start, end, _, run in parts:
        in_parts.setdefault((name, run), []).append((start, end))
        runs.setdefault(run[0], []).append(run[1])
    for starts in runs.values():
        starts.sort()
    for o in operations:
        starts = runs.get(o.thread, [])
        at = bisect.bisect_left(starts, o.start)
        if at == len(starts) or starts[at] > o.end:
            name = f"{o.layer} ({o.name})" if o.layer else o.name
            in_parts.setdefault((name, (o.thread, o.start)), []).append((o.start, o.end))
    kernels: dict[str, tuple[int, int, int]] = {}
    for (name, _), spans in in_parts.items():
        n, wall, busy = kernels.get(name, (0, 0, 0))
        kernels[name] = n + 1, wall + _union(spans), busy + sum(end - start for start, end in spans)
    layers: dict[str, tuple[dict[str, None], list[KernelTime]]] = {}
    for name, (n, wall, busy) in kernels.items():
        layer, fused, kernel, backward = parse_name(name)
        others, found = layers.setdefault(layer, ({}, []))
        others |= dict.fromkeys(fused)
        found.append(KernelTime(kernel, backward, n, wall / 1e6, busy / wall if wall else 1.0))
    rows = [LayerTime(layer, tuple(f for f in fused if f != layer), tuple(sorted(found, key=lambda k: -k.milliseconds)))
            for layer, (fused, found) in layers.items()]
    return LayerTimes(tuple(sorted(rows, key=lambda r: (-r.total, r.name))))


def _union(spans: list[tuple[int, int]]) -> int:
    """Return the nanoseconds that at least one of the spans covers."""
    covered, until = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, until))
        until = max(until, end)
    return covered


def parse_name(name: str) -> tuple[str, list[str], str, bool]:
    """Return the layer that a kernel is counted for, the other layers it computes, its operator, and whether it is backward.

    name: "conv1...relu1 (Convolution+epilogue)" of a step of a graph, "block0_conv0 (Convolution)", "scope:Convolution" or
    "Convolution" of an operation, "block0_conv0 (_backward_Convolution)" of a step of a recorded backward pass.
    """
    step, _, operator = name.removesuffix(")").partition(" (") if name.endswith(")") else (name, "", "")
    ends = step.split(_TOGETHER)
    backward = operator.startswith("_backward") or step.startswith("_backward") or any(e.endswith("_backward") for e in ends)
    layers = [_layer(e) for e in ends]
    return layers[0], layers[1:], operator or step.rpartition(":")[2], backward


def _layer(step: str) -> str:
    """Return the layer of a step: its scope, or its name without what its direction adds."""
    scope = step.rpartition(":")[0]
    return scope or step.removeprefix("_backward_").removesuffix("_backward").removesuffix("_fwd")
