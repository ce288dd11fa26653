"""Channels last: arrays are transposed only at the edges of a run, and results are those of channels first."""

import numpy as np
import pytest
import tritium as mx
from tritium.graph import options
from tritium.graph.passes.channels_last import put_channels_last
from tritium.graph.program import INNER, Program, Step
from tritium.kernels.cpu import c_compile
from tritium.kernels.op import Req, Spec, builtin
from tritium.kernels.params import Params

gpu = pytest.mark.skipif(not mx.num_gpus(), reason="no GPU, not even an interpreted one")


def convolution(x, filters, kernel=(3, 3), stride=(1, 1), pad=(1, 1)):
    return mx.sym.Convolution(x, num_filter=filters, kernel=kernel, stride=stride, pad=pad, no_bias=True)


def rectified(x):
    return mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False), act_type="relu")


def resnet20():
    x = convolution(mx.sym.Variable("data"), 16)
    for stage, filters in enumerate((16, 32, 64)):
        for unit in range(3):
            stride = (2, 2) if stage and not unit else (1, 1)
            a = rectified(x)
            y = convolution(rectified(convolution(a, filters, stride=stride)), filters)
            x = y + (convolution(a, filters, (1, 1), stride, (0, 0)) if stage and not unit else x)
    x = mx.sym.Flatten(mx.sym.Pooling(rectified(x), global_pool=True, kernel=(7, 7), pool_type="avg"))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10), name="softmax")


def run(symbol, ctx, heads=True, layout=True, **shapes):
    with options(layout=layout):
        executor = symbol.simple_bind(ctx, "write", **shapes)
    rng = np.random.default_rng(2)
    for name, array in executor.arg_dict.items():
        array[:] = 1 if name.endswith("label") else rng.normal(size=array.shape, scale=0.5).astype("float32")
    outs = [o.asnumpy() for o in executor.forward(is_train=True)]
    executor.backward([mx.nd.array(rng.normal(size=o.shape).astype("float32"), ctx) for o in outs] if heads else None)
    return executor, outs + [a.asnumpy() for a in (*executor._grads.values(), *executor.aux_dict.values())]


def turned(executor):
    """Names of the steps that move elements into another order."""
    return [s.name for s in executor._main().program.steps if "transpose" in s.op.name]


def agree(a, b):
    for x, y in zip(a, b, strict=True):
        # relative to the largest: products of many terms
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-4 * max(1, np.abs(y).max()))


@gpu
def test_resnet_transposes_its_data_once_and_weights_where_they_are_used():
    executor = resnet20().simple_bind(mx.gpu(0), "write", data=(2, 3, 8, 8))
    names = turned(executor)
    assert sorted(n for n in names if "weight" not in n) == ["data_turned", "data_turned_backward"]
    kernels_3x3 = 1 + 18  # a kernel of one position needs no turning
    assert len([n for n in names if "weight" in n and "backward" not in n]) == kernels_3x3
    assert len(names) == 2 + 2 * kernels_3x3
    with options(layout=False):
        assert not turned(resnet20().simple_bind(mx.gpu(0), "write", data=(2, 3, 8, 8)))


@gpu
@pytest.mark.nightly
def test_resnet_gives_the_results_of_channels_first():
    agree(*(run(resnet20(), mx.gpu(0), False, layout, data=(2, 3, 8, 8))[1] for layout in (True, False)))


def mixed():
    """Branches that join, a broadcast, an output in the middle, a sum over channels, and a cut through them."""
    x = mx.sym.Variable("data")
    a = mx.sym.LeakyReLU(convolution(x, 4), act_type="leaky", slope=0.1)
    b = mx.sym.Pooling(a, kernel=(2, 2), stride=(1, 1), pad=(0, 0), pool_type="avg", pooling_convention="valid")
    c = convolution(a, 3, (2, 2), (1, 1), (0, 0))
    joined = mx.sym.Concat(b, c, dim=1)
    scaled = mx.sym.broadcast_mul(joined, mx.sym.Variable("scale", shape=(1, 7, 1, 1)))
    middle = convolution(mx.sym.tanh(scaled), 2)
    return mx.sym.Group([middle, mx.sym.sum(mx.sym.square(middle), axis=1, keepdims=True),
                         mx.sym.slice_axis(a, axis=1, begin=1, end=3)])


@gpu
def test_edges_in_all_places():
    on = run(mixed(), mx.gpu(0), data=(2, 3, 5, 5))
    agree(on[1], run(mixed(), mx.cpu(), data=(2, 3, 5, 5))[1])
    assert any("concat" in n for n in turned(on[0]))


@gpu
def test_only_the_gpus_part_has_channels_last():
    with mx.AttrScope(ctx_group="first"):
        x = mx.sym.tanh(convolution(mx.sym.Variable("data"), 4))
    with mx.AttrScope(ctx_group="second"):
        y = convolution(x, 3)
    results = []
    for first, second in ((mx.gpu(0), mx.cpu()), (mx.cpu(), mx.gpu(0)), (mx.cpu(), mx.cpu())):
        executor = y.simple_bind(mx.cpu(), "write", group2ctx={"first": first, "second": second}, data=(2, 3, 4, 4))
        rng = np.random.default_rng(2)
        for array in executor.arg_dict.values():
            array[:] = rng.normal(size=array.shape).astype("float32")
        out = executor.forward(is_train=True)[0]
        executor.backward(mx.nd.ones(out.shape, out.context))
        results.append([out.asnumpy(), *(g.asnumpy() for g in executor._grads.values())])
        ctx_of = {c: i for i, c in enumerate(executor._contexts)}
        assert {s.ctx for s in executor._main().program.steps if "transpose" in s.op.name} <= {ctx_of.get(mx.gpu(0), -1)}
    agree(results[0], results[2])
    agree(results[1], results[2])


in_c = pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")


@in_c
def test_resnet_on_a_cpu_transposes_its_data_once_and_no_weight(cpu_code):
    cpu_code("auto")
    shape = {"data": (16, 3, 16, 16)}
    assert sorted(turned(resnet20().simple_bind(mx.cpu(), "write", **shape))) == ["data_turned", "data_turned_backward"]
    with options(layout=False):
        assert not turned(resnet20().simple_bind(mx.cpu(), "write", **shape))


@in_c
def test_edges_in_all_places_on_a_cpu(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    on = run(mixed(), mx.cpu(), data=(2, 3, 5, 5))
    agree(on[1], run(mixed(), mx.cpu(), layout=False, data=(2, 3, 5, 5))[1])
    assert any("concat" in n for n in turned(on[0]))


@in_c
def test_on_a_cpu_only_convolutions_in_c_have_channels_last(cpu_code):
    cpu_code("auto")
    x = convolution(mx.sym.Variable("data"), 16)
    assert turned(x.simple_bind(mx.cpu(), "null", data=(16, 8, 16, 16)))
    assert not turned(x.simple_bind(mx.cpu(), "null", data=(1, 1, 4, 4)))  # too small
    assert not turned(x.simple_bind(mx.cpu(), "null", data=(16, 8, 16, 16), type_dict={"data": "float64"}))
    cpu_code("numpy")
    assert not turned(x.simple_bind(mx.cpu(), "null", data=(16, 8, 16, 16)))


def test_a_program_without_convolutions_has_the_same_steps():
    step = Step(builtin("relu"), Params({}), "relu", (0,), (1,), (Req.WRITE,))
    program = Program(targets=("cpu",), steps=[step])
    for name in ("x", "y"):
        program.add_value(Spec((2, 3, 4, 5), np.dtype("f")), INNER, name, 0)
    assert put_channels_last(program).steps == [step]
