"""A Sphinx extension: the reference, built from Tritium's declarations and docstrings.

At the start of a build it writes one small page for each public module and each kind of operator to docs/reference/, with a
directive: `{tritium-module} mx.nd`, `{tritium-operators} nn`, `{tritium-environment}`. Nothing is parsed as reST.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from . import public
from .render import Renderer, environment_tables

#: Of modules whose docstrings do not tell a user what is in them.
DESCRIPTIONS = {
    "mx.nd": "Arrays, and every operator as a function of arrays.",
    "mx.nd.sparse": "Arrays in csr and row-sparse form; their operators are those of `mx.nd`.",
    "mx.sym": "Graphs as values, and every operator as a node.",
    "mx.sym.random": "Random numbers in graphs.",
    "mx.name": "Names of nodes: NameManager, Prefix.",
    "mx.attribute": "Attributes of all nodes of a scope: AttrScope.",
    "mx.mod": "Module, BucketingModule, SequentialModule, PythonModule: networks that `fit` trains.",
    "mx": "The names of the package itself.",
}


class ModuleDirective(SphinxDirective):
    """The text of a module's docstring, its names, and links to its operators."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the page below its title."""
        where = self.arguments[0]
        value, render = public.module(where), Renderer(self.env, where)
        found = render.text(getattr(value, "__doc__", None) if not isinstance(value, public.Namespace) else None)
        operators = {n: o for (space, n), o in public.operator_names().items() if space == where}
        if operators:
            text = f"{len(operators)} operators, described once for mx.nd and mx.sym:"
            found.append(nodes.paragraph(text, text))
            links: list[nodes.Node] = []
            for name, o in sorted(operators.items(), key=lambda item: item[0].lower()):
                links += [nodes.Text(" ")] if links else []
                links.append(render.reference(f"mx.nd.{o.names[0]}", name))
            found.append(nodes.paragraph("", "", *links, classes=["names"]))
        entries = public.entries()[where]
        order = {"class": 1, "function": 0, "constant": 2}
        entries = sorted(entries, key=lambda e: (e.home != f"{where}.{e.name}", order[kind_of(e.value)], e.name.lower()))
        return [*found, *(render.entry(e) for e in entries)]


class OperatorsDirective(SphinxDirective):
    """The operators of a kind."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the entries."""
        render = Renderer(self.env, "mx.nd")
        return [render.operator(o) for o in public.operators() if o.kind == self.arguments[0]]


class EnvironmentDirective(SphinxDirective):
    """The table of environment variables."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each subject."""
        return environment_tables()


def kind_of(value: Any) -> str:
    """Return "class", "function" or "constant"."""
    return "class" if inspect.isclass(value) else "function" if callable(value) else "constant"


def first_sentence(name: str) -> str:
    """Return the first sentence of a module's docstring, or the number of its operators."""
    operators = sum(space == name for space, _ in public.operator_names())
    value = public.module(name)
    if name in DESCRIPTIONS:
        return DESCRIPTIONS[name]
    text = "" if isinstance(value, public.Namespace) else (value.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    text = re.sub(r"^`?mx[\w.`, ]*: +", "", text)
    text = re.split(r"(?<=[^. ]{2}\.)\s", text)[0]
    return text[:1].upper() + text[1:] if text else f"{operators} operators."


def pages() -> dict[str, str]:
    """Return {path below docs/reference, without suffix: text} of all pages of the reference."""
    found = {}
    chapters = [
        "# Reference", "", "Every public name, from the declarations and docstrings of the code. `import tritium as mx` comes "
        "before all of them. The [operators](operators/index.md) are described once, for `mx.nd` and `mx.sym`; a module shows "
        "its other names.",
        "", "```{toctree}\n:hidden:\n\noperators/index\n```", ""]
    for chapter, modules in public.CHAPTERS.items():
        chapters += [f"## {chapter}", "", *(f"* [{m}](modules/{m}.md): {first_sentence(m)}" for m in modules), "",
                     "```{toctree}", ":hidden:", "", *(f"modules/{m}" for m in modules), "```", ""]
        for m in modules:
            found[f"modules/{m}"] = f"# {m}\n\n```{{tritium-module}} {m}\n```\n"
    found["index"] = "\n".join(chapters)
    counts = {k: sum(o.kind == k for o in public.operators()) for k in public.KINDS}
    found["operators/index"] = "\n".join([
        "# Operators", "",
        f"{sum(counts.values())} operators. `mx.nd.X` runs one on arrays, `mx.sym.X` makes a node of a graph. "
        "Both also take:", "",
        "* `mx.nd`: `out=`, an array (or a list of them) to write to; `name=`, which is ignored, as in MXNet.",
        "* `mx.sym`: `name=` and `attr=` of the node. Inputs that are left out become variables.", "",
        "A parameter may be given as a string, as in MXNet's symbol files. `help(mx.nd.X)` shows the same text.", "",
        "```{toctree}", ":maxdepth: 1", "", *(f"{title} ({counts[k]}) <{k}>" for k, title in public.KINDS.items()), "```", ""])
    for kind, title in public.KINDS.items():
        found[f"operators/{kind}"] = f"# {title}\n\n```{{tritium-operators}} {kind}\n```\n"
    return found


def write_pages(app: Sphinx) -> None:
    """Write the pages that differ from what is there, and delete others."""
    folder = Path(app.srcdir) / "reference"
    wanted = {folder / f"{name}.md": text for name, text in pages().items()}
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*.md"):
        if path not in wanted:
            path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("tritium-module", ModuleDirective)
    app.add_directive("tritium-operators", OperatorsDirective)
    app.add_directive("tritium-environment", EnvironmentDirective)
    app.connect("builder-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
