"""Symbol JSON: golden files of MXNet 1.9.1, older dialects, and damaged files."""

import json
import random
import re
from pathlib import Path

import pytest
import tritium as mx
from tritium.errors import FileError, ParameterError
from tritium.graph.symbol import namespace as sym
from tritium.kernels import op as ops
from tritium.kernels.params import parse_value

GOLDEN = Path(__file__).parents[2] / "golden" / "symbols"


@pytest.mark.parametrize("net", ["mlp", "lenet", "digits_mlp"])
def test_golden_files_go_through_unchanged(net, tmp_path):
    text = (GOLDEN / f"{net}-symbol.json").read_text()
    symbol = sym.load(str(GOLDEN / f"{net}-symbol.json"))
    ours, theirs = json.loads(symbol.tojson()), json.loads(text)
    ours.pop("node_row_ptr"), theirs.pop("node_row_ptr")  # counts hidden outputs, which our operators have fewer of
    assert ours == theirs
    symbol.save(str(tmp_path / "s.json"))
    assert sym.load(str(tmp_path / "s.json")).tojson() == symbol.tojson()


def test_dialect_0_8():
    text = json.dumps({"nodes": [
        {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1, "attr": {"lr_mult": "0.2"}},
        {"op": "null", "param": {}, "name": "w", "inputs": [], "backward_source_id": -1, "attr": {"mine": "x"}},
        {"op": "null", "param": {}, "name": "b", "inputs": [], "backward_source_id": -1},
        {"op": "FullyConnected", "param": {"no_bias": "False", "num_hidden": "8"}, "name": "fc",
         "inputs": [[0, 0], [1, 0], [2, 0]], "backward_source_id": -1, "attr": {"mine": "x", "weight_lr_mult": "1.2"}},
    ], "arg_nodes": [0, 1, 2], "heads": [[3, 0]]})  # fmt: skip
    symbol = sym.fromjson(text)
    assert symbol.list_arguments() == ["data", "w", "b"] and symbol.infer_shape(data=(2, 5))[1] == [(2, 8)]
    assert symbol.attr_dict()["data"]["__lr_mult__"] == "0.2" and symbol.attr_dict()["w"]["__lr_mult__"] == "1.2"
    again = sym.fromjson(symbol.tojson().replace('"mine": "x",', "").replace('"mine": "x"', '"__mine__": "x"'))
    assert again.list_arguments() == ["data", "w", "b"]


def test_dialect_0_9():
    text = json.dumps({"nodes": [
        {"op": "null", "name": "x", "inputs": [], "attr": {"ctx_group": "g"}},
        {"op": "Activation", "name": "r", "inputs": [[0, 0, 0]], "attr": {"act_type": "relu", "ctx_group": "g"}},
    ], "arg_nodes": [0], "node_row_ptr": [0, 1, 2], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 905]}})  # fmt: skip
    symbol = sym.fromjson(text)
    assert symbol.attr("act_type") == "relu" and symbol.attr("ctx_group") == "g"


def good():
    return json.loads(sym.FullyConnected(sym.Variable("data"), num_hidden=3, name="fc").tojson())


def broken(path, value):
    def change(graph):
        at = graph
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        return graph
    return change


@pytest.mark.parametrize(("change", "message"), [
    (broken(["nodes", 3, "inputs", 0], [3, 0, 0]), r"node 3 \('fc', FullyConnected\): input reads node 3; only nodes before it"),
    (broken(["nodes", 3, "inputs", 0], [-1, 0, 0]), "input reads node -1"),
    (broken(["nodes", 3, "inputs", 0], [0, 7, 0]), "input reads output 7 of 'data', which has 1"),
    (broken(["nodes", 3, "inputs", 0], ["0", 0]), r"input \['0', 0\] is not \[node, output, version\]"),
    (broken(["nodes", 3, "inputs", 0], [True, 0, 0]), "is not \\[node, output, version\\]"),
    (broken(["nodes", 3, "inputs"], [[0, 0, 0]]), "node 3 .*: 1 inputs, FullyConnected takes 3: data, weight, bias"),
    (broken(["nodes", 3, "op"], "FullyConected"), "FullyConected: no such operator. Did you mean 'FullyConnected'"),
    (broken(["nodes", 3, "attrs"], {"num_hidden": "many"}), "num_hidden='many' is not an integer"),
    (broken(["nodes", 3, "attrs"], {"num_hidden": 3}), "'attrs' is not an object of strings"),
    (broken(["nodes", 3, "name"], None), "node 3 has no strings 'op' and 'name'"),
    (broken(["nodes", 0, "inputs"], [[0, 0, 0]]), "reads node 0; only nodes before it"),
    (broken(["heads"], []), "'heads' is empty"),
    (broken(["heads"], [[9, 0, 0]]), "heads reads node 9"),
    (broken(["nodes"], {}), "it has no lists 'nodes' and 'heads'"),
    (broken(["arg_nodes"], [77]), "'arg_nodes' is not a list of node numbers"),
    (broken(["nodes", 3, "subgraphs"], [{}]), "it holds subgraphs"),
])  # fmt: skip
def test_wrong_files_are_refused_with_the_name_of_the_node(change, message):
    with pytest.raises(FileError, match=message):
        sym.fromjson(json.dumps(change(good())))


