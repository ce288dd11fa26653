"""Recurrent cells: one step of a recurrent network as symbols, and `unroll`, which builds a sequence of steps.

Names of parameters and nodes and the order of gates are MXNet's, so that its checkpoints can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import ndarray as nd
from ...errors import MXNetError, ParameterError
from ...graph.symbol import namespace as symbol
from ...graph.symbol.symbol import Symbol
from ...show import Shown
from ..initializer import LSTMBias

States = list[Any]


class RNNParams(Shown):
    """Variables by name, all with the same prefix, which cells may share."""

    def __init__(self, prefix: str = ""):
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """Return the variable called prefix + name; the first call creates it."""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = symbol.Variable(name, **kwargs)
        return self._params[name]


class BaseRNNCell(Shown):
    """Base of cells. `cell(inputs, states)` returns (output, new states).

    prefix:  of the names of parameters and nodes.
    params:  variables of another cell, to share.
    """

    _cells: Sequence[BaseRNNCell] = ()  # that this one is made of
    _gate_names: Sequence[str] = ()  # suffixes in the names of the gates' arrays, in the order of the stacked array

    def __init__(self, prefix: str = "", params: RNNParams | None = None):
        self._own_params = params is None
        self._prefix = prefix
        self._params = RNNParams(prefix) if params is None else params
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Count steps from 0 again, before another unroll."""
        self._init_counter = self._counter = -1
        for cell in self._cells:
            cell.reset()

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        raise NotImplementedError(f"{type(self).__name__}.__call__")

    @property
    def params(self) -> RNNParams:
        """The variables of the cell."""
        self._own_params = False
        return self._params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """{"shape": (0, n), "__layout__": "NC"} for each state; 0 stands for the batch size."""
        raise NotImplementedError(f"{type(self).__name__}.state_info")

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """The shapes of the states."""
        return [info["shape"] for info in self.state_info]

    def begin_state(self, func: Callable[..., Symbol] | None = None, **kwargs: Any) -> States:
        """Return symbols for the initial states: func(name=..., shape=...) for each, by default zeros.

        With func=sym.Variable they are inputs of the network.
        """
        if self._modified:
            raise MXNetError(f"{type(self).__name__}.begin_state: the cell is part of a modifier cell. Call begin_state of that.")
        if self._cells:
            return [state for cell in self._cells for state in cell.begin_state(func, **kwargs)]
        states = []
        for info in self.state_info:
            self._init_counter += 1
            name = f"{self._prefix}begin_state_{self._init_counter}"
            if func is None:
                states.append(symbol.zeros(name=name, **info, **kwargs))
            elif func is symbol.Variable or func is symbol.var:
                states.append(func(name, **kwargs))
            else:
                states.append(func(name=name, **{**info, **kwargs}))
        return states

    # ---- one array per gate ----------------------------------------------------------------------------------------
    def _gate_arrays(self) -> list[tuple[str, list[str]]]:
        """Return (name of a stacked array, names of its gates' arrays) for all weights and biases."""
        return [(f"{self._prefix}{group}_{kind}", [f"{self._prefix}{group}{gate}_{kind}" for gate in self._gate_names])
                for group in ("i2h", "h2h") for kind in ("weight", "bias") if self._gate_names]

    def unpack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return args with each stacked weight and bias split into one for each gate."""
        args = dict(args)
        hidden = getattr(self, "_num_hidden", 0)
        for stacked_name, names in self._gate_arrays():
            stacked = args.pop(stacked_name)
            args.update({n: stacked[j * hidden:(j + 1) * hidden].copy() for j, n in enumerate(names)})
        return packed(self._cells, args, "unpack_weights")

    def pack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return args with the arrays of unpack_weights stacked again."""
        args = dict(args)
        for stacked_name, names in self._gate_arrays():
            parts = [args.pop(n) for n in names]
            args[stacked_name] = parts[0] if len(parts) == 1 else nd.concat(*parts, dim=0)
        return packed(self._cells, args, "pack_weights")

    # ---- unrolling --------------------------------------------------------------------------------------------------
    def unroll(self, length: int, inputs: Any, begin_state: States | None = None, layout: str = "NTC",
               merge_outputs: bool | None = None) -> tuple[Any, States]:
        """Build `length` steps. inputs: one symbol with a time axis, or a list of symbols.

        merge_outputs:  True: one symbol for all outputs, in layout. False: a list. None: no conversion.
        Returns: (outputs, states after the last step).
        """
        self.reset()
        return self._unroll(length, inputs, self.begin_state() if begin_state is None else begin_state, layout, merge_outputs)

    def _unroll(self, length: int, inputs: Any, states: States, layout: str, merge_outputs: bool | None) -> tuple[Any, States]:
        outputs = []
        for step in split_inputs(length, inputs, layout):
            output, states = self(step, states)
            outputs.append(output)
        return (stack_steps(outputs, layout) if merge_outputs else outputs), states

    def _get_activation(self, inputs: Symbol, activation: Any, **kwargs: Any) -> Symbol:
        if isinstance(activation, str):
            kwargs["act_type"] = activation
            return symbol.Activation(inputs, **kwargs)
        return activation(inputs, **kwargs)

    def _step_name(self) -> str:
        self._counter += 1
        return f"{self._prefix}t{self._counter}_"


