"""ONNX files: names, sizes that may differ, Gluon, and errors before anything is written."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.onnx_cases import NETWORKS, prepared, run
from tritium.contrib import onnx as mx_onnx
from tritium.errors import FileError, MissingLibraryError, NotAvailableError, ParameterError
from tritium.gluon import nn

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
S = mx.sym


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "m.onnx")


def test_names_in_the_file_are_those_of_the_symbol(path, rng):
    sym, shape = NETWORKS["resnet"]
    args, auxes, _, _ = prepared(sym, shape, rng)
    saved = {**{f"arg:{k}": v for k, v in args.items()}, **{f"aux:{k}": v for k, v in auxes.items()}}
    mx_onnx.export_model(sym, saved, [shape], np.float32, path)
    graph = onnx.load(path).graph
    assert [i.name for i in graph.input] == ["data"] and [o.name for o in graph.output] == sym.list_outputs()
    assert {"stem_weight", "block_bn1_gamma", "block_bn1_moving_var"} <= {t.name for t in graph.initializer}
    assert mx_onnx.get_model_metadata(path) == {"input_tensor_data": [("data", shape, onnx.TensorProto.FLOAT)],
                                                "output_tensor_data": [(sym.list_outputs()[0], (2, 3))]}
    _, new_args, new_auxes = mx_onnx.import_model(path)
    assert set(auxes) <= set(new_auxes) and set(new_args) | {"block_bn2_gamma"} >= set(args)
    assert np.array_equal(new_args["stem_weight"].asnumpy(), args["stem_weight"].asnumpy())


def test_files_of_checkpoints_are_exported(path, tmp_path, rng):
    sym, shape = NETWORKS["mlp"]
    args, auxes, labels, data = prepared(sym, shape, rng)
    mx.model.save_checkpoint(str(tmp_path / "net"), 0, sym, args, auxes)
    mx.onnx.export_model(str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params"), input_shape=[shape],
                         input_type=np.float32, onnx_file_path=path, verbose=True, run_shape_inference=True)
    back, new_args, _ = mx_onnx.import_model(path)
    np.testing.assert_allclose(run(back, new_args, {}, {"data": data})[0], run(sym, {**args, **labels}, {}, {"data": data})[0],
                               rtol=1e-5)
    assert len(onnx.load(path).graph.value_info) > 0


def test_sizes_that_may_differ(path, rng):
    ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    sym, shape = NETWORKS["resnet"]
    args, auxes, _, _ = prepared(sym, shape, rng)
    mx_onnx.export_model(sym, [args, auxes], [shape], np.float32, path, dynamic=True, dynamic_input_shapes=[("n", 3, None, None)])
    data = rng.normal(size=(5, 3, 6, 6)).astype("f")
    found = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"data": data})
    np.testing.assert_allclose(found[0], run(sym, args, auxes, {"data": data})[0], rtol=1e-4, atol=1e-5)
    back, new_args, new_auxes = mx_onnx.import_model(path)
    np.testing.assert_allclose(run(back, new_args, new_auxes, {"data": data})[0], found[0], rtol=1e-4, atol=1e-5)


def test_a_block_is_exported_and_comes_back_as_one(path, tmp_path, rng):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = mx.nd.array(rng.normal(size=(2, 3, 8, 8)))
    expected = net(x)
    net.export(str(tmp_path / "net"))
    mx_onnx.export_model(str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params"), [x.shape], np.float32, path)
    block = mx_onnx.import_to_gluon(path, mx.cpu())
    np.testing.assert_allclose(block(x).asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)


def test_mixed_precision_casts_are_left_out(path, rng):
    sym, shape = NETWORKS["mlp"]
    args = prepared(sym, shape, rng)[0]
    mx_onnx.export_model(mx.contrib.amp.convert_symbol(sym), args, [shape], np.float32, path)
    assert [n.op_type for n in onnx.load(path).graph.node] == ["Gemm", "Relu", "Gemm", "Softmax"]


def test_what_cannot_be_exported_is_a_table(path):
    x = S.Variable("data")
    masked = S.nansum(x, axis=0, keepdims=True, name="mask")
    net = S.Pooling(S.contrib.box_nms(masked, name="nms"), kernel=(2, 2), pool_type="sum", name="pool")
    with pytest.raises(NotAvailableError) as e:
        mx_onnx.export_model(net, {}, [(2, 3, 4, 6)], np.float32, path)
    lines = str(e.value).splitlines()
    assert lines[0] == "export_model: 3 nodes cannot be converted. Nothing was written."
    assert [line.split(None, 2) for line in lines[1:]] == [
        ["node", "operator", "reason"], ["mask", "nansum", "has no converter"],
        ["nms", "_contrib_box_nms", "has no converter"], ["pool", "Pooling", "pool_type='sum' has no equivalent"]]
    assert not Path(path).exists()


@pytest.mark.parametrize("net, shape, text", [
    (lambda x: S.reshape(x, shape=(-3, 0)), (2, 3, 4), "needs fixed sizes: export with dynamic=False"),
    (lambda x: S.Dropout(x, mode="always"), (2, 3), 'mode="always" has no equiv'),
    (lambda x: S.topk(x, ret_typ="mask"), (2, 3), 'ret_typ="mask" has no equivalent'),
    (lambda x: S.Pooling(x, kernel=(2, 2), pad=(1, 1), stride=(2, 2), pool_type="avg", pooling_convention="full"), (1, 1, 5, 5),
     "needs fixed sizes"),
    (lambda x: S.BatchNorm(x, axis=-1), (2, 3, 4), "axis=-1: ONNX normalizes axis 1"),
])
def test_reasons(net, shape, text, path):
    sym = net(S.Variable("data"))
    args, auxes, _, _ = prepared(sym, shape, np.random.default_rng(0))
    with pytest.raises(NotAvailableError, match=text):
        mx_onnx.export_model(sym, [args, auxes], [shape], np.float32, path, dynamic=True)


def test_missing_shapes_and_parameters(path):
    sym, shape = NETWORKS["mlp"]
    with pytest.raises(ParameterError, match="1 shapes for 5 inputs: data, fullyconnected"):
        mx_onnx.export_model(sym, {}, [shape], np.float32, path)
    with pytest.raises(ParameterError, match="0 shapes for 1 inputs: data"):
        mx_onnx.export_model(S.relu(S.Variable("data")), {}, onnx_file_path=path)


def test_what_cannot_be_imported_is_a_table(path):
    node = onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [node("Relu", ["x"], ["a"]), node("Det", ["a"], ["b"], name="det"), node("Mod", ["a", "x"], ["c"], name="mod", fmod=1),
         node("Relu", ["b"], ["d"]), node("Reshape", ["a", "s"], ["e"], name="shape")], "g",
        [onnx.helper.make_tensor_value_info("x", 1, [2, 2]), onnx.helper.make_tensor_value_info("s", 7, [1])],
        [onnx.helper.make_tensor_value_info(n, 1, ["any"]) for n in "cde"])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)
    with pytest.raises(NotAvailableError) as e:
        mx_onnx.import_model(path)
    assert [line.split(None, 2) for line in str(e.value).splitlines()[2:]] == [
        ["det", "Det", "has no converter"], ["mod", "Mod", "fmod=1 has no equivalent"],
        ["shape", "Reshape", "the shape, 's', is computed by the network"]]


def test_computed_shapes_are_constants(path, rng):
    """x.reshape(x.shape[0], -1), as PyTorch writes it."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    consts = [onnx.numpy_helper.from_array(np.asarray(v, np.int64), k) for k, v in (("zero", 0), ("first", [0]), ("rest", [-1]))]
    graph = onnx.helper.make_graph(
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"], axis=0), node("Unsqueeze", ["n", "first"], ["n1"]),
         node("Concat", ["n1", "rest"], ["to"], axis=0), node("Reshape", ["x", "to"], ["y"])], "g",
        [info("x", 1, [2, 3, 4])], [info("y", 1, [2, 12])], consts)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)
    sym, args, auxes = mx_onnx.import_model(path)
    x = rng.normal(size=(2, 3, 4)).astype("f")
    assert np.array_equal(run(sym, args, auxes, {"x": x})[0], x.reshape(2, 12)) and not args


