"""Convolutional cells: RNN, LSTM and GRU cells whose products are convolutions over 1, 2 or 3 axes (Shi et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import ParameterError
from ...parameter import ParameterDict
from ...rnn import HybridRecurrentCell
from ...rnn.recurrent_cell import StateInfo, States

__all__ = ["Conv1DGRUCell", "Conv1DLSTMCell", "Conv1DRNNCell", "Conv2DGRUCell", "Conv2DLSTMCell", "Conv2DRNNCell",
           "Conv3DGRUCell", "Conv3DLSTMCell", "Conv3DRNNCell"]

Sizes = int | Sequence[int]


class _BaseConvRNNCell(HybridRecurrentCell):
    """Base of convolutional cells.

    input_shape:           of one step of one sample, in conv_layout without its N, such as (channels, height, width).
    hidden_channels:       of the output and of the states.
    i2h_kernel, i2h_pad, i2h_dilate:  of the convolution of the input; one number, or one per axis.
    h2h_kernel, h2h_dilate:           of the convolution of the state, padded to keep its size; the kernel is odd.
    conv_layout:           by default "NCW", "NCHW" or "NCDHW"; channels may also be last.
    activation:            a name, or a block such as LeakyReLU.
    """

    _dims = 0
    _num_gates = 1
    _num_states = 1

    def __init__(self, input_shape: Sequence[int], hidden_channels: int, i2h_kernel: Sizes, h2h_kernel: Sizes,
                 i2h_pad: Sizes = 0, i2h_dilate: Sizes = 1, h2h_dilate: Sizes = 1, i2h_weight_initializer: Any = None,
                 h2h_weight_initializer: Any = None, i2h_bias_initializer: Any = "zeros", h2h_bias_initializer: Any = "zeros",
                 conv_layout: str | None = None, activation: Any = "tanh", prefix: str | None = None,
                 params: ParameterDict | None = None):
        super().__init__(prefix=prefix, params=params)
        self._hidden_channels, self._input_shape, self._activation = hidden_channels, tuple(input_shape), activation
        self._conv_layout = conv_layout or f"NC{'DHW'[-self._dims:]}"
        self._i2h_kernel, self._i2h_pad = self._sizes("i2h_kernel", i2h_kernel), self._sizes("i2h_pad", i2h_pad)
        self._i2h_dilate = self._sizes("i2h_dilate", i2h_dilate)
        self._h2h_kernel, self._h2h_dilate = self._sizes("h2h_kernel", h2h_kernel), self._sizes("h2h_dilate", h2h_dilate)
        self._stride = (1,) * self._dims
        if any(k % 2 == 0 for k in self._h2h_kernel):
            raise ParameterError(f"{type(self).__name__}: h2h_kernel={h2h_kernel} must be odd, so that states keep their size.")
        self._h2h_pad = tuple(d * (k - 1) // 2 for d, k in zip(self._h2h_dilate, self._h2h_kernel))
        self._channel_axis = self._conv_layout.find("C")
        first = self._channel_axis == 1
        self._in_channels = self._input_shape[self._channel_axis - 1]
        space = self._input_shape[1:] if first else self._input_shape[:-1]
        out = tuple(x + 2 * p - d * (k - 1) if x else 0
                    for x, p, d, k in zip(space, self._i2h_pad, self._i2h_dilate, self._i2h_kernel))
        self._state_shape = (hidden_channels, *out) if first else (*out, hidden_channels)
        rows = hidden_channels * self._num_gates

        def weight(name: str, channels: int, kernel: tuple[int, ...], init: Any) -> Any:
            shape = (rows, channels, *kernel) if first else (rows, *kernel, channels)
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        self.i2h_weight = weight("i2h_weight", self._in_channels, self._i2h_kernel, i2h_weight_initializer)
        self.h2h_weight = weight("h2h_weight", hidden_channels, self._h2h_kernel, h2h_weight_initializer)
        self.i2h_bias = self.params.get("i2h_bias", shape=(rows,), init=i2h_bias_initializer, allow_deferred_init=True)
        self.h2h_bias = self.params.get("h2h_bias", shape=(rows,), init=h2h_bias_initializer, allow_deferred_init=True)

    def _sizes(self, name: str, given: Sizes) -> tuple[int, ...]:
        sizes = (given,) * self._dims if isinstance(given, (int, float, np.generic)) else tuple(given)
        if len(sizes) != self._dims:
            raise ParameterError(f"{type(self).__name__}: {name}={given} must be one number, or {self._dims} numbers.")
        return sizes

    def __repr__(self) -> str:
        shape = self.i2h_weight.shape
        channels = shape[1 if self._channel_axis == 1 else -1]
        return f"{type(self).__name__}({channels or None} -> {shape[0]}, {self._activation}, {self._conv_layout})"

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return [{"shape": (batch_size, *self._state_shape), "__layout__": self._conv_layout} for _ in range(self._num_states)]

    def _conv_forward(self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any,
                      prefix: str) -> tuple[Any, Any]:
        """Return the convolutions of the input and of the state, with the channels of all gates."""
        rows = self._hidden_channels * self._num_gates
        i2h = F.Convolution(data=inputs, weight=i2h_weight, bias=i2h_bias, num_filter=rows, kernel=self._i2h_kernel,
                            stride=self._stride, pad=self._i2h_pad, dilate=self._i2h_dilate, layout=self._conv_layout,
                            name=prefix + "i2h")
        h2h = F.Convolution(data=states[0], weight=h2h_weight, bias=h2h_bias, num_filter=rows, kernel=self._h2h_kernel,
                            stride=self._stride, pad=self._h2h_pad, dilate=self._h2h_dilate, layout=self._conv_layout,
                            name=prefix + "h2h")
        return i2h, h2h


class _ConvRNNCell(_BaseConvRNNCell):
    """h' = activation(W_i * x + b_i + W_h * h + b_h). State: h; the output is h'."""

    def _alias(self) -> str:
        return "conv_rnn"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any,
                       h2h_bias: Any) -> tuple[Any, States]:
        prefix = f"t{self._counter}_"
        i2h, h2h = self._conv_forward(F, inputs, states, i2h_weight, h2h_weight, i2h_bias, h2h_bias, prefix)
        output = self._get_activation(F, i2h + h2h, self._activation, name=prefix + "out")
        return output, [output]


class _ConvLSTMCell(_BaseConvRNNCell):
    """LSTMCell with convolutions. States: h and c."""

    _num_gates = 4
    _num_states = 2

    def _alias(self) -> str:
        return "conv_lstm"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any,
                       h2h_bias: Any) -> tuple[Any, States]:
        prefix = f"t{self._counter}_"
        i2h, h2h = self._conv_forward(F, inputs, states, i2h_weight, h2h_weight, i2h_bias, h2h_bias, prefix)
        gates = F.SliceChannel(i2h + h2h, num_outputs=4, name=prefix + "slice", axis=self._channel_axis)
        i = F.Activation(gates[0], act_type="sigmoid", name=prefix + "i")
        f = F.Activation(gates[1], act_type="sigmoid", name=prefix + "f")
        g = self._get_activation(F, gates[2], self._activation, name=prefix + "c")
        o = F.Activation(gates[3], act_type="sigmoid", name=prefix + "o")
        next_c = F.elemwise_add(f * states[1], i * g, name=prefix + "state")
        next_h = F.elemwise_mul(o, self._get_activation(F, next_c, self._activation), name=prefix + "out")
        return next_h, [next_h, next_c]


class _ConvGRUCell(_BaseConvRNNCell):
    """GRUCell with convolutions. State: h."""

    _num_gates = 3

    def _alias(self) -> str:
        return "conv_gru"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any,
                       h2h_bias: Any) -> tuple[Any, States]:
        prefix = f"t{self._counter}_"
        i2h, h2h = self._conv_forward(F, inputs, states, i2h_weight, h2h_weight, i2h_bias, h2h_bias, prefix)
        i2h_r, i2h_z, i2h_n = F.SliceChannel(i2h, num_outputs=3, name=prefix + "i2h_slice", axis=self._channel_axis)
        h2h_r, h2h_z, h2h_n = F.SliceChannel(h2h, num_outputs=3, name=prefix + "h2h_slice", axis=self._channel_axis)
        r = F.Activation(i2h_r + h2h_r, act_type="sigmoid", name=prefix + "r_act")
        z = F.Activation(i2h_z + h2h_z, act_type="sigmoid", name=prefix + "z_act")
        n = self._get_activation(F, i2h_n + r * h2h_n, self._activation, name=prefix + "h_act")
        output = F.elemwise_add((1.0 - z) * n, z * states[0], name=prefix + "out")
        return output, [output]


class Conv1DRNNCell(_ConvRNNCell):
    """RNNCell with convolutions over one axis."""

    _dims = 1


class Conv2DRNNCell(_ConvRNNCell):
    """RNNCell with convolutions over two axes."""

    _dims = 2


class Conv3DRNNCell(_ConvRNNCell):
    """RNNCell with convolutions over three axes."""

    _dims = 3


class Conv1DLSTMCell(_ConvLSTMCell):
    """LSTMCell with convolutions over one axis."""

    _dims = 1


class Conv2DLSTMCell(_ConvLSTMCell):
    """LSTMCell with convolutions over two axes."""

    _dims = 2


class Conv3DLSTMCell(_ConvLSTMCell):
    """LSTMCell with convolutions over three axes."""

    _dims = 3


class Conv1DGRUCell(_ConvGRUCell):
    """GRUCell with convolutions over one axis."""

    _dims = 1


class Conv2DGRUCell(_ConvGRUCell):
    """GRUCell with convolutions over two axes."""

    _dims = 2


class Conv3DGRUCell(_ConvGRUCell):
    """GRUCell with convolutions over three axes."""

    _dims = 3
