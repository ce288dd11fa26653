"""LSTM layers whose outputs are projected to fewer units (Sak et al. 2014), as calls of other operators, step by step."""

from __future__ import annotations

from typing import Any

from ....errors import ParameterError
from ...declare.composite import TracedValue, composite, ops
from ...op import Shapes


def _complete(p: Any, shapes: Shapes) -> Shapes:
    """Return the shapes of data, parameters and both states, as far as they follow from data."""
    data = shapes[0]
    if data is None or len(data) != 3 or min(data) < 0:
        return shapes
    levels, h, r = p.num_layers * (1 + p.bidirectional), p.state_size, p.projection_size
    size, width = 0, data[2]
    for _ in range(p.num_layers):
        size += (1 + p.bidirectional) * (4 * h * (width + r + 2) + r * h)
        width = r * (1 + p.bidirectional)
    return [data, (size,), (levels, data[1], r), (levels, data[1], h)]


def _check(p: Any) -> None:
    if p.projection_size < 1 or p.state_size < 1 or p.num_layers < 1:
        raise ParameterError(f"_rnn_projected: state_size={p.state_size}, projection_size={p.projection_size}, num_layers="
                             f"{p.num_layers} must be at least 1.")


class _Vector:
    """The vector of parameters, from whose beginning arrays are taken."""

    def __init__(self, values: TracedValue):
        self.values, self.at = values, 0

    def take(self, *shape: int) -> TracedValue:
        size = 1
        for n in shape:
            size *= n
        self.at += size
        return ops.Reshape(ops.slice_axis(self.values, axis=0, begin=self.at - size, end=self.at), shape=shape)


def _row(x: TracedValue, i: int) -> TracedValue:
    return ops.Reshape(ops.slice_axis(x, axis=0, begin=i, end=i + 1), shape=x.shape[1:])


@composite("_rnn_projected", outputs=("output", "state_output", "statecell_output"), complete=_complete, check=_check, draws=True)
def rnn_projected(data: TracedValue, parameters: TracedValue, state: TracedValue, state_cell: TracedValue, *, state_size: int,
                  projection_size: int, num_layers: int = 1, bidirectional: bool = False, p: float = 0.0,
                  lstm_state_clip_min: float | None = None, lstm_state_clip_max: float | None = None) -> list[TracedValue]:
    """num_layers LSTM layers of state_size cells, each of whose outputs h is projected to r = W_hr h, of projection_size.

    data:        [steps, batch, inputs].
    parameters:  one vector. For every layer and direction: the weights of its input [4h, inputs], of its previous output [4h, r]
                 and of the projection [r, h]; then in the same order the biases [4h] of the first two. Gates: i, f, c, o.
    state:       [layers · directions, batch, r].   state_cell: [layers · directions, batch, h].
    p:           dropout probability of the outputs of every layer but the last, in training.
    Returns:     [steps, batch, directions · r], and the two states after the last step.
    """
    t, _, width = data.shape
    h, r, directions = state_size, projection_size, 1 + bidirectional
    vector, layers = _Vector(parameters), []
    for _ in range(num_layers):
        for _ in range(directions):
            layers.append([vector.take(4 * h, width), vector.take(4 * h, r), vector.take(r, h)])
        width = r * directions
    for weights in layers:
        weights += [vector.take(4 * h), vector.take(4 * h)]
    x, last_r, last_c = data, [], []
    for layer in range(num_layers):
        both = []
        for d in range(directions):
            k = layer * directions + d
            wx, wh, wr, bx, bh = layers[k]
            entering = ops.FullyConnected(x, wx, bx, num_hidden=4 * h, flatten=False)
            now, c, outputs = _row(state, k), _row(state_cell, k), [data] * t
            for i in reversed(range(t)) if d else range(t):
                gates = _row(entering, i) + ops.FullyConnected(now, wh, bh, num_hidden=4 * h)
                first, forget, new, out = (ops.slice_axis(gates, axis=1, begin=g * h, end=(g + 1) * h) for g in range(4))
                c = ops.sigmoid(forget) * c + ops.sigmoid(first) * ops.tanh(new)
                if lstm_state_clip_min is not None:
                    c = ops.clip(c, a_min=lstm_state_clip_min, a_max=lstm_state_clip_max)
                now = ops.FullyConnected(ops.sigmoid(out) * ops.tanh(c), wr, num_hidden=r, no_bias=True)
                outputs[i] = now
            both.append(ops.stack(*outputs, axis=0, num_args=t))
            last_r.append(now)
            last_c.append(c)
        x = both[0] if directions == 1 else ops.Concat(*both, dim=2, num_args=2)
        if p > 0 and layer < num_layers - 1:
            x = ops.Dropout(x, p=p)
    return [x, ops.stack(*last_r, axis=0, num_args=len(last_r)), ops.stack(*last_c, axis=0, num_args=len(last_c))]
