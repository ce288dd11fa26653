"""RNN, LSTM and GRU: layers of recurrent cells over whole sequences, computed by the fused operator."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

from numpy.typing import DTypeLike

from ... import ndarray
from ...errors import BlockError, ShapeError, check_choice
from ...graph.symbol import namespace as symbol
from ...ndarray import NDArray
from ..block import HybridBlock
from ..parameter import Parameter, tensor_types
from . import rnn_cell

__all__ = ["GRU", "LSTM", "RNN"]

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
_PARAMETER = re.compile(r"(l|r)(\d+)_(i2h|h2h|h2r)_(weight|bias)\Z")


class _RNNLayer(HybridBlock):
    """Layers of recurrent cells.

    Input:  [time, batch, features] in layout "TNC", [batch, time, features] in "NTC"; then optionally the states, and
            with use_sequence_length the number of steps of each row, [batch].
    Output: [time, batch, directions · hidden_size], or with "NTC" [batch, time, ...]; if states were given, also the
            states after the last step, a list.

    Parameters are named by direction and layer: `l0_i2h_weight`, `r0_h2h_bias` ...
    """

    def __init__(self, hidden_size: int, num_layers: int, layout: str, dropout: float, bidirectional: bool, input_size: int,
                 i2h_weight_initializer: Any, h2h_weight_initializer: Any, i2h_bias_initializer: Any, h2h_bias_initializer: Any,
                 mode: str, projection_size: int | None, h2r_weight_initializer: Any, lstm_state_clip_min: float | None,
                 lstm_state_clip_max: float | None, lstm_state_clip_nan: bool, dtype: DTypeLike,
                 use_sequence_length: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        check_choice(type(self).__name__, "layout", layout, ("TNC", "NTC"))
        check_choice(type(self).__name__, "activation", mode, _GATES)
        self._hidden_size, self._num_layers, self._mode, self._layout = hidden_size, num_layers, mode, layout
        self._projection_size = projection_size or None
        self._dropout, self._dir, self._input_size = dropout, 2 if bidirectional else 1, input_size
        self._i2h_weight_initializer, self._h2h_weight_initializer = i2h_weight_initializer, h2h_weight_initializer
        self._i2h_bias_initializer, self._h2h_bias_initializer = i2h_bias_initializer, h2h_bias_initializer
        self._h2r_weight_initializer = h2r_weight_initializer
        self._lstm_state_clip_min, self._lstm_state_clip_max = lstm_state_clip_min, lstm_state_clip_max
        self._lstm_state_clip_nan = lstm_state_clip_nan
        self._dtype, self._use_sequence_length = dtype, use_sequence_length
        self.skip_states: bool | None = None
        self._gates = _GATES[mode]
        rows, width, out = self._gates * hidden_size, input_size, self._projection_size or hidden_size
        for layer in range(num_layers):
            for direction in self._directions:
                start = f"{direction}{layer}_"
                self._register_param(f"{start}i2h_weight", (rows, width), i2h_weight_initializer, dtype)
                self._register_param(f"{start}h2h_weight", (rows, out), h2h_weight_initializer, dtype)
                self._register_param(f"{start}i2h_bias", (rows,), i2h_bias_initializer, dtype)
                self._register_param(f"{start}h2h_bias", (rows,), h2h_bias_initializer, dtype)
                if self._projection_size:
                    self._register_param(f"{start}h2r_weight", (out, hidden_size), h2r_weight_initializer, dtype)
            width = out * self._dir

    @property
    def _directions(self) -> str:
        return "lr"[:self._dir]

    def _register_param(self, name: str, shape: tuple[int, ...], init: Any, dtype: DTypeLike) -> Parameter:
        param = self.params.get(name, shape=shape, init=init, allow_deferred_init=True, dtype=dtype)
        setattr(self, name, param)
        return param

    def __repr__(self) -> str:
        rows, inputs = self._reg_params["l0_i2h_weight"].shape or (0, 0)
        parts = [f"{inputs or None} -> {rows // self._gates}", self._layout]
        if self._num_layers != 1:
            parts.append(f"num_layers={self._num_layers}")
        if self._dropout:
            parts.append(f"dropout={self._dropout}")
        if self._dir == 2:
            parts.append("bidirectional")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """Return the parameters by the names that a stack of cells would have in files, as MXNet writes them."""
        prefix = f"{prefix}." if prefix else ""
        found = {}
        for name, param in self._reg_params.items():
            match = _PARAMETER.match(name)
            assert match is not None
            direction, layer, group, kind = match.groups()
            cell = f"{direction}_cell." if self._dir == 2 else ""
            found[f"{prefix}_unfused.{layer}.{cell}{group}_{kind}"] = param
        for name, child in self._children.items():
            found.update(child._collect_params_with_prefix(prefix + name))
        return found

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Return {"shape": (layers · directions, batch, units), "__layout__": "LNC", "dtype": ...} for each state."""
        levels = self._num_layers * self._dir
        sizes = [self._hidden_size]
        if self._mode == "lstm":
            sizes.insert(0, self._projection_size or self._hidden_size)
        return [{"shape": (levels, batch_size, size), "__layout__": "LNC", "dtype": self._dtype} for size in sizes]

    def _unfuse(self) -> rnn_cell.HybridSequentialRNNCell:
        """Return the same layers as a stack of cells, which share the parameters."""
        if self._projection_size or self._lstm_state_clip_min or self._lstm_state_clip_max:
            raise BlockError(f"{self.name}: layers with projection_size or clipped states cannot be unfused.")
        given: dict[str, Any] = {
            "i2h_weight_initializer": self._i2h_weight_initializer, "h2h_weight_initializer": self._h2h_weight_initializer,
            "i2h_bias_initializer": self._i2h_bias_initializer, "h2h_bias_initializer": self._h2h_bias_initializer}
        make: Any = {"lstm": rnn_cell.LSTMCell, "gru": rnn_cell.GRUCell}.get(self._mode, rnn_cell.RNNCell)
        if self._mode.startswith("rnn_"):
            given["activation"] = self._mode.removeprefix("rnn_")
        stack = rnn_cell.HybridSequentialRNNCell(prefix=self.prefix, params=self.params)
        with stack.name_scope():
            width = self._input_size
            for layer in range(self._num_layers):
                cells = [make(self._hidden_size, input_size=width, prefix=f"{d}{layer}_", **given) for d in self._directions]
                stack.add(rnn_cell.BidirectionalCell(*cells) if self._dir == 2 else cells[0])
                if self._dropout > 0 and layer != self._num_layers - 1:
                    stack.add(rnn_cell.DropoutCell(self._dropout))
                width = self._hidden_size * self._dir
        return stack

    def cast(self, dtype: DTypeLike) -> None:
        """Convert the parameters and the initial states to another dtype."""
        super().cast(dtype)
        self._dtype = dtype

    def begin_state(self, batch_size: int = 0, func: Callable[..., Any] = ndarray.zeros, **kwargs: Any) -> list[Any]:
        """Return the initial states: func(name=..., shape=..., **kwargs) for each, by default zeros."""
        return [func(name=f"{self.prefix}h0_{i}", **{**info, **kwargs}) for i, info in enumerate(self.state_info(batch_size))]

    def __call__(self, inputs: Any, states: Any = None, sequence_length: Any = None, **kwargs: Any) -> Any:
        self.skip_states = states is None
        if states is None:
            if isinstance(inputs, NDArray):
                batch_size = inputs.shape[self._layout.find("N")]
                states = self.begin_state(batch_size, ctx=inputs.context, dtype=inputs.dtype)
            else:
                states = self.begin_state(0, func=symbol.zeros)
        if isinstance(states, tensor_types):
            states = [states]
        lengths = (sequence_length,) if self._use_sequence_length else ()
        return super().__call__(inputs, states, *lengths, **kwargs)

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, sequence_length: Any = None, **kwargs: Any) -> Any:
        if F is ndarray:
            for state, info in zip(states, self.state_info(inputs.shape[self._layout.find("N")])):
                if state.shape != info["shape"]:
                    raise ShapeError(f"{self.name}: a state has shape {state.shape}, but must have {info['shape']}: layers · "
                                     f"directions, batch, units.")
        outputs, states = self._forward_kernel(F, inputs, states, sequence_length, **kwargs)
        return outputs if self.skip_states else (outputs, states)

    def _forward_kernel(self, F: Any, inputs: Any, states: Any, sequence_length: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        """Return the outputs and states of the fused operator."""
        if self._layout == "NTC":
            inputs = F.swapaxes(inputs, 0, 1)
        weights = ("i2h", "h2h", "h2r") if self._projection_size else ("i2h", "h2h")
        names = [f"{d}{layer}_{group}_{kind}" for kind, groups in (("weight", weights), ("bias", weights[:2]))
                 for layer, d, group in product(range(self._num_layers), self._directions, groups)]
        params = F._internal._rnn_param_concat(*(kwargs[name].reshape(-1) for name in names), dim=0)
        common: dict[str, Any] = {
            "state_size": self._hidden_size, "num_layers": self._num_layers, "bidirectional": self._dir == 2, "p": self._dropout,
            "lstm_state_clip_min": self._lstm_state_clip_min, "lstm_state_clip_max": self._lstm_state_clip_max}
        if self._projection_size:
            project = symbol.function("_rnn_projected", "rnn") if F is symbol else F._internal._rnn_projected
            outputs, *states = project(inputs, params, *states, projection_size=self._projection_size, **common)
        else:
            lengths = [sequence_length] if self._use_sequence_length else []
            outputs, *states = F.RNN(inputs, params, *states, *lengths, use_sequence_length=self._use_sequence_length,
                                     state_outputs=True, mode=self._mode, lstm_state_clip_nan=self._lstm_state_clip_nan, **common)
        return F.swapaxes(outputs, 0, 1) if self._layout == "NTC" else outputs, states


class RNN(_RNNLayer):
    """Layers of RNNCell with activation "relu" or "tanh". State: h, [layers · directions, batch, hidden_size].

    dropout:  applied to the outputs of each layer but the last, in training.
    """

    def __init__(self, hidden_size: int, num_layers: int = 1, activation: str = "relu", layout: str = "TNC", dropout: float = 0,
                 bidirectional: bool = False, i2h_weight_initializer: Any = None, h2h_weight_initializer: Any = None,
                 i2h_bias_initializer: Any = "zeros", h2h_bias_initializer: Any = "zeros", input_size: int = 0,
                 dtype: DTypeLike = "float32", **kwargs: Any):
        super().__init__(hidden_size, num_layers, layout, dropout, bidirectional, input_size, i2h_weight_initializer,
                         h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer, f"rnn_{activation}", None, None,
                         None, None, False, dtype, **kwargs)


class LSTM(_RNNLayer):
    """Layers of LSTMCell. States: h and c, each [layers · directions, batch, hidden_size].

    dropout:                         applied to the outputs of each layer but the last, in training.
    projection_size:                 outputs and h are multiplied to this size by h2r_weight (Sak et al. 2014).
    state_clip_min, state_clip_max:  bounds of c, given together. state_clip_nan: NaN in c becomes a bound.
    """

    def __init__(self, hidden_size: int, num_layers: int = 1, layout: str = "TNC", dropout: float = 0,
                 bidirectional: bool = False, input_size: int = 0, i2h_weight_initializer: Any = None,
                 h2h_weight_initializer: Any = None, i2h_bias_initializer: Any = "zeros", h2h_bias_initializer: Any = "zeros",
                 projection_size: int | None = None, h2r_weight_initializer: Any = None, state_clip_min: float | None = None,
                 state_clip_max: float | None = None, state_clip_nan: bool = False, dtype: DTypeLike = "float32",
                 **kwargs: Any):
        super().__init__(hidden_size, num_layers, layout, dropout, bidirectional, input_size, i2h_weight_initializer,
                         h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer, "lstm", projection_size,
                         h2r_weight_initializer, state_clip_min, state_clip_max, state_clip_nan, dtype, **kwargs)


class GRU(_RNNLayer):
    """Layers of GRUCell. State: h, [layers · directions, batch, hidden_size].

    dropout:  applied to the outputs of each layer but the last, in training.
    """

    def __init__(self, hidden_size: int, num_layers: int = 1, layout: str = "TNC", dropout: float = 0,
                 bidirectional: bool = False, input_size: int = 0, i2h_weight_initializer: Any = None,
                 h2h_weight_initializer: Any = None, i2h_bias_initializer: Any = "zeros", h2h_bias_initializer: Any = "zeros",
                 dtype: DTypeLike = "float32", **kwargs: Any):
        super().__init__(hidden_size, num_layers, layout, dropout, bidirectional, input_size, i2h_weight_initializer,
                         h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer, "gru", None, None, None, None,
                         False, dtype, **kwargs)
