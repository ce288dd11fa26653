"""Types for editors: a user's script is checked by pyright, and nightly by mypy; the stub of the root holds what is there."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tritium as mx

ROOT = Path(mx.__file__).parent

SCRIPT = """\
import numpy as np
import tritium as mx
from tritium import gluon, nd
from tritium.gluon import nn
from tritium.lang import exp


@mx.simple_op(replace=True)
def swish(x: mx.Float, *, beta: mx.Scalar = 1.0) -> mx.Float:
    return x / (1 + exp(-beta * x))


@mx.reduction(combine="add")
def energy(x: mx.Float, *, axis: mx.Axes = None) -> mx.Float:
    return x * x


@swish.gradient
def _(dy, x, *, beta):
    return dy * beta


a: mx.nd.NDArray = nd.array([[1.0, 2.0]], ctx=mx.cpu())
b: mx.NDArray = swish(a, beta=2.0)
c: mx.sym.Symbol = swish(mx.sym.var("x"))
d: mx.NDArray = energy(a, axis=1, keepdims=True)
e: mx.NDArray = mx.nd.FullyConnected(a, mx.nd.ones((3, 2)), mx.nd.zeros((3,)), num_hidden=3)
f: mx.NDArray = mx.nd.linalg.gemm2(a, a, transpose_b=True)
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc"), name="softmax")
model = mx.mod.Module(net, context=mx.cpu(), label_names=["softmax_label"])
model.fit(mx.io.NDArrayIter(np.zeros((8, 2)), np.zeros(8), batch_size=4), num_epoch=1, optimizer="sgd")
buckets = mx.mod.BucketingModule(lambda key: (net, ("data",), ("softmax_label",)), default_bucket_key=10)
block = nn.HybridSequential()
block.add(nn.Dense(3, activation="relu"), nn.Dropout(0.5))
block.initialize(mx.init.Xavier())
trainer = gluon.Trainer(block.collect_params(), "adam", {"learning_rate": 1e-3})
with mx.autograd.record():
    loss = gluon.loss.L2Loss()(block(a), nd.zeros((1, 3)))
loss.backward()
trainer.step(1)
count: int = mx.context.num_gpus()
metric = mx.metric.Accuracy()
slowest = mx.profiler.layers().slowest
text: str = mx.profiler.dumps()
wrong = mx.nd.FullyConnected(a, a, num_hidden=3, num_hiden=3)
bad = swish(a, bta=2.0)
"""
WRONG = {SCRIPT[:SCRIPT.index(name)].count("\n") + 1: name for name in ("num_hiden", "bta")}


@pytest.fixture
def script(tmp_path):
    """The script, in a folder beside the package: checkers do not see an editable installation's import hook."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    (tmp_path / "tritium").symlink_to(ROOT, target_is_directory=True)
    return path


def test_pyright_finds_the_two_errors_of_a_script_and_no_other(script):
    pytest.importorskip("pyright")
    ran = subprocess.run([sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(script)],
                         capture_output=True, text=True, cwd=script.parent, timeout=250)
    found = json.loads(ran.stdout)["generalDiagnostics"]
    said = {f["range"]["start"]["line"] + 1: f["message"] for f in found}
    assert said == {line: f'No parameter named "{name}"' for line, name in WRONG.items()}


@pytest.mark.nightly
def test_mypy_finds_them_too(script):
    pytest.importorskip("mypy")
    ran = subprocess.run([sys.executable, "-m", "mypy", "--follow-imports=silent", script.name], capture_output=True, text=True,
                         cwd=script.parent, timeout=250)
    errors = [line for line in ran.stdout.splitlines() if ": error: " in line]
    assert [int(line.split(":")[1]) for line in errors] == list(WRONG), ran.stdout
    assert 'did you mean "num_hidden"?' in errors[0]


def test_the_stub_of_the_root_lists_the_public_names_and_they_are_there():
    tree = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    listed = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__")
    assert listed == sorted(set(listed)) and dir(mx) == listed
    assert [n for n in listed if not hasattr(mx, n)] == []
    assert not {"importlib", "Any", "connect", "use_tuner"} & set(dir(mx))


def test_names_of_the_stub_are_what_they_are_at_run_time():
    tree = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    compared = 0
    for node in (n for n in tree.body if isinstance(n, ast.ImportFrom) and n.level == 1):
        for name in node.names:
            public = name.asname or name.name
            held = sys.modules.get(f"{mx.__name__}.{node.module}.{name.name}" if node.module else f"{mx.__name__}.{name.name}")
            if held is None or hasattr(sys.modules[f"{mx.__name__}.{node.module}"] if node.module else mx, name.name):
                home = sys.modules[f"{mx.__name__}.{node.module}"] if node.module else mx
                held = getattr(home, name.name)
            if public in dir(mx):
                assert getattr(mx, public) is held, public
                compared += 1
    assert compared > 70


def test_the_words_of_bodies_are_listed():
    functions = {n for n, f in vars(mx.lang).items() if callable(f) and not n.startswith("_")}
    assert functions == set(mx.lang.__all__)


def test_the_signature_of_an_operator_is_its_declaration():
    @mx.simple_op(name="signed_of_a_test")
    def signed(x: mx.Float, y: mx.Float, *, low: mx.Scalar, high: mx.Scalar = 2.0) -> mx.Float:
        """The docstring."""
        return x + y - low * high

    assert str(inspect.signature(signed)) == "(x, y, low, high=2.0, *, out=None, name=None)"
    assert signed.__doc__.startswith("The docstring.")
    assert str(inspect.signature(mx.nd.FullyConnected)).startswith("(data, weight, bias=None, *, num_hidden")
    with pytest.raises(mx.errors.ParameterError, match=r"unknown parameter 'hihg'\. Did you mean 'high'\? Parameters: low, high"):
        signed(mx.nd.ones(2), mx.nd.ones(2), low=1, hihg=3)
