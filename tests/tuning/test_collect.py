"""The tasks collected from a model's program and from single operators."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import GraphError, MXNetError, ParameterError
from tritium.tuning import TuningRequest, collect


@pytest.fixture
def model(tmp_path):
    x = mx.sym.Variable("data")
    for i in range(3):  # the last two are alike
        x = mx.sym.Convolution(x, num_filter=16, kernel=(3, 3), pad=(1, 1), no_bias=True, name=f"conv{i}")
        x = mx.sym.Activation(x, act_type="relu", name=f"relu{i}")
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=64, name="fc")
    mx.sym.SoftmaxOutput(x, name="softmax").save(str(tmp_path / "x-symbol.json"))
    return str(tmp_path / "x-symbol.json")


def request(model, **more):
    return TuningRequest(model=model, shapes={"data": (4, 3, 24, 24)}, **more)


def test_kernels_of_a_model_are_sorted_by_cost_and_equal_ones_counted(model):
    work = collect(request(model))
    found = {i.task.key.template: i for i in work.items if "conv" in i.task.key.template and i.task.key.size["k"] == 16}
    assert {n: i.count for n, i in found.items()} == {"cpu conv forward": 2, "cpu conv backward": 2}
    assert [i.bound_s for i in work.items] == sorted((i.bound_s for i in work.items), reverse=True)
    assert 0.5 < work.share < 1.0001 and work.kernels > len(work.items)
    assert all(np.isclose(i.share, i.bound_s / work.step_s) for i in work.items)


@pytest.mark.skipif(not mx.num_gpus(), reason="no GPU, not even an interpreted one")
def test_on_a_gpu_the_kernels_are_those_an_executor_runs(model):
    """Channels stand last, activations are part of the convolutions, and each is one task all the same."""
    work = collect(request(model, target="gpu", train=False))
    symbol = mx.sym.load(model)
    executor = symbol.simple_bind(mx.gpu(0), "null", data=(4, 3, 24, 24))
    assert work.kernels == len(executor._compile(False).program.steps)
    found = [i for i in work.items if i.task.key.template == "gpu conv forward"]
    assert sorted(i.count for i in found) == [1, 2], "the first, of few channels, and two that are equal"
    assert {i.task.op.name for i in found} == {"Convolution+epilogue"}


def test_inference_has_no_backward_kernels(model):
    assert not any("backward" in i.task.op.name for i in collect(request(model, train=False)).items)
    assert any("backward" in i.task.op.name for i in collect(request(model)).items)


def test_every_process_collects_the_same_in_the_same_order(model):
    first, second = collect(request(model)), collect(TuningRequest.from_json({**request(model).__dict__}))
    assert [str(i.task.key) for i in first.items] == [str(i.task.key) for i in second.items]


def test_the_dtype_is_that_of_the_inputs(model):
    assert {i.task.key.dtype for i in collect(request(model, dtype="float64")).items} == {"float64"}


@pytest.mark.parametrize("op, text, template, want", [
    ("dot", "300x400x500", "cpu gemm", {"m": 300, "n": 500, "k": 400}),
    ("FullyConnected", "300x400x500", "cpu gemm", {"m": 300, "n": 500, "k": 400}),
    ("Convolution", "2x3x28x28@8x5x5/2+1", "cpu conv forward", {"m": 2 * 13 * 13, "n": 8, "k": 3, "taps": 25, "step": 4}),
    ("Convolution", "2x3x100@8x5", "cpu conv forward", {"m": 2 * 96, "n": 8, "k": 3, "taps": 5}),
    ("relu", "32x100x10", "cpu tile", {"elements": 32_000}),
])
def test_shapes_on_the_command_line(op, text, template, want):
    items = collect(TuningRequest(cases=[(op, text)], train=False)).items
    assert [i.task.key.template for i in items] == [template]
    assert want.items() <= items[0].task.key.size.items()


@pytest.mark.parametrize("op, text, message", [
    ("dot", "1024", r"dot: '1024' is not three sizes\. Write M x K x N"), ("dot", "axb", "dot: 'axb' is not a shape"),
    ("dot", "0x4x4", "0x4x4 has no elements"), ("relu", "9999999x9999999", "has too many elements"),
    ("Convolution", "1x2x3", r"'1x2x3' is not a convolution\. Write"),
    ("Convolution", "1x3x8x8@4x3", "needs a kernel of 2 sizes"),
    ("dott", "1x1x1", "dott: no such operator. Did you mean 'dot'")])
def test_errors_name_the_shape_that_cannot_be_read(op, text, message):
    with pytest.raises((ParameterError, MXNetError), match=message):
        collect(TuningRequest(cases=[(op, text)]))


def test_an_unknown_input_is_named(model):
    with pytest.raises(GraphError, match=r"has no input 'dada'\. Did you mean 'data'"):
        collect(TuningRequest(model=model, shapes={"dada": (4, 3, 24, 24)}))
