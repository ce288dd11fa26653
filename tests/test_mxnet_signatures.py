"""The parameters of functions, classes and methods have the names and the order of MXNet 1.9.1 (tests/golden/signatures)."""

import inspect
import json
from pathlib import Path

import pytest
import tritium as mx
from tritium.kernels import op as registry
from tritium.kernels.params import IGNORED
from tritium.ndarray.dispatch.arguments import array_names, is_variadic

RECORDED = json.loads(Path(__file__).parent.joinpath("golden/signatures/signatures.json").read_text())
PREFIXES = {"nd": "", "sym": "", "nd.contrib": "_contrib_", "nd.linalg": "_linalg_", "nd.image": "_image_"}
NOT_PARAMETERS = {"out", "name", "attr", "kwargs", "dtype_"}
OPERATORS = ("nd.contrib.", "nd.linalg.", "nd.image.")  # in these, out and name are always the last
KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
#: Classes that are not compared, because MXNet makes their objects from C handles.
APART = {"nd.NDArray", "sym.Symbol", "executor.Executor", "io.MXDataIter", "operator.OperatorArguments"}


def look_up(path):
    found = mx
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def operators():
    for module, prefix in PREFIXES.items():
        for name, wanted in RECORDED["functions"][module].items():
            if wanted and prefix + name in registry.registered():
                yield f"{module}.{name}", registry.get(prefix + name), [n for n in wanted if n not in NOT_PARAMETERS]


def test_operators_have_mxnets_parameters_in_its_order():
    wrong = {}
    for path, op, wanted in operators():
        params = [d.name for d in op.params]
        missing = {*wanted} - {*params, *array_names(op), *op.optional_names, *IGNORED, "args", "tensor"}
        known = [n for n in wanted if n in params]
        if path in ("nd.contrib.SyncBatchNorm",) or is_variadic(op):  # ndev and key come first, after the arrays
            continue
        if missing or known != [n for n in params if n in wanted]:
            wrong[path] = (wanted, params)
    assert not wrong


def accepted(function):
    """Return the names that function takes, and True if it takes any."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in KINDS and p.name not in ("self", "cls")], any(
        p.kind is p.VAR_KEYWORD for p in parameters)


def differences():
    """Yield (path, MXNet's names, ours) where a name is missing or a common one is in another place."""
    for module, functions in RECORDED["functions"].items():
        for name, wanted in functions.items():
            ours = getattr(look_up(module), name, None)
            if ours is not None and wanted and not (module in PREFIXES and PREFIXES[module] + name in registry.registered()):
                yield f"{module}.{name}", wanted, ours
    for module, classes in RECORDED["classes"].items():
        for name, methods in classes.items():
            ours = getattr(look_up(module), name, None)
            if f"{module}.{name}" in APART or not inspect.isclass(ours):
                continue
            for method, wanted in methods.items():
                own = ours.__init__ if method == "" else getattr(ours, method, None)
                if own is not None and wanted and inspect.isroutine(own):
                    yield f"{module}.{name}.{method}", wanted, own


def test_functions_and_methods_have_mxnets_parameters_in_its_order():
    wrong = {}
    for path, wanted, function in differences():
        names, takes_any = accepted(function)
        wanted = [n for n in wanted if n not in ("out", "name")] if path.startswith(OPERATORS) else wanted
        missing = [n for n in wanted if n not in names]
        common = [n for n in wanted if n in names]
        if (missing and not takes_any) or names[: len(common)] != common:
            wrong[path] = (wanted, names)
    assert not wrong


@pytest.mark.parametrize("module", sorted(RECORDED["classes"]))
def test_every_class_is_there(module):
    missing = [n for n in RECORDED["classes"][module] if f"{module}.{n}" not in APART and not hasattr(look_up(module), n)]
    assert not missing
