"""Cells: forms of sequences, modifiers in training, errors. tests/gluon/rnn/test_golden.py: values and names."""

import numpy as np
import pytest
import tritium as mx
from golden.gluon.rnn_cases import fill, formula
from support.helpers import assert_close
from tritium.errors import BlockError, ParameterError, ShapeError
from tritium.gluon import nn, rnn
from tritium.gluon.contrib import rnn as more
from tritium.gluon.rnn.rnn_cell import _format_sequence


def made(cell):
    cell.initialize()
    x = mx.nd.array(formula((2, 3, 4), 1))
    cell.unroll(3, x)
    fill(cell)
    return cell, x


def test_sequences_are_arrays_or_lists():
    cell, x = made(rnn.LSTMCell(5))
    whole, states = cell.unroll(3, x, merge_outputs=True)
    steps, _ = cell.unroll(3, [x[:, t] for t in range(3)])
    assert isinstance(steps, list) and len(steps) == 3 and whole.shape == (2, 3, 5)
    for t in range(3):
        assert_close(steps[t], whole[:, t])
    turned, _ = cell.unroll(3, x.swapaxes(0, 1), layout="TNC", merge_outputs=True)
    assert_close(turned.swapaxes(0, 1), whole)
    _, middle = cell.unroll(2, x[:, :2])
    rest, ends = cell.unroll(1, x[:, 2:], begin_state=middle)
    assert_close(rest[0], whole[:, 2])
    assert_close(ends[1], states[1])


def test_an_activation_may_be_a_block():
    outputs = []
    for activation in (nn.LeakyReLU(0.3), lambda y, **_: mx.nd.where(y > 0, y, 0.3 * y), "relu"):
        cell, x = made(rnn.RNNCell(5, activation=activation, input_size=4))
        outputs.append(cell.unroll(3, x, merge_outputs=True)[0])
    assert_close(outputs[0], outputs[1])
    assert not np.allclose(outputs[0].asnumpy(), outputs[2].asnumpy())


def test_zoneout_keeps_previous_values_in_training():
    cell, x = made(rnn.ZoneoutCell(rnn.RNNCell(400), zoneout_outputs=0.0, zoneout_states=0.25))
    with mx.autograd.train_mode():
        begin = [mx.nd.full((2, 400), 7)]
        _, (state,) = cell(x[:, 0], begin)
    kept = (state.asnumpy() == 7).mean()
    assert 0.1 < kept < 0.4
    assert (cell(x[:, 0], begin)[1][0].asnumpy() != 7).all()  # at inference there is no mask


def test_variational_dropout_uses_one_mask_per_sequence():
    cell, _ = made(more.VariationalDropoutCell(rnn.RNNCell(50), drop_inputs=0.5, drop_states=0.3, drop_outputs=0.5))
    with mx.autograd.train_mode():
        outputs, _ = cell.unroll(4, mx.nd.ones((2, 4, 4)), merge_outputs=True)
        dropped = outputs.asnumpy() == 0
        assert 0.2 < dropped.mean() < 0.8 and (dropped == dropped[:, :1]).all()
        again = cell.unroll(4, mx.nd.ones((2, 4, 4)), merge_outputs=True)[0].asnumpy() == 0
    assert (again != dropped).any()
    assert cell.drop_outputs_mask is not None
    cell.reset()
    assert cell.drop_outputs_mask is None


def test_a_modified_cell_is_called_through_its_modifier_only():
    base = rnn.GRUCell(4)
    residual = rnn.ResidualCell(base)
    assert residual.params is base.params and residual.prefix == f"{base.prefix}residualcell"
    with pytest.raises(BlockError, match="part of a modifier cell, such as ZoneoutCell"):
        base.begin_state(2)
    with pytest.raises(BlockError, match="is part of a modifier cell already"):
        rnn.ZoneoutCell(base)
    assert residual.begin_state(batch_size=2, func=mx.nd.zeros)[0].shape == (2, 4)


def test_conv_cells_take_sizes_per_axis_and_channels_last():
    cell = more.Conv2DLSTMCell((5, 6, 2), 3, (3, 1), 3, i2h_pad=(1, 0), conv_layout="NHWC")
    cell.initialize()
    assert cell.i2h_weight.shape == (12, 3, 1, 2) and cell.h2h_weight.shape == (12, 3, 3, 3)
    output, states = cell(mx.nd.ones((2, 5, 6, 2)), cell.begin_state(2))
    assert output.shape == (2, 5, 6, 3) and len(states) == 2
    assert repr(cell) == "Conv2DLSTMCell(2 -> 12, tanh, NHWC)"


@pytest.mark.parametrize("call, error, message", [
    (lambda: _format_sequence(3, None, "NTC", True), ParameterError, "unroll: inputs is None"),
    (lambda: made(rnn.RNNCell(5))[0].unroll(4, mx.nd.ones((2, 3, 4))), ShapeError, r"inputs \(2, 3, 4\) has 3 steps"),
    (lambda: made(rnn.RNNCell(5))[0].unroll(4, [mx.nd.ones((2, 4))]), ShapeError, "length=4, but inputs is a list of 1 steps"),
    (lambda: rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2))(0, 0), NotImplementedError, "cannot make single steps"),
    (lambda: rnn.ZoneoutCell(rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2))), BlockError, "Modify its two cells"),
    (lambda: rnn.DropoutCell("half"), ParameterError, "rate='half' is not a number"),
    (lambda: more.Conv1DRNNCell((2, 5), 3, 3, 2), ParameterError, "h2h_kernel=2 must be odd"),
    (lambda: more.Conv2DRNNCell((2, 5, 5), 3, (3, 3, 3), 3), ParameterError, r"i2h_kernel=\(3, 3, 3\) must be one number, or 2"),
])
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_stack_cannot_step_a_bidirectional_cell():
    stack = rnn.SequentialRNNCell()
    stack.add(rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2)))
    with pytest.raises(BlockError, match="a BidirectionalCell cannot make single steps"):
        stack(np.zeros(1), stack.begin_state(batch_size=1))
    assert len(stack) == 1 and isinstance(stack[0], rnn.BidirectionalCell)


@pytest.mark.parametrize("make", [lambda: rnn.RNNCell(4, input_size=3), lambda: rnn.LSTMCell(4, input_size=3),
                                  lambda: rnn.GRUCell(4, input_size=3), lambda: more.LSTMPCell(4, 2, input_size=3),
                                  lambda: more.Conv1DLSTMCell((3, 8), 4, 3, 3, 1)])
def test_a_subclass_may_pass_the_weights_by_position(make):
    """As code written for MXNet does that wraps hybrid_forward."""
    cell = make()
    cell.initialize()
    fill(cell)
    names = ["i2h_weight", "h2h_weight", *(["h2r_weight"] if hasattr(cell, "h2r_weight") else []), "i2h_bias", "h2h_bias"]
    shape = (2, 3, 8) if isinstance(cell, more.Conv1DLSTMCell) else (2, 3)
    x, states = mx.nd.array(formula(shape, 0.3)), cell.begin_state(2)
    want, _ = cell(x, states)
    got, _ = cell.hybrid_forward(mx.nd, x, states, *[getattr(cell, n).data() for n in names])
    assert np.array_equal(got.asnumpy(), want.asnumpy())