@pytest.mark.parametrize(("text", "message"), [
    ("", "it is not JSON"), ("[1, 2]", "it has no lists"), ("[" * 100_000, "nested too deeply|it is not JSON"),
    ('{"nodes": [NaN], "heads": []}', "NaN is not a JSON number"), ("\x00\x01", "it is not JSON"),
])  # fmt: skip
def test_texts_that_are_not_symbols_are_refused(text, message):
    with pytest.raises(FileError, match=message):
        sym.fromjson(text)


def test_counts_larger_than_the_file_allows_are_refused():
    graph = json.loads(sym.Concat(sym.Variable("a"), sym.Variable("b"), name="c").tojson())
    graph["nodes"][2]["attrs"]["num_args"] = "1000000000"
    with pytest.raises(FileError, match="num_args='1000000000', but the node has 2 inputs"):
        sym.fromjson(json.dumps(graph))
    graph = json.loads(sym.SliceChannel(sym.Variable("a"), num_outputs=2, name="s").tojson())
    graph["nodes"][1]["attrs"]["num_outputs"] = "999999999"
    with pytest.raises(FileError, match="num_outputs='999999999'"):
        sym.fromjson(json.dumps(graph))


def test_binary_file(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match=r"x.json: not a symbol: it is not text"):
        sym.load(str(tmp_path / "x.json"))


def test_a_long_chain_is_written_and_read():
    y = sym.Variable("x")
    for _ in range(3000):
        y = sym.relu(y)
    assert len(sym.fromjson(y.tojson()).get_internals()) == 3001


def last(symbol):
    """The last node of a symbol's file, and where its outputs end."""
    graph = json.loads(symbol.tojson())
    return graph["nodes"][-1], graph["node_row_ptr"][-1] - graph["node_row_ptr"][-2]


def test_parameters_are_written_as_given_as_mxnet_does():
    """Recorded from MXNet 1.9.1: lists stay lists, and a None that was given is written."""
    x = sym.Variable("x")
    assert last(sym.sum(x, axis=[0, 1]))[0]["attrs"] == {"axis": "[0, 1]"}
    assert last(sym.slice_axis(x, axis=0, begin=1, end=None))[0]["attrs"] == {"axis": "0", "begin": "1", "end": "None"}
    assert last(sym.split(x, num_outputs=2, squeeze_axis=1)[0])[0]["attrs"] == {"num_outputs": "2", "squeeze_axis": "1"}
    for y in (sym.sum(x, axis=[1]), sym.slice_axis(x, axis=0, begin=1, end=None), sym.squeeze(x, axis=None)):
        assert sym.fromjson(y.tojson()).tojson() == y.tojson()


def test_outputs_are_counted_as_mxnet_counts_them():
    x = sym.Variable("x")
    for kind, n in {"max": 2, "avg": 1, "sum": 1, "lp": 1}.items():
        assert last(sym.Pooling(x, kernel=(2, 2), pool_type=kind, p_value=2 if kind == "lp" else None))[1] == n
    assert last(sym.Pooling(x, kernel=(2, 2)))[1] == 2
    grid = {"transform_type": "affine", "target_shape": (2, 2)}
    assert last(sym.GridGenerator(x, **grid))[1] == 2
    assert last(sym.SpatialTransformer(x, sym.Variable("y"), sampler_type="bilinear", **grid))[1] == 3


def one_operator(op, attrs, inputs=1):
    """The JSON of an operator on variables x0, x1 ..."""
    nodes = [{"op": "null", "name": f"x{i}", "inputs": []} for i in range(inputs)]
    nodes.append({"op": op, "name": "y", "attrs": attrs, "inputs": [[i, 0, 0] for i in range(inputs)]})
    return json.dumps({"nodes": nodes, "arg_nodes": list(range(inputs)), "heads": [[inputs, 0, 0]],
                       "attrs": {"mxnet_version": ["int", 10901]}})


