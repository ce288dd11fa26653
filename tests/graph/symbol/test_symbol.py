"""Symbol: the answers of MXNet 1.9.1 to the same calls."""

import copy
import inspect
import json
import pickle
import sys

import pytest
import tritium as mx
from tritium.errors import GraphError, NotImplementedForSymbol, OperatorError, ParameterError, ShapeError
from tritium.graph import Group, Symbol, Variable
from tritium.graph.symbol import namespace as sym


def dense(x, name="fc1", **kw):
    return sym.FullyConnected(x, num_hidden=3, name=name, **kw)


def last(symbol):
    return json.loads(symbol.tojson())["nodes"][-1]


def test_missing_inputs_become_variables():
    y = dense(Variable("data"))
    assert y.list_arguments() == ["data", "fc1_weight", "fc1_bias"]
    assert y.list_outputs() == ["fc1_output"] and y.name == "fc1" and repr(y) == "<Symbol fc1>"
    assert dense(Variable("data"), no_bias=True).list_arguments() == ["data", "fc1_weight"]
    assert sym.relu(data=Variable("data")).list_arguments() == ["data"]
    assert sym.FullyConnected(num_hidden=2, name="f2").list_arguments() == ["f2_data", "f2_weight", "f2_bias"]


@pytest.mark.parametrize(("make", "op", "attrs"), [
    (lambda a, b: a + b, "elemwise_add", None), (lambda a, b: a - b, "elemwise_sub", None),
    (lambda a, b: a * b, "elemwise_mul", None), (lambda a, b: a / b, "elemwise_div", None),
    (lambda a, b: a + 1, "_plus_scalar", {"scalar": "1"}), (lambda a, b: 1 - a, "_rminus_scalar", {"scalar": "1"}),
    (lambda a, b: 2 / a, "_rdiv_scalar", {"scalar": "2"}), (lambda a, b: -a, "_mul_scalar", {"scalar": "-1.0"}),
    (lambda a, b: a**b, "_power", None), (lambda a, b: a % 2, "_mod_scalar", {"scalar": "2"}),
    (lambda a, b: a != b, "_not_equal", None), (lambda a, b: a > 1, "_greater_scalar", {"scalar": "1"}),
    (lambda a, b: a.sum(axis=1), "sum", {"axis": "1"}), (lambda a, b: a.reshape((2, 3)), "Reshape", {"shape": "(2, 3)"}),
    (lambda a, b: sym.maximum(a, 2), "_maximum_scalar", {"scalar": "2"}),
    (lambda a, b: sym.pow(2, a), "_rpower_scalar", {"scalar": "2"}),
    (lambda a, b: sym.zeros((2, 3)), "_zeros", {"dtype": "float32", "shape": "(2, 3)"}),
    (lambda a, b: sym.Concat(a, b, dim=0), "Concat", {"dim": "0", "num_args": "2"}),
    (lambda a, b: sym.clip(a, 0, 1), "clip", {"a_min": "0", "a_max": "1"}),
])  # fmt: skip
def test_operators_make_mxnets_nodes(make, op, attrs):
    node = last(make(Variable("a"), Variable("b")))
    assert node["op"] == op and node.get("attrs") == attrs


def test_variable_attributes():
    v = Variable("x", shape=(2, 0), lr_mult=2.0, wd_mult=0.5, dtype="float16", init='["one", {}]', attr={"foo": "bar"})
    assert v.list_attr() == {"__dtype__": "2", "__init__": '["one", {}]', "__lr_mult__": "2.0", "__shape__": "(2, 0)",
                             "__wd_mult__": "0.5", "foo": "bar", "lr_mult": "2.0", "wd_mult": "0.5"}


def test_attributes_go_to_the_variables_an_operator_makes():
    y = dense(Variable("a"), attr={"ctx_group": "x", "lr_mult": "2"})
    assert y.attr("num_hidden") == "3" and y.attr("lr_mult") == "2"
    assert y.attr_dict()["fc1_weight"]["__ctx_group__"] == "x"
    special = dense(Variable("a"), attr={"weight_lr_mult": "7"})
    assert special.attr_dict()["fc1_weight"]["__lr_mult__"] == "7" and "__lr_mult__" not in special.attr_dict()["fc1_bias"]


def test_composition_renames_and_leaves_the_original():
    x = dense(Variable("a"), name="f3")
    y = x(a=dense(Variable("z"), name="f2"), name="comp")
    assert y.list_arguments() == ["z", "f2_weight", "f2_bias", "f3_weight", "f3_bias"] and y.name == "comp"
    assert x.list_arguments() == ["a", "f3_weight", "f3_bias"] and x.name == "f3"
    assert x(Variable("q")).list_arguments() == ["q", "f3_weight", "f3_bias"]
    with pytest.raises(GraphError, match=r"no argument is called 'f3_wieght'. Did you mean 'f3_weight'"):
        x(f3_wieght=Variable("q"))


