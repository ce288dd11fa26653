"""Layers beside each other, and pixel shuffles."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from .... import ndarray as nd
from ....engine import num_gpus
from ....errors import ParameterError
from ...block import Block, HybridBlock
from ...nn import BatchNorm, HybridSequential, Sequential

__all__ = ["Concurrent", "HybridConcurrent", "Identity", "SparseEmbedding", "SyncBatchNorm", "PixelShuffle1D",
           "PixelShuffle2D", "PixelShuffle3D"]


class Concurrent(Sequential):
    """Blocks beside each other: each gets the input, and their outputs are concatenated along `axis`."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any) -> Any:
        return nd.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class HybridConcurrent(HybridSequential):
    """Concurrent of HybridBlocks, which `hybridize` makes one graph."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class Identity(HybridBlock):
    """The input itself: a path around other blocks in a HybridConcurrent."""

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x


class SparseEmbedding(Block):
    """Embedding whose weight and gradient are row-sparse, for very large input_dim. The parameters are nn.Embedding's.

    With a Trainer, a forward reads the rows of its input alone from the KVStore.
    """

    def __init__(self, input_dim: int, output_dim: int, dtype: Any = "float32", weight_initializer: Any = None,
                 **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._kwargs = {"input_dim": input_dim, "output_dim": output_dim, "dtype": dtype, "sparse_grad": True}
        self.weight = self.params.get("weight", shape=(input_dim, output_dim), init=weight_initializer, dtype=dtype,
                                      grad_stype="row_sparse", stype="row_sparse")

    def forward(self, x: Any) -> Any:
        return nd.Embedding(x, self.weight.row_sparse_data(x), name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._kwargs['input_dim']} -> {self._kwargs['output_dim']}, {self._kwargs['dtype']})"


class SyncBatchNorm(BatchNorm):
    """BatchNorm under MXNet's name for statistics shared by num_devices devices. See `mx.nd.contrib.SyncBatchNorm`.

    num_devices: None: the number of GPUs, with a warning. The other parameters are BatchNorm's; the channels are axis 1.
    """

    def __init__(self, in_channels: int = 0, num_devices: int | None = None, momentum: float = 0.9, epsilon: float = 1e-5,
                 center: bool = True, scale: bool = True, use_global_stats: bool = False, beta_initializer: Any = "zeros",
                 gamma_initializer: Any = "ones", running_mean_initializer: Any = "zeros",
                 running_variance_initializer: Any = "ones", **kwargs: Any) -> None:
        super().__init__(1, momentum, epsilon, center, scale, use_global_stats, beta_initializer, gamma_initializer,
                         running_mean_initializer, running_variance_initializer, in_channels, **kwargs)
        if num_devices is None:
            num_devices = self._get_num_devices()
        self._kwargs = {"eps": epsilon, "momentum": momentum, "fix_gamma": not scale, "use_global_stats": use_global_stats,
                        "ndev": num_devices, "key": self.prefix}

    def _get_num_devices(self) -> int:
        warnings.warn("SyncBatchNorm: num_devices is the number of all GPUs. Set it if you use fewer.", UserWarning)
        return max(num_gpus(), 1)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        return F.contrib.SyncBatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)


def _factors(layer: HybridBlock, factor: int | Sequence[int], n: int) -> tuple[int, ...]:
    factors = tuple(int(f) for f in factor) if isinstance(factor, (tuple, list)) else (int(factor),) * n  # type: ignore[call-overload]
    if len(factors) != n:
        raise ParameterError(f"{type(layer).__name__}: factor={factor!r}. It must be a number or {n} numbers.")
    return factors


class PixelShuffle1D(HybridBlock):
    """[batch, f · channels, width] as [batch, channels, f · width]: each group of f channels becomes f neighbours.

    factor: f, an integer.
    """

    def __init__(self, factor: int) -> None:
        super().__init__()
        self._factor = int(factor)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = F.reshape(x, (0, -4, -1, self._factor, 0))  # [batch, channels, f, width]
        return F.reshape(F.transpose(x, (0, 1, 3, 2)), (0, 0, -3))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factor})"


class PixelShuffle2D(HybridBlock):
    """[batch, f1 · f2 · channels, height, width] as [batch, channels, f1 · height, f2 · width] (arXiv:1609.05158).

    factor: an integer for both, or (f1, f2).
    """

    def __init__(self, factor: int | Sequence[int]) -> None:
        super().__init__()
        self._factors = _factors(self, factor, 2)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        f1, f2 = self._factors
        x = F.reshape(x, (0, -4, -1, f1 * f2, 0, 0))
        x = F.reshape(x, (0, 0, -4, f1, f2, 0, 0))  # [batch, channels, f1, f2, height, width]
        return F.reshape(F.transpose(x, (0, 1, 4, 2, 5, 3)), (0, 0, -3, -3))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors})"


class PixelShuffle3D(HybridBlock):
    """[batch, f1 · f2 · f3 · channels, depth, height, width] as [batch, channels, f1 · depth, f2 · height, f3 · width].

    factor: an integer for all, or (f1, f2, f3).
    """

    def __init__(self, factor: int | Sequence[int]) -> None:
        super().__init__()
        self._factors = _factors(self, factor, 3)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        rest = self._factors[0] * self._factors[1] * self._factors[2]
        x = F.reshape(x, (0, -4, -1, rest, 0, 0, 0))  # [batch, channels, f1 · f2 · f3, depth, height, width]
        for axis, factor in enumerate(self._factors, 2):  # never more than 7 axes, and MXNet transposes at most 6
            rest //= factor
            x = F.swapaxes(x, axis, axis + 1)  # [..., size, factor · rest, ...]
            x = F.reshape(x, (0,) * (axis + 1) + (-4, factor, rest) + (0,) * (4 - axis))
            x = F.reshape(x, (0,) * axis + (-3,) + (0,) * (5 - axis))
        return F.reshape(x, (0, 0, 0, 0, -3))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors})"