@pytest.mark.parametrize("op, attrs, inputs", [
    ("Reshape", {"shape": "(None,)"}, 1), ("Pooling", {"kernel": "(None,)"}, 1), ("transpose", {"axes": "(0, None)"}, 1),
    ("Convolution", {"kernel": "(None, 3)", "num_filter": "3"}, 3), ("_zeros", {"shape": "(2, None)"}, 0)])
def test_none_is_not_a_size(op, attrs, inputs):
    (name, text), *_ = ((k, v) for k, v in attrs.items() if "None" in v)
    with pytest.raises(FileError, match=re.escape(f"{name}={text!r} is not a tuple of integers.")):
        mx.sym.fromjson(one_operator(op, attrs, inputs))
    with pytest.raises(ParameterError, match=f"{name}=.* is not a tuple of integers"):
        ops.get(op).parse({**attrs, name: (None,)})


@pytest.mark.parametrize("op, key", [("SliceChannel", "num_outputs"), ("_split_v2", "sections")])
def test_a_file_cannot_ask_for_a_million_outputs(op, key):
    with pytest.raises(FileError, match=rf"{key}='9999999', which is not an integer up to 65,536\."):
        mx.sym.fromjson(one_operator(op, {key: "9999999", "axis": "1"}))


def test_none_is_a_bound_of_a_slice():
    sliced = mx.sym.fromjson(one_operator("slice", {"begin": "(None, 1)", "end": "(2, None)"}))
    assert sliced.infer_shape(x0=(3, 4))[1] == [(2, 3)]
    assert sliced.tojson() == mx.sym.fromjson(sliced.tojson()).tojson()


PIECES = ["None", "nan", "inf", "1e400", "-", "0", "1", "2", "9999999999999999999999", "True", "'a'", "1.5", "float32",
          "bfloat16", "L", "0x1", "1_0", "\u0661", "\0", "1j", "...", "{1: 2}", "b'x'", "add", "(", ")", "[", "]", ",", ", ", " "]


@pytest.mark.parametrize("text", ["(19999999999999999999999),)", "(2)f4", "(2,)f4"])
def test_a_dtype_with_parentheses_is_a_named_error_and_no_warning_of_numpy(text):
    with pytest.raises(mx.errors.DTypeError, match=r"is not an element type of arrays\. Known: bfloat16, "):
        mx.nd.zeros(2, dtype=text)


@pytest.mark.parametrize("name", sorted(n for n, op in ops.registered().items() if any(d.name == "ctx" for d in op.params)))
@pytest.mark.parametrize("given, value", [(mx.cpu(1), mx.cpu(1)), ("gpu(0)", mx.gpu(0)), ("cpu", mx.cpu()), ("", None),
                                          (None, None)])
def test_a_context_is_given_as_itself_or_as_text(name, given, value):
    (declared,) = (d for d in ops.get(name).params if d.name == "ctx")
    assert parse_value(name, declared, given) == value
    for wrong in ("tpu(0)", "cpu(x)", "cpu(-1)", 3):
        with pytest.raises(ParameterError, match=r"ctx=.* is not a context\."):
            parse_value(name, declared, wrong)


def test_a_context_is_written_as_text():
    symbol = mx.sym.eye(2, ctx=mx.gpu(0))
    assert symbol.attr("ctx") == "gpu(0)" and mx.sym.load_json(symbol.tojson()).eval()[0].asnumpy().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("seed", range(10))
def test_any_text_of_a_parameter_is_a_value_or_a_named_error(seed):
    """Any text, for every parameter of every operator."""
    chance = random.Random(seed)
    whole = ["9" * 5000, "-" * 3000 + "1", "(" * 300, "(" * 60 + ")" * 60, "[" * 3000 + "]" * 3000, "(" + "1," * 3000 + ")"]
    for name in sorted(set(ops.registered())):
        op = ops.get(name)
        for d in op.params:
            values = "".join(chance.choices(PIECES, k=chance.randrange(1, 4)))
            text = chance.choice([values, f"({values},)", f"({values}, {values})", chance.choice(whole)])
            try:
                value = parse_value(name, d, text)
            except ParameterError as e:
                assert str(e).startswith(f"{name}: {d.name}=")
                continue
            if d.kind in ("shape", "bounds", "floats") and value is not None:
                good = {"shape": int, "bounds": int | None, "floats": float}[d.kind]
                assert type(value) is tuple and all(isinstance(v, good) for v in value), (name, d, text)
