"""Recurrent cells. Oracle: the formulas in NumPy, in float64."""

import json
import random

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import MXNetError, ParameterError

N, T, I, H = 2, 4, 3, 5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, p, prefix, h, c):
    gates = x @ p[f"{prefix}i2h_weight"].T + p[f"{prefix}i2h_bias"] + h @ p[f"{prefix}h2h_weight"].T + p[f"{prefix}h2h_bias"]
    i, f, new, o = np.split(gates, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
    return sigmoid(o) * np.tanh(c), c


def gru(x, p, prefix, h):
    a = np.split(x @ p[f"{prefix}i2h_weight"].T + p[f"{prefix}i2h_bias"], 3, axis=1)
    b = np.split(h @ p[f"{prefix}h2h_weight"].T + p[f"{prefix}h2h_bias"], 3, axis=1)
    r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
    return (1 - z) * np.tanh(a[2] + r * b[2]) + z * h


def walk(kind, x, p, prefix, size=H):
    h = c = np.zeros((len(x), size))
    found = []
    for t in range(x.shape[1]):
        if kind == "lstm":
            h, c = lstm(x[:, t], p, prefix, h, c)
        elif kind == "gru":
            h = gru(x[:, t], p, prefix, h)
        else:
            h = np.tanh(x[:, t] @ p[f"{prefix}i2h_weight"].T + p[f"{prefix}i2h_bias"]
                        + h @ p[f"{prefix}h2h_weight"].T + p[f"{prefix}h2h_bias"])
        found.append(h)
    return np.stack(found, axis=1)


def run(cell, rng, ctx=None, data=None, layout="NTC", length=T):
    """Return (outputs, arguments) of an unrolled cell with random arguments."""
    out, _ = cell.unroll(length, mx.sym.Variable("data"), layout=layout, merge_outputs=True)
    shape = (N, length, I) if layout == "NTC" else (length, N, I)
    executor = out.simple_bind(ctx or mx.cpu(), grad_req="write", data=shape)
    for name, a in executor.arg_dict.items():
        a[:] = data if name == "data" and data is not None else rng.normal(0, 0.5, a.shape)
    executor.forward(is_train=False)
    return executor.outputs[0].asnumpy(), {k: v.asnumpy().astype("f8") for k, v in executor.arg_dict.items()}


@pytest.mark.parametrize("kind, make", [("lstm", mx.rnn.LSTMCell), ("gru", mx.rnn.GRUCell), ("rnn", mx.rnn.RNNCell)])
@pytest.mark.parametrize("layout", ["NTC", "TNC"])
def test_cells_compute_their_formulas(kind, make, layout, rng, ctx):
    got, p = run(make(H, prefix="a_"), rng, ctx, layout=layout)
    x = p["data"] if layout == "NTC" else p["data"].swapaxes(0, 1)
    want = walk(kind, x, p, "a_")
    assert_close(got, want if layout == "NTC" else want.swapaxes(0, 1), scale=10)  # 10: rounded in another order


def test_single_steps_and_a_list_of_inputs_equal_unroll(rng):
    cell = mx.rnn.LSTMCell(H, prefix="a_")
    got, p = run(cell, rng, length=1)
    assert_close(got, walk("lstm", p["data"], p, "a_"), scale=10)  # 10: rounded in another order
    steps = [mx.sym.Variable(f"t{t}") for t in range(3)]
    outputs, states = cell.unroll(3, steps)
    assert [o.list_outputs()[0] for o in outputs] == [f"a_t{t}_out_output" for t in range(3)] and len(states) == 2
    with pytest.raises(ParameterError, match="unroll: 3 inputs for 4 steps"):
        cell.unroll(4, steps)


def test_a_bidirectional_cell_concatenates_both_directions(rng):
    got, p = run(mx.rnn.BidirectionalCell(mx.rnn.LSTMCell(H, prefix="l_"), mx.rnn.GRUCell(H, prefix="r_")), rng)
    back = walk("gru", p["data"][:, ::-1], p, "r_")[:, ::-1]
    assert_close(got, np.concatenate([walk("lstm", p["data"], p, "l_"), back], 2), scale=10)  # 10: rounded in another order


def test_a_stack_with_dropout_and_residual_connection(rng):
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.LSTMCell(I, prefix="a_"))
    stack.add(mx.rnn.DropoutCell(0.5))
    stack.add(mx.rnn.ResidualCell(mx.rnn.GRUCell(I, prefix="b_")))
    got, p = run(stack, rng)
    below = walk("lstm", p["data"], p, "a_", I)
    assert_close(got, walk("gru", below, p, "b_", I) + below, scale=10)  # 10: rounded in another order


