"""Activation layers."""

from __future__ import annotations

from typing import Any

from ...errors import ParameterError
from ...train import initializer
from ..block import HybridBlock


class Activation(HybridBlock):
    """The activation called `activation`: 'relu', 'sigmoid', 'tanh', 'softrelu', 'softsign' or another of `mx.nd.Activation`.

    Input: any shape. Output: the same shape.
    """

    def __init__(self, activation: str, **kwargs: Any) -> None:
        self._act_type = activation  # before the base, which asks _alias for the prefix
        super().__init__(**kwargs)

    def _alias(self) -> str:
        return self._act_type

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(x, act_type=self._act_type, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._act_type})"


class LeakyReLU(HybridBlock):
    """x where x >= 0, else alpha · x. alpha: the slope, at least 0."""

    def __init__(self, alpha: float, **kwargs: Any) -> None:
        if alpha < 0:
            raise ParameterError(f"LeakyReLU: alpha={alpha}. The slope of negative values is at least 0.")
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="leaky", slope=self._alpha, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"


class PReLU(HybridBlock):
    """x where x >= 0, else alpha · x, with alpha learned.

    in_channels: 1 for one alpha, or the size of axis 1 of the input for an alpha per channel.
    """

    def __init__(self, alpha_initializer: Any = initializer.Constant(0.25), in_channels: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.alpha = self.params.get("alpha", shape=(in_channels,), init=alpha_initializer)

    def hybrid_forward(self, F: Any, x: Any, alpha: Any) -> Any:
        return F.LeakyReLU(x, gamma=alpha, act_type="prelu", name="fwd")


class ELU(HybridBlock):
    """x where x >= 0, else alpha · (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="elu", slope=self._alpha)


class SELU(HybridBlock):
    """The scaled ELU of self-normalizing networks (arXiv:1706.02515)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="selu", name="fwd")


class GELU(HybridBlock):
    """x · Φ(x), with the distribution function Φ of the standard normal (arXiv:1606.08415)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


class Swish(HybridBlock):
    """x · sigmoid(beta · x) (arXiv:1710.05941)."""

    def __init__(self, beta: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._beta = beta

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x * F.sigmoid(self._beta * x, name="fwd")
