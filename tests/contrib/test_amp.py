"""mx.contrib.amp: casts as MXNet 1.9.1 inserts them, in running programs and converted networks, and scaled losses."""

import importlib.util
import json
import logging
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.contrib import amp
from tritium.errors import DTypeError, MXNetError, ParameterError
from tritium.gluon import nn

GOLDEN = Path(__file__).parents[1] / "golden" / "amp"
spec = importlib.util.spec_from_file_location("record_amp", GOLDEN / "record.py")
record = importlib.util.module_from_spec(spec)
spec.loader.exec_module(record)


@pytest.fixture
def on(caplog):
    """Mixed precision in float16. Gives the messages of init."""
    with caplog.at_level(logging.INFO):
        amp.init()
        yield caplog.text
    amp.amp._uninit()


def test_converted_symbols_are_mxnets():
    expected = json.loads((GOLDEN / "converted.json").read_text())
    for case, ours, theirs in zip(record.CASES, record.results(mx.sym, amp.convert_symbol), expected, strict=True):
        text = json.dumps(theirs).replace("_0_amp_cast", "_output_amp_cast")  # our operators name their outputs
        assert ours == json.loads(text), case


def test_files_leave_casts_out_and_pickles_keep_them():
    import pickle

    net = record.networks(mx.sym)["residual"]
    made = amp.convert_symbol(net)
    assert json.loads(made.tojson()) == json.loads(net.tojson()) or "__dtype__" in made.tojson()
    assert "amp_cast" not in made.tojson() and "amp_cast" in made.tojson(remove_amp_cast=False)
    assert "amp_cast" in pickle.loads(pickle.dumps(made)).tojson(remove_amp_cast=False)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("optional", [False, True])
def test_a_converted_model_computes_nearly_the_same(dtype, optional, rng):
    net = record.networks(mx.sym)["residual"]
    data = mx.nd.array(rng.normal(size=(2, 3, 6, 6)))
    shapes, _, states = net.infer_shape(data=data.shape)
    args = {n: mx.nd.array(rng.normal(size=s)) for n, s in zip(net.list_arguments(), shapes)
            if n not in ("data", "softmax_label")}
    auxes = {n: mx.nd.ones(s) for n, s in zip(net.list_auxiliary_states(), states)}
    made, new_args, new_auxes = amp.convert_model(net, args, auxes, dtype, cast_optional_params=optional)
    low = {n for n, a in new_args.items() if np.dtype(a.dtype).name == dtype}
    assert low == ({"conv_weight", "conv_bias", "dense_weight", "dense_bias"} if optional else set())
    assert all(a.dtype == np.float32 for a in (*args.values(), *new_auxes.values()))
    outputs = [s.bind(mx.cpu(), {**a, "data": data, "softmax_label": mx.nd.zeros(2)}, aux_states=x).forward()[0]
               for s, a, x in ((net, args, auxes), (made, new_args, new_auxes))]
    assert outputs[1].dtype == np.float32
    np.testing.assert_allclose(outputs[0].asnumpy(), outputs[1].asnumpy(), atol=0.05 if dtype == "float16" else 0.3)
    assert not np.array_equal(outputs[0].asnumpy(), outputs[1].asnumpy())


def test_functions_of_mx_nd_cast(on):
    x, w = mx.nd.ones((2, 3)), mx.nd.ones((4, 3))
    y = mx.nd.FullyConnected(x, w, num_hidden=4, no_bias=True)
    assert y.dtype == np.float16
    assert mx.nd.exp(y).dtype == np.float32 and mx.nd.softmax(y).dtype == np.float32
    assert mx.nd.relu(y).dtype == np.float16
    assert mx.nd.Activation(y, act_type="softrelu").dtype == np.float32
    assert mx.nd.Activation(y, act_type="tanh").dtype == np.float16
    z = mx.nd.zeros((2, 4))
    assert (y + z).dtype == (z * y).dtype == mx.nd.broadcast_add(y, z).dtype == mx.nd.concat(y, z).dtype == np.float32
    assert (y + y).dtype == np.float16 and mx.nd.stack(y, y).dtype == np.float16
    assert mx.nd.FullyConnected(x.astype("float64"), w.astype("float64"), num_hidden=4, no_bias=True).dtype == np.float64
    w.attach_grad()
    with mx.autograd.record():
        loss = mx.nd.FullyConnected(x, w, num_hidden=4, no_bias=True).sum()
    loss.backward()
    assert w.grad.dtype == np.float32 and w.grad.asnumpy().tolist() == [[2, 2, 2]] * 4
    assert "Using AMP" in on
    if not mx.num_gpus() or mx.context.GPU_MODE == "interpret":
        assert "there is no GPU here. On the CPU, float16 is computed in float32 and rounded" in on


def test_without_it_nothing_is_cast():
    x, w = mx.nd.ones((2, 3)), mx.nd.ones((4, 3))
    assert mx.nd.FullyConnected(x, w, num_hidden=4, no_bias=True).dtype == np.float32
    with pytest.raises(DTypeError):
        x.astype("float16") + x


def test_hybridized_blocks_cast_as_others_do(on, rng):
    net = nn.HybridSequential(prefix="")
    with net.name_scope():
        net.add(nn.Conv2D(2, 3, in_channels=1), nn.BatchNorm(in_channels=2), nn.Activation("relu"), nn.Dense(3))
    net.initialize()
    x = mx.nd.array(rng.normal(size=(2, 1, 5, 5)))
    plain = net(x)
    net.hybridize()
    assert plain.dtype == net(x).dtype == np.float16
    assert_close(net(x), plain.asnumpy())
    ops = [n["op"] for n in json.loads(net._cached_graph[1].tojson(remove_amp_cast=False))["nodes"]]
    assert ops.count("amp_cast") == 6


