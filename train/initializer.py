"""Initializers: the values of a parameter before training, chosen by its name, its `__init__` attribute and its shape.

All random numbers come from `mx.random`; `mx.random.seed` makes them repeatable.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError, check_choice
from ..ndarray import NDArray, load
from ..ndarray.functions import random
from ..show import Shown
from .fused_rnn_layout import FusedRNNLayout
from .registry import Registry

registry = Registry("initializer")
register, alias = registry.register, registry.alias

#: The method of Initializer for each ending of a name.
_METHODS = {"weight": "_init_weight", "bias": "_init_bias", "gamma": "_init_gamma", "beta": "_init_beta", "min": "_init_zero",
            "max": "_init_one"}
_METHODS_OF_OLD_SCRIPTS = {"moving_mean": "_init_zero", "moving_inv_var": "_init_zero", "moving_avg": "_init_zero",
                           "moving_var": "_init_one"}


class InitDesc(str):
    """The name of a parameter, with information for its initializer.

    attrs:        the attributes of the variable; `__init__` names an initializer for this parameter alone.
    global_init:  the initializer of the model, for the parts of a fused parameter.
    """

    attrs: dict[str, str]
    global_init: Initializer | None

    def __new__(cls, name: str, attrs: Mapping[str, str] | None = None, global_init: Initializer | None = None):
        desc = super().__new__(cls, name)
        desc.attrs = dict(attrs or {})
        desc.global_init = global_init
        return desc


class Initializer(Shown):
    """Base: `init(InitDesc(name), array)` fills array.

    The end of the name selects a method: `_init_weight` for weight, 0 for bias, beta and min, 1 for gamma and max. Any
    other name is an error, unless the variable has an `__init__` attribute. If the name is a plain string, as in old MXNet
    scripts, moving_mean, moving_var and some others are known too.
    """

    _verbose = False
    _print_func: Callable[[NDArray], str] | None = None

    def __init__(self, **kwargs: Any):
        self._kwargs = kwargs

    def dumps(self) -> str:
        """Return `["name", {settings}]`, the form of a variable's `__init__` attribute."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._kwargs == getattr(other, "_kwargs", None)

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> Mapping[str, Any]:
        return self._kwargs

    def set_verbosity(self, verbose: bool = False, print_func: Any = None) -> Initializer:
        """Log a line for each parameter that is initialized under an InitDesc, if verbose.

        print_func: a function of the array whose result ends the line; by default its root mean square. Returns: self.
        """
        self._verbose, self._print_func = bool(verbose), print_func or _root_mean_square
        return self

    def _log(self, desc: str, initializer: str, arr: NDArray) -> None:
        if self._verbose and self._print_func is not None:
            logging.info("Initialized %s as %s: %s", desc, initializer, self._print_func(arr))

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Fill arr, the parameter called desc. Raises ParameterError if the name selects no method."""
        if isinstance(desc, InitDesc):
            if desc.global_init is None:
                desc.global_init = self
            if desc.attrs.get("__init__"):
                create(desc.attrs["__init__"])._init_weight(desc, arr)
                self._log(desc, desc.attrs["__init__"], arr)
                return
        elif not isinstance(desc, str):
            raise ParameterError(f"{type(self).__name__}: the name of a parameter is a str or InitDesc, not {desc!r}.")
        self._by_name(desc, arr)

    def _by_name(self, desc: str, arr: NDArray) -> None:
        plain_string = not isinstance(desc, InitDesc)
        if plain_string and desc.startswith("upsampling"):
            Bilinear()._init_weight(desc, arr)
            return
        endings = {**_METHODS, **_METHODS_OF_OLD_SCRIPTS} if plain_string else _METHODS
        ending = next((e for e in endings if desc.endswith(e)), "")
        getattr(self, endings.get(ending, "_init_default"))(desc, arr)
        if not plain_string:
            self._log(desc, ending, arr)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise NotImplementedError(f"{type(self).__name__}._init_weight")

    def _init_zero(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_one(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0

    _init_bias = _init_beta = _init_zero
    _init_gamma = _init_one

    def _init_default(self, name: str, arr: NDArray) -> None:
        raise ParameterError(f"{type(self).__name__}: the name {name!r} does not end in weight, bias, gamma, beta, min or max. "
                             f"Give the variable its own initializer, as in mx.sym.Variable({str(name)!r}, init=...).")


def _root_mean_square(arr: NDArray) -> str:
    return str(np.sqrt(np.mean(np.square(arr.asnumpy()))))


def create(initializer: Any, **kwargs: Any) -> Any:
    """Return an initializer from its name ("xavier") or from the text of `dumps`; an initializer is returned as it is."""
    if not isinstance(initializer, str):
        return initializer
    if not initializer.lstrip().startswith("["):
        return registry.create(initializer, **kwargs)
    try:
        name, settings = json.loads(initializer)
        return registry.create(name, **settings)
    except (ValueError, TypeError) as e:
        raise ParameterError(f'initializer.create: {initializer!r} is not of the form ["name", {{settings}}]: {e}') from e


@registry.alias("zeros")
class Zero(Initializer):
    """Weights of 0."""

    def __init__(self) -> None:
        super().__init__()

    _init_weight = Initializer._init_zero


@registry.alias("ones")
class One(Initializer):
    """Weights of 1."""

    def __init__(self) -> None:
        super().__init__()

    _init_weight = Initializer._init_one


@register
class Constant(Initializer):
    """Weights equal to a number, or to an array of the parameter's shape."""

    def __init__(self, value: Any):
        value = value.asnumpy() if isinstance(value, NDArray) else value
        super().__init__(value=value.tolist() if isinstance(value, np.ndarray) else value)
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value if isinstance(self.value, (int, float, NDArray)) else np.asarray(self.value)