def test_zoneout_keeps_previous_outputs_and_states(rng):
    """In training, each element is that of the new or of the previous output, about half each."""
    cell = mx.rnn.ZoneoutCell(mx.rnn.RNNCell(200, prefix="a_"), zoneout_outputs=0.5)
    out, _ = cell.unroll(2, mx.sym.Variable("data"), merge_outputs=True)
    executor = out.simple_bind(mx.cpu(), data=(N, 2, I))
    for a in executor.arg_dict.values():
        a[:] = rng.normal(0, 1, a.shape)
    mx.random.seed(1)
    first = executor.forward(is_train=True)[0].asnumpy()[:, 0]
    assert 0.3 < (first == 0).mean() < 0.7  # the outputs before the first step are zeros


def test_the_fused_vector_has_the_weights_of_single_cells(rng):
    fused = mx.rnn.FusedRNNCell(H, num_layers=2, mode="gru", bidirectional=True, prefix="f_")
    size = 2 * 3 * H * (I + H + 2) + 2 * 3 * H * (2 * H + H + 2)
    vector = rng.normal(0, 0.3, size).astype("f")
    parts = fused.unpack_weights({"f_parameters": mx.nd.array(vector), "other": mx.nd.ones(1)})
    assert np.array_equal(parts["f_l0_i2h_r_weight"].asnumpy(), vector[: H * I].reshape(H, I))
    assert np.array_equal(parts["f_r1_h2h_o_bias"].asnumpy(), vector[-H:])
    assert np.array_equal(fused.pack_weights(parts)["f_parameters"].asnumpy(), vector)
    cells = fused.unfuse()
    own = cells.pack_weights(parts)
    _, p = run(cells, rng)
    assert {k: v.shape for k, v in own.items() if k != "other"} == {k: v.shape for k, v in p.items() if k != "data"}
    with pytest.raises(ParameterError, match="7 parameters do not fit 2 layers of 5 gru cells"):
        fused.unpack_weights({"f_parameters": mx.nd.ones(7)})


