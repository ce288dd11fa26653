"""Dense, Dropout, Embedding, Flatten and functions as layers; MXNet's module has stacks and normalizations too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import ndarray as nd
from ...errors import ParameterError, nearest
from ...graph.symbol import namespace as sym
from ..block import Block, HybridBlock
from .activations import Activation
from .norms import BatchNorm, BatchNormReLU, GroupNorm, InstanceNorm, LayerNorm
from .norms import _BatchNorm as _BatchNorm
from .sequential import HybridSequential, Sequential

__all__ = ["Sequential", "HybridSequential", "Dense", "Dropout", "Embedding", "BatchNorm", "BatchNormReLU", "InstanceNorm",
           "LayerNorm", "GroupNorm", "Flatten", "Lambda", "HybridLambda"]


class Dense(HybridBlock):
    """A fully connected layer: activation(x · weightᵀ + bias).

    units:     size of the output.
    flatten:   True: axes 1 and up of the input are one; False: only its last axis is multiplied.
    in_units:  size of the input; 0: known at the first forward.
    Input:     [batch, ...], or [..., in_units] without flatten.
    Output:    [batch, units], or [..., units].
    """

    def __init__(self, units: int, activation: str | None = None, use_bias: bool = True, flatten: bool = True,
                 dtype: Any = "float32", weight_initializer: Any = None, bias_initializer: Any = "zeros", in_units: int = 0,
                 **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._flatten = flatten
        with self.name_scope():
            self._units, self._in_units = units, in_units
            self.weight = self.params.get("weight", shape=(units, in_units), init=weight_initializer, dtype=dtype,
                                          allow_deferred_init=True)
            self.bias = self.params.get("bias", shape=(units,), init=bias_initializer, dtype=dtype,
                                        allow_deferred_init=True) if use_bias else None
            self.act = Activation(activation, prefix=activation + "_") if activation is not None else None

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        y = F.FullyConnected(x, weight, bias, no_bias=bias is None, num_hidden=self._units, flatten=self._flatten, name="fwd")
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        units, in_units = self.weight.shape or (None, None)
        return f"{type(self).__name__}({in_units or None} -> {units}, {self.act or 'linear'})"


class Dropout(HybridBlock):
    """Each element becomes 0 with probability `rate` in training, and the others are divided by 1 - rate.

    axes: axes along which all elements share one draw.
    """

    def __init__(self, rate: float, axes: Sequence[int] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._rate, self._axes = rate, axes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self._rate > 0:
            return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd", cudnn_off=False)
        return F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


class Embedding(HybridBlock):
    """Row x of the weight for each integer x of the input.

    input_dim:    number of rows: the largest integer + 1.
    output_dim:   length of a row.
    sparse_grad:  the gradient is a RowSparseNDArray of the rows that occurred.
    Input:        any shape. Output: that shape, then output_dim.
    """

    def __init__(self, input_dim: int, output_dim: int, dtype: Any = "float32", weight_initializer: Any = None,
                 sparse_grad: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._kwargs = {"input_dim": input_dim, "output_dim": output_dim, "dtype": dtype, "sparse_grad": sparse_grad}
        self.weight = self.params.get("weight", shape=(input_dim, output_dim), init=weight_initializer, dtype=dtype,
                                      allow_deferred_init=True, grad_stype="row_sparse" if sparse_grad else "default")

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._kwargs['input_dim']} -> {self._kwargs['output_dim']}, {self._kwargs['dtype']})"


class Flatten(HybridBlock):
    """[batch, ...] as [batch, product of the other sizes]."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__


def _operator(layer: str, name: str, *namespaces: Any) -> list[Any]:
    """Return the operator called name of each namespace."""
    for space in namespaces:
        if not hasattr(space, name):
            raise ParameterError(f"{layer}: no operator is called {name!r}.{nearest(name, dir(space))}")
    return [getattr(space, name) for space in namespaces]


class Lambda(Block):
    """A function of arrays as a block.

    function: the name of an operator of `mx.nd`, or a function of the inputs.
    """

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if not isinstance(function, str) and not callable(function):
            raise ParameterError(f"Lambda: {function!r} is neither the name of an operator nor a function.")
        self._func_impl: Any = _operator("Lambda", function, nd)[0] if isinstance(function, str) else function

    def forward(self, *args: Any) -> Any:
        return self._func_impl(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_impl.__name__})"


class HybridLambda(HybridBlock):
    """A function as a block that `hybridize` can trace.

    function: the name of an operator of both `mx.nd` and `mx.sym`, or a function of F, which is one of the two, and the inputs.
    """

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            on_arrays, on_symbols = _operator("HybridLambda", function, nd, sym)
            self._func: Any = lambda F, *args: (on_arrays if F is nd else on_symbols)(*args)
            self._func_name = function
        elif callable(function):
            self._func, self._func_name = function, function.__name__
        else:
            raise ParameterError(f"HybridLambda: {function!r} is neither the name of an operator nor a function.")

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._func(F, x, *args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"
