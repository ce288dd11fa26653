"""The table of environment variables: values, defaults, errors; and that nothing reads a variable past the table."""

import ast
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tritium import environment
from tritium.cli import main
from tritium.engine.current_engine import _TYPES
from tritium.environment import VARIABLES, Variable
from tritium.errors import ParameterError

ROOT = Path(__file__).resolve().parents[1]
OURS = re.compile(r"\b(?:TRITIUM|MXNET)_[A-Z0-9]+(?:_[A-Z0-9]+)*\b(?!_)")
# names in texts that are no variables that Tritium reads
OTHERS = {"MXNET_SUBGRAPH_BACKEND", "MXNET_RELEASE", "MXNET_VERSION", "TRITIUM_KV", "TRITIUM_SNAPSHOT", "TRITIUM_TEST_WORD",
          "MXNET_KVSTORE", "MXNET_CUDNN", "MXNET_MKLDNN", "MXNET_EXEC_BULK_EXEC"}
# files that read variables of other programs, or that hand any variable on
FREE = {"environment.py", "train/compat/util.py"}
# variables of other programs, which files read by name
FOREIGN = {"CD_JOB", "RAY_AUTH_MODE", "RAY_USE_TLS", "RAY_AUTH_TOKEN_PATH"}


def sources():
    for path in sorted(ROOT.rglob("*.py")):
        folder = path.relative_to(ROOT).parts[0]
        if not folder.startswith(".") and folder not in ("tests", "perf", "build", "docs"):
            yield path


def reads(tree):
    """The reads of os.environ in a file: (line, name of the variable, or None if it is not written there)."""
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv", "os.environ.__getitem__"):
            name = node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == "os.environ":
            name = node.slice
        elif isinstance(node, ast.Compare) and any(ast.unparse(c) == "os.environ" for c in node.comparators):
            name = node.left
        if name is not None:
            yield node.lineno, name.value if isinstance(name, ast.Constant) else None


def test_nothing_reads_a_variable_past_the_table():
    found = []
    for path in sources():
        where = path.relative_to(ROOT).as_posix()
        if where not in FREE:
            found += [f"{where}:{line}: {name}" for line, name in reads(ast.parse(path.read_text(encoding="utf-8")))
                      if name not in FOREIGN]
    assert not found


def test_every_declared_variable_is_read():
    text = "".join(p.read_text(encoding="utf-8") for p in sources() if p.name != "environment.py")
    names = {n for n, v in vars(environment).items() if isinstance(v, Variable)}
    through = {"MXNET_ENGINE_TYPE", "MXNET_CPU_WORKER_NTHREADS"}  # read by the variable that stands before them
    assert len(names) == len(VARIABLES)
    assert not {n for n in names - through if not re.search(rf"\b(?:environment|variables)\.{n}\b", text)}


