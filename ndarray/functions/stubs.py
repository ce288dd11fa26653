"""Stubs for editors: `python -m tritium.ndarray.functions.stubs` writes them beside the modules; `--check` only compares.

mx.nd, mx.sym and the methods of arrays are made from the registry at run time, where an editor cannot see them. The stubs
hold their signatures, defaults, choices and documentation. Functions that a module defines itself are copied from its source.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from ...kernels.op import Op, registered
from ...kernels.params import REQUIRED, Param
from ..core import methods
from .binary import FUNCTIONS
from .namespace import document, result_names, signature

ROOT = Path(__file__).resolve().parents[2]
_WIDTH = 126
_HINTS = {"int": "int", "float": "float", "scalar": "float", "bool": "bool", "str": "str", "shape": "int | Sequence[int | None]",
          "bounds": "int | Sequence[int | None]", "floats": "float | Sequence[float]", "dtype": "DTypeLike", "context": "Any",
          "any": "Any"}
#: Namespaces within mx.nd and mx.sym, and the prefixes of their operators' names.
_NAMESPACES = {"contrib": ("_contrib_",), "linalg": ("linalg_", "_linalg_"), "image": ("_image_",)}
_HEAD = '"""{}\n\nWritten by `python -m tritium.ndarray.functions.stubs`; do not edit."""\n\n# ruff: noqa\n'


def stubs() -> dict[Path, str]:
    """Return the text of every stub file."""
    nd = (ROOT / "ndarray" / "__init__.py").read_text(encoding="utf-8")
    sym = (ROOT / "graph" / "symbol" / "namespace.py").read_text(encoding="utf-8")
    return {
        ROOT / "ndarray" / "__init__.pyi": _module("mx.nd", nd, "NDArray", "from .core.ndarray import NDArray as NDArray"),
        ROOT / "ndarray" / "core" / "methods.pyi": _methods(),
        ROOT / "graph" / "symbol" / "namespace.pyi": _module("mx.sym", sym, "Symbol", "from .symbol import Symbol as Symbol"),
    }


def _module(title: str, source: str, result: str, needed: str) -> str:
    tree = ast.parse(source)
    lines, names = _by_hand(tree)
    if needed not in lines:
        lines = [needed, *(line for line in lines if line != needed.partition(" as ")[0])]
    head = _HEAD.format(f"{title} for editors.")
    parts = [head + "from collections.abc import Callable, Sequence\nfrom types import ModuleType\n"
             "from typing import Any, Literal\n\nfrom numpy.typing import DTypeLike\n\n" + "\n".join(lines)]
    functions = FUNCTIONS if result == "NDArray" else {}
    for name, f in functions.items():
        if name not in names:
            names.add(name)
            stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
            parameters = [(stars.get(p.kind, "") + p.name, f"{p.annotation}{'' if p.default is p.empty else f' = {p.default!r}'}")
                          for p in inspect.signature(f).parameters.values()]
            parts.append(_definition(name, parameters, inspect.signature(f).return_annotation, inspect.getdoc(f) or ""))
    public = {name: op for name, op in _public() if name not in names}
    aliases = [f"{name} = {op.name}" for name, op in public.items() if name != op.name and op.name in public]
    for name, op in public.items():
        if name == op.name or op.name not in public:
            parts.append(_definition(name, _parameters(op, result), _result(op, result), document(op)))
    parts.append("\n".join(aliases))
    for name, prefixes in _NAMESPACES.items():
        parts[0] = parts[0].replace(f"\n{name}: Any", "")
        parts.append(_namespace(name, prefixes, result))
    if "__getattr__" not in names:
        parts.append("def __getattr__(name: str) -> Any: ...\n")
    return "\n".join(p.rstrip("\n") + "\n" for p in parts)


def _namespace(name: str, prefixes: tuple[str, ...], result: str) -> str:
    """Return a class with the operators of a namespace within the module, such as linalg."""
    known = registered()
    found = {full.removeprefix(p): op for p in prefixes for full, op in sorted(known.items()) if full.startswith(p)}
    parts = [f"class _{name.capitalize()}(ModuleType):\n    def __getattr__(self, name: str) -> Any: ..."]
    for short, op in found.items():
        if short.isidentifier() and not short.startswith("_") and not keyword.iskeyword(short):
            body = _definition(short, _parameters(op, result), _result(op, result), (op.doc or "").partition("\n")[0])
            parts.append(textwrap.indent(f"@staticmethod\n{body}", "    ").rstrip())
    return "\n".join(parts) + f"\n\n{name}: _{name.capitalize()}\n"


def _methods() -> str:
    known = registered()
    parts = [_HEAD.format("Operators as methods of arrays, for editors."),
             "from collections.abc import Sequence\nfrom typing import Any, Literal\n\nfrom numpy.typing import DTypeLike\n\n"
             "from .array_core import ArrayCore\n"
             "from .ndarray import NDArray\n\nNAMES: list[str]\n\nclass OperatorMethods(ArrayCore):\n"]
    for name in methods.NAMES:
        if name in known and name not in ("reshape",):
            op = known[name]
            _, *rest = _parameters(op, "NDArray")
            loose = [("*args", "Any"), ("**kwargs", "Any")] if name == "transpose" else rest
            body = _definition(name, [("self", ""), *loose], _result(op, "NDArray"), "")
            parts.append(textwrap.indent(body, "    "))
    return "\n".join(p.rstrip("\n") for p in parts) + "\n"


def _public() -> Iterable[tuple[str, Op]]:
    for name, op in sorted(registered().items()):
        if name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name):
            yield name, op


# ---- one function ---------------------------------------------------------------------------------------------------
def _parameters(op: Op, array: str) -> list[tuple[str, str]]:
    """Return (name with its stars, annotation and default) for each parameter."""
    declared = {d.name: d for d in op.params}
    found: list[tuple[str, str]] = []
    starred = False
    for p in signature(op).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            found.append((f"*{p.name}", f"{array} | Sequence[{array}]"))
            starred = True
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            found.append(("*", ""))
            starred = True
        if p.name in declared:
            found.append((p.name, _annotated(declared[p.name])))
        elif p.name == "out":
            if array == "NDArray":
                found.append(("out", "NDArray | Sequence[NDArray] | None = None"))
        elif p.name == "name":
            found.append(("name", "str | None = None"))
        else:
            optional = array == "Symbol" or p.default is None
            found.append((p.name, f"{array} | None = None" if optional else array))
    if array == "Symbol":
        found = _defaults_after_defaults(found)
        found += [("attr", "Any = None"), ("**kwargs", "Any")]
    return found


def _defaults_after_defaults(parts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Make required parameters after inputs keyword-only, since inputs of symbols may be left out."""
    at = next((i for i, (n, t) in enumerate(parts) if not n.startswith("*") and "=" not in t
               and any("=" in u for _, u in parts[:i])), None)
    if at is None or any(n.startswith("*") for n, _ in parts[:at]):
        return parts
    return [*parts[:at], ("*", ""), *(p for p in parts[at:] if p[0] != "*")]


