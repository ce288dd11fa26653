"""The commands of a notebook: %%simple_op and %tritium_profile."""

import json
import os

import numpy as np
import pytest
import tritium as mx

pytest.importorskip("IPython")
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.testing.globalipapp import start_ipython


@pytest.fixture(scope="module")
def shell():
    InteractiveShell.clear_instance()
    ip = start_ipython() or InteractiveShell.instance()
    ip.run_line_magic("load_ext", "tritium")
    ip.user_ns["mx"] = mx
    yield ip
    InteractiveShell.clear_instance()


def test_a_cell_becomes_an_operator_with_its_gradient(shell):
    op = shell.run_cell_magic("simple_op", "", "def notebook_swish(x: Float, *, beta: Scalar = 1.0) -> Float:\n"
                                               "    return x / (1 + exp(-beta * x))\n")
    assert op is shell.user_ns["notebook_swish"] and "exp" not in shell.user_ns
    x = mx.nd.array([-1.0, 0.0, 2.0])
    x.attach_grad()
    with mx.autograd.record():
        y = op(x, beta=2.0)
    y.backward()
    v = np.array([-1.0, 0.0, 2.0])
    s = 1 / (1 + np.exp(-2 * v))
    np.testing.assert_allclose(y.asnumpy(), v * s, rtol=1e-6)
    np.testing.assert_allclose(x.grad.asnumpy(), s + 2 * v * s * (1 - s), rtol=1e-5)


def test_a_cell_may_be_run_again_and_hold_a_gradient(shell):
    for factor in (2, 3):
        op = shell.run_cell_magic("simple_op", 'name="notebook_twice"',
                                  f"def anything(x: Float) -> Float:\n    return {factor} * x\n"
                                  f"@anything.gradient\ndef _(dy):\n    return {factor} * dy\n")
        assert op.name == "notebook_twice" and op(mx.nd.ones(1)).asscalar() == factor


def test_an_error_names_the_line_of_the_cell(shell):
    with pytest.raises(mx.MXNetError, match="branch on a traced value"):
        shell.run_cell_magic("simple_op", "", "def notebook_wrong(x: Float):\n    return x if x > 0 else -x\n")
        mx.nd.notebook_wrong(mx.nd.ones(1))
    with pytest.raises(UsageError, match="the cell has no function"):
        shell.run_cell_magic("simple_op", "", "x = 1\n")


def test_a_profile_names_the_layers(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = mx.sym.FullyConnected(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2000, name="large"), num_hidden=2,
                                name="small")
    shell.user_ns["run"] = net.simple_bind(mx.cpu(), data=(64, 2000))
    for _ in range(2):
        shell.user_ns["run"].forward()
    times = shell.run_line_magic("tritium_profile", "run.forward()")
    assert {row.name for row in times} == {"large", "small"} and os.listdir(tmp_path) == []
    times = shell.run_cell_magic("tritium_profile", "trace.json", "for _ in range(3):\n    run.forward()\n")
    assert {row.runs for row in times} == {3} and os.listdir(tmp_path) == ["trace.json"]
    assert "traceEvents" in json.loads((tmp_path / "trace.json").read_text())
    assert mx.profiler.state() == "stop"


def test_a_profile_refuses_what_it_cannot_do(shell):
    with pytest.raises(UsageError, match="nothing to run"):
        shell.run_line_magic("tritium_profile", "")
    with pytest.raises(ZeroDivisionError):
        shell.run_line_magic("tritium_profile", "1 / 0")
    assert mx.profiler.state() == "stop"