def test_groups_internals_children():
    a = Variable("a")
    y = sym.relu(dense(a), name="r")
    group = Group([a, y])
    assert repr(group) == "<Symbol group [a, r]>" and group.list_outputs() == ["a", "r_output"] and group.name is None
    inner = y.get_internals()
    assert inner.list_outputs() == ["a", "fc1_weight", "fc1_bias", "fc1_output", "r_output"]
    assert inner["fc1_output"].name == "fc1" and inner["a"].list_outputs() == ["a"]
    assert y.get_children().list_outputs() == ["fc1_output"] and a.get_children() is None
    with pytest.raises(GraphError, match=r"no output is called 'fc1_outptu'. Did you mean 'fc1_output'"):
        inner["fc1_outptu"]


def test_several_outputs():
    s = sym.SliceChannel(Variable("a"), num_outputs=3, name="s")
    assert s.list_outputs() == ["s_output0", "s_output1", "s_output2"] and len(s) == 3
    assert s[1].list_outputs() == ["s_output1"] and [o.list_outputs()[0] for o in s][2] == "s_output2"
    assert len(s[1:]) == 2
    with pytest.raises(TypeError, match=r"Symbol: \[\(0, 0\)\]: an index is the number or name of an output.* Use slice"):
        sym.Variable("a")[0, 0]
    with pytest.raises(IndexError, match=r"Symbol: output 3 of 3"):
        s[3]
    with pytest.raises(GraphError, match=r"relu: a symbol with 3 outputs \(s_output0, s_output1, s_output2\) was given where"):
        sym.relu(s)


def test_copies_are_independent():
    y = dense(Variable("a"))
    for z in (copy.copy(y), copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
        assert z.tojson() == y.tojson()
        z._set_attr(foo="bar")
    assert y.attr("foo") is None


def test_shapes_are_inferred_in_both_directions_with_a_warning_for_unknown_ones():
    y = dense(Variable("a"))
    assert y.infer_shape(a=(4, 5)) == ([(4, 5), (3, 5), (3,)], [(4, 3)], [])
    assert y.infer_shape((4, 5))[1] == [(4, 3)]
    assert y.infer_shape_partial()[0][0] == ()
    with pytest.warns(UserWarning, match=r"cannot decide the shape of: a \(\)"):
        assert y.infer_shape() == (None, None, None)
    with pytest.raises(GraphError, match=r"infer_shape: no argument is called 'zzz'. Arguments: a, fc1_weight, fc1_bias"):
        y.infer_shape(a=(4, 5), zzz=(3,))


def test_types():
    y = dense(Variable("a"))
    arguments, outputs, _ = y.infer_type(a="float16")
    assert [t.__name__ for t in arguments + outputs] == ["float16"] * 4
    with pytest.warns(UserWarning, match=r"cannot decide the type of: a"):
        assert y.infer_type() == (None, None, None)
    assert y.infer_type_partial() == ([None] * 3, [None], [])


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda a: sym.Convolutoin, AttributeError, r"mx.sym.Convolutoin: no such operator or function. Did you mean 'Convolution'"),
    (lambda a: sym.FullyConnected(a, num_hiden=3), ParameterError,
     r"FullyConnected: unknown parameter 'num_hiden'. Did you mean 'num_hidden'"),
    (lambda a: dense(a, wieght=a), OperatorError, r"no input is called 'wieght'. Did you mean 'weight'"),
    (lambda a: dense(a, data=a), GraphError, r"input 'data' was given twice"),
    (lambda a: sym.relu(a, a), GraphError, r"relu: 2 inputs were given, it takes 1: "),
    (bool, NotImplementedForSymbol, r"Symbol.__bool__: a symbol has no values before it is bound"),
    (lambda a: a + "x", TypeError, "unsupported operand"),
    (lambda a: dense(a).infer_shape(a=(4, 5), fc1_weight=(3, 6)), ShapeError,
     r"fc1 \(FullyConnected\): .*Inputs: data a \(4, 5\), weight fc1_weight \(3, 6\)"),
    (lambda a: a.asnumpy(), NotImplementedForSymbol, r"Symbol.asnumpy: a symbol has no values before it is bound. Bind it"),
    (lambda a: a.get_backend_symbol("x"), GraphError, r"Symbol.get_backend_symbol: unknown backend 'x'"),
], ids=["operator", "parameter", "input", "twice", "too many", "bool", "text", "shape", "array method", "backend"])  # fmt: skip
def test_errors_say_what_to_do(call, error, text):
    with pytest.raises(error, match=text):
        call(Variable("a"))


def test_a_symbol_plus_a_number_is_a_symbol():
    assert isinstance(Variable("a") + 1, Symbol)


