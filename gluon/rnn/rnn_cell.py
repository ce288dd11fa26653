"""Cells: RNNCell, LSTMCell, GRUCell, stacks of cells and cells that modify others.

Parameter and node names and the order of gates are MXNet's, so that its files can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import BlockError, ParameterError
from ...graph.symbol import namespace as symbol
from ..block import _indent
from ..parameter import ParameterDict, tensor_types
from .recurrent_cell import (
    HybridRecurrentCell,
    RecurrentCell,
    StateInfo,
    States,
    _cells_begin_state,
    _cells_state_info,
    _each_with_states,
)
from .sequences import _format_sequence, _get_begin_state, _mask_sequence_variable_length, _reverse_sequences

__all__ = ["BidirectionalCell", "DropoutCell", "GRUCell", "HybridRecurrentCell", "HybridSequentialRNNCell", "LSTMCell",
           "ModifierCell", "RNNCell", "RecurrentCell", "ResidualCell", "SequentialRNNCell", "ZoneoutCell"]


# ---- simple cells -------------------------------------------------------------------------------------------------------
class _GateCell(HybridRecurrentCell):
    """A cell with one weight for all gates of the input (i2h) and one for the state (h2h), and a bias for each.

    hidden_size:  units of the output and of each state.
    input_size:   units of the input; 0: known at the first step.
    projection_size: units of the first state, if it is projected.
    """

    _gates = 1
    _states = 1
    _activation: Any = "tanh"
    _recurrent_activation: Any = "sigmoid"

    def __init__(self, hidden_size: int, i2h_weight_initializer: Any, h2h_weight_initializer: Any, i2h_bias_initializer: Any,
                 h2h_bias_initializer: Any, input_size: int, prefix: str | None, params: ParameterDict | None,
                 projection_size: int | None = None, h2r_weight_initializer: Any = None):
        super().__init__(prefix=prefix, params=params)
        self._hidden_size, self._input_size, self._projection_size = hidden_size, input_size, projection_size
        rows = self._gates * hidden_size

        def parameter(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        self.i2h_weight = parameter("i2h_weight", (rows, input_size), i2h_weight_initializer)
        self.h2h_weight = parameter("h2h_weight", (rows, projection_size or hidden_size), h2h_weight_initializer)
        if projection_size is not None:
            self.h2r_weight = parameter("h2r_weight", (projection_size, hidden_size), h2r_weight_initializer)
        self.i2h_bias = parameter("i2h_bias", (rows,), i2h_bias_initializer)
        self.h2h_bias = parameter("h2h_bias", (rows,), h2h_bias_initializer)

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return [{"shape": (batch_size, self._hidden_size), "__layout__": "NC"} for _ in range(self._states)]

    def _mapping(self) -> str:
        rows, inputs = self.i2h_weight.shape
        return f"{inputs or None} -> {rows}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._mapping()})"

    def _products(self, F: Any, inputs: Any, state: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any,
                  prefix: str) -> tuple[Any, Any]:
        """Return the gates' sums of the input and of the state."""
        rows = self._gates * self._hidden_size
        return (F.FullyConnected(data=inputs, weight=i2h_weight, bias=i2h_bias, num_hidden=rows, name=prefix + "i2h"),
                F.FullyConnected(data=state, weight=h2h_weight, bias=h2h_bias, num_hidden=rows, name=prefix + "h2h"))

    def _lstm(self, F: Any, gates: Any, c: Any, prefix: str) -> tuple[Any, States]:
        """Return the output and the states of an LSTM from the sums of its gates i, f, g, o and its state c."""
        recurrent = self._recurrent_activation
        i = self._get_activation(F, gates[0], recurrent, name=prefix + "i")
        f = self._get_activation(F, gates[1], recurrent, name=prefix + "f")
        g = self._get_activation(F, gates[2], self._activation, name=prefix + "c")
        o = self._get_activation(F, gates[3], recurrent, name=prefix + "o")
        next_c = F.elemwise_add(F.elemwise_mul(f, c, name=prefix + "mul0"), F.elemwise_mul(i, g, name=prefix + "mul1"),
                                name=prefix + "state")
        next_h = F.elemwise_mul(o, self._get_activation(F, next_c, self._activation, name=prefix + "activation0"),
                                name=prefix + "out")
        return next_h, [next_h, next_c]