def _annotated(d: Param) -> str:
    hint = f"Literal[{', '.join(map(repr, d.choices))}]" if d.choices else _HINTS.get(d.kind, "Any")
    if d.default is REQUIRED:
        return hint
    if d.default is None and hint != "Any":
        hint += " | None"
    default = repr(d.default) if isinstance(d.default, (bool, int, str, tuple, type(None))) else "..."
    if isinstance(d.default, float):
        default = repr(d.default) if d.default == d.default and abs(d.default) != float("inf") else "..."
    return f"{hint} = {default}"


def _result(op: Op, array: str) -> str:
    return "Symbol" if array == "Symbol" else array if len(result_names(op)) == 1 else "Any"


def _definition(name: str, parameters: list[tuple[str, str]], result: str, doc: str) -> str:
    texts = [f"{n}: {t}" if t else n for n, t in parameters]
    head = f"def {name}({', '.join(texts)}) -> {result}:"
    if len(head) > _WIDTH - 4:
        head = f"def {name}(\n" + "".join(f"    {t},\n" for t in texts) + f") -> {result}:"
        if texts and texts[-1].startswith("**"):
            head = head.replace(f"    {texts[-1]},\n", f"    {texts[-1]}\n")
    if not doc:
        return f"{head} ...\n"
    lines = [w for line in doc.splitlines() for w in (textwrap.wrap(line, _WIDTH - 4, subsequent_indent="    ") or [""])]
    text = "\n".join(f"    {w}".rstrip() for w in lines).strip().replace("\\", "\\\\").replace('"""', "'''")
    closing = '"""' if "\n" not in text else '\n    """'
    return f'{head}\n    """{text}{closing}\n'


# ---- what a module defines itself -----------------------------------------------------------------------------------
def _by_hand(tree: ast.Module) -> tuple[list[str], set[str]]:
    """Return the stub lines of a module's own imports, functions and variables, and the public names among them."""
    lines: list[str] = []
    imports: list[tuple[str, str, bool]] = []  # (line, name, whether it is re-exported)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.level or node.module == "numpy.typing"):
            start = f"from {'.' * node.level}{node.module or ''} import "
            imports += [(f"{start}{a.name}" + (f" as {a.name}" if a.asname == a.name else ""), a.name, a.asname == a.name)
                        for a in node.names if a.asname in (None, a.name)]
        elif isinstance(node, ast.Import):
            imports += [(f"import {a.name}", a.name, False) for a in node.names if a.asname is None]
        elif isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__getattr__"):
            doc = ast.get_docstring(node)
            head = f"def {node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns) if node.returns else 'Any'}:"
            lines.append(f'{head}\n    """{doc}"""' if doc and "\n" not in doc else f"{head} ...")
        elif isinstance(node, ast.Assign):
            lines += [f"{t.id}: Any" for t in node.targets if isinstance(t, ast.Name) and not t.id.startswith("_")]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            lines.append(f"{node.target.id}: {ast.unparse(node.annotation)}")
    body = "\n".join(lines)
    kept = [(line, name) for line, name, exported in imports if exported or re.search(rf"\b{name}\b", body)]
    defined = re.findall(r"^(?:def )?(\w+)[(:]", body, re.MULTILINE)
    return [*(line for line, _ in kept), *lines], {*defined, *(name for _, name in kept)}


def main(arguments: list[str]) -> int:
    """Write the stubs, or with --check list those that are out of date; return 1 if there are any."""
    stale = [path for path, text in stubs().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if '--check' in arguments else 'written'}")
        if "--check" not in arguments:
            path.write_text(stubs()[path], encoding="utf-8")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
