"""Recurrent cells: one step of a recurrent network as symbols, and `unroll`, which puts steps one after another.

Names of parameters and nodes, and the order of gates, are MXNet's, so that its checkpoints fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import ndarray as nd
from ...errors import MXNetError, ParameterError
from ...graph.symbol import namespace as symbol
from ...graph.symbol.symbol import Symbol
from ..initializer import LSTMBias

States = list[Any]


class RNNParams:
    """Variables that cells share by name, all with one prefix."""

    def __init__(self, prefix: str = ""):
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """The variable called prefix + name, made when it is first asked for."""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = symbol.Variable(name, **kwargs)
        return self._params[name]


class BaseRNNCell:
    """Base of cells. `cell(inputs, states)` gives (output, new states).

    prefix:  in front of the names of parameters and nodes.
    params:  variables to share with another cell.
    """

    def __init__(self, prefix: str = "", params: RNNParams | None = None):
        self._own_params = params is None
        self._prefix = prefix
        self._params = RNNParams(prefix) if params is None else params
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Count steps from 0 again, before a cell is unrolled once more."""
        self._init_counter = -1
        self._counter = -1
        for cell in getattr(self, "_cells", ()):
            cell.reset()

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        raise NotImplementedError(f"{type(self).__name__}.__call__")

    @property
    def params(self) -> RNNParams:
        """The cell's variables."""
        self._own_params = False
        return self._params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """{"shape": (0, n), "__layout__": "NC"} for each state; 0 is the batch."""
        raise NotImplementedError(f"{type(self).__name__}.state_info")

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """The states' shapes."""
        return [info["shape"] for info in self.state_info]

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return ()

    def begin_state(self, func: Callable[..., Symbol] | None = None, **kwargs: Any) -> States:
        """Symbols of the first states: func(name=..., shape=...) for each, zeros if it is None; sym.Variable feeds them."""
        if self._modified:
            raise MXNetError(f"{type(self).__name__}.begin_state: the cell is part of a modifier cell. Call that one's.")
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

    # ---- weights gate by gate --------------------------------------------------------------------------------------
    def unpack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """args with each stacked weight and bias cut into one for each gate."""
        args = dict(args)
        hidden = getattr(self, "_num_hidden", 0)
        for group in ("i2h", "h2h") if self._gate_names else ():
            for kind in ("weight", "bias"):
                stacked = args.pop(f"{self._prefix}{group}_{kind}")
                for j, gate in enumerate(self._gate_names):
                    args[f"{self._prefix}{group}{gate}_{kind}"] = stacked[j * hidden:(j + 1) * hidden].copy()
        return args

    def pack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """What unpack_weights took apart, stacked again."""
        args = dict(args)
        for group in ("i2h", "h2h") if self._gate_names else ():
            for kind in ("weight", "bias"):
                parts = [args.pop(f"{self._prefix}{group}{gate}_{kind}") for gate in self._gate_names]
                args[f"{self._prefix}{group}_{kind}"] = parts[0] if len(parts) == 1 else nd.concat(*parts, dim=0)
        return args

    # ---- unrolling --------------------------------------------------------------------------------------------------
    def unroll(self, length: int, inputs: Any, begin_state: States | None = None, layout: str = "NTC",
               merge_outputs: bool | None = None) -> tuple[Any, States]:
        """`length` steps. inputs: one symbol with a time axis, or a list of symbols.

        merge_outputs:  True: the outputs as one symbol in layout. False: as a list. None: as they come.
        Returns: (outputs, states after the last step).
        """
        self.reset()
        steps = split_inputs(length, inputs, layout)
        states = self.begin_state() if begin_state is None else begin_state
        outputs = []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
        return (merged(outputs, layout) if merge_outputs else outputs), states

    def _activation(self, inputs: Symbol, activation: Any, **kwargs: Any) -> Symbol:
        if isinstance(activation, str):
            kwargs["act_type"] = activation
            return symbol.Activation(inputs, **kwargs)
        return activation(inputs, **kwargs)

    def _step_name(self) -> str:
        self._counter += 1
        return f"{self._prefix}t{self._counter}_"


def split_inputs(length: int, inputs: Any, layout: str) -> list[Symbol]:
    """The inputs of each step. Raises ParameterError when they are not `length` many."""
    if isinstance(inputs, Symbol) and len(inputs.list_outputs()) == 1:
        axis = layout.find("T")
        if length == 1:
            return [symbol.squeeze(inputs, axis=axis)]
        yes: Any = 1  # as MXNet's files say it
        return list(symbol.split(inputs, axis=axis, num_outputs=length, squeeze_axis=yes))
    steps = list(inputs)
    if len(steps) != length:
        raise ParameterError(f"unroll: {len(steps)} inputs for {length} steps.")
    return steps


