"""Converters of the fused recurrent layer and of the vector of its parameters."""

from __future__ import annotations

import numpy as np

from ....train.fused_rnn_layout import FusedRNNLayout
from ..library import Unsupported
from .graph import Use, converts

_OPS = {"rnn_relu": "RNN", "rnn_tanh": "RNN", "lstm": "LSTM", "gru": "GRU"}
_ORDER = {"rnn_relu": (0,), "rnn_tanh": (0,), "lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}  # MXNet's gates in the order of ONNX


@converts("_rnn_param_concat")
def _param_concat(use: Use) -> None:
    use.emit("Concat", *(use.reshape(i, [-1]) for i in use.inputs), axis=0)


@converts("RNN")
def _rnn(use: Use) -> None:
    p = use.p
    if p.get("projection_size") or p.use_sequence_length or p.lstm_state_clip_min is not None:
        raise Unsupported("projection_size, use_sequence_length and clipped states have no equivalent")
    layout = FusedRNNLayout(p.state_size, p.num_layers, p.mode, bool(p.bidirectional))
    places = {name: (offset, shape) for name, offset, shape in layout.places(use.known_shape(1)[0])}
    directions, h, order = layout.directions, p.state_size, _ORDER[p.mode]

    def weights(layer: int, direction: str, group: str, kind: str) -> str:
        """Return the parameters of all gates, in the order of ONNX: a matrix, or a vector of biases."""
        parts = []
        for gate in (layout.gates[i] for i in order):
            offset, shape = places[f"{direction}{layer}_{group}{gate}_{kind}"]
            part = use.add("Slice", use.inputs[1], use.const([offset]), use.const([offset + int(np.prod(shape))]), use.const([0]))
            parts.append(use.reshape(part, shape))
        return use.add("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def of_layer(state: str, layer: int) -> str:
        first = layer * len(directions)
        return use.add("Slice", state, use.const([first]), use.const([first + len(directions)]), use.const([0]))

    def stacked(parts: list[str]) -> str:
        return use.add("Concat", *(use.unsqueeze(part, [0]) for part in parts), axis=0)

    data, hidden, cells = use.inputs[0], [], []
    for layer in range(p.num_layers):
        w, r = (stacked([weights(layer, d, group, "weight") for d in directions]) for group in ("i2h", "h2h"))
        b = stacked([use.add("Concat", weights(layer, d, "i2h", "bias"), weights(layer, d, "h2h", "bias"), axis=0)
                     for d in directions])
        states = [of_layer(s, layer) for s in use.inputs[2:4]]
        attrs = {"hidden_size": h, "direction": "bidirectional" if p.bidirectional else "forward"}
        if p.mode.startswith("rnn"):
            attrs["activations"] = ["Relu" if p.mode == "rnn_relu" else "Tanh"] * len(directions)
        elif p.mode == "gru":
            attrs["linear_before_reset"] = 1
        y, *last = use.add(_OPS[p.mode], data, w, r, b, "", *states, outputs=3 if p.mode == "lstm" else 2, **attrs)
        data = use.reshape(use.add("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, -1])
        hidden.append(last[0])
        cells += last[1:]
    use.writer.add("Identity", [data], use.outputs[:1], use.writer.name(use.name), {})
    for parts, output in zip((hidden, cells), use.outputs[1:] if p.state_outputs else ()):
        if parts:
            use.writer.add("Concat", parts, [output], use.writer.name(output), {"axis": 0})