@pytest.mark.parametrize("mode", ["rnn_relu", "rnn_tanh", "lstm", "gru"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("layout", ["NTC", "TNC"])
def test_the_fused_cell_equals_single_cells(mode, both, layout, rng):
    """The operator and the unrolled cells have the same outputs and derivatives by the weights."""
    fused = mx.rnn.FusedRNNCell(H, num_layers=2, mode=mode, bidirectional=both, prefix="f_")
    got, p = run(fused, rng, layout=layout)
    cells = fused.unfuse()
    own = cells.pack_weights(fused.unpack_weights({"f_parameters": mx.nd.array(p["f_parameters"])}))
    out, _ = cells.unroll(T, mx.sym.Variable("data"), layout=layout, merge_outputs=True)
    executor = out.simple_bind(mx.cpu(), grad_req="null", data=p["data"].shape)
    executor.copy_params_from(own)
    executor.arg_dict["data"][:] = p["data"]
    assert_close(got, executor.forward()[0], scale=10)  # 10: rounded in another order


def test_the_fused_cell_takes_and_returns_states(rng):
    cell = mx.rnn.FusedRNNCell(H, num_layers=2, mode="lstm", get_next_state=True, prefix="f_")
    outputs, states = cell.unroll(T, mx.sym.Variable("data"), merge_outputs=False)
    assert len(outputs) == T and len(states) == 2
    executor = mx.sym.Group([outputs[-1], *states]).simple_bind(mx.cpu(), data=(N, T, I))
    for a in executor.arg_dict.values():
        a[:] = rng.normal(0, 0.5, a.shape)
    last, hidden, inner = (o.asnumpy() for o in executor.forward())
    assert hidden.shape == inner.shape == (2, N, H) and np.array_equal(last, hidden[1])
    with pytest.raises(MXNetError, match="FusedRNNCell: it cannot run a single step"):
        cell(mx.sym.Variable("x"), [])


def test_each_gate_of_the_fused_vector_is_initialized():
    """Weights by the model's initializer, biases of forget gates by forget_bias, other biases 0."""
    cell = mx.rnn.FusedRNNCell(H, num_layers=1, mode="lstm", forget_bias=2.0, prefix="f_")
    module = mx.mod.Module(cell.unroll(T, mx.sym.Variable("data"), merge_outputs=True)[0], label_names=None)
    module.bind([("data", (N, T, I))])
    module.init_params(mx.init.Xavier())
    parts = cell.unpack_weights(module.get_params()[0])
    limit = np.sqrt(3 / ((I + H) / 2))
    weight = parts["f_l0_i2h_i_weight"].asnumpy()
    assert 0.5 * limit < abs(weight).max() <= limit and not np.array_equal(weight, parts["f_l0_i2h_o_weight"].asnumpy())
    assert parts["f_l0_i2h_f_bias"].asnumpy().tolist() == [2] * H and not parts["f_l0_h2h_o_bias"].asnumpy().any()
    own = mx.init.create(mx.init.FusedRNN(mx.init.Constant(3), H, 1, "gru").dumps())
    vector = mx.nd.zeros(3 * H * (I + H + 2))
    own(mx.init.InitDesc("parameters", {"__init__": own.dumps()}), vector)
    assert vector.asnumpy().tolist() == [3] * (3 * H * (I + H)) + [0] * (6 * H)
    with pytest.raises(ParameterError, match="FusedRNN: the gates of 'parameters' have no initializer"):
        mx.init.FusedRNN(None, H, 1, "gru")._init_weight("parameters", vector)


def plane(x, weight, bias, stride=1):
    """Return a 3 × 3 convolution with padding 1, computed window by window."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = ((s - 1) // stride + 1 for s in x.shape[2:])
    return np.stack([np.stack([np.einsum("ncij,ocij->no", padded[:, :, r * stride:r * stride + 3, c * stride:c * stride + 3],
                                         weight) for c in range(columns)], -1) for r in range(rows)], -2) + bias[:, None, None]


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_convolutional_cells_compute_their_formulas(kind, rng):
    """Products are convolutions, and the activation is a leaky ReLU."""
    cell = getattr(mx.rnn, f"Conv{kind}Cell")((1, 2, 5, 4), num_hidden=3, i2h_stride=(2, 2))
    name = f"Conv{kind}_"
    assert cell.state_info == [{"shape": (0, 3, 3, 2), "__layout__": "NCHW"}] * (1 + (kind == "LSTM"))
    outputs, _ = cell.unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])
    executor = outputs[1].simple_bind(mx.cpu(), x0=(N, 2, 5, 4), x1=(N, 2, 5, 4))
    for a in executor.arg_dict.values():
        a[:] = rng.normal(0, 0.5, a.shape)
    p = {k: v.asnumpy().astype("f8") for k, v in executor.arg_dict.items()}
    leaky = lambda x: np.where(x > 0, x, 0.2 * x)
    h = c = np.zeros((N, 3, 3, 2))
    for x in (p["x0"], p["x1"]):
        a = plane(x, p[f"{name}i2h_weight"], p[f"{name}i2h_bias"], 2)
        b = plane(h, p[f"{name}h2h_weight"], p[f"{name}h2h_bias"])
        if kind == "LSTM":
            i, f, new, o = np.split(a + b, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * leaky(new)
            h = sigmoid(o) * leaky(c)
        elif kind == "GRU":
            a, b = np.split(a, 3, axis=1), np.split(b, 3, axis=1)
            z = sigmoid(a[1] + b[1])
            h = (1 - z) * leaky(a[2] + sigmoid(a[0] + b[0]) * b[2]) + z * h
        else:
            h = leaky(a + b)
    assert_close(executor.forward()[0], h, scale=10)  # 10: rounded in another order
    again = cell.pack_weights(cell.unpack_weights({k: mx.nd.array(v) for k, v in p.items()}))
    assert all(np.array_equal(again[k].asnumpy(), v.astype("f")) for k, v in p.items())
    with pytest.raises(ParameterError, match=r"h2h_kernel=\(2, 3\) must be odd"):
        getattr(mx.rnn, f"Conv{kind}Cell")((1, 2, 5, 4), 3, h2h_kernel=(2, 3))


def test_a_convolutional_cell_ignores_the_batch_size():
    (known,), (unknown,) = (mx.rnn.ConvRNNCell((n, I, 8, 6), H).state_info for n in (2, 0))
    assert known["shape"] == unknown["shape"] == (0, H, 8, 6)


def test_checkpoints_have_one_array_per_gate(rng, tmp_path):
    cell = mx.rnn.LSTMCell(H)
    out, _ = cell.unroll(2, mx.sym.Variable("data"), merge_outputs=True)
    args = {"lstm_i2h_weight": mx.nd.array(rng.normal(size=(4 * H, I))), "lstm_i2h_bias": mx.nd.array(rng.normal(size=4 * H)),
            "lstm_h2h_weight": mx.nd.array(rng.normal(size=(4 * H, H))), "lstm_h2h_bias": mx.nd.array(rng.normal(size=4 * H))}
    mx.rnn.do_rnn_checkpoint(cell, str(tmp_path / "r"))(2, out, args, {})
    raw = mx.nd.load(str(tmp_path / "r-0003.params"))
    assert np.array_equal(raw["arg:lstm_i2h_f_weight"].asnumpy(), args["lstm_i2h_weight"].asnumpy()[H : 2 * H])
    _, again, _ = mx.rnn.load_rnn_checkpoint(cell, str(tmp_path / "r"), 3)
    assert all(np.array_equal(again[k].asnumpy(), v.asnumpy()) for k, v in args.items()) and len(again) == 4


def test_biases_of_forget_gates_begin_at_forget_bias():
    cell = mx.rnn.LSTMCell(2, forget_bias=3.0)
    module = mx.mod.Module(cell.unroll(2, mx.sym.Variable("data"), merge_outputs=True)[0], label_names=None)
    module.bind([("data", (1, 2, 2))])
    module.init_params()
    assert module.get_params()[0]["lstm_i2h_bias"].asnumpy().tolist() == [0, 0, 3, 3, 0, 0, 0, 0]


def test_initial_states_may_be_inputs():
    states = mx.rnn.LSTMCell(H).begin_state(mx.sym.Variable)
    assert [s.name for s in states] == ["lstm_begin_state_0", "lstm_begin_state_1"]
    modified = mx.rnn.LSTMCell(H)
    mx.rnn.ResidualCell(modified)
    with pytest.raises(MXNetError, match="the cell is part of a modifier cell"):
        modified.begin_state()


def test_sentences_become_integers():
    coded, vocab = mx.rnn.encode_sentences([["a", "b"], ["b", "c"]], invalid_label=0, start_label=0)
    assert coded == [[1, 2], [2, 3]] and vocab == {"\n": 0, "a": 1, "b": 2, "c": 3}
    assert mx.rnn.encode_sentences([["a", "z"]], vocab, unknown_token="c")[0] == [[1, 3]]
    with pytest.raises(ParameterError, match="'z' is not in the vocabulary"):
        mx.rnn.encode_sentences([["z"]], vocab)


@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_sentences_are_batched_by_length(layout):
    sentences = [[1, 2, 3]] * 5 + [[4, 5]] * 3 + [[6] * 9]
    data = mx.rnn.BucketSentenceIter(sentences, 2, buckets=[2, 4], invalid_label=0, layout=layout)
    assert data.default_bucket_key == 4 and data.left_out == 1
    batches = list(data)
    assert sorted(b.bucket_key for b in batches) == [2, 4, 4]
    for b in batches:
        x, y = (a[0].asnumpy() if layout == "NT" else a[0].asnumpy().T for a in (b.data, b.label))
        assert x.tolist() == [[1, 2, 3, 0] if b.bucket_key == 4 else [4, 5]] * 2
        assert y.tolist() == [[2, 3, 0, 0] if b.bucket_key == 4 else [5, 0]] * 2
        assert b.provide_data[0].shape == b.data[0].shape
    data.reset()
    assert len(list(data)) == 3


def test_the_same_seeds_give_the_order_of_mxnet():
    """Python's random numbers shuffle batches, NumPy's the sentences of a bucket. The expected order is that of MXNet 1.9.1."""
    np.random.seed(0)
    random.seed(0)
    source = mx.rnn.BucketSentenceIter([[i] * (2 + i % 2) for i in range(1, 13)], 2, buckets=[2, 3], invalid_label=0)
    assert [(b.bucket_key, *b.data[0].asnumpy()[:, 0].tolist()) for b in source] == [
        (3, 9, 1), (2, 2, 10), (2, 4, 8), (2, 12, 6), (3, 5, 11), (3, 3, 7)]


def test_symbol_files_count_outputs_as_mxnet_does():
    """The arrays that RNN keeps for backward are not outputs in a symbol file."""
    cell = mx.rnn.FusedRNNCell(H, num_layers=2, mode="lstm", get_next_state=True, dropout=0.5, prefix="f_")
    out, _ = cell.unroll(T, mx.sym.Variable("data"), layout="TNC", merge_outputs=True)
    written = json.loads(out.tojson())
    assert [n["op"] for n in written["nodes"]][-1] == "RNN" and written["node_row_ptr"] == [0, 1, 2, 3, 4, 7]
