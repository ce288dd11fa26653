"""Pieces of HTML: tables, code, parts that open. All text is escaped.

Colours are shades of the text's own colour, so that the same page is right on light and on dark ground. What is wide scrolls in
its own box.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """<style>
.tritium { font-family: sans-serif; font-size: 13px; line-height: 1.45; max-width: 100%; }
.tritium .wide { overflow-x: auto; max-width: 100%; }
.tritium table { border-collapse: collapse; margin: 4px 0; font-size: inherit; }
.tritium th, .tritium td { padding: 2px 10px 2px 0; text-align: left !important; vertical-align: top; border: none;
  background: none; }
.tritium th { font-weight: 600; border-bottom: 1px solid rgba(127, 127, 127, 0.5); }
.tritium .number { text-align: right !important; white-space: nowrap; font-variant-numeric: tabular-nums; }
.tritium pre { margin: 4px 0; padding: 6px 8px; background: rgba(127, 127, 127, 0.12); border-radius: 4px; overflow-x: auto;
  font-size: 12px; color: inherit; }
.tritium summary { cursor: pointer; }
.tritium .title { font-weight: 600; }
.tritium .faint { opacity: 0.65; }
.tritium svg { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
</style>"""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def _text(value: Any) -> str:
    return value if isinstance(value, Html) else escape(str(value))


def frame(*parts: str) -> str:
    """Return parts of HTML as one element with the style they need."""
    return f'<div class="tritium">{_STYLE}{"".join(parts)}</div>'


def title(text: str, more: str = "") -> Html:
    """Return a line in bold, and a fainter one behind it."""
    faint = f' <span class="faint">{escape(more)}</span>' if more else ""
    return Html(f'<div><span class="title">{escape(text)}</span>{faint}</div>')


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Html:
    """Return a table. Columns whose cells are numbers, or text that begins with a digit, stand to the right."""
    cells = [list(r) for r in rows]
    right = [bool(cells) and all(_is_number(r[c]) for r in cells) for c in range(len(heads))]
    kinds = ['class="number"' if r else "" for r in right]
    head = "".join(f"<th {k}>{_text(h)}</th>" for h, k in zip(heads, kinds)) if any(heads) else ""
    body = "".join("<tr>" + "".join(f"<td {k}>{_text(c)}</td>" for c, k in zip(r, kinds)) + "</tr>" for r in cells)
    above = f"<thead><tr>{head}</tr></thead>" if head else ""
    return Html(f'<div class="wide"><table>{above}<tbody>{body}</tbody></table></div>')


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (int, float)) or (isinstance(cell, str) and cell[:1].isdigit())


def facts_table(name: str, facts: Mapping[str, Any]) -> str:
    """Return a title and a table of names and values."""
    return frame(title(name), table(("", ""), [(k, v) for k, v in facts.items()]))


def code(text: str) -> Html:
    """Return a block of source text."""
    return Html(f"<pre>{escape(text)}</pre>")


def details(summary: str, body: str, *, open: bool = False) -> Html:
    """Return a part that opens at a click. body: HTML."""
    return Html(f"<details{' open' if open else ''}><summary>{_text(summary)}</summary>{body}</details>")


def picture(svg: str) -> Html:
    """Return a drawing, as wide as there is room at most."""
    return Html(f'<div class="wide">{svg}</div>')
