"""C files that a graph will need are compiled while its passes work: those, and no others."""

import numpy as np
import pytest
import tritium as mx
from tritium.kernels.cpu import c_compile

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")


@pytest.fixture
def files(monkeypatch):
    """(the first functions of files that were begun, and of those that were asked for afterwards), in order."""
    begun, asked = [], []
    library = c_compile.library

    def noted(text, names):
        asked.append(names[0])
        return library(text, names)

    monkeypatch.setattr(c_compile, "library", noted)
    monkeypatch.setattr(c_compile, "begin", lambda given: begun.extend(names[0] for _, names in given))
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    return begun, asked


def run(symbol, train, **shapes):
    executor = symbol.simple_bind(mx.cpu(), "write" if train else "null", **shapes)
    executor.forward(is_train=train)
    if train:
        executor.backward(mx.nd.ones(executor.outputs[0].shape))
    mx.nd.waitall()
    assert np.isfinite(executor.outputs[0].asnumpy()).all()


def network(groups=1):
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=16, num_group=groups, name="conv")
    x = mx.sym.Pooling(mx.sym.BatchNorm(x, name="norm"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    return mx.sym.FullyConnected(x, num_hidden=64, name="out")


@pytest.mark.parametrize(("train", "groups", "wanted"), [
    (True, 1, ["conv_rows", "norm_statistics", "pool_forward", "product_pack", "product_narrow", "team_run"]),
    (False, 1, ["conv_rows", "pool_forward", "product_pack", "team_run"]),
    (True, 16, ["conv_each_rows", "norm_statistics", "pool_forward", "product_pack", "product_narrow", "team_run"])])
def test_what_a_graph_needs_is_begun_and_nothing_else(files, train, groups, wanted):
    begun, asked = files
    run(network(groups), train, data=(64, 16, 14, 15))
    assert begun == wanted and set(begun) <= {*asked, "team_run"}  # the team is asked for once in a process
    assert "conv_rows" not in asked or groups == 1, "a depthwise convolution needs no other one's code"


@pytest.mark.parametrize("mode", ["auto", "numpy"])
def test_nothing_is_begun_for_what_numpy_computes(files, monkeypatch, mode):
    monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
    few = (1, 1, 4, 4) if mode == "auto" else (64, 16, 14, 15)
    x = mx.sym.FullyConnected(mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=2), num_hidden=2)
    run(x if mode == "auto" else network(), True, data=few)
    assert files[0] == []
