"""Composition: the nodes that calls make. Oracle: MXNet 1.9.1, in tests/golden/symbols/calls.json."""

import json
from pathlib import Path

import pytest
import tritium as mx
from tritium.errors import GraphError
from tritium.graph.symbol.naming import NameManager

CALLS = json.loads((Path(__file__).parents[2] / "golden" / "symbols" / "calls.json").read_text())


def called(name):
    """The function that makes symbols of an operator, as a program would look it up."""
    for prefix, namespace in (("_contrib_", mx.sym.contrib), ("_linalg_", mx.sym.linalg), ("_image_", mx.sym.image)):
        if name.startswith(prefix):
            return getattr(namespace, name.removeprefix(prefix))
    return getattr(mx.sym, name, None) or getattr(mx.sym._internal, name)


def written(make):
    """(operator, name, attributes) of the last node that make() gives."""
    with NameManager():
        found = json.loads(mx.sym.Group([make()]).tojson(remove_amp_cast=False))["nodes"][-1]
    return found["op"], found["name"], found.get("attrs", {})


def typed(value):
    return tuple(value) if isinstance(value, list) else value


def test_every_operator_is_written_as_mxnet_writes_it():
    wrong = []
    for name, n, params, *want in CALLS["operators"]:
        xs = [mx.sym.Variable(c) for c in "abcdefgh"[:n]]
        given = {k: typed(v) for k, v in params.items()}
        make = getattr(xs[0], name[1:]) if name.startswith(".") else called(name)
        got = written(lambda make=make, xs=xs[name.startswith("."):], given=given: make(*xs, **given))
        if got != tuple(want):
            wrong.append((name, params, got, want))
    assert not wrong, wrong[:5]


def test_every_method_with_arguments_by_position_is_written_as_mxnet_writes_it():
    wrong = []
    for name, args, *want in CALLS["methods"]:
        got = written(lambda name=name, args=args: getattr(mx.sym.Variable("a"), name)(*map(typed, args)))
        if got != tuple(want):
            wrong.append((name, args, got, want))
    assert not wrong, wrong[:5]


def test_none_after_the_inputs_is_a_parameter():
    x = mx.sym.Variable("x")
    assert written(lambda: x.sum(None, True))[2] == {"axis": "None", "keepdims": "True"}
    assert mx.sym.FullyConnected(x, None, None, num_hidden=3, name="fc").list_arguments() == ["x", "fc_weight", "fc_bias"]


def test_a_count_that_mxnet_has_no_parameter_for_is_not_written():
    x = mx.sym.Variable("x")
    assert written(lambda: mx.sym.multi_sum_sq(x, x, num_arrays=2))[2] == {"num_arrays": "2"}
    assert written(lambda: mx.sym.Concat(x, x))[2] == {"num_args": "2"}


def test_inplace_is_accepted_where_mxnet_takes_it():
    x = mx.sym.Variable("x")
    assert written(lambda: x.expand_dims(1, True))[2] == written(lambda: x.squeeze(1, True))[2] == {"axis": "1"}
    assert written(lambda: x.flatten(inplace=True)) == ("Flatten", "flatten0", {})


def test_storage_types():
    assert mx.sym.Variable("x", stype="default").attr("__storage_type__") == "0"
    assert mx.sym.Variable("x", stype="csr").attr("__storage_type__") == "2"
    with pytest.raises(GraphError, match="stype='foo' is not one of 'default', 'row_sparse', 'csr'"):
        mx.sym.Variable("x", stype="foo")


def test_an_initializer_may_be_an_attribute_of_an_operator():
    y = mx.sym.Convolution(mx.sym.var("x"), kernel=(1, 1), num_filter=2, attr={"__init__": mx.init.Constant(3)}, name="c")
    assert y.attr_dict()["c_weight"]["__init__"] == mx.init.Constant(3).dumps()
