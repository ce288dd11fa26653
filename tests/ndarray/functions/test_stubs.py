"""The stubs beside the modules agree with the registry and are valid Python."""

import ast

import pytest
from tritium.ndarray.functions import stubs

TEXTS = stubs.stubs()


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_stubs_are_up_to_date(path):
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    assert written == TEXTS[path], f"{path.name} is out of date: run `python -m tritium.ndarray.functions.stubs`"


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_stubs_are_valid_python(path):
    tree = ast.parse(TEXTS[path])
    functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    assert len(functions) > 50 and all(ast.unparse(f.args) is not None for f in functions.values())


def test_signatures_in_stubs_are_those_of_the_registry():
    nd = {n.name: n for n in ast.parse(TEXTS[stubs.ROOT / "ndarray" / "__init__.pyi"]).body if isinstance(n, ast.FunctionDef)}
    f = nd["Convolution"]
    assert [a.arg for a in f.args.args] == ["data", "weight", "bias"]
    assert {"kernel", "num_filter", "stride", "no_bias", "out"} <= {a.arg for a in f.args.kwonlyargs}
    assert "Every output channel is a weighted sum over windows" in (ast.get_docstring(f) or "")
    assert ast.unparse(nd["Activation"].args.args[1].annotation).startswith("Literal['relu'")
    assert ast.unparse(nd["exp"].returns) == "NDArray" and "Custom" in nd
    text = TEXTS[stubs.ROOT / "graph" / "symbol" / "namespace.pyi"]
    sym = {n.name: n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
    assert ast.unparse(sym["FullyConnected"].returns) == "Symbol" and "Group" not in sym


def test_check_lists_stale_stubs(monkeypatch, capsys, tmp_path):
    path = stubs.ROOT / "ndarray" / "nowhere.pyi"
    monkeypatch.setattr(stubs, "stubs", lambda: {path: "x = 1\n"})
    assert stubs.main(["--check"]) == 1 and not path.exists()
    assert "nowhere.pyi: out of date" in capsys.readouterr().out