def joined_inputs(length: int, inputs: Any, layout: str) -> Symbol:
    """The inputs of all steps as one symbol."""
    if isinstance(inputs, Symbol) and len(inputs.list_outputs()) == 1:
        return inputs
    return merged(split_inputs(length, inputs, layout), layout)


def merged(outputs: Sequence[Symbol], layout: str) -> Symbol:
    """The outputs of all steps as one symbol, with the time axis where layout has its T."""
    axis = layout.find("T")
    return symbol.Concat(*[symbol.expand_dims(o, axis=axis) for o in outputs], dim=axis)


class RNNCell(BaseRNNCell):
    """h = activation(W x + R h + b)."""

    _states = 1  # how many arrays go from step to step

    def __init__(self, num_hidden: int, activation: str = "tanh", prefix: str = "rnn_", params: RNNParams | None = None):
        super().__init__(prefix, params)
        self._num_hidden, self._activation_name = num_hidden, activation
        self._iW, self._iB = self.params.get("i2h_weight"), self.params.get("i2h_bias")
        self._hW, self._hB = self.params.get("h2h_weight"), self.params.get("h2h_bias")

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return [{"shape": (0, self._num_hidden), "__layout__": "NC"} for _ in range(self._states)]

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return ("",)

    @property
    def _num_gates(self) -> int:
        return len(self._gate_names)

    def _both(self, inputs: Symbol, state: Symbol, name: str, gates: int) -> tuple[Symbol, Symbol]:
        """What the input and the state each add to the gates."""
        n = self._num_hidden * gates
        return (symbol.FullyConnected(inputs, self._iW, self._iB, num_hidden=n, name=f"{name}i2h"),
                symbol.FullyConnected(state, self._hW, self._hB, num_hidden=n, name=f"{name}h2h"))

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        name = self._step_name()
        i2h, h2h = self._both(inputs, states[0], name, 1)
        output = self._activation(i2h + h2h, self._activation_name, name=f"{name}out")
        return output, [output]


class LSTMCell(RNNCell):
    """Long short-term memory; gates i, f, c, o. forget_bias: what the forget gate's bias begins with.

    Source: Hochreiter and Schmidhuber 1997.
    """

    _states = 2

    def __init__(self, num_hidden: int, prefix: str = "lstm_", params: RNNParams | None = None, forget_bias: float = 1.0):
        BaseRNNCell.__init__(self, prefix, params)
        self._num_hidden, self._activation_name = num_hidden, "tanh"
        self._iW = self.params.get("i2h_weight")
        self._iB = self.params.get("i2h_bias", init=LSTMBias(forget_bias=forget_bias))
        self._hW, self._hB = self.params.get("h2h_weight"), self.params.get("h2h_bias")

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return "_i", "_f", "_c", "_o"

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        name = self._step_name()
        i2h, h2h = self._both(inputs, states[0], name, 4)
        parts = symbol.SliceChannel(i2h + h2h, num_outputs=4, name=f"{name}slice")
        kinds: Any = (("i", "sigmoid"), ("f", "sigmoid"), ("c", self._activation_name), ("o", "sigmoid"))
        enter, forget, new, out = (self._activation(parts[j], k, name=f"{name}{n}") for j, (n, k) in enumerate(kinds))
        cell = symbol.elemwise_add(forget * states[1], enter * new, name=f"{name}state")
        hidden = symbol.elemwise_mul(out, self._activation(cell, self._activation_name), name=f"{name}out")
        return hidden, [hidden, cell]


class GRUCell(RNNCell):
    """Gated recurrent unit; gates r, z, o. Source: Cho et al. 2014, arXiv:1406.1078."""

    _part = "_"  # in the names of its products: lstm_t0_i2h, but gru_t0__i2h

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None):
        super().__init__(num_hidden, prefix=prefix, params=params)

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return "_r", "_z", "_o"

    def __call__(self, inputs: Symbol, states: States) -> tuple[Symbol, States]:
        name = self._step_name()
        before = states[0]
        i2h, h2h = self._both(inputs, before, f"{name}{self._part}", 3)
        part = f"{name}_"
        i2h_r, i2h_z, i2h = symbol.SliceChannel(i2h, num_outputs=3, name=f"{part}i2h_slice")
        h2h_r, h2h_z, h2h = symbol.SliceChannel(h2h, num_outputs=3, name=f"{part}h2h_slice")
        reset = symbol.Activation(i2h_r + h2h_r, act_type="sigmoid", name=f"{part}r_act")
        update = symbol.Activation(i2h_z + h2h_z, act_type="sigmoid", name=f"{part}z_act")
        new = self._activation(i2h + reset * h2h, self._activation_name, name=f"{part}h_act")
        output = symbol.elemwise_add((1.0 - update) * new, update * before, name=f"{name}out")
        return output, [output]
