"""`tritium plan`, `convert` and `bench`."""

import json
import sys

import numpy as np
import pytest
import tritium as mx
from click.testing import CliRunner
from tritium.cli import bench_cases, commands
from tritium.cli.plan import WIDTH, picture

ARRAYS = {"arg:fc_weight": np.arange(12, dtype=np.float32).reshape(3, 4), "aux:mean": np.array([1.5, 2.5]),
          "arg:half": np.array([1, 2], np.float16), "arg:one": np.array(7, np.int32)}


def run(*arguments):
    result = CliRunner().invoke(commands.main, [str(a) for a in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def network():
    x = mx.sym.Variable("data")
    x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=30, name="fc1"), act_type="relu", name="act")
    x = mx.sym.softmax(mx.sym.FullyConnected(x, num_hidden=5, name="fc2"), name="prob")
    return mx.sym.FullyConnected(x, num_hidden=2, name="out")


@pytest.fixture
def symbol_file(tmp_path):
    network().save(str(tmp_path / "net-symbol.json"))
    return tmp_path / "net-symbol.json"


# ---- plan -------------------------------------------------------------------------------------------------------------
def test_plan_shows_layers_kernels_and_memory(symbol_file):
    result = run("plan", symbol_file, "--shape", "data=8,20")
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines()]
    assert ["fc1", "FullyConnected", "8x30", "30x20", "30"] in rows
    assert ["prob", "softmax", "8x5"] in rows
    assert "fc1 (FullyConnected) + act (Activation)" in result.output
    executor = network().simple_bind(mx.cpu(), grad_req="null", data=(8, 20))
    memory = executor.memory_plan()
    report = json.loads(run("plan", symbol_file, "--shape", "data=8,20", "--json").output)
    assert report["planned_bytes"] == memory.planned_bytes and report["naive_bytes"] == memory.naive_bytes
    assert [k["operators"] for k in report["kernels"]] == [list(k.operators) for k in executor.explain()]
    assert report["values"] == memory.table()


def test_plan_of_training_and_of_a_gpu(symbol_file):
    step = json.loads(run("plan", symbol_file, "--shape", "data=8,20", "--train", "--json").output)
    assert any(k["backward"] for k in step["kernels"])
    gpu = json.loads(run("plan", symbol_file, "--shape", "data=8,20", "--target", "gpu", "--dtype", "float16", "--json").output)
    assert {k["code"] for k in gpu["kernels"]} == {"Triton"} and {r["dtype"] for r in gpu["layers"]} == {"float16"}


@pytest.mark.parametrize("arguments, status, text", [
    (["--shape", "dta=8,20"], 1, "has no input 'dta'. Did you mean 'data'?"),
    (["--shape", "data"], 2, "Write data=32,3,224,224."),
    ([], 1, "shape"), (["--shape", "data=8,20", "--dtype", "flot"], 1, "flot")])
def test_plan_names_bad_input(symbol_file, arguments, status, text):
    result = run("plan", symbol_file, *arguments)
    assert result.exit_code == status and text in " ".join(result.output.split()), result.output