@pytest.mark.parametrize("made, low, high", [
    (S.random.uniform(2, 5, shape=(100,)), 2, 5), (S.random.normal(10, 0.1, shape=(100,)), 8, 12),
    (S._internal._random_uniform_like(S.Variable("x"), low=2, high=5), 2, 5)])
def test_random_numbers_are_drawn_on_both_sides(made, low, high, path):
    ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    inputs = {n: np.zeros(100, "f") for n in made.list_arguments()}
    mx_onnx.export_model(made, {}, [(100,)] * len(inputs), np.float32, path)
    back, args, _ = mx_onnx.import_model(path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for values in (session.run(None, inputs)[0], run(back, args, {}, inputs)[0]):
        assert low < values.min() < values.max() < high and values.std() > 0.05


def test_damaged_files(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x01 no model")
    with pytest.raises(FileError, match=r"import_model: .*bad.onnx is not a valid ONNX file"):
        mx_onnx.import_model(tmp_path / "bad.onnx")


def test_the_package_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingLibraryError, match=r'onnx is not installed. Install it with pip install "tritium\[onnx\]"'):
        mx_onnx.import_model("x")


def test_supported_operators_are_listed():
    assert {"Convolution", "FullyConnected", "RNN"} <= set(mx_onnx.get_operator_support(13))
