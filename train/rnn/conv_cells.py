"""Recurrent cells with convolutions instead of matrix products, for sequences of images. Their formulas are in cells.py."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...errors import ParameterError
from ...graph.symbol import namespace as symbol
from ...graph.symbol.symbol import Symbol
from .cells import BaseRNNCell, GRUCell, LSTMCell, RNNCell, RNNParams

_LEAKY = partial(symbol.LeakyReLU, act_type="leaky", slope=0.2)
_TWO = tuple[int, int]


class BaseConvRNNCell(RNNCell):
    """Base of convolutional cells; states are [batch, num_hidden, height, width].

    input_shape:  of the input of one step, [batch, channels, height, width]; the batch size is ignored.
    h2h_kernel:   odd sizes, so that the states keep their shape.
    activation:   a name for the operator Activation, or a function of a symbol.
    """

    _default_prefix = ""

    def __init__(self, input_shape: tuple[int, ...], num_hidden: int, h2h_kernel: _TWO = (3, 3), h2h_dilate: _TWO = (1, 1),
                 i2h_kernel: _TWO = (3, 3), i2h_stride: _TWO = (1, 1), i2h_pad: _TWO = (1, 1), i2h_dilate: _TWO = (1, 1),
                 i2h_weight_initializer: Any = None, h2h_weight_initializer: Any = None, i2h_bias_initializer: Any = "zeros",
                 h2h_bias_initializer: Any = "zeros", activation: Any = _LEAKY, prefix: str | None = None,
                 params: RNNParams | None = None, conv_layout: str = "NCHW"):
        BaseRNNCell.__init__(self, self._default_prefix if prefix is None else prefix, params)
        if not all(k % 2 for k in h2h_kernel):
            raise ParameterError(f"{type(self).__name__}: h2h_kernel={tuple(h2h_kernel)} must be odd to keep the states' shape.")
        self._num_hidden, self._activation_name, self._layout = num_hidden, activation, conv_layout
        self._i2h = {"kernel": i2h_kernel, "stride": i2h_stride, "pad": i2h_pad, "dilate": i2h_dilate, "layout": conv_layout}
        pad = tuple(d * (k - 1) // 2 for k, d in zip(h2h_kernel, h2h_dilate))
        self._h2h = {"kernel": h2h_kernel, "stride": (1, 1), "pad": pad, "dilate": h2h_dilate, "layout": conv_layout}
        self._iW = self.params.get("i2h_weight", init=i2h_weight_initializer)
        self._hW = self.params.get("h2h_weight", init=h2h_weight_initializer)
        self._iB = self.params.get("i2h_bias", init=i2h_bias_initializer)
        self._hB = self.params.get("h2h_bias", init=h2h_bias_initializer)
        first = symbol.Convolution(symbol.Variable("data"), num_filter=num_hidden, **self._i2h)
        self._state = (0, *first.infer_shape_partial(data=tuple(input_shape))[1][0][1:])

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return [{"shape": self._state, "__layout__": self._layout} for _ in range(self._num_states)]

    def _both(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        n = self._num_hidden * len(self._gate_names)
        return (symbol.Convolution(inputs, self._iW, self._iB, num_filter=n, name=f"{name}i2h", **self._i2h),
                symbol.Convolution(state, self._hW, self._hB, num_filter=n, name=f"{name}h2h", **self._h2h))


class ConvRNNCell(BaseConvRNNCell):
    """h = activation(W * x + R * h + b), where * is convolution."""

    _default_prefix = "ConvRNN_"


class ConvLSTMCell(BaseConvRNNCell, LSTMCell):
    """Long short-term memory with convolutions. Source: Shi et al. 2015, arXiv:1506.04214."""

    _default_prefix = "ConvLSTM_"


class ConvGRUCell(BaseConvRNNCell, GRUCell):
    """Gated recurrent unit with convolutions."""

    _default_prefix, _part = "ConvGRU_", ""