def packed(cells: Any, args: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return args after pack_weights or unpack_weights (`method`) of every cell."""
    for cell in cells if isinstance(cells, (list, tuple)) else [cells]:
        args = getattr(cell, method)(args)
    return dict(args)


def split_inputs(length: int, inputs: Any, layout: str) -> list[Symbol]:
    """Return the inputs of each step. Raises ParameterError if there are not `length` of them."""
    if is_single(inputs):
        axis = layout.find("T")
        if length == 1:
            return [symbol.squeeze(inputs, axis=axis)]
        true: Any = 1  # in symbol files, MXNet writes 1 and not True
        return list(symbol.split(inputs, axis=axis, num_outputs=length, squeeze_axis=true))
    steps = list(inputs)
    if len(steps) != length:
        raise ParameterError(f"unroll: {len(steps)} inputs for {length} steps.")
    return steps


def is_single(inputs: Any) -> bool:
    """Return True for a symbol with one output, False for a list of symbols."""
    return isinstance(inputs, Symbol) and len(inputs.list_outputs()) == 1


def joined_inputs(length: int, inputs: Any, layout: str) -> Symbol:
    """Return the inputs of all steps as one symbol."""
    return inputs if is_single(inputs) else stack_steps(split_inputs(length, inputs, layout), layout)


def stack_steps(outputs: Sequence[Symbol], layout: str) -> Symbol:
    """Return the outputs of all steps as one symbol, with the time axis at the T of layout."""
    axis = layout.find("T")
    return symbol.Concat(*[symbol.expand_dims(o, axis=axis) for o in outputs], dim=axis)


class RNNCell(BaseRNNCell):
    """h = activation(W x + R h + b)."""

    _num_states = 1
    _gate_names = ("",)
    _bias_init: Any = None  # of i2h_bias

    def __init__(self, num_hidden: int, activation: str = "tanh", prefix: str = "rnn_", params: RNNParams | None = None):
        super().__init__(prefix, params)
        self._num_hidden, self._activation_name = num_hidden, activation
        self._iW, self._iB = self.params.get("i2h_weight"), self.params.get("i2h_bias", init=self._bias_init)
        self._hW, self._hB = self.params.get("h2h_weight"), self.params.get("h2h_bias")

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return [{"shape": (0, self._num_hidden), "__layout__": "NC"} for _ in range(self._num_states)]

    def _both(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        """Return the contributions of the input and of the state to the gates."""
        n = self._num_hidden * len(self._gate_names)
        return (symbol.FullyConnected(inputs, self._iW, self._iB, num_hidden=n, name=f"{name}i2h"),
                symbol.FullyConnected(state, self._hW, self._hB, num_hidden=n, name=f"{name}h2h"))

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        name = self._step_name()
        i2h, h2h = self._both(inputs, states[0], name)
        output = self._get_activation(i2h + h2h, self._activation_name, name=f"{name}out")
        return output, [output]


class LSTMCell(RNNCell):
    """Long short-term memory; gates i, f, c, o. forget_bias: initial bias of the forget gate.

    Source: Hochreiter and Schmidhuber 1997.
    """

    _num_states = 2
    _gate_names = ("_i", "_f", "_c", "_o")

    def __init__(self, num_hidden: int, prefix: str = "lstm_", params: RNNParams | None = None, forget_bias: float = 1.0):
        self._bias_init = LSTMBias(forget_bias=forget_bias)
        super().__init__(num_hidden, prefix=prefix, params=params)

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        name = self._step_name()
        i2h, h2h = self._both(inputs, states[0], name)
        parts = symbol.SliceChannel(i2h + h2h, num_outputs=4, name=f"{name}slice")
        kinds: Any = (("i", "sigmoid"), ("f", "sigmoid"), ("c", self._activation_name), ("o", "sigmoid"))
        enter, keep, new, out = (self._get_activation(parts[j], k, name=f"{name}{n}") for j, (n, k) in enumerate(kinds))
        cell = symbol.elemwise_add(keep * states[1], enter * new, name=f"{name}state")
        hidden = symbol.elemwise_mul(out, self._get_activation(cell, self._activation_name), name=f"{name}out")
        return hidden, [hidden, cell]


class GRUCell(RNNCell):
    """Gated recurrent unit; gates r, z, o. Source: Cho et al. 2014, arXiv:1406.1078."""

    _gate_names = ("_r", "_z", "_o")
    _part = "_"  # MXNet names its products gru_t0__i2h, but those of other cells lstm_t0_i2h

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None):
        super().__init__(num_hidden, prefix=prefix, params=params)

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        name = self._step_name()
        old = states[0]
        i2h, h2h = self._both(inputs, old, f"{name}{self._part}")
        part = f"{name}_"
        i2h_r, i2h_z, i2h = symbol.SliceChannel(i2h, num_outputs=3, name=f"{part}i2h_slice")
        h2h_r, h2h_z, h2h = symbol.SliceChannel(h2h, num_outputs=3, name=f"{part}h2h_slice")
        reset = symbol.Activation(i2h_r + h2h_r, act_type="sigmoid", name=f"{part}r_act")
        update = symbol.Activation(i2h_z + h2h_z, act_type="sigmoid", name=f"{part}z_act")
        new = self._get_activation(i2h + reset * h2h, self._activation_name, name=f"{part}h_act")
        output = symbol.elemwise_add((1.0 - update) * new, update * old, name=f"{name}out")
        return output, [output]