@register
class Uniform(Initializer):
    """Weights uniform in [-scale, scale)."""

    def __init__(self, scale: float = 0.07):
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, name: str, arr: NDArray) -> None:
        _draw("uniform", self.scale, arr)


@register
class Normal(Initializer):
    """Normally distributed weights with mean 0 and standard deviation sigma."""

    def __init__(self, sigma: float = 0.01):
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, name: str, arr: NDArray) -> None:
        _draw("gaussian", self.sigma, arr)


@register
class Xavier(Initializer):
    """Weights scaled so that the variance of activations stays the same from layer to layer.

    The scale is sqrt(magnitude / fan). fan is the number of inputs ("in"), of outputs ("out") or their mean ("avg"), of a
    weight [out, in, ...]. "uniform" draws from [-scale, scale), "gaussian" with standard deviation scale.
    Source: Glorot and Bengio 2010, proceedings.mlr.press/v9/glorot10a.
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3):
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        check_choice(type(self).__name__, "rnd_type", rnd_type, ("uniform", "gaussian"))
        check_choice(type(self).__name__, "factor_type", factor_type, ("in", "out", "avg"))
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        shape = arr.shape
        if len(shape) < 2:
            raise ShapeError(f"{type(self).__name__}: {str(name)!r} has shape {shape}, at least two axes are needed. "
                             f"Use Uniform or Normal for vectors.")
        window = math.prod(shape[2:])
        fan_in, fan_out = shape[1] * window, shape[0] * window
        fan = {"in": fan_in, "out": fan_out, "avg": (fan_in + fan_out) / 2}[self.factor_type]
        _draw(self.rnd_type, math.sqrt(self.magnitude / fan) if fan else 0.0, arr)


@register
class MSRAPrelu(Xavier):
    """Normally distributed weights for layers before a leaky ReLU with this negative slope.

    Source: He et al. 2015, arXiv:1502.01852.
    """

    def __init__(self, factor_type: str = "avg", slope: float = 0.25):
        super().__init__("gaussian", factor_type, 2 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Orthogonal(Initializer):
    """Weights [out, ...] whose rows (or columns, if there are fewer) are orthogonal and have length scale.

    Source: Saxe et al. 2013, arXiv:1312.6120.
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform"):
        super().__init__(scale=scale, rand_type=rand_type)
        check_choice("Orthogonal", "rand_type", rand_type, ("uniform", "normal"))
        self.scale, self.rand_type = scale, rand_type

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if len(arr.shape) < 2:
            raise ShapeError(f"Orthogonal: {str(name)!r} has shape {arr.shape}, at least two axes are needed.")
        shape = (arr.shape[0], math.prod(arr.shape[1:]))
        drawn = random.uniform(-1.0, 1.0, shape) if self.rand_type == "uniform" else random.normal(0.0, 1.0, shape)
        u, _, v = np.linalg.svd(drawn.asnumpy().astype(np.float64), full_matrices=False)
        q = u if u.shape == shape else v
        arr[:] = (self.scale * q).reshape(arr.shape).astype(arr.dtype)


