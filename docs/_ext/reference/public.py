"""The public names of Tritium: the modules of the reference, the names in each, and the operators."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import tritium as mx
from tritium.kernels import op as registry
from tritium.kernels.op import Op
from tritium.ndarray.functions.namespace import Namespace

#: The chapters of the reference: title, and its modules under MXNet's names. Where a name is in several modules, the one that
#: defines it documents it, else the first.
CHAPTERS: dict[str, tuple[str, ...]] = {
    "Arrays": ("mx.nd", "mx.nd.contrib", "mx.nd.linalg", "mx.nd.image", "mx.nd.sparse", "mx.random", "mx.autograd",
               "mx.context"),
    "Graphs": ("mx.sym", "mx.sym.contrib", "mx.sym.random", "mx.executor", "mx.viz", "mx.name", "mx.attribute", "mx.graph"),
    "Training": ("mx.mod", "mx.optimizer", "mx.lr_scheduler", "mx.init", "mx.metric", "mx.callback", "mx.mon", "mx.model",
                 "mx.rnn"),
    "Gluon": ("mx.gluon", "mx.gluon.nn", "mx.gluon.rnn", "mx.gluon.loss", "mx.gluon.data", "mx.gluon.data.vision",
              "mx.gluon.data.vision.transforms", "mx.gluon.model_zoo.vision", "mx.gluon.model_zoo.model_store", "mx.gluon.utils",
              "mx.gluon.contrib.nn", "mx.gluon.contrib.rnn", "mx.gluon.contrib.cnn", "mx.gluon.contrib.data",
              "mx.gluon.contrib.estimator"),
    "Data": ("mx.io", "mx.recordio", "mx.image"),
    "Engine, memory, stores": ("mx.engine", "mx.storage", "mx.profiler", "mx.kv"),
    "Operators of your own": ("mx.operator", "mx.lang", "mx.kernels", "mx.tuning"),
    "Contrib": ("mx.contrib.amp", "mx.contrib.onnx", "mx.contrib.text.vocab", "mx.contrib.text.embedding",
                "mx.contrib.text.utils", "mx.contrib.svrg_optimization", "mx.contrib.autograd", "mx.contrib.io",
                "mx.contrib.tensorboard"),
    "Further modules": ("mx.config", "mx.errors", "mx.error", "mx.base", "mx.util", "mx.test_utils", "mx.runtime",
                        "mx.registry", "mx.log",
                        "mx.misc", "mx.libinfo", "mx.rtc", "mx.library", "mx.np", "mx.npx", "mx.executor_manager", "mx"),
}
MODULES = tuple(name for names in CHAPTERS.values() for name in names)

#: The kinds of operators: the folder in kernels/ops, and the title of the page.
KINDS = {"tensor": "Arrays and elements", "linalg": "Products and linear algebra", "nn": "Layers", "loss": "Losses",
         "rnn": "Recurrent layers and sequences", "random": "Random numbers", "image": "Images", "vision": "Boxes and regions",
         "optimizer": "Updates of optimizers", "contrib": "Others"}
_PREFIXES = {"_contrib_": "contrib.", "_linalg_": "linalg.", "linalg_": "linalg.", "_image_": "image."}


def module(name: str) -> Any:
    """Return the module that has the MXNet name `mx.…`."""
    value: Any = mx
    for i, part in enumerate(parts := name.split(".")):
        if i:
            try:
                value = getattr(value, part)
            except AttributeError:
                value = importlib.import_module(".".join(["tritium", *parts[1:i + 1]]))
    return value


@cache
def _written(value: types.ModuleType) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return {name: line} of the names that a module's source defines or passes on (`import a as a`), and the source's lines."""
    try:
        source = inspect.getsource(value)
    except (OSError, TypeError):
        return {}, ()
    found: dict[str, int] = {}
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node.lineno
        elif isinstance(node, ast.Assign):
            found |= {t.id: node.lineno for target in node.targets for t in ast.walk(target) if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node.lineno
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname: node.lineno for a in node.names if a.asname == a.name}
    return found, tuple(source.split("\n"))