def test_the_picture_has_each_value_at_its_place():
    """A row's letters, read at a step, are the values that live then and cover the row's first byte."""
    executor = network().simple_bind(mx.cpu(), grad_req="write", data=(64, 20))
    memory = executor.memory_plan()
    rows = memory.table()
    steps = 1 + max(r["last"] for r in rows)
    text = picture(memory, steps).splitlines()
    drawn = [line.split("|")[1] for line in text if "|" in line]
    named = {line.split()[0]: line.split()[1] for line in text[len(drawn) + 1:]}
    repeat = WIDTH // steps
    assert all(len(line) == steps * repeat for line in drawn)
    for letter, name in named.items():
        (row,) = [r for r in rows if r["name"] == name]
        columns = {x // repeat for line in drawn for x, c in enumerate(line) if c == letter}
        assert columns <= set(range(row["first"], row["last"] + 1)), name
        assert columns, name


# ---- convert ----------------------------------------------------------------------------------------------------------
def test_parameters_go_to_safetensors_and_back(tmp_path):
    mx.nd.save(str(tmp_path / "a.params"), {n: mx.nd.array(a, dtype=a.dtype) for n, a in ARRAYS.items()})
    assert run("convert", tmp_path / "a.params", tmp_path / "b.safetensors").exit_code == 0
    tensors = mx.nd.load(str(tmp_path / "b.safetensors"))
    for name, a in ARRAYS.items():
        assert tensors[name].dtype == a.dtype and np.array_equal(tensors[name].asnumpy(), a)
    report = json.loads(run("convert", tmp_path / "b.safetensors", tmp_path / "c.params", "--json").output)
    assert report["arrays"] == 4 and report["targets"] == [str(tmp_path / "c.params")]
    back = mx.nd.load(str(tmp_path / "c.params"))
    assert set(back) == set(ARRAYS) and all(np.array_equal(back[n].asnumpy(), a) for n, a in ARRAYS.items())


def test_metadata_that_has_no_place_is_named(tmp_path):
    mx.nd.save(str(tmp_path / "a.safetensors"), {"x": mx.nd.ones(3)}, metadata={"epoch": "7"})
    assert "metadata epoch" in run("convert", tmp_path / "a.safetensors", tmp_path / "b.params").output
    run("convert", tmp_path / "a.safetensors", tmp_path / "c.safetensors")
    assert mx.nd.load(str(tmp_path / "c.safetensors"))["x"].shape == (3,)


def test_a_symbol_of_2015_becomes_one_of_today(tmp_path):
    old = {"nodes": [{"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1},
                     {"op": "null", "param": {}, "name": "fc_weight", "inputs": [], "backward_source_id": -1},
                     {"op": "null", "param": {}, "name": "fc_bias", "inputs": [], "backward_source_id": -1},
                     {"op": "FullyConnected", "param": {"no_bias": "False", "num_hidden": "3"}, "name": "fc",
                      "inputs": [[0, 0], [1, 0], [2, 0]], "backward_source_id": -1}],
           "arg_nodes": [0, 1, 2], "heads": [[3, 0]]}
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert run("convert", tmp_path / "old.json", tmp_path / "new.json").exit_code == 0
    new = json.loads((tmp_path / "new.json").read_text())
    assert new["attrs"]["mxnet_version"] == ["int", 10901] and new["nodes"][3]["attrs"]["num_hidden"] == "3"


def test_a_network_goes_to_onnx_and_back(tmp_path, symbol_file):
    pytest.importorskip("onnx")
    shapes, _, _ = network().infer_shape(data=(2, 20))
    values = {n: mx.nd.array(np.random.RandomState(0).normal(size=s)) for n, s in zip(network().list_arguments(), shapes)
              if n != "data"}
    mx.model.save_checkpoint(str(tmp_path / "net"), 3, network(), values, {})
    made = run("convert", symbol_file, tmp_path / "net.onnx", "--params", tmp_path / "net-0003.params", "--shape", "data=2,20")
    assert made.exit_code == 0, made.output
    assert run("convert", tmp_path / "net.onnx", tmp_path / "back-symbol.json").exit_code == 0
    symbol, args, auxs = mx.model.load_checkpoint(str(tmp_path / "back"), 0)
    x = mx.nd.array(np.random.RandomState(1).normal(size=(2, 20)))
    want = network().bind(mx.cpu(), {**values, "data": x}).forward()[0].asnumpy()
    inputs = {n: x for n in symbol.list_arguments() if n not in args}
    assert len(inputs) == 1
    got = symbol.bind(mx.cpu(), {**args, **inputs}, aux_states=auxs).forward()[0].asnumpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("source, target, status, text", [
    ("a.params", "a.png", 2, "from .params to .png there is no way"), ("a.params", "b.params", 1, "magic is"),
    ("net-symbol.json", "a.onnx", 2, "needs --params"), ("net-symbol.json", "net-symbol.json", 1, "exists already"),
    ("nothing.params", "b.params", 2, "does not exist")])
def test_what_cannot_be_converted(symbol_file, tmp_path, source, target, status, text):
    (tmp_path / "a.params").write_bytes(b"not arrays, by no means at all")
    result = run("convert", tmp_path / source, tmp_path / target)
    assert result.exit_code == status and text in " ".join(result.output.split()), result.output
    assert not (tmp_path / "b.params").exists() and not (tmp_path / "a.onnx").exists()


def test_arrays_without_names_or_twice_named_are_refused(tmp_path):
    mx.nd.save(str(tmp_path / "list.params"), [mx.nd.ones(2)])
    result = run("convert", tmp_path / "list.params", tmp_path / "a.safetensors")
    assert result.exit_code == 1 and "have no names" in result.output


# ---- bench ------------------------------------------------------------------------------------------------------------
def test_bench_measures_every_case():
    result = run("bench", "--turns", 1, "--seconds", 0.001, "--json")
    report = json.loads(result.output)
    assert set(report["seconds"]["tritium"]) == set(bench_cases.CASES)
    assert all(0 < s < 60 for s in report["seconds"]["tritium"].values()) and report["turns"] == 1


def test_bench_says_why_a_peer_does_not_run(tmp_path):
    result = run("bench", "--mxnet", tmp_path / "python", "--turns", 1, "--seconds", 0.001)
    assert result.exit_code == 1 and "mxnet: " in result.output and "cannot be started: No such file" in result.output
    empty = tmp_path / "empty"
    empty.write_text(f"#!{sys.executable} -S\nimport sys\nsys.exit('No module named mxnet')\n")
    empty.chmod(0o755)
    result = run("bench", "--mxnet", empty, "--turns", 1, "--seconds", 0.001)
    assert result.exit_code == 1 and "end with status 1: No module named mxnet" in " ".join(result.output.split())