def test_unnamed_nodes_are_called_as_the_function_was():
    """Names as MXNet 1.9.1 gives them: checked against it."""
    a, b = sym.Variable("a"), sym.Variable("b")
    assert [s.name for s in (sym.split(a, num_outputs=2), a.split(num_outputs=2), sym.SliceChannel(a, num_outputs=2))] == [
        "split0", "split1", "slicechannel0"]
    assert [s.name for s in (a + b, sym.elemwise_add(a, b), sym.identity(a), a.astype("float16"), sym.swapaxes(a))] == [
        "_plus0", "elemwise_add0", "identity0", "cast0", "swapaxes0"]
    assert [s.name for s in (sym.maximum(a, 2), sym.pow(2, a), 2 ** a, sym.hypot(a, b), sym.max_axis(a))] == [
        "_maximumscalar0", "_rpowerscalar0", "_rpower_scalar0", "_hypot0", "max_axis0"]
    assert sym.maximum(2, 3) == 3 and sym.pow(2, 3) == 8


def test_debug_str_is_mxnets():
    net = sym.Activation(sym.FullyConnected(sym.Variable("a"), num_hidden=4, name="fc"), act_type="relu", name="act")
    assert net.debug_str() == (
        "Symbol Outputs:\n\toutput[0]=act(0)\nVariable:a\nVariable:fc_weight\nVariable:fc_bias\n--------------------\n"
        "Op:FullyConnected, Name=fc\nInputs:\n\targ[0]=a(0) version=0\n\targ[1]=fc_weight(0) version=0\n"
        "\targ[2]=fc_bias(0) version=0\nAttrs:\n\tnum_hidden=4\n--------------------\nOp:Activation, Name=act\nInputs:\n"
        "\targ[0]=fc(0)\nAttrs:\n\tact_type=relu\n")


def test_optimize_for_and_as_nd_ndarray_return_the_symbol():
    a = sym.Variable("a")
    assert a.optimize_for("x") is a and a.as_nd_ndarray() is a


def test_variables_take_their_initializer_from_the_operator_that_reads_them():
    w, m = sym.Variable("w"), sym.Variable("m")
    sym.LeakyReLU(sym.Variable("a"), w, act_type="prelu")
    sym.BatchNorm(sym.Variable("a"), sym.Variable("g"), sym.Variable("b"), m)
    assert w.attr("__init__") == '["Constant", {"value": 0.25}]' and m.attr("__init__") == '["zero", {}]'


def test_split_at_positions():
    parts = sym.split_v2(sym.Variable("a"), (1, 3), axis=1)
    assert parts.list_attr() == {"indices": "[0, 1, 3]", "axis": "1", "squeeze_axis": "False", "sections": "0"}
    assert parts.infer_shape(a=(2, 5))[1] == [(2, 1), (2, 2), (2, 2)]


def test_no_pass_over_a_symbol_recurses(capsys):
    """A chain of 3000 nodes, with a recursion limit far below that."""
    y = x = Variable("x")
    for i in range(3000):
        y = sym.relu(y) if i % 2 else y * 1.5
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 200)
    try:
        again = pickle.loads(pickle.dumps(copy.deepcopy(y)))
        assert again.tojson() == y.tojson() and again.list_arguments() == ["x"]
        assert again.infer_shape(x=(2,))[1] == [(2,)] and again.infer_type(x="float32")[1][0].__name__ == "float32"
        assert len(y(x=x * 2).get_internals()) == 3002 and len(again.attr_dict()) == 1500
        again.debug_str()
        mx.viz.print_summary(again, {"x": (2,)})
        mx.viz.plot_network(again, shape={"x": (2,)})
        outs, last = sym.contrib.foreach(lambda row, s: (y(x=row), s + row), Variable("rows"), Variable("s"))
        ex = Group([outs, last]).simple_bind(mx.cpu(), rows=(2, 2), s=(2,))
        ex.forward(is_train=True)
        ex.backward([mx.nd.ones((2, 2)), mx.nd.ones((2,))])
    finally:
        sys.setrecursionlimit(limit)
    assert "relu1499" in capsys.readouterr().out


def test_a_symbol_has_the_methods_of_arrays_and_refuses_their_call():
    for name in ("asnumpy", "asscalar", "wait_to_read", "backward", "copy", "detach", "as_in_context"):
        assert hasattr(mx.sym.var("x"), name)
        with pytest.raises(NotImplementedForSymbol, match=f"Symbol.{name}: a symbol has no values before it is bound"):
            getattr(mx.sym.var("x"), name)()


def test_the_attributes_of_a_group_are_those_of_its_first_node():
    group = sym.Group([sym.relu(sym.Variable("a", lr_mult=2), attr={"__w__": "3"}), sym.Variable("b", lr_mult=4)])
    assert group.list_attr() == {"__w__": "3"} and group.attr("__w__") is None is group.attr("name")
    with pytest.raises(GraphError, match="a group has no attributes of its own"):
        group._set_attr(__w__="1")