class RNNCell(_GateCell):
    """h' = activation(W_i x + b_i + W_h h + b_h). State: h, [batch, hidden_size]; the output is h'."""

    def __init__(self, hidden_size: int, activation: Any = "tanh", i2h_weight_initializer: Any = None,
                 h2h_weight_initializer: Any = None, i2h_bias_initializer: Any = "zeros", h2h_bias_initializer: Any = "zeros",
                 input_size: int = 0, prefix: str | None = None, params: ParameterDict | None = None):
        super().__init__(hidden_size, i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer,
                         h2h_bias_initializer, input_size, prefix, params)
        self._activation = activation

    def _alias(self) -> str:
        return "rnn"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._mapping()}, {self._activation})"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any,
                       h2h_bias: Any) -> tuple[Any, States]:
        prefix = f"t{self._counter}_"
        i2h, h2h = self._products(F, inputs, states[0], i2h_weight, h2h_weight, i2h_bias, h2h_bias, prefix)
        output = self._get_activation(F, F.elemwise_add(i2h, h2h, name=prefix + "plus0"), self._activation, name=prefix + "out")
        return output, [output]


class LSTMCell(_GateCell):
    """Long short-term memory: c' = f ∘ c + i ∘ g, h' = o ∘ activation(c'). States: h, c, each [batch, hidden_size].

    The gates i, f, o have recurrent_activation, g has activation; weights hold them in the order i, f, g, o.
    """

    _gates = 4
    _states = 2

    def __init__(self, hidden_size: int, i2h_weight_initializer: Any = None, h2h_weight_initializer: Any = None,
                 i2h_bias_initializer: Any = "zeros", h2h_bias_initializer: Any = "zeros", input_size: int = 0,
                 prefix: str | None = None, params: ParameterDict | None = None, activation: Any = "tanh",
                 recurrent_activation: Any = "sigmoid"):
        super().__init__(hidden_size, i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer,
                         h2h_bias_initializer, input_size, prefix, params)
        self._activation, self._recurrent_activation = activation, recurrent_activation

    def _alias(self) -> str:
        return "lstm"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any,
                       h2h_bias: Any) -> tuple[Any, States]:
        prefix = f"t{self._counter}_"
        i2h, h2h = self._products(F, inputs, states[0], i2h_weight, h2h_weight, i2h_bias, h2h_bias, prefix)
        gates = F.SliceChannel(F.elemwise_add(i2h, h2h, name=prefix + "plus0"), num_outputs=4, name=prefix + "slice")
        return self._lstm(F, gates, states[1], prefix)


class GRUCell(_GateCell):
    """Gated recurrent unit, as in cuDNN: n = tanh(W_in x + b_in + r ∘ (W_hn h + b_hn)), h' = (1 - z) ∘ n + z ∘ h.

    State: h, [batch, hidden_size]. Weights hold the gates in the order r, z, n.
    """

    _gates = 3

    def __init__(self, hidden_size: int, i2h_weight_initializer: Any = None, h2h_weight_initializer: Any = None,
                 i2h_bias_initializer: Any = "zeros", h2h_bias_initializer: Any = "zeros", input_size: int = 0,
                 prefix: str | None = None, params: ParameterDict | None = None):
        super().__init__(hidden_size, i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer,
                         h2h_bias_initializer, input_size, prefix, params)

    def _alias(self) -> str:
        return "gru"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any,
                       h2h_bias: Any) -> tuple[Any, States]:
        prefix, h = f"t{self._counter}_", states[0]
        i2h, h2h = self._products(F, inputs, h, i2h_weight, h2h_weight, i2h_bias, h2h_bias, prefix)
        i2h_r, i2h_z, i2h_n = F.SliceChannel(i2h, num_outputs=3, name=prefix + "i2h_slice")
        h2h_r, h2h_z, h2h_n = F.SliceChannel(h2h, num_outputs=3, name=prefix + "h2h_slice")
        r = F.Activation(F.elemwise_add(i2h_r, h2h_r, name=prefix + "plus0"), act_type="sigmoid", name=prefix + "r_act")
        z = F.Activation(F.elemwise_add(i2h_z, h2h_z, name=prefix + "plus1"), act_type="sigmoid", name=prefix + "z_act")
        n = F.elemwise_add(i2h_n, F.elemwise_mul(r, h2h_n, name=prefix + "mul0"), name=prefix + "plus2")
        n = F.Activation(n, act_type="tanh", name=prefix + "h_act")
        ones = F.ones_like(z, name=prefix + "ones_like0")
        new = F.elemwise_mul(F.elemwise_sub(ones, z, name=prefix + "minus0"), n, name=prefix + "mul1")
        old = F.elemwise_mul(z, h, name=prefix + "mul20")
        output = F.elemwise_add(new, old, name=prefix + "out")
        return output, [output]