def test_a_trainer_scales_the_loss_and_skips_overflows(on, caplog):
    dense = nn.Dense(1, in_units=2, use_bias=False)
    dense.initialize(mx.init.One())
    trainer = mx.gluon.Trainer(dense.collect_params(), "sgd", {"learning_rate": 1.0})
    amp.init_trainer(trainer)
    scaler = trainer._amp_loss_scaler
    assert scaler.loss_scale == 2.0**16

    def step(x):
        with mx.autograd.record():
            loss = dense(mx.nd.array([x] * 4)).mean()
            with amp.scale_loss(loss, trainer) as scaled:
                scaled.backward()
        trainer.step(1)
        return dense.weight.data().asnumpy().tolist()

    assert step([0.25, 0.5]) == [[0.75, 0.5]]
    assert step([60000.0, 0.5]) == [[0.75, 0.5]]  # 60000 · 2¹⁶ does not fit in float16
    assert "decreasing loss scale to 32768" in caplog.text
    step([0.25, 0.5])
    assert scaler.loss_scale == 2.0**15
    with mx.autograd.record(), amp.scale_loss([dense(mx.nd.array([[0.25, 0.5]])).sum()], trainer) as scaled:
        mx.autograd.backward(scaled)
    amp.unscale(trainer)
    assert dense.weight.grad().asnumpy().tolist() == [[0.25, 0.5]] and trainer._scale == 1


def test_the_scale_grows_after_2000_steps():
    scaler = amp.loss_scaler.LossScaler()
    scaler._unskipped = 1999
    parameter = mx.gluon.Parameter("p", shape=(1,))
    parameter.initialize()
    assert not scaler.has_overflow([parameter]) and scaler._next_loss_scale == 2.0**17
    assert not scaler.has_overflow([parameter]) and scaler.loss_scale == 2.0**17


def test_losses_are_scaled(on):
    x = mx.nd.zeros((1, 2))
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.SoftmaxOutput(x, mx.nd.zeros(1), grad_scale=2)
    y.backward()
    assert x.grad.asnumpy().tolist() == [[-(2.0**16), 2.0**16]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_blocks_are_converted(dtype, rng):
    net = nn.HybridSequential(prefix="")
    with net.name_scope():
        net.add(nn.Dense(4, in_units=3, activation="relu"), nn.BatchNorm(in_channels=4), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Normal(1))
    x = mx.nd.array(rng.normal(size=(5, 3)))
    with pytest.raises(MXNetError, match=r"the block has no graph. Call block.hybridize\(\), and run it once"):
        amp.convert_hybrid_block(net)
    net.hybridize()
    expected = net(x)
    for optional in (False, True):
        made = amp.convert_hybrid_block(net, dtype, cast_optional_params=optional)
        y = made(x)
        assert y.dtype == np.float32
        np.testing.assert_allclose(y.asnumpy(), expected.asnumpy(), atol=0.02 if dtype == "float16" else 0.1)
        kinds = {np.dtype(p.data().dtype).name for p in made.collect_params().values()}
        assert kinds == ({"float32", dtype} if optional else {"float32"})


def test_bucketing_modules_are_converted(rng):
    def generate(key):
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="dense", flatten=False)
        return mx.sym.SoftmaxOutput(net, name="softmax", preserve_shape=True), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(generate, 4)
    module.bind([("data", (2, 4, 3))], [("softmax_label", (2, 4))], for_training=False)
    with pytest.raises(MXNetError, match="the module has no parameters"):
        amp.convert_bucketing_module(module)
    module.init_params()
    made = amp.convert_bucketing_module(module)
    made.bind([("data", (2, 4, 3))], [("softmax_label", (2, 4))], for_training=False)
    batch = mx.io.DataBatch([mx.nd.array(rng.normal(size=(2, 4, 3)))], bucket_key=4)
    for m in (module, made):
        m.forward(batch)
    assert_close(made.get_outputs()[0].asnumpy().astype("float16"), module.get_outputs()[0].asnumpy())


@pytest.mark.parametrize("act, error, text", [
    (lambda: amp.init("int8"), DTypeError, "amp.init: target_dtype=int8 is not float16 or bfloat16"),
    (lambda: amp.init(fp32_ops=["Convolution"]), ParameterError, "Convolution cannot be computed in target_dtype and in float32"),
    (lambda: amp.init(fp32_ops=["NoSuchOp"]), ParameterError, "NoSuchOp is in none of amp.list_lp16_ops"),
    (lambda: amp.init_trainer(3), DTypeError, "amp.init_trainer: a int is not a gluon.Trainer"),
    (lambda: amp.init_trainer(mx.optimizer.SGD()), DTypeError, "an Optimizer cannot scale the loss"),
    (lambda: amp.convert_symbol(3), DTypeError, "amp.convert_symbol: a int is not a Symbol"),
    (lambda: amp.convert_model(3, {}, {}), DTypeError, "amp.convert_model: a int is not a Symbol"),
    (lambda: amp.convert_hybrid_block(3), DTypeError, "a int is not a HybridBlock"),
    (lambda: amp.convert_bucketing_module(3), DTypeError, "a int is not a BucketingModule"),
])
def test_errors(act, error, text):
    with pytest.raises(error, match=text):
        act()


def test_a_trainer_needs_init_first():
    dense = nn.Dense(1, in_units=2)
    dense.initialize()
    trainer = mx.gluon.Trainer(dense.collect_params(), "sgd")
    with pytest.raises(MXNetError, match=r"mixed precision is not on. Call amp.init\(\) first"):
        amp.init_trainer(trainer)
    with pytest.raises(MXNetError, match=r"does not scale losses. Call amp.init_trainer\(trainer\) first"):
        with amp.scale_loss(mx.nd.ones(1), trainer):
            pass
