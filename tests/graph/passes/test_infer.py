"""Inference: MXNet 1.9.1's answers on small graphs; both directions; errors."""

import json
import warnings
from pathlib import Path

import pytest
import tritium as mx
from tritium.errors import DTypeError, MXNetError, ShapeError
from tritium.graph.passes.infer import infer_shapes
from tritium.graph.symbol import namespace as sym
from tritium.graph.symbol.node import topological
from tritium.kernels import op as ops

GOLDEN = Path(__file__).parents[2] / "golden" / "infer_shape"
CASES = json.loads((GOLDEN / "cases.json").read_text())
TYPES = json.loads((GOLDEN / "types.json").read_text())


def label(case):
    return f"{case['name']}{'-partial' if case.get('partial') else ''}"


def load(case):
    missing = {n["op"] for n in json.loads(case["symbol"])["nodes"]} - {"null"} - set(ops.registered())
    if missing:
        pytest.skip(f"no operator {', '.join(sorted(missing))} yet")
    return sym.load_json(case["symbol"])


def spelled(shapes):
    return [tuple(s) if s is not None else None for s in shapes]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_shapes_are_mxnets(case):
    known = {k: tuple(v) for k, v in case["known"].items()}

    def infer():
        symbol = load(case)
        return symbol, (symbol.infer_shape_partial if case.get("partial") else symbol.infer_shape)(**known)

    if case.get("error"):
        with pytest.raises(MXNetError):
            infer()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be told warns, which test_symbol checks
        symbol, got = infer()
    if case["arg_shapes"] is None:
        assert got == (None, None, None)
        return
    assert symbol.list_arguments() == case["arguments"]
    assert [spelled(g) for g in got] == [spelled(case[k]) for k in ("arg_shapes", "out_shapes", "aux_shapes")]


@pytest.mark.parametrize("case", TYPES, ids=label)
def test_types_are_mxnets(case):
    symbol = load(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = symbol.infer_type(**case["known"])
        except MXNetError:
            assert case.get("error")
            return
    assert not case.get("error")
    if case["arg_types"] is None:
        assert got == (None, None, None)
        return
    names = [[None if t is None else t.__name__ for t in part] for part in got]
    assert names == [case["arg_types"], case["out_types"], case["aux_types"]]


def test_backwards_through_a_long_chain():
    y = x = sym.Variable("x")
    for _ in range(20_000):
        y = sym.relu(y)
    z = y + sym.Variable("z")
    order = topological([z._outputs[0][0]])
    shapes = infer_shapes(order, {"z": (3, 4)})
    assert shapes[0] == [(3, 4)] and order[0] is x._outputs[0][0]


def test_disagreement_names_node_operator_inputs_and_rule():
    y = sym.elemwise_add(sym.Variable("a"), sym.Variable("b"), name="sum1")
    with pytest.raises(ShapeError, match=r"sum1 \(elemwise_add\): .*Inputs: lhs a \(2, 3\), rhs b \(2, 4\)\."):
        y.infer_shape(a=(2, 3), b=(2, 4))


def test_a_declared_shape_that_is_not_a_tuple_of_integers_is_an_error():
    with pytest.raises(ShapeError, match="w: __shape__ 'import os' is not a tuple of integers"):
        sym.Variable("w", attr={"__shape__": "import os"}).infer_shape()


def test_types_that_disagree():
    y = sym.elemwise_add(sym.Variable("a"), sym.Variable("b"), name="sum1")
    with pytest.raises(DTypeError, match=r"sum1 \(elemwise_add\): .*float16.*float32"):
        y.infer_type(a="float16", b="float32")


@pytest.mark.parametrize("op, params, given, wanted", [
    ("slice", {"begin": (1, 0), "end": (5, 2)}, (0, 4), (0, 2)),
    ("slice_axis", {"axis": 0, "begin": 1, "end": 3}, (5, 0), (2, 0)),
    ("slice_axis", {"axis": -1, "begin": 0, "end": 2}, (3, 3, 3, 0), (3, 3, 3, 0)),
    ("repeat", {"repeats": 2, "axis": -1}, (0, 1, 1), (0, 1, 2)),
    ("space_to_depth", {"block_size": 2}, (0, 4, 4, 2), (0, 16, 2, 1)),
    ("depth_to_space", {"block_size": 2}, (0, 8, 4, 2), (0, 2, 8, 4)),
    ("UpSampling", {"scale": 2, "sample_type": "nearest"}, (0, 4, 2, 1), (0, 4, 4, 2)),
])
def test_known_sizes_pass_on_though_the_batch_size_is_unknown(op, params, given, wanted):
    """As MXNet 1.9.1 answers, but for a sliced axis of unknown size, which it calls known."""
    assert getattr(sym, op)(sym.Variable("a"), **params).infer_shape_partial(a=given)[1] == [wanted]


def test_the_label_of_a_softmax_over_channels():
    y = sym.SoftmaxOutput(sym.Variable("a"), sym.Variable("l"), multi_output=True)
    assert [y.infer_shape(a=s)[0][1] for s in ((2, 3, 4, 5), (2, 3, 4), (2, 3))] == [(2, 20), (2, 4), (2, 1)]
    assert y.infer_shape(a=(2, 3, 4, 5), l=(2, 4, 5))[1] == [(2, 3, 4, 5)]


@pytest.mark.parametrize("name", ["uniform", "normal", "gamma", "poisson"])
def test_random_numbers_take_the_shape_that_their_reader_needs(name):
    noise = getattr(mx.sym.random, name)(ctx=mx.cpu())
    total = mx.sym.Variable("x") + mx.sym.relu(noise)
    assert total.infer_shape(x=(2, 3)) == ([(2, 3)], [(2, 3)], [])
    assert total.eval(x=mx.nd.zeros((2, 3)))[0].shape == (2, 3)
    assert noise.infer_shape()[1] == [(1,)]