# ---- stacks -------------------------------------------------------------------------------------------------------------
class _Stack(RecurrentCell):
    """Cells of which each reads the outputs of the one before."""

    def __repr__(self) -> str:
        cells = "\n".join(f"({i}): {_indent(repr(cell), 2)}" for i, cell in self._children.items())
        return f"{type(self).__name__}(\n{cells}\n)"

    def add(self, cell: RecurrentCell) -> None:
        """Append a cell."""
        self.register_child(cell)

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return _cells_state_info(self._children.values(), batch_size)

    def begin_state(self, **kwargs: Any) -> States:
        """Return the initial states of all cells, see RecurrentCell.begin_state."""
        self._check_free()
        return _cells_begin_state(self._children.values(), **kwargs)

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, States]:
        self._counter += 1
        next_states: States = []
        for cell, own in _each_with_states(self._children.values(), states):
            if isinstance(cell, BidirectionalCell):
                raise BlockError(f"{self.name}: a BidirectionalCell cannot make single steps. Use unroll.")
            inputs, new = cell(inputs, own)
            next_states += new
        return inputs, next_states

    def unroll(self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None,
               valid_length: Any = None) -> tuple[Any, States]:
        self.reset()
        inputs, _, F, batch_size = _format_sequence(length, inputs, layout, None)
        begin_state = _get_begin_state(self, F, begin_state, inputs, batch_size)
        next_states: States = []
        last = len(self) - 1
        for i, (cell, own) in enumerate(_each_with_states(self._children.values(), begin_state)):
            inputs, new = cell.unroll(length, inputs=inputs, begin_state=own, layout=layout,
                                      merge_outputs=merge_outputs if i == last else None, valid_length=valid_length)
            next_states += new
        return inputs, next_states

    def __getitem__(self, i: int) -> Any:
        return self._children[str(i)]

    def __len__(self) -> int:
        return len(self._children)


class SequentialRNNCell(_Stack):
    """A stack of cells."""


class HybridSequentialRNNCell(_Stack, HybridRecurrentCell):
    """A stack of hybrid cells."""

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        return self(inputs, states)


class DropoutCell(HybridRecurrentCell):
    """Dropout on the input. It has no state.

    rate:  the probability of an element to become 0, in training.
    axes:  axes along which all elements share one draw.
    """

    def __init__(self, rate: float, axes: Sequence[int] = (), prefix: str | None = None, params: ParameterDict | None = None):
        super().__init__(prefix, params)
        if isinstance(rate, str):
            raise ParameterError(f"DropoutCell: rate={rate!r} is not a number.")
        self._rate, self._axes = rate, axes

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rate={self._rate}, axes={self._axes})"

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return []

    def _alias(self) -> str:
        return "dropout"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> tuple[Any, States]:
        if self._rate > 0:
            inputs = F.Dropout(data=inputs, p=self._rate, axes=self._axes, name=f"t{self._counter}_fwd")
        return inputs, states

    def unroll(self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None,
               valid_length: Any = None) -> tuple[Any, States]:
        self.reset()
        inputs, _, F, _ = _format_sequence(length, inputs, layout, merge_outputs)
        if isinstance(inputs, tensor_types):
            return self.hybrid_forward(F, inputs, begin_state or [])
        return super().unroll(length, inputs, begin_state=begin_state, layout=layout, merge_outputs=merge_outputs)


# ---- cells that modify another ------------------------------------------------------------------------------------------
class ModifierCell(HybridRecurrentCell):
    """Base of cells that change what another cell, base_cell, returns. The base cell can then only be called through it."""

    def __init__(self, base_cell: Any):
        if base_cell._modified:
            raise BlockError(f"{type(self).__name__}: cell {base_cell.name} is part of a modifier cell already. Modify that.")
        base_cell._modified = True
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        self.base_cell = base_cell

    @property
    def params(self) -> ParameterDict:
        """The parameters of the base cell."""
        return self.base_cell.params

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return self.base_cell.state_info(batch_size)

    def begin_state(self, func: Any = symbol.zeros, **kwargs: Any) -> States:
        """Return the initial states of the base cell; by default symbols."""
        self._check_free()
        self.base_cell._modified = False
        try:
            return self.base_cell.begin_state(func=func, **kwargs)
        finally:
            self.base_cell._modified = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_cell})"


