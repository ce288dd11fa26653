"""RecurrentCell: one step of a recurrent network, and `unroll`, which makes a sequence of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ... import ndarray
from ...errors import BlockError
from ..block import Block, HybridBlock
from ..nn import LeakyReLU
from ..parameter import ParameterDict
from .sequences import _format_sequence, _get_begin_state, _mask_sequence_variable_length

States = list[Any]
StateInfo = dict[str, Any]


class RecurrentCell(Block):
    """Base of cells. `cell(inputs, states)` is one step: it returns (output, new states).

    A subclass writes `state_info` and `forward`.
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None):
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Count steps from 0 again, before another sequence."""
        self._init_counter = self._counter = -1
        for cell in self._children.values():
            if isinstance(cell, RecurrentCell):
                cell.reset()

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        """Return {"shape": ..., "__layout__": "NC"} for each state."""
        raise NotImplementedError(f"{type(self).__name__}.state_info: a cell must define it.")

    def _check_free(self) -> None:
        if self._modified:
            raise BlockError(f"{self.name}: the cell is part of a modifier cell, such as ZoneoutCell. Call that instead.")

    def begin_state(self, batch_size: int = 0, func: Callable[..., Any] = ndarray.zeros, **kwargs: Any) -> States:
        """Return the initial states: func(name=..., shape=..., **kwargs) for each, by default zeros.

        func:  mx.nd.zeros, mx.nd.ones, mx.sym.zeros, mx.sym.var and the like.
        """
        self._check_free()
        states = []
        for info in self.state_info(batch_size):
            self._init_counter += 1
            states.append(func(name=f"{self._prefix}begin_state_{self._init_counter}", **{**info, **kwargs}))
        return states

    def unroll(self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None,
               valid_length: Any = None) -> tuple[Any, States]:
        """Make `length` steps.

        inputs:         an array or symbol with a time axis, [batch, time, ...] in layout "NTC", or a list of `length` steps.
        begin_state:    None: zeros.
        merge_outputs:  True: one array for all outputs, in layout; False: a list; None: whatever is faster.
        valid_length:   [batch], the number of steps of each row; later outputs are 0, and states are those after that step.
        Returns:        (outputs, states after the last step).
        """
        self.reset()
        inputs, axis, F, batch_size = _format_sequence(length, inputs, layout, False)
        states = _get_begin_state(self, F, begin_state, inputs, batch_size)
        outputs: Any = []
        all_states = []
        for i in range(length):
            output, states = self(inputs[i], states)
            outputs.append(output)
            all_states.append(states)
        if valid_length is not None:
            states = [F.SequenceLast(F.stack(*steps, axis=0), sequence_length=valid_length, use_sequence_length=True, axis=0)
                      for steps in zip(*all_states)]
            outputs = _mask_sequence_variable_length(F, outputs, length, valid_length, axis, True)
        return _format_sequence(length, outputs, layout, merge_outputs)[0], states

    def _get_activation(self, F: Any, inputs: Any, activation: Any, **kwargs: Any) -> Any:
        """Apply an activation: a name, a LeakyReLU or another block or function."""
        if activation in ("tanh", "relu", "sigmoid", "softsign"):
            return getattr(F, activation)(inputs, **kwargs)
        if isinstance(activation, str):
            return F.Activation(inputs, act_type=activation, **kwargs)
        if isinstance(activation, LeakyReLU):
            return F.LeakyReLU(inputs, act_type="leaky", slope=activation._alpha, **kwargs)
        return activation(inputs, **kwargs)

    def forward(self, inputs: Any, states: Any) -> Any:
        """Make one step: return (output, new states)."""
        self._counter += 1
        return super().forward(inputs, states)


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """A cell whose step is a `hybrid_forward`, so that it can be hybridized."""

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.hybrid_forward: a cell must define it.")


# ---- cells made of cells ------------------------------------------------------------------------------------------------
def _cells_state_info(cells: Iterable[Any], batch_size: int) -> list[StateInfo]:
    return [info for cell in cells for info in cell.state_info(batch_size)]


def _cells_begin_state(cells: Iterable[Any], **kwargs: Any) -> States:
    return [state for cell in cells for state in cell.begin_state(**kwargs)]


def _each_with_states(cells: Iterable[Any], states: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each cell with its part of the states."""
    start = 0
    for cell in cells:
        stop = start + len(cell.state_info())
        yield cell, states[start:stop]
        start = stop
