"""An operator in a notebook: its documentation, its declaration, and the code that is generated from it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from ..errors import MXNetError
from ..show import Html, code, details, frame, table, title
from .params import REQUIRED


def operator_html(op: Any) -> str:
    """Return the HTML of an operator. Code is that for small inputs and default parameters; where there is none, the reason."""
    signature = str(getattr(op, "__signature__", None) or "")
    summary, _, rest = (op.doc or "").partition("\n\n")
    parts: list[str] = [title(f"{op.name}{signature}"), Html(f"<div>{escape(summary)}</div>")]
    if op.params:
        rows = [(p.name, p.kind, "required" if p.default is REQUIRED else repr(p.default),
                 ", ".join(p.choices) or (str(p.range) if p.range is not None else ""), p.doc) for p in op.params]
        parts.append(details("Parameters", table(("name", "type", "default", "allowed", ""), rows), open=len(rows) < 8))
    if rest:
        parts.append(details("Documentation", code(inspect.cleandoc(rest))))
    parts += [details(name, code(text)) for name, text in _texts(op)]
    return frame(*parts)


def _texts(op: Any) -> Iterator[tuple[str, str]]:
    """Yield what there is: the declaration, the derivative, and the code for each device."""
    body = getattr(op, "body", None)
    if callable(body):
        try:
            yield "Declaration", textwrap.dedent(inspect.getsource(body))
        except (OSError, TypeError):  # typed into an interpreter that keeps no source
            pass
    makers: dict[str, tuple[str, dict[str, Any]]] = {
        "Gradient": ("gradient_source", {}), "NumPy": ("cpu_source", {}), "C": ("cpu_source", {"code": "c"}),
        "Triton": ("triton_source", {})}
    for name, (method, options) in makers.items():
        make: Callable[..., str] | None = getattr(op, method, None)
        if make is not None:
            yield name, _made(make, options)


def _made(make: Callable[..., str], options: dict[str, Any]) -> str:
    try:
        return make(**options)
    except (MXNetError, ImportError) as reason:
        return f"none: {reason}"
