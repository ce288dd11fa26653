"""VariationalDropoutCell, LSTMPCell, and dynamic_unroll, which unrolls a sequence whose length is not known."""

from __future__ import annotations

from typing import Any

from ....errors import BlockError
from ...parameter import ParameterDict, tensor_types
from ...rnn import BidirectionalCell, ModifierCell
from ...rnn.recurrent_cell import StateInfo, States
from ...rnn.rnn_cell import _GateCell
from ...rnn.sequences import _as_list, _format_sequence, _get_begin_state, _mask_sequence_variable_length

__all__ = ["LSTMPCell", "VariationalDropoutCell"]


class VariationalDropoutCell(ModifierCell):
    """Dropout with one mask for all steps of a sequence (Gal and Ghahramani 2016). `reset` begins another sequence.

    drop_inputs, drop_states, drop_outputs:  probabilities, for the inputs, the first state and the outputs.
    """

    def __init__(self, base_cell: Any, drop_inputs: float = 0.0, drop_states: float = 0.0, drop_outputs: float = 0.0):
        if drop_states and isinstance(base_cell, BidirectionalCell):
            raise BlockError("VariationalDropoutCell: drop_states of a BidirectionalCell, which makes no single steps. Modify "
                             "its two cells.")
        super().__init__(base_cell)
        self.drop_inputs, self.drop_states, self.drop_outputs = drop_inputs, drop_states, drop_outputs
        self._forget_masks()

    def _forget_masks(self) -> None:
        self.drop_inputs_mask: Any = None
        self.drop_states_mask: Any = None
        self.drop_outputs_mask: Any = None

    def _alias(self) -> str:
        return "vardrop"

    def reset(self) -> None:
        super().reset()
        self._forget_masks()

    def _initialize_input_masks(self, F: Any, inputs: Any, states: Any) -> None:
        if self.drop_states and self.drop_states_mask is None:
            self.drop_states_mask = F.Dropout(F.ones_like(states[0]), p=self.drop_states)
        if self.drop_inputs and self.drop_inputs_mask is None:
            self.drop_inputs_mask = F.Dropout(F.ones_like(inputs), p=self.drop_inputs)

    def _initialize_output_mask(self, F: Any, output: Any) -> None:
        if self.drop_outputs and self.drop_outputs_mask is None:
            self.drop_outputs_mask = F.Dropout(F.ones_like(output), p=self.drop_outputs)

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> tuple[Any, States]:
        self._initialize_input_masks(F, inputs, states)
        if self.drop_states:
            states = [states[0] * self.drop_states_mask, *states[1:]]
        if self.drop_inputs:
            inputs = inputs * self.drop_inputs_mask
        output, states = self.base_cell(inputs, states)
        self._initialize_output_mask(F, output)
        return (output * self.drop_outputs_mask if self.drop_outputs else output), states

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p_out = {self.drop_outputs}, p_state = {self.drop_states})"

    def unroll(self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None,
               valid_length: Any = None) -> tuple[Any, States]:
        if self.drop_states:
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length=valid_length)
        self.reset()
        inputs, axis, F, batch_size = _format_sequence(length, inputs, layout, True)
        states = _get_begin_state(self, F, begin_state, inputs, batch_size)
        if self.drop_inputs:
            inputs = F.Dropout(inputs, p=self.drop_inputs, axes=(axis,))
        outputs, states = self.base_cell.unroll(length, inputs, states, layout, merge_outputs=True, valid_length=valid_length)
        if self.drop_outputs:
            outputs = F.Dropout(outputs, p=self.drop_outputs, axes=(axis,))
        merge = isinstance(outputs, tensor_types) if merge_outputs is None else merge_outputs
        outputs = _format_sequence(length, outputs, layout, merge)[0]
        if valid_length is not None:
            outputs = _mask_sequence_variable_length(F, outputs, length, valid_length, axis, merge)
        return outputs, states


class LSTMPCell(_GateCell):
    """LSTMCell whose output and first state are projected, r' = W_hr h' (Sak et al. 2014).

    hidden_size:      units of the state c.
    projection_size:  units of the output and of the state r.
    """

    _gates = 4

    def __init__(self, hidden_size: int, projection_size: int, i2h_weight_initializer: Any = None,
                 h2h_weight_initializer: Any = None, h2r_weight_initializer: Any = None, i2h_bias_initializer: Any = "zeros",
                 h2h_bias_initializer: Any = "zeros", input_size: int = 0, prefix: str | None = None,
                 params: ParameterDict | None = None):
        super().__init__(hidden_size, i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer,
                         h2h_bias_initializer, input_size, prefix, params, projection_size, h2r_weight_initializer)

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return [{"shape": (batch_size, size), "__layout__": "NC"} for size in (self._projection_size, self._hidden_size)]

    def _alias(self) -> str:
        return "lstmp"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._mapping()} -> {self._projection_size})"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, h2r_weight: Any,
                       i2h_bias: Any, h2h_bias: Any) -> tuple[Any, States]:
        prefix = f"t{self._counter}_"
        i2h, h2h = self._products(F, inputs, states[0], i2h_weight, h2h_weight, i2h_bias, h2h_bias, prefix)
        gates = F.SliceChannel(i2h + h2h, num_outputs=4, name=prefix + "slice")
        hidden, (_, next_c) = self._lstm(F, gates, states[1], prefix)
        next_r = F.FullyConnected(data=hidden, weight=h2r_weight, num_hidden=self._projection_size, no_bias=True,
                                  name=prefix + "out")
        return next_r, [next_r, next_c]


def dynamic_unroll(cell: Any, inputs: Any, begin_state: Any, drop_inputs: float = 0, drop_outputs: float = 0,
                   layout: str = "TNC", valid_length: Any = None) -> tuple[Any, States]:
    """Return (outputs, last states) of a cell over a whole sequence, by `contrib.foreach`.

    inputs:        [time, batch, ...] in layout "TNC", which is faster, or [batch, time, ...] in "NTC".
    drop_inputs, drop_outputs:  probabilities of dropout, with one mask for all steps.
    valid_length:  [batch]; outputs after that step are 0, and states are those after it.
    """
    inputs, axis, F, _ = _format_sequence(0, inputs, layout, True)
    if axis != 0:
        inputs = F.swapaxes(inputs, 0, axis)
    if drop_inputs:
        inputs = F.Dropout(inputs, p=drop_inputs, axes=(axis,))
    states = begin_state
    if valid_length is None:
        outputs, states = F.contrib.foreach(cell, inputs, states)
    else:
        states = [*_as_list(states), F.zeros_like(valid_length)]  # the last counts steps

        def step(inputs: Any, states: Any) -> tuple[Any, States]:
            *before, count = states
            output, after = cell(inputs, before)
            running = F.broadcast_greater(valid_length, count)
            return output, [*(F.where(running, new, old) for new, old in zip(after, before)), count + 1]

        outputs, states = F.contrib.foreach(step, inputs, states)
    if drop_outputs:
        outputs = F.Dropout(outputs, p=drop_outputs, axes=(axis,))
    if axis != 0:
        outputs = F.swapaxes(outputs, 0, axis)
    if valid_length is None:
        return outputs, states
    return F.SequenceMask(outputs, sequence_length=valid_length, use_sequence_length=True, axis=axis), states[:-1]
