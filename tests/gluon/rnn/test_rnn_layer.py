"""Recurrent layers: equal to their cells, states, clipping, use in networks, errors. Values: test_golden.py."""

import json

import numpy as np
import pytest
import tritium as mx
from golden.gluon.rnn_cases import fill, formula
from support.helpers import assert_close
from tritium.errors import BlockError, ParameterError, ShapeError
from tritium.gluon import nn, rnn


def made(layer, shape=(4, 2, 3)):
    layer.initialize()
    x = mx.nd.array(formula(shape, 1))
    layer(x)
    fill(layer)
    return layer, x


@pytest.mark.parametrize("make", [
    lambda: rnn.RNN(5, 2, activation="tanh"), lambda: rnn.LSTM(5, 2, bidirectional=True, dropout=0.5), lambda: rnn.GRU(5)],
    ids=["rnn", "lstm", "gru"])
def test_a_layer_equals_the_stack_of_its_cells(make):
    layer, x = made(make())
    stack = layer._unfuse()
    outputs, states = stack.unroll(4, x, layout="TNC", merge_outputs=True)
    begin = layer.begin_state(2)
    fused, ends = layer(x, begin)
    assert_close(outputs, fused, scale=4)  # four steps, each of which adds to the difference
    ends = ends if isinstance(ends, list) else [ends]
    levels = len(ends[0])
    for kind, end in enumerate(ends):
        for level in range(levels):
            assert_close(states[level * len(ends) + kind], end[level], scale=4)


def test_states_pass_from_call_to_call():
    layer, x = made(rnn.GRU(5, layout="NTC"), (2, 4, 3))
    whole = layer(x)
    first, state = layer(x[:, :2], layer.begin_state(2))
    second, _ = layer(x[:, 2:], state)
    assert_close(mx.nd.concat(first, second, dim=1), whole)
    ones = layer.begin_state(2, func=mx.nd.ones, dtype="float64")
    assert ones[0].shape == (1, 2, 5) and ones[0].dtype == np.float64 and ones[0].asnumpy().min() == 1


def test_cell_states_are_clipped():
    free, x = made(rnn.LSTM(5))
    assert free(x, free.begin_state(2))[1][1].min().asscalar() < -0.5
    layer, _ = made(rnn.LSTM(5, state_clip_min=-0.3, state_clip_max=0.3))
    clipped = layer(x, layer.begin_state(2))[1][1].asnumpy()
    assert clipped.min() == np.float32(-0.3) and (clipped > -0.3).any()
    with pytest.raises(BlockError, match="clipped states cannot be unfused"):
        layer._unfuse()


def test_projections_learn():
    layer, x = made(rnn.LSTM(6, projection_size=2, bidirectional=True, state_clip_min=-1, state_clip_max=1))
    assert layer.state_info(2)[0]["shape"] == (2, 2, 2) and layer.state_info(2)[1]["shape"] == (2, 2, 6)
    trainer = mx.gluon.Trainer(layer.collect_params(), "adam", {"learning_rate": 0.05})
    losses = []
    for _ in range(20):
        with mx.autograd.record():
            loss = ((layer(x) - 0.3) ** 2).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asscalar())
    assert losses[-1] < 0.1 * losses[0]


def test_a_layer_inside_a_hybridized_network_gets_its_shapes():
    net = nn.HybridSequential()
    net.add(nn.Dense(7, flatten=False), rnn.LSTM(5, 2, bidirectional=True, layout="NTC"), nn.Dense(2))
    net.initialize()
    net.hybridize()
    assert net(mx.nd.ones((3, 4, 6))).shape == (3, 2)
    assert net[1].l0_i2h_weight.shape == (20, 7) and net[1].r1_i2h_weight.shape == (20, 10)
    assert repr(net[1]) == "LSTM(7 -> 5, NTC, num_layers=2, bidirectional)"


def test_more_than_ten_layers_are_saved(tmp_path):
    layer, x = made(rnn.RNN(2, 11))
    layer.save_parameters(str(tmp_path / "deep.params"))
    again = rnn.RNN(2, 11)
    again.load_parameters(str(tmp_path / "deep.params"))
    assert_close(again(x), layer(x))
    assert "_unfused.10.i2h_weight" in mx.nd.load(str(tmp_path / "deep.params"))


def test_cast_changes_the_states_too():
    layer, x = made(rnn.LSTM(5))
    layer.cast("float64")
    assert layer(x.astype("float64")).dtype == np.float64 and layer.begin_state(1)[0].dtype == np.float64


@pytest.mark.parametrize("call, error, message", [
    (lambda: rnn.LSTM(5, layout="CNT"), ParameterError, "LSTM: layout='CNT' is not one of 'TNC', 'NTC'"),
    (lambda: rnn.RNN(5, activation="gelu"), ParameterError, "RNN: activation='rnn_gelu' is not one of"),
    (lambda: made(rnn.GRU(5))[0](mx.nd.ones((4, 2, 3)), mx.nd.ones((1, 3, 5))), ShapeError, r"has shape \(1, 3, 5\), but must "
     r"have \(1, 2, 5\)"),
    (lambda: made(rnn.LSTM(5, projection_size=2))[0]._unfuse(), BlockError, "projection_size"),
])
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_projections_are_mxnets_rnn_in_files(tmp_path):
    layer, x = made(rnn.LSTM(6, 2, projection_size=3, prefix="l_"))
    layer.hybridize()
    begin = layer.begin_state(2)
    outputs, states = layer(x, begin)
    layer.export(str(tmp_path / "net"))
    node, = (n for n in json.loads((tmp_path / "net-symbol.json").read_text())["nodes"] if n["op"] == "RNN")
    assert node["name"] == "l_rnn0" and node["attrs"] == {  # as MXNet 1.9.1 writes them
        "bidirectional": "False", "lstm_state_clip_max": "None", "lstm_state_clip_min": "None", "lstm_state_clip_nan": "False",
        "mode": "lstm", "num_layers": "2", "p": "0", "projection_size": "3", "state_outputs": "True", "state_size": "6",
        "use_sequence_length": "False"}
    names = ["data0", "data1", "data2"]
    net = mx.gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), names, str(tmp_path / "net-0000.params"))
    for found, wanted in zip(net(x, *begin), [outputs, *states]):
        np.testing.assert_array_equal(found.asnumpy(), wanted.asnumpy())
