"""Cells made of other cells: stacked, bidirectional, with dropout, zoneout or residual connection; and the fused cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ... import ndarray as nd
from ...errors import MXNetError, ParameterError, check_choice
from ...graph.symbol import namespace as symbol
from ...graph.symbol.symbol import Symbol
from ..fused_rnn_layout import GATES, FusedRNNLayout
from ..initializer import FusedRNN
from .cells import BaseRNNCell, GRUCell, LSTMCell, RNNCell, RNNParams, States, is_single, joined_inputs, split_inputs, stack_steps


class CellGroup(BaseRNNCell):
    """Base of cells made of other cells. It has their states and parameters."""

    def __init__(self, cells: Sequence[BaseRNNCell], params: RNNParams | None):
        self._cells: list[BaseRNNCell] = []
        super().__init__("", params)
        self._override = params is not None
        for c in cells:
            self._add(c)

    def _add(self, cell: BaseRNNCell) -> None:
        self._cells.append(cell)
        if self._override:
            cell.params._params.update(self.params._params)
        self.params._params.update(cell.params._params)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return [info for c in self._cells for info in c.state_info]


class SequentialRNNCell(CellGroup):
    """A stack of cells; `add` them from the bottom up."""

    def __init__(self, params: RNNParams | None = None):
        super().__init__((), params)

    def add(self, cell: BaseRNNCell) -> None:
        """Add a cell on top."""
        self._add(cell)

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        after: States = []
        for c, own in self._with_states(states):
            inputs, new = c(inputs, own)
            after += new
        return inputs, after

    def _with_states(self, states: States) -> Iterator[tuple[BaseRNNCell, States]]:
        """Yield each cell with its states."""
        rest = iter(states)
        for c in self._cells:
            yield c, list(islice(rest, len(c.state_info)))

    def _unroll(self, length: int, inputs: Any, states: States, layout: str, merge_outputs: bool | None) -> tuple[Any, States]:
        after: States = []
        for c, own in self._with_states(states):
            inputs, new = c.unroll(length, inputs, own, layout, merge_outputs if c is self._cells[-1] else None)
            after += new
        return inputs, after


class BidirectionalCell(CellGroup):
    """Two cells over the same inputs, one forwards and one backwards in time. Their outputs are concatenated."""

    def __init__(self, l_cell: BaseRNNCell, r_cell: BaseRNNCell, params: RNNParams | None = None, output_prefix: str = "bi_"):
        super().__init__((l_cell, r_cell), params)
        self._output_prefix = output_prefix

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        raise MXNetError("BidirectionalCell: it cannot run a single step, because one direction starts at the end. Use unroll.")

    def _unroll(self, length: int, inputs: Any, states: States, layout: str, merge_outputs: bool | None) -> tuple[Any, States]:
        steps = split_inputs(length, inputs, layout)
        left, right = self._cells
        n = len(left.state_info)
        forth, l_states = left.unroll(length, steps, states[:n], layout, False)
        back, r_states = right.unroll(length, steps[::-1], states[n:], layout, False)
        after = [l_states, r_states]  # as in MXNet
        if merge_outputs:
            both = (stack_steps(steps, layout) for steps in (forth, back[::-1]))
            return symbol.Concat(*both, dim=2, name=f"{self._output_prefix}out"), after
        return [symbol.Concat(f, b, dim=1, name=f"{self._output_prefix}t{i}")
                for i, (f, b) in enumerate(zip(forth, reversed(back)))], after


class DropoutCell(BaseRNNCell):
    """Dropout as a cell without states."""

    state_info: list[dict[str, Any]] = []

    def __init__(self, dropout: float, prefix: str = "dropout_", params: RNNParams | None = None):
        super().__init__(prefix, params)
        self.dropout = dropout

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        return symbol.Dropout(inputs, p=self.dropout) if self.dropout > 0 else inputs, states

    def _unroll(self, length: int, inputs: Any, states: States, layout: str, merge_outputs: bool | None) -> tuple[Any, States]:
        if merge_outputs or (merge_outputs is None and is_single(inputs)):
            return self(joined_inputs(length, inputs, layout), [])
        return super()._unroll(length, inputs, states, layout, merge_outputs)


class ModifierCell(CellGroup):
    """Base of cells that modify another cell and use its parameters."""

    def __init__(self, base_cell: BaseRNNCell):
        super().__init__((base_cell,), base_cell.params)
        self.base_cell = base_cell
        base_cell._modified = True

    @property
    def params(self) -> RNNParams:
        return self._cells[0].params if self._cells else self._params

    def begin_state(self, func: Any = None, **kwargs: Any) -> States:
        self.base_cell._modified = False
        try:
            return self.base_cell.begin_state(func, **kwargs)
        finally:
            self.base_cell._modified = True


class ZoneoutCell(ModifierCell):
    """Keep random parts of the previous output and states. Source: Krueger et al. 2016, arXiv:1606.01305."""

    def __init__(self, base_cell: BaseRNNCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0):
        if isinstance(base_cell, (FusedRNNCell, BidirectionalCell)):
            raise ParameterError(f"ZoneoutCell: a {type(base_cell).__name__} has no single step. Apply it to the cells inside.")
        super().__init__(base_cell)
        self.zoneout_outputs, self.zoneout_states = zoneout_outputs, zoneout_states

    def reset(self) -> None:
        super().reset()
        self._previous: Any = None

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        output, after = self.base_cell(inputs, states)

        def mixed(p: float, new: Symbol, old: Symbol) -> Symbol:
            return symbol.where(symbol.Dropout(symbol.ones_like(new), p=p), new, old)

        previous = symbol.zeros_like(output) if self._previous is None else self._previous
        self._previous = mixed(self.zoneout_outputs, output, previous) if self.zoneout_outputs else output
        after = [mixed(self.zoneout_states, n, o) for n, o in zip(after, states)] if self.zoneout_states else after
        return self._previous, after


def _residual(output: Symbol, inputs: Symbol) -> Symbol:
    return symbol.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")


class ResidualCell(ModifierCell):
    """Add the input to the output. Source: Wu et al. 2016, arXiv:1609.08144."""

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        output, after = self.base_cell(inputs, states)
        return _residual(output, inputs), after

    def _unroll(self, length: int, inputs: Any, states: States, layout: str, merge_outputs: bool | None) -> tuple[Any, States]:
        outputs, states = self.base_cell.unroll(length, inputs, states, layout, merge_outputs)
        if isinstance(outputs, Symbol):
            return _residual(outputs, joined_inputs(length, inputs, layout)), states
        return [_residual(o, i) for o, i in zip(outputs, split_inputs(length, inputs, layout))], states


class FusedRNNCell(BaseRNNCell):
    """Layers of cells computed by the operator RNN. Their parameters are one vector, `PREFIXparameters`.

    mode:           "rnn_relu", "rnn_tanh", "lstm" or "gru".
    get_next_state: also return the states after the last step.
    `unfuse` returns the same network as single cells; `unpack_weights` splits the vector into their parameters.
    """

    def __init__(self, num_hidden: int, num_layers: int = 1, mode: str = "lstm", bidirectional: bool = False,
                 dropout: float = 0.0, get_next_state: bool = False, forget_bias: float = 1.0, prefix: str | None = None,
                 params: RNNParams | None = None):
        check_choice("FusedRNNCell", "mode", mode, GATES)
        super().__init__(f"{mode}_" if prefix is None else prefix, params)
        self._num_hidden, self._num_layers = num_hidden, num_layers
        self._mode: Any = mode
        self._bidirectional, self._dropout, self._get_next_state = bidirectional, dropout, get_next_state
        self._forget_bias, self._fused = forget_bias, FusedRNNLayout(num_hidden, num_layers, mode, bidirectional)
        self._gate_names, self._directions = self._fused.gates, list(self._fused.directions)
        init = FusedRNN(None, num_hidden, num_layers, mode, bidirectional, forget_bias)
        self._parameter = self.params.get("parameters", init=init)
        self._vector = f"{self.params._prefix}parameters"

    @property
    def _num_gates(self) -> int:
        return len(self._gate_names)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        n = len(self._directions) * self._num_layers
        count = 2 if self._mode == "lstm" else 1
        return [{"shape": (n, 0, self._num_hidden), "__layout__": "LNC"} for _ in range(count)]

    def unpack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        args = dict(args)
        vector = args.pop(self._vector)
        for name, offset, shape in self._fused.places(vector.size, self._prefix):
            args[name] = vector[offset:offset + math.prod(shape)].reshape(shape).copy()
        return args

    def pack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        args = dict(args)
        size = self._fused.size(args[f"{self._prefix}l0_i2h{self._gate_names[0]}_weight"].shape[1])
        parts = [args.pop(name).reshape((-1,)) for name, _, _ in self._fused.places(size, self._prefix)]
        args[self._vector] = nd.concat(*parts, dim=0)
        return args

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        raise MXNetError("FusedRNNCell: it cannot run a single step. Use unroll, or unfuse() for single cells.")

    def _unroll(self, length: int, inputs: Any, states: States, layout: str, merge_outputs: bool | None) -> tuple[Any, States]:
        axis = layout.find("T")
        inputs = joined_inputs(length, inputs, layout)
        if axis == 1:
            inputs = symbol.swapaxes(inputs, dim1=0, dim2=1)
        named = {"state": states[0], **({"state_cell": states[1]} if self._mode == "lstm" else {})}
        rnn = symbol.RNN(data=inputs, parameters=self._parameter, state_size=self._num_hidden, num_layers=self._num_layers,
                         bidirectional=self._bidirectional, p=self._dropout, state_outputs=self._get_next_state,
                         mode=self._mode, name=f"{self._prefix}rnn", **named)
        outputs, after = rnn, []
        if self._get_next_state:
            outputs, after = rnn[0], [rnn[i] for i in range(1, 3 if self._mode == "lstm" else 2)]
        if axis == 1:
            outputs = symbol.swapaxes(outputs, dim1=0, dim2=1)
        return (split_inputs(length, outputs, layout) if merge_outputs is False else outputs), after

    def unfuse(self) -> SequentialRNNCell:
        """Return the same network as single cells. Their parameters are those of unpack_weights, packed by each cell."""
        make = {
            "rnn_relu": partial(RNNCell, activation="relu"), "rnn_tanh": RNNCell,
            "lstm": partial(LSTMCell, forget_bias=self._forget_bias), "gru": GRUCell,
        }[self._mode]
        stack = SequentialRNNCell()
        for i in range(self._num_layers):
            if self._bidirectional:
                sides = (make(self._num_hidden, prefix=f"{self._prefix}{side}{i}_") for side in "lr")
                stack.add(BidirectionalCell(*sides, output_prefix=f"{self._prefix}bi_l{i}_"))
            else:
                stack.add(make(self._num_hidden, prefix=f"{self._prefix}l{i}_"))
            if self._dropout > 0 and i != self._num_layers - 1:
                stack.add(DropoutCell(self._dropout, prefix=f"{self._prefix}_dropout{i}_"))
        return stack
