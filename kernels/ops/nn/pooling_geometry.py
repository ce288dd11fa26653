"""The sizes of one pooling, which its declaration and its kernels share."""

from __future__ import annotations

from dataclasses import dataclass

from ...op import Shape


@dataclass(frozen=True, slots=True)
class PoolingGeometry:
    """Sizes of one pooling, per spatial axis. `extent`: size of the padded input that the windows cover."""

    n: int
    c: int
    spatial: Shape
    out: Shape
    kernel: Shape
    stride: Shape
    pad: Shape
    channels_last: bool

    @property
    def extent(self) -> Shape:
        return tuple((o - 1) * s + k for o, s, k in zip(self.out, self.stride, self.kernel))
