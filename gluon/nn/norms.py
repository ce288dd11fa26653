"""Normalization layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..block import HybridBlock, Parameter


class _Norm(HybridBlock):
    """A normalization with the parameters gamma, learned if `scale`, and beta, learned if `center`, of size `channels`.

    always_differentiable: the parameters may be learned later, by another grad_req, even if they are not now.
    """

    def __init__(self, kwargs: dict[str, Any], channels: int, center: bool, scale: bool, beta_initializer: Any,
                 gamma_initializer: Any, always_differentiable: bool = True, **names: Any) -> None:
        super().__init__(**names)
        self._kwargs = kwargs
        self.gamma = self._parameter("gamma", channels, scale, gamma_initializer, always_differentiable)
        self.beta = self._parameter("beta", channels, center, beta_initializer, always_differentiable)

    def _parameter(self, name: str, channels: int, learned: bool, init: Any, differentiable: bool = False) -> Parameter:
        return self.params.get(name, grad_req="write" if learned else "null", shape=(channels,), init=init,
                               allow_deferred_init=True, differentiable=learned or differentiable)

    def _settings(self) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in self._kwargs.items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings()}, in_channels={(self.gamma.shape or (None,))[0]})"


class _BatchNorm(_Norm):
    """Batch normalization: each channel by its mean and variance over the batch, or by running ones at inference.

    axis:              the channels' axis.
    momentum:          of the running mean and variance.
    epsilon:           added to the variance.
    center, scale:     learn beta, and gamma.
    use_global_stats:  use the running mean and variance in training too.
    in_channels:       0: known at the first forward.
    """

    fuse_relu = False

    def __init__(self, axis: int = 1, momentum: float = 0.9, epsilon: float = 1e-5, center: bool = True, scale: bool = True,
                 use_global_stats: bool = False, beta_initializer: Any = "zeros", gamma_initializer: Any = "ones",
                 running_mean_initializer: Any = "zeros", running_variance_initializer: Any = "ones", in_channels: int = 0,
                 **kwargs: Any) -> None:
        settings = {"axis": axis, "eps": epsilon, "momentum": momentum, "fix_gamma": not scale,
                    "use_global_stats": use_global_stats}
        super().__init__(settings, in_channels, center, scale, beta_initializer, gamma_initializer,
                         always_differentiable=False, **kwargs)
        if in_channels != 0:
            self.in_channels = in_channels
        self.running_mean = self._parameter("running_mean", in_channels, False, running_mean_initializer)
        self.running_var = self._parameter("running_var", in_channels, False, running_variance_initializer)

    def cast(self, dtype: Any) -> None:
        """Cast the parameters; they stay float32 for data of float16, as the operator wants."""
        super().cast("float32" if np.dtype(dtype).name == "float16" else dtype)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        y = F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)
        return F.relu(y) if self.fuse_relu else y

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings()}, in_channels={(self.gamma.shape or (None,))[0] or None})"


class BatchNorm(_BatchNorm):
    __doc__ = _BatchNorm.__doc__


class BatchNormReLU(_BatchNorm):
    """BatchNorm, then max(x, 0). The parameters are BatchNorm's."""

    fuse_relu = True


class InstanceNorm(_Norm):
    """Each channel of each item by its own mean and variance (arXiv:1607.08022).

    Input: [batch, ...], with the channels along `axis`. The other parameters are BatchNorm's.
    """

    def __init__(self, axis: int = 1, epsilon: float = 1e-5, center: bool = True, scale: bool = False,
                 beta_initializer: Any = "zeros", gamma_initializer: Any = "ones", in_channels: int = 0, **kwargs: Any) -> None:
        super().__init__({"eps": epsilon, "axis": axis, "center": center, "scale": scale}, in_channels, center, scale,
                         beta_initializer, gamma_initializer, **kwargs)
        self._axis, self._epsilon = axis, epsilon

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        y = F.InstanceNorm(x.swapaxes(1, self._axis), gamma, beta, name="fwd", eps=self._epsilon)
        return y.swapaxes(1, self._axis)


class LayerNorm(_Norm):
    """Each item by the mean and variance along `axis` (arXiv:1607.06450). The other parameters are BatchNorm's."""

    def __init__(self, axis: int = -1, epsilon: float = 1e-5, center: bool = True, scale: bool = True,
                 beta_initializer: Any = "zeros", gamma_initializer: Any = "ones", in_channels: int = 0,
                 prefix: str | None = None, params: Any = None) -> None:
        super().__init__({"eps": epsilon, "axis": axis, "center": center, "scale": scale}, in_channels, center, scale,
                         beta_initializer, gamma_initializer, prefix=prefix, params=params)
        self._axis, self._epsilon, self._center, self._scale = axis, epsilon, center, scale

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.LayerNorm(data, gamma=gamma, beta=beta, axis=self._axis, eps=self._epsilon)


class GroupNorm(_Norm):
    """Each group of channels of each item by its mean and variance (arXiv:1803.08494).

    num_groups: gamma and beta have this size. Input: [batch, channels, ...]. The other parameters are BatchNorm's.
    """

    def __init__(self, num_groups: int = 1, epsilon: float = 1e-5, center: bool = True, scale: bool = True,
                 beta_initializer: Any = "zeros", gamma_initializer: Any = "ones", prefix: str | None = None,
                 params: Any = None) -> None:
        super().__init__({"eps": epsilon, "num_groups": num_groups, "center": center, "scale": scale}, num_groups, center,
                         scale, beta_initializer, gamma_initializer, prefix=prefix, params=params)
        self._num_groups, self._epsilon, self._center, self._scale = num_groups, epsilon, center, scale

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.GroupNorm(data, gamma=gamma, beta=beta, num_groups=self._num_groups, eps=self._epsilon)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings()})"