@cache
def imported(value: types.ModuleType) -> frozenset[str]:
    """Return the names that a module imports for itself."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(value))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(a.asname or a.name).split(".")[0] for a in node.names if a.asname is None or a.asname != a.name}
    return frozenset(found)


def public_names(name: str) -> dict[str, Any]:
    """Return {name: value} of what a module offers: `__all__`, or what its source defines and passes on.

    Without modules and operators.
    """
    value = module(name)
    listed = getattr(value, "__all__", None)
    if listed is None:
        listed = set(_written(value)[0])
        if isinstance(value, Namespace):
            listed = set(value._extra)
        elif "__dir__" in vars(value):  # names that its source does not show
            operators = {n for where, n in operator_names() if where == name} | registry._declared_in.keys()  # users' ones
            listed |= set(dir(value)) - operators - imported(value)
        else:  # and those that another module puts into it
            listed |= vars(value).keys() - imported(value)
    listed = [n for n in listed if not n.startswith("_")]
    found = {n: getattr(value, n) for n in sorted(listed) if hasattr(value, n)}
    return {n: v for n, v in found.items() if not isinstance(v, types.ModuleType) and is_ours(v)}


def is_ours(value: Any) -> bool:
    """Return False for what other packages define, and for type hints."""
    if isinstance(value, types.GenericAlias) or (type(value).__module__ in ("typing", "types") and not inspect.isroutine(value)):
        return False
    return not callable(value) or (getattr(value, "__module__", None) or "tritium").split(".")[0] not in (
        "numpy", "typing", "collections", "contextlib", "functools", "abc", "ctypes", "__future__", "builtins", "re", "enum")


def comment(module_name: str, name: str) -> str:
    """Return the text of the `#:` lines above a constant; the empty string without them."""
    lines_of, lines = _written(module(module_name))
    at, found = lines_of.get(name, 1) - 2, []
    while at >= 0 and lines[at:] and lines[at].startswith("#:"):
        found.insert(0, lines[at][2:].strip())
        at -= 1
    return " ".join(found)


@dataclass(frozen=True)
class Operator:
    """An operator of the reference.

    names:  under which it is reached below mx.nd and mx.sym, such as "Convolution" and "contrib.box_nms"; the first is its title.
    kind:   a key of KINDS.
    file:   where it is declared, from the root of the repository.
    """

    op: Op
    names: tuple[str, ...]
    kind: str
    file: str


def _declared_in(op: Op) -> str:
    """Return the module below kernels/ops (or of a loop, or of CustomOp) that declares an operator."""
    values = [*vars(op).values()] if hasattr(op, "__dict__") else []
    values += [getattr(op, n, None) for cls in type(op).__mro__ for n in getattr(cls, "__slots__", ())]
    for value in (v for given in values for v in (given if isinstance(given, (tuple, list)) else [given])):
        where = getattr(value, "__module__", None)
        if isinstance(where, str) and where.startswith(("tritium.kernels.ops.", "tritium.graph.", "tritium.ndarray.")):
            return where
    return type(op).__module__


def _public(name: str) -> list[str]:
    """Return a registered name as it follows `mx.nd.`, in each of its forms; none for a hidden one."""
    prefix = next((p for p in _PREFIXES if name.startswith(p)), "")
    forms = [_PREFIXES[prefix] + name.removeprefix(prefix), name] if prefix else [name]
    return [n for n in forms if not n.rpartition(".")[2].startswith("_") and n not in _written(module("mx.nd"))[0]]


@cache
def operators() -> tuple[Operator, ...]:
    """Return the framework's operators that have a public name, by kind and title."""
    names: dict[int, list[str]] = {}
    ops = {id(op): op for op in registry._builtin.values()}
    for name, op in registry._builtin.items():
        if _public(name):
            names.setdefault(id(op), []).extend(_public(name))
    found = []
    for key, public in names.items():
        op, where = ops[key], _declared_in(ops[key])
        kind = next((p for p in where.split(".") if p in KINDS), "contrib")
        public.sort(key=lambda n: (n not in _public(op.name)[:1], n.count("."), n))
        found.append(Operator(op, tuple(dict.fromkeys(public)), kind, where.removeprefix("tritium.").replace(".", "/") + ".py"))
    return tuple(sorted(found, key=lambda o: (list(KINDS).index(o.kind), o.names[0].lower())))


@cache
def operator_names() -> dict[tuple[str, str], Operator]:
    """Return {(module, name): operator} of mx.nd, mx.sym and their contrib, linalg and image."""
    found = {}
    for o in operators():
        for name in o.names:
            where, _, last = name.rpartition(".")
            for space in ("mx.nd", "mx.sym"):
                found[f"{space}.{where}" if where else space, last] = o
    return found


@dataclass(frozen=True)
class Entry:
    """A public name. home: the name under which it is documented, which may be another; operator: None for others."""

    module: str
    name: str
    value: Any
    home: str
    operator: Operator | None = None


@cache
def entries() -> dict[str, tuple[Entry, ...]]:
    """Return {module: its names}, without operators."""
    homes: dict[int, str] = {}
    found: dict[str, tuple[Entry, ...]] = {}
    of_functions = {id(getattr(module("mx.nd"), n, None)): f"mx.nd.{n}" for (where, n) in operator_names() if where == "mx.nd"}
    for where in MODULES:  # a module that defines a name documents it
        for name, value in public_names(where).items():
            if getattr(value, "__module__", "") == getattr(module(where), "__name__", None):
                homes.setdefault(id(value), f"{where}.{name}")
    for where in MODULES:
        made = []
        for name, value in public_names(where).items():
            full = f"{where}.{name}"
            if inspect.isroutine(value) or inspect.isclass(value):
                home = of_functions.get(id(value)) or homes.setdefault(id(value), full)
            else:
                home = full
            made.append(Entry(where, name, value, home))
        found[where] = tuple(made)
    return found


def members(cls: type) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, value, as it is stored) of the public methods and properties of a class and of its undocumented bases."""
    documented = {e.value for names in entries().values() for e in names if inspect.isclass(e.value)}
    seen: set[str] = set()
    for base in cls.__mro__:
        if base is not cls and (base in documented or not base.__module__.startswith("tritium")):
            continue
        for name, stored in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            value = getattr(cls, name, stored)
            if inspect.isroutine(value) or isinstance(stored, (property, classmethod, staticmethod, types.FunctionType)):
                yield name, value, stored
