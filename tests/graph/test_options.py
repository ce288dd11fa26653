"""Options: environment, nesting, and effects."""

import pytest
import tritium as mx
from tritium.errors import ParameterError
from tritium.graph import options
from tritium.graph.options import current
from tritium.graph.symbol import namespace as sym


def test_environment(monkeypatch):
    monkeypatch.setenv("TRITIUM_FUSION", "0")
    monkeypatch.setenv("MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN", "3")
    assert (current().fuse, current().plan, current().bulk_train) == (False, True, 3)
    monkeypatch.setenv("MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN", "many")
    with pytest.raises(ParameterError, match="MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN: 'many' is not an integer of at least 0"):
        current()


def test_options_hold_for_graphs_bound_inside():
    y = sym.tanh(sym.relu(sym.Variable("a")))
    with options(fuse=False, plan=False), options(bulk_infer=1):
        plain = y.simple_bind(mx.cpu(), "null", a=(2,))
    assert plain.fused_operators == 0 and len(plain._compile(False).forward) == 2
    assert y.simple_bind(mx.cpu(), "null", a=(2,)).fused_operators == 2
