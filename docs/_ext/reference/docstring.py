"""Docstrings of the house style as docutils nodes: paragraphs, `name: text`, lists, indented blocks, code spans."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable

from docutils import nodes

#: From the text of a code span to a link, or None.
Link = Callable[[str], nodes.Node | None]

_NAME = r"\*{0,2}[A-Za-z_]\w*(?:\.\w+)*"
_FIELD = re.compile(rf"({_NAME}(?:, {_NAME})*):(?: +|$)(.*)")
_WORDS = {"Returns", "Raises", "Edges", "Source", "Sources", "Arrays", "Default"}  # fields with a capital
_ITEM = re.compile(r"[*-] +")
_SPAN = re.compile(r"`([^`\n]+)`")


def nodes_of(text: str, link: Link) -> list[nodes.Node]:
    """Return the nodes of a docstring."""
    first, *rest = inspect.cleandoc(text).split("\n\n", 1)
    lines = first.split("\n")
    if _field(lines[0]) is not None:  # the first sentence is no field
        lines = first.replace(":", "\N{ZERO WIDTH SPACE}:", 1).split("\n")
    return _blocks([*lines, "", *(rest[0].split("\n") if rest else [])], link)


def inline(text: str, link: Link) -> list[nodes.Node]:
    """Return the nodes of one line or paragraph: its text, and literals for its code spans."""
    found: list[nodes.Node] = []
    for i, part in enumerate(_SPAN.split(text)):
        if i % 2:
            found.append(link(part) or nodes.literal(part, part))
        elif part:
            found.append(nodes.Text(part))
    return found


def _field(line: str) -> re.Match[str] | None:
    found = _FIELD.match(line)
    if found is not None and found[1][0].isupper() and found[1] not in _WORDS and not line[found.end(1):].startswith(":  "):
        return None  # a sentence such as "Gluon: networks"
    return found


def _blocks(lines: list[str], link: Link) -> list[nodes.Node]:
    out: list[nodes.Node] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        if not line.strip():
            i += 1
        elif line.startswith(("    ", ">>> ")):
            block, i = _take(lines, i, _in_doctest if line.startswith(">>> ") else _in_block)
            text = inspect.cleandoc("\n".join(["", *block])).rstrip()
            out.append(nodes.literal_block(text, text, language="python" if ">>>" in text or "(" in text else "none"))
        elif _ITEM.match(line):
            items, i = _parts(lines, i, _ITEM)
            out.append(nodes.bullet_list("", *(nodes.list_item("", *_blocks(item, link)) for item in items)))
        elif _field(line):
            fields = nodes.field_list()
            while i < len(lines) and (found := _field(lines[i])):
                rest, i = _take(lines, i + 1, lambda t: t.startswith(" "))
                body = [found[2], *_dedent(rest)] if found[2] else _dedent(rest)
                fields += nodes.field("", nodes.field_name(found[1], found[1]), nodes.field_body("", *_blocks(body, link)))
            out.append(fields)
        else:
            start, i = i, i + 1
            while i < len(lines) and lines[i].strip() and not lines[i].startswith("    ") and not _ITEM.match(lines[i]) and (
                    _continues(lines[i - 1]) or not _field(lines[i])):
                i += 1
            paragraph = lines[start:i]
            text = " ".join(t.strip() for t in paragraph)
            out.append(nodes.paragraph(text, "", *inline(text, link)))
    return out


def _in_block(line: str) -> bool:
    return not line.strip() or line.startswith("    ")


def _in_doctest(line: str) -> bool:
    return bool(line.strip())


def _continues(line: str) -> bool:
    """Return True if a sentence goes on after line, so that a word with a colon is no field."""
    return not line.rstrip().endswith((".", ":", "]", ")", "`"))


def _take(lines: list[str], i: int, belongs: Callable[[str], bool]) -> tuple[list[str], int]:
    start = i
    while i < len(lines) and belongs(lines[i]):
        i += 1
    return lines[start:i], i


def _parts(lines: list[str], i: int, mark: re.Pattern[str]) -> tuple[list[list[str]], int]:
    items: list[list[str]] = []
    while i < len(lines) and (found := mark.match(lines[i])):
        rest, after = _take(lines, i + 1, lambda t: t.startswith("  "))
        items.append([lines[i][found.end():], *_dedent(rest)])
        i = after
    return items, i


def _dedent(lines: Iterable[str]) -> list[str]:
    """Return lines without the indentation that all of them have."""
    given = list(lines)
    depth = min((len(t) - len(t.lstrip()) for t in given if t.strip()), default=0)
    return [t[depth:] for t in given]
