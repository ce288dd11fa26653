"""Programs: a graph as steps, its text, what cannot be lowered."""

import pytest
from support.random_graphs import program
from tritium.errors import ShapeError
from tritium.graph.program import naive_bytes
from tritium.graph.symbol import namespace as sym


def test_text_of_a_program():
    text = str(program(sym.relu(sym.Variable("a"), name="r"), {"a": "write"}, a=(2, 3)))
    assert text.splitlines()[:2] == ["%1:float32[2, 3]=output r_output <- relu(%0:float32[2, 3]=arg a)  # r", "--- backward ---"]


def test_naive_bytes_leave_the_callers_arrays_out():
    assert naive_bytes(program(sym.relu(sym.exp(sym.Variable("a"))), {}, a=(2, 3))) == 2 * 24


def test_an_unknown_shape_names_the_argument():
    with pytest.raises(ShapeError, match=r"bind: the shape of argument 'b' cannot be inferred: \?. Give it by keyword"):
        program(sym.broadcast_add(sym.Variable("a"), sym.Variable("b")), {}, a=(2, 3))
