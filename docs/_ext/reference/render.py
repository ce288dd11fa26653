"""Entries of the reference as docutils nodes: a function, a class with its members, a constant, an operator."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.environment import BuildEnvironment
from tritium import environment
from tritium.kernels.params import _SPOKEN, REQUIRED, Param, meaning
from tritium.ndarray.dispatch.arguments import array_names, is_variadic, sample
from tritium.ndarray.functions.namespace import result_names

from . import public
from .docstring import inline, nodes_of

MULTI_LINE = 76  # characters of a signature from which each parameter has a line of its own
_PACKAGE = re.compile(r"\btritium\.(?:\w+\.)*(\w+)\b")


class Signature(NamedTuple):
    """parameters: as they are written; None: the name is not called. after: what follows."""

    parameters: list[str] | None
    after: str


NONE = Signature(None, "")


class Renderer:
    """Renders entries for a page. names: {public name: home} for links in texts; where: the module of the page."""

    def __init__(self, env: BuildEnvironment, where: str = ""):
        self.env, self.where = env, where
        self.domain: Any = env.get_domain("py")

    # ---- links ----
    def link(self, text: str) -> nodes.Node | None:
        """Return a link to a public name, written as `mx.nd.dot`, `nd.dot` or, in its own module, `dot`; None if it is none."""
        name = text.removesuffix("()")
        if not re.fullmatch(r"[\w.]+", name):
            return None
        homes = _homes()
        given = [name, f"mx.{name}", *([f"{self.where}.{name}"] if self.where and "." not in name and len(name) > 2 else [])]
        home = next((homes[n] for n in given if n in homes and ("." in n)), None)
        return None if home is None else self.reference(home, text)

    def reference(self, home: str, text: str) -> nodes.Node:
        """Return a link to the entry of a name."""
        to = addnodes.pending_xref("", nodes.literal(text, text), refdomain="py", reftype="obj", reftarget=home, refexplicit=True,
                                   refwarn=True)
        to["refdoc"] = self.env.docname
        return to

    def text(self, docstring: str | None) -> list[nodes.Node]:
        """Return the nodes of a docstring."""
        return nodes_of(docstring or "", self.link)

    # ---- entries ----
    def entry(self, entry: public.Entry) -> nodes.Node:
        """Return the entry of a name: whole where it is at home, a line with a link elsewhere."""
        full, value = f"{entry.module}.{entry.name}", entry.value
        if entry.home != full:
            return nodes.paragraph("", "", nodes.literal(full, full), nodes.Text(": "), self.reference(entry.home, entry.home))
        if inspect.isclass(value):
            return self._class(entry, value)
        if callable(value):
            return self.described("function", full, self._signature(value), self.text(inspect.getdoc(value)))
        shown = repr(value)
        content = self.text(public.comment(entry.module, entry.name))
        after = f" = {shown}" if len(shown) <= 90 and " at 0x" not in shown else ""
        return self.described("data", full, Signature(None, after), content)

    def _class(self, entry: public.Entry, cls: type) -> nodes.Node:
        full = entry.home
        content = self.text(cls.__dict__.get("__doc__") or inspect.getdoc(cls))
        bases = [self.reference(_classes()[key], b.__name__) for b in cls.__bases__
                 if (key := f"{b.__module__}.{b.__name__}") in _classes()]
        if bases:
            content.append(nodes.paragraph("", "", nodes.Text("Derived from "), *_joined(bases), nodes.Text(".")))
        init = cls.__dict__.get("__init__")
        if init is not None and init.__doc__ and init.__doc__ != object.__init__.__doc__:
            content += self.text(init.__doc__)
        for name, value, stored in public.members(cls):
            doc = inspect.getdoc(stored if isinstance(stored, property) else value)
            if not doc:
                continue
            kind = {property: "property", classmethod: "classmethod", staticmethod: "staticmethod"}.get(type(stored), "method")
            signature = NONE if isinstance(stored, property) else self._signature(value, method=True)
            content.append(self.described(kind, f"{full}.{name}", signature, self.text(doc), short=name))
        return self.described("exception" if issubclass(cls, BaseException) else "class", full, self._signature(cls), content)

    def operator(self, o: public.Operator) -> nodes.Node:
        """Return the entry of an operator."""
        names = [f"mx.nd.{n}" for n in o.names]
        content = self.text(o.op.doc)
        content += self._arrays(o)
        declared = [d for d in o.op.params if d.name != "num_args"]
        if declared:
            content.append(self._parameters(declared, o.op.doc))
        results = result_names(o.op)
        if len(results) > 1:
            content.append(nodes.paragraph("", "", nodes.Text(f"Results: {', '.join(results)}.")))
        foot = [nodes.Text("Also "), *_joined([nodes.literal(n, n) for n in (f"mx.sym.{o.names[0]}", *names[1:])])]
        if "random" not in o.kind:
            foot += [nodes.Text(". Declared in "), nodes.literal(o.file, o.file)]
        content.append(nodes.paragraph("", "", *foot, nodes.Text("."), classes=["also"]))
        return self.described("function", names[0], self._operator_signature(o), content,
                              also=[*names[1:], *(f"mx.sym.{n}" for n in o.names)])

    def _arrays(self, o: public.Operator) -> list[nodes.Node]:
        p = sample(o.op)
        states = set() if p is None else set(o.op.auxiliaries(p))
        if is_variadic(o.op):
            text = "Arrays: any number, by position or as a list."
        elif not states:
            return []
        else:
            text = f"States, changed in place: {', '.join(n for n in array_names(o.op) if n in states)}."
        return [nodes.paragraph(text, text)]

    def _operator_signature(self, o: public.Operator) -> Signature:
        function: Any = public.module("mx.nd")
        for part in o.names[0].split("."):
            function = getattr(function, part)
        return self._signature(function, leave_out=("out", "name"))

    def _parameters(self, declared: Iterable[Param], text: str | None) -> nodes.Node:
        rows, meanings = [], any(meaning(d, text) for d in declared)
        for d in declared:
            kind = _SPOKEN.get(d.kind, d.kind) + (f" {d.range}" if d.range is not None else "")
            if d.choices:
                kind = "one of " + ", ".join(repr(c) for c in d.choices)
            default = "required" if d.default is REQUIRED else _shown(d.default)
            rows.append([[nodes.literal(d.name, d.name)], [nodes.Text(kind)],
                         [nodes.Text(default) if d.default is REQUIRED else nodes.literal(default, default)],
                         *([inline(meaning(d, text), self.link)] if meanings else [])])
        return table(["Parameter", "Type and range", "Default", *(["Meaning"] if meanings else [])], rows)

    # ---- signatures ----
    def _signature(self, value: Any, method: bool = False, leave_out: tuple[str, ...] = ()) -> Signature:
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):
            return Signature([], "")
        given = [p for i, p in enumerate(signature.parameters.values())
                 if p.name not in leave_out and not (i == 0 and method and p.name in ("self", "cls"))]
        shown: list[str] = []
        kinds = inspect.Parameter
        for i, p in enumerate(given):
            if p.kind is kinds.KEYWORD_ONLY and (i == 0 or given[i - 1].kind not in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL)):
                shown.append("*")
            star = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(p.kind, "")
            hint = f": {_hint(p.annotation)}" if p.annotation is not kinds.empty else ""
            default = "" if p.default is kinds.empty else f" = {_shown(p.default)}" if hint else f"={_shown(p.default)}"
            shown.append(star + p.name + hint + default)
            if p.kind is kinds.POSITIONAL_ONLY and (i + 1 == len(given) or given[i + 1].kind is not kinds.POSITIONAL_ONLY):
                shown.append("/")
        result = signature.return_annotation
        after = "" if result is inspect.Signature.empty or inspect.isclass(value) else f" → {_hint(result)}"
        return Signature(shown, after)

    def described(self, kind: str, full: str, signature: Signature, content: list[nodes.Node], *, short: str = "",
                  also: Iterable[str] = ()) -> addnodes.desc:
        """Return a description with its anchor, which links and the search find under full and the names also."""
        head, _, name = full.rpartition(".")
        line = addnodes.desc_signature(full, "", ids=[full], fullname=full)
        line["class"], line["module"] = "", None
        line["_toc_parts"], line["_toc_name"] = tuple(full.split(".")), short or name
        mark = {"class": "class ", "exception": "exception ", "classmethod": "classmethod ", "staticmethod": "staticmethod ",
                "property": "property "}.get(kind, "")
        if mark:
            line += addnodes.desc_annotation(mark, "", addnodes.desc_sig_keyword("", mark.strip()), addnodes.desc_sig_space())
        if not short:
            line += addnodes.desc_addname(head + ".", head + ".")
        line += addnodes.desc_name(name, name)
        if signature.parameters is not None:
            parts = signature.parameters
            inside = addnodes.desc_parameterlist("", "", *(addnodes.desc_parameter("", "", *_parameter(p)) for p in parts))
            typed = sum(": " in p for p in parts) > 1
            inside["multi_line_parameter_list"] = typed and len(short or full) + len(", ".join(parts)) > MULTI_LINE
            inside["multi_line_trailing_comma"] = False
            line += inside
        if signature.after:
            line += nodes.inline(signature.after, signature.after, classes=["sig-after"])
        for i, n in enumerate((full, *also)):
            self.domain.note_object(n, "class" if kind == "exception" else kind, full, aliased=i > 0)
        description = addnodes.desc("", line, addnodes.desc_content("", *content), domain="py", objtype=kind, desctype=kind)
        description["no-index"] = description["noindex"] = False
        description["no-index-entry"] = description["no-contents-entry"] = description["no-typesetting"] = False
        description["classes"] = ["py", kind]
        return description


def _parameter(text: str) -> list[nodes.Node]:
    """Return the nodes of one parameter of a signature."""
    name = re.match(r"[/*]{0,2}\w*", text)
    assert name is not None
    rest = text[name.end():]
    return [addnodes.desc_sig_name(name[0], name[0]), *([nodes.inline(rest, rest, classes=["sig-rest"])] if rest else [])]


def _hint(hint: Any) -> str:
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", None) if inspect.isclass(hint) else str(hint)
    return _PACKAGE.sub(r"\1", str(text)).replace("typing.", "")


def _shown(value: Any) -> str:
    if inspect.isclass(value) or inspect.isroutine(value):
        return str(getattr(value, "__name__", value))
    if type(value).__module__ == "numpy" and hasattr(value, "name"):
        return f"'{value.name}'"
    text = repr(value)
    return "…" if " at 0x" in text or len(text) > 60 else text


def _joined(given: list[nodes.Node]) -> list[nodes.Node]:
    found: list[nodes.Node] = []
    for node in given:
        found += [nodes.Text(", "), node] if found else [node]
    return found


def table(head: list[str], rows: list[list[list[nodes.Node]]]) -> nodes.Node:
    """Return a table; a cell is a list of inline nodes."""
    def row(cells: list[list[nodes.Node]]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *c)) for c in cells))

    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), nodes.thead("", row([[nodes.Text(h)] for h in head])),
                         nodes.tbody("", *(row(cells) for cells in rows)), cols=len(head))
    return nodes.table("", group, classes=["reference"])


def environment_tables() -> list[nodes.Node]:
    """Return a section with a table of variables for each subject of environment.VARIABLES."""
    found: list[nodes.Node] = []
    subjects = dict.fromkeys(v.subject for v in environment.VARIABLES.values())
    for subject in subjects:
        rows = []
        for v in environment.VARIABLES.values():
            if v.subject == subject:
                values = inline(f"{v.wanted[:1].upper()}{v.wanted[1:]}; not set: {v.unset}.", lambda _: None)
                rows.append([[nodes.literal(v.name, v.name)], [*inline(v.meaning, lambda _: None), nodes.Text(" "),
                                                               nodes.inline("", "", *values, classes=["values"])]])
        name = nodes.fully_normalize_name(subject)
        found.append(nodes.section("", nodes.title(subject, subject), table(["Variable", "Effect and values"], rows),
                                   ids=[nodes.make_id(subject)], names=[name]))
    return found


_found: tuple[dict[str, str], dict[str, str]] | None = None


def _indexes() -> tuple[dict[str, str], dict[str, str]]:
    global _found
    if _found is None:
        homes = {f"{where}.{e.name}": e.home for where, names in public.entries().items() for e in names}
        homes |= {f"{where}.{name}": f"mx.nd.{o.names[0]}" for (where, name), o in public.operator_names().items()}
        classes: dict[str, str] = {}
        for names in public.entries().values():
            for e in names:
                if inspect.isclass(e.value):
                    classes.setdefault(f"{e.value.__module__}.{e.value.__name__}", e.home)
        _found = homes, classes
    return _found


def _homes() -> dict[str, str]:
    return _indexes()[0]


def _classes() -> dict[str, str]:
    return _indexes()[1]