class ZoneoutCell(ModifierCell):
    """In training, elements of the output and of states keep their previous value with a probability (Krueger et al. 2016)."""

    def __init__(self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0):
        if isinstance(base_cell, BidirectionalCell):
            raise BlockError("ZoneoutCell: a BidirectionalCell cannot make single steps. Modify its two cells.")
        super().__init__(base_cell)
        self.zoneout_outputs, self.zoneout_states = zoneout_outputs, zoneout_states
        self._prev_output: Any = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p_out={self.zoneout_outputs}, p_state={self.zoneout_states}, {self.base_cell})"

    def _alias(self) -> str:
        return "zoneout"

    def reset(self) -> None:
        super().reset()
        self._prev_output = None

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> tuple[Any, States]:
        output, next_states = self.base_cell(inputs, states)

        def mixed(p: float, new: Any, old: Any) -> Any:
            return new if p == 0 else F.where(F.Dropout(F.ones_like(new), p=p), new, old)

        previous = F.zeros_like(output) if self._prev_output is None else self._prev_output
        self._prev_output = output = mixed(self.zoneout_outputs, output, previous)
        return output, [mixed(self.zoneout_states, new, old) for new, old in zip(next_states, states)]


class ResidualCell(ModifierCell):
    """Adds the input to the output of the base cell (Wu et al. 2016)."""

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> tuple[Any, States]:
        output, states = self.base_cell(inputs, states)
        return F.elemwise_add(output, inputs, name=f"t{self._counter}_fwd"), states

    def unroll(self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None,
               valid_length: Any = None) -> tuple[Any, States]:
        self.reset()
        self.base_cell._modified = False
        try:
            outputs, states = self.base_cell.unroll(length, inputs=inputs, begin_state=begin_state, layout=layout,
                                                    merge_outputs=merge_outputs, valid_length=valid_length)
        finally:
            self.base_cell._modified = True
        merge = isinstance(outputs, tensor_types) if merge_outputs is None else merge_outputs
        inputs, axis, F, _ = _format_sequence(length, inputs, layout, merge)
        if valid_length is not None:
            inputs = _mask_sequence_variable_length(F, inputs, length, valid_length, axis, merge)
        if merge:
            return F.elemwise_add(outputs, inputs), states
        return [F.elemwise_add(i, j) for i, j in zip(outputs, inputs)], states


class BidirectionalCell(HybridRecurrentCell):
    """Two cells, of which the second reads the sequence backwards; their outputs are joined along the last axis.

    Only `unroll` works, since the second cell starts at the end.
    """

    def __init__(self, l_cell: Any, r_cell: Any, output_prefix: str = "bi_"):
        super().__init__(prefix="", params=None)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    def __call__(self, inputs: Any, states: Any) -> Any:
        raise NotImplementedError("BidirectionalCell: it cannot make single steps. Use unroll.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(forward={self._children['l_cell']}, backward={self._children['r_cell']})"

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return _cells_state_info(self._children.values(), batch_size)

    def begin_state(self, **kwargs: Any) -> States:
        """Return the initial states of both cells, see RecurrentCell.begin_state."""
        self._check_free()
        return _cells_begin_state(self._children.values(), **kwargs)

    def unroll(self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None,
               valid_length: Any = None) -> tuple[Any, States]:
        self.reset()
        inputs, axis, F, batch_size = _format_sequence(length, inputs, layout, False)
        begin_state = _get_begin_state(self, F, begin_state, inputs, batch_size)
        (forward, l_begin), (backward, r_begin) = _each_with_states(self._children.values(), begin_state)
        l_outputs, l_states = forward.unroll(length, inputs=inputs, begin_state=l_begin, layout=layout,
                                             merge_outputs=merge_outputs, valid_length=valid_length)
        r_outputs, r_states = backward.unroll(length, inputs=list(_reverse_sequences(inputs, length, valid_length)),
                                              begin_state=r_begin, layout=layout, merge_outputs=False,
                                              valid_length=valid_length)
        r_outputs = _reverse_sequences(r_outputs, length, valid_length)
        if merge_outputs is None:
            merge_outputs = isinstance(l_outputs, tensor_types)
            l_outputs = _format_sequence(None, l_outputs, layout, merge_outputs)[0]
        if merge_outputs:
            outputs = F.concat(l_outputs, F.stack(*r_outputs, axis=axis), dim=2, name=f"{self._output_prefix}out")
        else:
            outputs = [F.concat(left, right, dim=1, name=f"{self._output_prefix}t{i}")
                       for i, (left, right) in enumerate(zip(l_outputs, r_outputs))]
        if valid_length is not None:
            outputs = _mask_sequence_variable_length(F, outputs, length, valid_length, axis, merge_outputs)
        return outputs, l_states + r_states
