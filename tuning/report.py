"""The report of measured times: one self-contained HTML file. It holds no estimates."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..atomic_file import write_atomic
from ..kernels.configs.store import Row, TuningDevice, pick
from .collect import WorkloadItem
from .session import TaskRun, default_and_best, show, time_text

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 20, 50


@dataclass(frozen=True)
class MeasuredTask:
    """A timed task, and the result that would be used.

    default_s, tuned_s: seconds of one run; roofline_s: the least that the measured rooflines allow.
    """

    item: WorkloadItem
    best: Row
    default_s: float
    tuned_s: float
    roofline_s: float | None

    @property
    def lost_s(self) -> float:
        """Seconds per step above the roofline, with the configuration that would be used."""
        return self.item.count * max(0.0, self.tuned_s - self.roofline_s) if self.roofline_s is not None else 0.0


def measured(parts: Sequence[TaskRun], rooflines: Mapping[str, float]) -> list[MeasuredTask]:
    """Return every timed task, first the one that loses most per step."""
    tasks = []
    for p in parts:
        times, best = default_and_best(p.known.values()), pick(p.known.values())
        if times is None or best is None:
            continue
        task = p.item.task
        tasks.append(MeasuredTask(p.item, best, *times, roofline_s(task.flops, task.nbytes, task.key.dtype, rooflines)))
    return sorted(tasks, key=lambda m: (-m.lost_s, -m.tuned_s * m.item.count))


def roofline_s(flops: float, nbytes: int, dtype: str, rooflines: Mapping[str, float]) -> float | None:
    """Return the least seconds that the measured limits allow; None if they were not measured."""
    peak = rooflines.get(f"flops {dtype}") or rooflines.get("flops float32")
    if "bytes_per_s" not in rooflines:
        return None
    return max(nbytes / rooflines["bytes_per_s"], flops / peak if peak else 0.0)


def write_report(path: Path, parts: Sequence[TaskRun], device: TuningDevice, rooflines: Mapping[str, float], title: str) -> int:
    """Write the report to path; return the number of measured tasks in it. title: the request, in words."""
    found = measured(parts, rooflines)
    write_atomic(path, _page(found, len(parts), device, rooflines, title))
    return len(found)


def _page(found: Sequence[MeasuredTask], tasks: int, device: TuningDevice, rooflines: Mapping[str, float], title: str) -> str:
    e = html.escape
    about = " · ".join(t for t in (device.name, device.driver, device.compiler) if t)
    head = (f"<h1>Tuning report</h1><p>{e(title)}<br>{e(about)}<br>Written {time.strftime('%Y-%m-%d %H:%M')}."
            f"{' Everything here was measured on that device; estimates are not shown.' if found else ''}</p>")
    if found:
        body = _summary(found, tasks) + _picture(found, rooflines) + _table(found)
    else:
        target = ", which is a target of the compiler and not a machine" if device.name.startswith("sm_") else ""
        body = (f"<p class=none>Nothing was measured. None of the {tasks} tunable kernels of this request has a time on this "
                f"device{target}. Run <code>tritium tune</code> with the same model and shapes, without --offline or "
                f"--dry-run, and ask for the report again.</p>")
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>Tuning report</title>"
            f"<style>{_STYLE}</style>{head}{body}</html>\n")


def _summary(found: Sequence[MeasuredTask], tasks: int) -> str:
    default, tuned = sum(m.item.count * m.default_s for m in found), sum(m.item.count * m.tuned_s for m in found)
    lost = sum(m.lost_s for m in found)
    more = f", of which {lost * 1e3:,.2f} ms lie above the rooflines" if any(m.roofline_s is not None for m in found) else ""
    return (f"<p><b>{len(found)}</b> of {tasks} tunable kernels were timed. In one step they take <b>{default * 1e3:,.2f} ms</b> "
            f"with default blocks and <b>{tuned * 1e3:,.2f} ms</b> tuned ({default / tuned:.2f} ×){more}.</p>")


# ---- roofline ---------------------------------------------------------------------------------------------------------
class _Plot:
    """A plot with two logarithmic axes. low, high: powers of ten."""

    def __init__(self, x_low: int, x_high: int, y_low: int, y_high: int):
        self.x_low, self.x_high, self.y_low, self.y_high = x_low, x_high, y_low, y_high
        self.marks: list[str] = []

    def x(self, v: float) -> float:
        return _LEFT + (math.log10(v) - self.x_low) / (self.x_high - self.x_low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, v: float) -> float:
        return _HEIGHT - _BOTTOM - (math.log10(v) - self.y_low) / (self.y_high - self.y_low) * (_HEIGHT - _TOP - _BOTTOM)

    def line(self, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
        self.marks.append(f'<line class={kind} x1="{self.x(x1):.1f}" y1="{self.y(y1):.1f}" x2="{self.x(x2):.1f}" '
                          f'y2="{self.y(y2):.1f}"/>')

    def dot(self, kind: str, x: float, y: float, radius: float, tip: str = "") -> None:
        title = f"<title>{html.escape(tip)}</title>" if tip else ""
        self.marks.append(f'<circle class={kind} cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius}">{title}</circle>')

    def text(self, x: float, y: float, text: str, anchor: str = "start", kind: str = "axis") -> None:
        """x, y: in pixels."""
        self.marks.append(f'<text class={kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>')

    def axes(self) -> None:
        left, right, low, high = 10.0**self.x_low, 10.0**self.x_high, 10.0**self.y_low, 10.0**self.y_high
        for d in range(self.x_low, self.x_high + 1):
            self.line("grid", 10.0**d, low, 10.0**d, high)
            self.text(self.x(10.0**d), _HEIGHT - _BOTTOM + 16, _power(d), "middle")
        for d in range(self.y_low, self.y_high + 1):
            self.line("grid", left, 10.0**d, right, 10.0**d)
            self.text(_LEFT - 6, self.y(10.0**d) + 4, _flops(10.0**d), "end")
        self.text((_WIDTH + _LEFT) / 2, _HEIGHT - 10, "operations per byte that must be moved", "middle")

    def svg(self) -> str:
        return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Roofline">{"".join(self.marks)}</svg>'


def _picture(found: Sequence[MeasuredTask], rooflines: Mapping[str, float]) -> str:
    bandwidth = rooflines.get("bytes_per_s")
    peaks = {n.removeprefix("flops "): v for n, v in rooflines.items() if n.startswith("flops ")}
    if not bandwidth:
        return "<p class=none>The limits of this device were not measured, so the plot is missing.</p>"
    points = [(task.flops / task.nbytes, task.flops / m.tuned_s, task.flops / m.default_s, m) for m in found
              if (task := m.item.task).nbytes and task.flops]
    xs = [p[0] for p in points] + [v / bandwidth for v in peaks.values()]
    ys = [v for p in points for v in p[1:3]] + list(peaks.values())
    plot = _Plot(math.floor(math.log10(min(xs)) - 0.2), math.ceil(math.log10(max(xs)) + 0.2),
                 math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)) + 0.05))
    plot.axes()
    right = 10.0**plot.x_high
    start = max(10.0**plot.x_low, 10.0**plot.y_low / bandwidth)
    corner = min(max(peaks.values(), default=10.0**plot.y_high) / bandwidth, right)
    plot.line("roof", start, start * bandwidth, corner, corner * bandwidth)
    middle = math.sqrt(start * corner)
    plot.text(plot.x(middle) + 10, plot.y(middle * bandwidth) + 14, f"copy: {bandwidth / 1e9:,.1f} GB/s (measured)", kind="label")
    for name, peak in peaks.items():
        plot.line("roof", peak / bandwidth, peak, right, peak)
        plot.text(plot.x(right), plot.y(peak) - 5, f"{name} product: {_flops(peak)} (measured)", "end", "label")
    for intensity, tuned, default, m in points:
        if not m.best.is_default:
            plot.line("gain", intensity, default, intensity, tuned)
            plot.dot("before", intensity, default, 3)
        plot.dot("point", intensity, tuned, 4.5,
                 f"{m.item.name}: {time_text(m.default_s)} with default blocks, {time_text(m.tuned_s)} tuned")
    return plot.svg() + ("<p class=note>Filled: with the configuration that would be used. Hollow: with default blocks, where "
                         "they differ. Point at a dot for its name.</p>")


def _power(d: int) -> str:
    return f"{10.0**d:g}" if -3 <= d <= 4 else f"1e{d}"


def _flops(v: float) -> str:
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if v >= scale:
            return f"{v / scale:.3g} {unit}FLOP/s"
    return f"{v:.3g} FLOP/s"


# ---- table ------------------------------------------------------------------------------------------------------------
def _table(found: Sequence[MeasuredTask]) -> str:
    e = html.escape
    rows = []
    for m in found:
        share = f"{m.roofline_s / m.tuned_s:.0%}" if m.roofline_s else "–"
        lost = f"{m.lost_s * 1e3:,.3f}" if m.roofline_s is not None else "–"
        config, key = "default" if m.best.is_default else e(show(m.best.settings)), m.item.task.key
        rows.append(f"<tr><td>{e(m.item.name)}<br><small>{e(f'{key.template} {key.dtype} {key.bucket}')}</small>"
                    f"<td>{m.item.count}<td>{time_text(m.default_s)}"
                    f"<td>{time_text(m.tuned_s)}<br><small>± {time_text(m.best.spread_s or 0.0)}</small>"
                    f"<td>{m.default_s / m.tuned_s:.2f} ×<td>{share}<td>{lost}<td class=config>{config}</tr>")
    columns = ("kernel", "runs per step", "default", "tuned", "gain", "of the roofline", "lost per step, ms", "configuration")
    head = "".join(f"<th>{c}" for c in columns)
    return f"<h2>Worst first</h2><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--faint:#8a929c;--line:#e3e6ea;--accent:#b4451f;--roof:#2b5fa4;--page:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--line:#30363d;--accent:#f08a5d;--roof:#7fb0ec;--page:#15181c}}
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;color:var(--ink);background:var(--page)}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin-top:2rem}small,.note{color:var(--faint);font-size:.8rem}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--faint)}svg text.label{fill:var(--roof)}
.grid{stroke:var(--line)}.roof{stroke:var(--roof);stroke-width:2}.gain{stroke:var(--accent);stroke-dasharray:2 2}
.point{fill:var(--accent);fill-opacity:.85}.before{fill:none;stroke:var(--accent)}
table{border-collapse:collapse;width:100%;font-size:.87rem}
th,td{text-align:right;padding:.35rem .6rem;border-bottom:1px solid var(--line);vertical-align:top;white-space:nowrap}
th:first-child,td:first-child{text-align:left;white-space:normal}
th:last-child{text-align:left}td.config{text-align:left;font-family:ui-monospace,monospace;font-size:.8rem;white-space:normal}
.none{border-left:3px solid var(--accent);padding:.5rem 1rem}
"""