def test_every_name_in_a_text_is_declared():
    files = [*sources(), ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    found = {n: p.name for p in files for n in OURS.findall(p.read_text(encoding="utf-8"))}
    assert not {n: p for n, p in found.items() if n not in VARIABLES and n not in OTHERS}


def test_names_defaults_and_meanings():
    assert len(VARIABLES) >= 38
    for name, v in VARIABLES.items():
        assert name == v.name and OURS.fullmatch(name)
        assert v.meaning.endswith(".") and v.unset and v.wanted and v.subject
    assert set(environment.ENGINE_TYPE.choices) == set(_TYPES)


@pytest.mark.parametrize("variable", VARIABLES.values(), ids=VARIABLES)
def test_an_empty_value_is_the_default(variable, monkeypatch):
    monkeypatch.delenv(variable.name, raising=False)
    if variable.instead is not None:
        monkeypatch.delenv(variable.instead.name, raising=False)
    assert variable.get() == variable.default
    monkeypatch.setenv(variable.name, "")
    assert variable.get() == variable.default and not variable.is_set()


@pytest.mark.parametrize("name, text, value", [
    ("TRITIUM_GPU", "Interpret", "interpret"), ("TRITIUM_FUSION", "off", False), ("TRITIUM_FUSION", "TRUE", True),
    ("MXNET_BACKWARD_DO_MIRROR", "1", True), ("TRITIUM_NUM_WORKERS", "3", 3), ("TRITIUM_POOL_LIMIT_MB", "0", 0),
    ("TRITIUM_KV_TIMEOUT", "0.5", 0.5), ("TRITIUM_CC", "gcc -m64", ["gcc", "-m64"]), ("TRITIUM_TUNED", "false", ""),
    ("TRITIUM_TUNED", "1", "1"), ("TRITIUM_TUNED", "Estimate", "estimate"), ("TRITIUM_KV_RANK", "new", "new"),
    ("TRITIUM_KV_RANK", "07", 7), ("TRITIUM_CACHE_DIR", "a b", "a b"), ("MXNET_ENGINE_TYPE", "NaiveEngine", "NaiveEngine"),
])
def test_values(name, text, value, monkeypatch):
    monkeypatch.setenv(name, text)
    assert VARIABLES[name].get() == value


@pytest.mark.parametrize("name, text, message", [
    ("TRITIUM_GPU", "metal", r"TRITIUM_GPU: 'metal' is not one of cuda, interpret, off\. Change it, or unset it\."),
    ("TRITIUM_FUSION", "maybe", r"TRITIUM_FUSION: 'maybe' is not 0 or 1\. Change it"),
    ("TRITIUM_NUM_WORKERS", "0", r"TRITIUM_NUM_WORKERS: '0' is not an integer of at least 1\."),
    ("TRITIUM_NUM_WORKERS", "٣", "is not an integer of at least 1"),
    ("TRITIUM_KV_RETAIN_BYTES", "-1", r"TRITIUM_KV_RETAIN_BYTES: '-1' is not an integer of at least 0\."),
    ("TRITIUM_KV_RETAIN_BYTES", "9" * 5000, "is not an integer of at least 0"),
    ("TRITIUM_KV_LOST_AFTER", "0", r"TRITIUM_KV_LOST_AFTER: '0' is not a number of seconds from 0\.1 to 1000000\. Change"),
    ("TRITIUM_KV_TIMEOUT", "nan", "is not a number of seconds from 0 to 1000000"),
    ("TRITIUM_KV_TIMEOUT", "ten", "TRITIUM_KV_TIMEOUT: 'ten' is not a number of seconds"),
    ("TRITIUM_TUNED", "estimated", r"is not one of 0, 1, estimate\. Did you mean 'estimate'\? Change it"),
    ("TRITIUM_KV_RANK", "first", "TRITIUM_KV_RANK: 'first' is not an integer of at least 0, or new"),
    ("TRITIUM_ENGINE_TYPE", "naiveengine", r"is not one of .*\. Did you mean 'NaiveEngine'"),
    ("TRITIUM_CC", "gcc '", r"""TRITIUM_CC: "gcc '" is not a command: No closing quotation\. Change it, or unset it\."""),
])
def test_errors_name_variable_value_and_wish(name, text, message, monkeypatch):
    monkeypatch.setenv(name, text)
    with pytest.raises(ParameterError, match=message):
        VARIABLES[name].get()


def test_mxnets_name_is_read_where_ours_is_not_set(monkeypatch):
    monkeypatch.delenv("TRITIUM_NUM_WORKERS", raising=False)
    monkeypatch.setenv("MXNET_CPU_WORKER_NTHREADS", "5")
    assert environment.NUM_WORKERS.get() == 5
    monkeypatch.setenv("TRITIUM_NUM_WORKERS", "2")
    assert environment.NUM_WORKERS.get() == 2


def test_the_doctor_shows_the_table(monkeypatch):
    monkeypatch.setenv("TRITIUM_FUSION", "0")
    monkeypatch.setenv("TRITIUM_NUM_WORKER", "2")
    done = CliRunner().invoke(main, ["doctor", "--env"])
    assert done.exit_code == 0, done.output
    assert "  TRITIUM_FUSION=0\n      Fuse operators into common kernels. Give 0 or 1.\n" in done.output
    assert "  TRITIUM_KV_TIMEOUT  (not set: 600)\n" in done.output
    assert "Note: TRITIUM_NUM_WORKER is set, and nothing reads it. Did you mean TRITIUM_NUM_WORKERS?\n" in done.output
    for name in VARIABLES:
        assert name in done.output


def test_the_doctor_shows_a_wrong_value_and_fails(monkeypatch):
    monkeypatch.setenv("TRITIUM_KV_TIMEOUT", "ten")
    done = CliRunner().invoke(main, ["doctor", "--env", "--json"])
    assert done.exit_code == 1
    answer = json.loads(done.output)
    assert [v["name"] for v in answer["variables"]] == list(VARIABLES)
    assert [v["value"] for v in answer["variables"] if v["error"]] == ["ten"]
    assert answer["problems"] == ["TRITIUM_KV_TIMEOUT: 'ten' is not a number of seconds from 0 to 1000000. "
                                  "Change it, or unset it."]