@register
class Bilinear(Initializer):
    """Weights [out, in, h, w] that make a deconvolution interpolate linearly."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if len(arr.shape) != 4:
            raise ShapeError(f"Bilinear: {str(name)!r} has shape {arr.shape}, not [out, in, h, w].")
        half = math.ceil(arr.shape[3] / 2)
        centre = (2 * half - 1 - half % 2) / (2 * half)
        x, y = (1 - np.abs(np.arange(n) / half - centre) for n in (arr.shape[3], arr.shape[2]))
        arr[:] = np.broadcast_to(np.outer(y, x), arr.shape).astype(arr.dtype)


@register
class LSTMBias(Initializer):
    """The bias of an LSTM cell [4 · hidden]: forget_bias for the forget gate (the second quarter), 0 for the others."""

    def __init__(self, forget_bias: float = 1.0):
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        hidden = arr.shape[0] // 4
        value = np.zeros(arr.shape, arr.dtype)
        value[hidden : 2 * hidden] = self.forget_bias
        arr[:] = value

    _init_bias = _init_weight


@register
class FusedRNN(Initializer):
    """The parameter vector of a FusedRNNCell: each gate by `init`, or by the model's initializer if init is None.

    The biases of forget gates (mode "lstm") are forget_bias.
    """

    def __init__(self, init: Any, num_hidden: int, num_layers: int, mode: str, bidirectional: bool = False,
                 forget_bias: float = 1.0):
        self._init = create(init)
        super().__init__(init=self._init.dumps() if self._init is not None else None, num_hidden=num_hidden,
                         num_layers=num_layers, mode=mode, bidirectional=bidirectional, forget_bias=forget_bias)
        self._fused, self._forget_bias = FusedRNNLayout(num_hidden, num_layers, mode, bidirectional), forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        global_init = getattr(name, "global_init", None)
        init = global_init if self._init is None else self._init
        if init is None or isinstance(init, FusedRNN):
            raise ParameterError(f"FusedRNN: the gates of {str(name)!r} have no initializer. Pass init.")
        flat = arr.reshape((-1,))
        for gate_name, offset, shape in self._fused.places(arr.size):
            gate = flat[offset:offset + math.prod(shape)].reshape(shape)
            if self._fused.mode == "lstm" and gate_name.endswith("_f_bias"):
                gate[:] = self._forget_bias
            else:
                init(InitDesc(gate_name, global_init=global_init), gate)


class Mixed(Shown):
    """Several initializers: the first whose pattern matches the beginning of the parameter's name."""

    def __init__(self, patterns: Sequence[str], initializers: Sequence[Any]):
        if len(patterns) != len(initializers):
            raise ParameterError(f"Mixed: {len(patterns)} patterns for {len(initializers)} initializers.")
        self.map = [(re.compile(p), create(i)) for p, i in zip(patterns, initializers)]

    def __call__(self, name: str, arr: NDArray) -> None:
        for pattern, init in self.map:
            if pattern.match(name):
                init(name, arr)
                return
        raise ParameterError(f"Mixed: no pattern matches {str(name)!r}: {', '.join(p.pattern for p, _ in self.map)}. "
                             f'End with the pattern ".*".')


class Load(Shown):
    """Values from a file or dictionary of arrays, and from `default_init` for parameters that it does not have."""

    def __init__(self, param: Any, default_init: Any = None, verbose: bool = False):
        if isinstance(param, str):
            param = load(param)
        if not isinstance(param, Mapping):
            raise ParameterError("Load: the arrays have no names. Pass a dictionary, or a file with one.")
        self.param = {name.removeprefix("arg:").removeprefix("aux:"): value for name, value in param.items()}
        self.default_init = create(default_init)

    def __call__(self, name: str, arr: NDArray) -> None:
        if name in self.param:
            value = self.param[name]
            if value.shape != arr.shape:
                raise ShapeError(f"Load: parameter {str(name)!r} was loaded with shape {value.shape}, the network needs "
                                 f"{arr.shape}.")
            arr[:] = value
        elif self.default_init is None:
            raise ParameterError(f"Load: no parameter is called {str(name)!r}. Pass default_init for missing ones.")
        else:
            self.default_init(name, arr)


def _draw(kind: str, scale: float, arr: NDArray) -> None:
    """Fill arr with random numbers: uniform in [-scale, scale), or normal with standard deviation scale."""
    low, draw = (-scale, random.uniform) if kind == "uniform" else (0.0, random.normal)
    draw(low, scale, shape=arr.shape, dtype=arr.dtype, ctx=arr.context, out=arr)
