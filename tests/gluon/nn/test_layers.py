"""Every layer of gluon.nn, contrib.nn and contrib.cnn: what MXNet 1.9.1 computes, names and prints (tests/golden/gluon).

As arrays, hybridized, and through a file of parameters.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.gluon.cases import FORWARD_ALONE, embeddings, fill, layers, noise, read, run
from tritium.graph.symbol.naming import NameManager

GOLDEN = Path(__file__).parents[2] / "golden" / "gluon"
STORED = read(GOLDEN / "layers.npz")
TEXT = json.loads((GOLDEN / "text.json").read_text())
LAYERS = layers(mx)


def close(got, want, what):
    assert got.shape == want.shape and got.dtype == want.dtype, what
    np.testing.assert_allclose(got, want, 1e-4, 2e-5, err_msg=what)


def made(name):
    """A layer of which all parameters have their values, and its inputs."""
    make, shapes = LAYERS[name]
    arrays = [noise(s, 50 + i) for i, s in enumerate(shapes)]
    with NameManager():
        net = make()
        net.initialize()
        net(*[mx.nd.array(a) for a in arrays])
    fill(mx, net)
    return net, arrays


@pytest.mark.parametrize("hybrid", [False, True], ids=["arrays", "hybridized"])
@pytest.mark.parametrize("name", LAYERS)
def test_computes_as_mxnet(name, hybrid):
    net, arrays = made(name)
    if hybrid:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a Sequential of HybridBlocks
            net.hybridize()
    found = run(mx, net, arrays, backward=name not in FORWARD_ALONE)
    wanted = {k.split(".")[1]: v for k, v in STORED.items() if k.startswith(name + ".")}
    if name == "batchnorm_fixed":
        del wanted["p0"]  # MXNet sets gamma to 1 (docs/mxnet.md)
    assert wanted and found.keys() >= wanted.keys()
    for k, v in wanted.items():
        close(found[k], v, k)


@pytest.mark.nightly
@pytest.mark.parametrize("hybrid", [False, True], ids=["arrays", "hybridized"])
@pytest.mark.parametrize("name", LAYERS)
def test_computes_as_mxnet_on_a_gpu(name, hybrid):
    if mx.context.GPU_MODE == "off":
        pytest.skip("TRITIUM_GPU=off")
    with mx.gpu(0):
        test_computes_as_mxnet(name, hybrid)


@pytest.mark.parametrize("name", LAYERS)
def test_prints_and_names_as_mxnet(name):
    make, shapes = LAYERS[name]
    text = TEXT[name]
    with NameManager():
        net = make()
        assert repr(net) == text["before"]
        net.initialize()
        net(*[mx.nd.array(noise(s, 50)) for s in shapes])
    assert repr(net) == text["after"]
    assert (net.prefix, list(net.collect_params())) == (text["prefix"], text["names"])


@pytest.mark.parametrize("name", embeddings(mx))
def test_embeddings(name):
    make, integers = embeddings(mx)[name]
    with NameManager():
        net = make()
    assert (repr(net), net.prefix, list(net.collect_params())) == tuple(TEXT[name][k] for k in ("before", "prefix", "names"))
    net.initialize()
    if name == "sparseembedding":
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
        net.weight.set_data(mx.nd.array(noise(net.weight.shape, 1)).tostype("row_sparse"))
        assert trainer is net.weight._trainer
    else:
        fill(mx, net)
    with mx.autograd.record():
        out = net(mx.nd.array(integers))
    out.backward(mx.nd.array(noise(out.shape, 99)))
    close(out.asnumpy(), STORED[f"{name}.out"], "out")
    close(net.weight.grad().tostype("default").asnumpy(), STORED[f"{name}.p0"], "weight")
    assert net.weight.grad().stype == ("default" if name == "embedding" else "row_sparse")


@pytest.mark.parametrize("name", [n for n in LAYERS if TEXT[n]["names"]])
def test_a_file_of_parameters_gives_an_equal_layer(name, tmp_path):
    net, arrays = made(name)
    net.save_parameters(str(tmp_path / "p"))
    other = LAYERS[name][0]()
    other.load_parameters(str(tmp_path / "p"))
    x = [mx.nd.array(a) for a in arrays]
    np.testing.assert_array_equal(net(*x).asnumpy(), other(*x).asnumpy())


def test_dropout_in_training_drops_and_rescales():
    net = mx.gluon.nn.Dropout(0.25)
    with mx.autograd.record():
        y = net(mx.nd.ones((200, 50))).asnumpy()
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02


def test_dropout_shares_a_draw_along_axes():
    with mx.autograd.record():
        y = mx.gluon.nn.Dropout(0.5, axes=(1,))(mx.nd.ones((50, 6))).asnumpy()
    assert (y == y[:, :1]).all() and 0 < y.mean() < 2


def test_a_slice_of_a_stack_shares_its_parameters():
    net = mx.gluon.nn.HybridSequential()
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(3, in_units=3), mx.gluon.nn.Dense(3, in_units=3), mx.gluon.nn.Dense(2, in_units=3))
    assert len(net) == 3 and net[1] is list(net._children.values())[1]
    part = net[1:]
    assert type(part) is mx.gluon.nn.HybridSequential and len(part) == 2 and part[0] is net[1] and part.prefix == net.prefix


def test_batchnorm_stays_float32_for_float16():
    net = mx.gluon.nn.BatchNorm(in_channels=2)
    net.cast("float16")
    assert {np.dtype(p.dtype).name for p in net.collect_params().values()} == {"float32"}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_convolution_weights_follow_the_layout(layout):
    shape = mx.gluon.nn.Conv2D(4, (3, 2), layout=layout, in_channels=6, groups=2).weight.shape
    assert shape == {"NHWC": (4, 3, 2, 3), "NCHW": (4, 3, 3, 2)}[layout]
    transposed = mx.gluon.nn.Conv2DTranspose(4, (3, 2), layout=layout, in_channels=6, groups=2).weight.shape
    assert transposed == {"NHWC": (6, 3, 2, 2), "NCHW": (6, 2, 3, 2)}[layout]


def test_sequential_of_hybrid_blocks_warns():
    net = mx.gluon.nn.Sequential()
    net.add(mx.gluon.nn.Dense(2))
    with pytest.warns(UserWarning, match="All children of this Sequential layer 'sequential.*' are HybridBlocks"):
        net.hybridize()


def test_syncbatchnorm_warns_without_num_devices():
    with pytest.warns(UserWarning, match="num_devices is the number of all GPUs"):
        mx.gluon.contrib.nn.SyncBatchNorm()


@pytest.mark.parametrize("make, message", [
    (lambda nn: nn.LeakyReLU(-1), r"LeakyReLU: alpha=-1. The slope of negative values is at least 0"),
    (lambda nn: nn.Conv1D(3, 3, layout="NWC"), r"Conv1D: layout='NWC' is not one of 'NCW'"),
    (lambda nn: nn.Conv2D(3, (3, 3, 3)), r"Conv2D: kernel_size=\(3, 3, 3\). It must be a number or a list of 2 ints"),
    (lambda nn: nn.Conv2D(3, 3, in_channels=4, groups=3), r"Conv2D: 4 channels to 3 in 3 groups. groups must divide both"),
    (lambda nn: nn.Conv2DTranspose(3, 3, output_padding=(1,)), r"Conv2DTranspose: output_padding=\(1,\)"),
    (lambda nn: nn.MaxPool3D((2, 2)), r"MaxPool3D: pool_size=\(2, 2\). It must be a number or a list of 3 ints"),
    (lambda nn: nn.AvgPool2D(layout="NWC"), r"AvgPool2D: layout='NWC' is not one of"),
    (lambda nn: nn.ReflectionPad2D((1, 1)), r"ReflectionPad2D: padding=\(1, 1\)"),
    (lambda nn: nn.Lambda("tanhh"), r"Lambda: no operator is called 'tanhh'. Did you mean .*'tanh'"),
    (lambda nn: nn.Lambda(3), r"Lambda: 3 is neither the name of an operator nor a function"),
    (lambda nn: nn.HybridLambda(3), r"HybridLambda: 3 is neither"),
    (lambda nn: mx.gluon.contrib.nn.PixelShuffle2D((1, 2, 3)), r"PixelShuffle2D: factor=\(1, 2, 3\). It must be a number or 2"),
    (lambda nn: mx.gluon.contrib.cnn.DeformableConvolution(3, layout="NCW"), r"DeformableConvolution: layout='NCW' is not"),
])
def test_errors(make, message):
    with pytest.raises(mx.MXNetError, match=message):
        make(mx.gluon.nn)


def test_an_array_that_is_not_given_may_be_none_by_position():
    x, w = mx.nd.ones((2, 3)), mx.nd.ones((4, 3))
    np.testing.assert_array_equal(mx.nd.FullyConnected(x, w, None, no_bias=True, num_hidden=4).asnumpy(), np.full((2, 4), 3))
    y = mx.sym.FullyConnected(mx.sym.var("x"), mx.sym.var("w"), None, no_bias=True, num_hidden=4)
    assert y.list_arguments() == ["x", "w"]
    data, label = mx.sym.var("data", shape=(4, 2, 3)), mx.sym.var("label", shape=(2, 2))
    loss = mx.sym.CTCLoss(data, label, None, None, use_data_lengths=False, use_label_lengths=False)
    assert loss.infer_shape()[1] == [(2,)]
    arrays = mx.nd.ones((4, 2, 3)), mx.nd.ones((2, 2)), None, None
    assert mx.nd.CTCLoss(*arrays, use_data_lengths=False, use_label_lengths=False).shape == (2,)
