"""The sizes of one convolution, as its kernels take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...op import Shape


@dataclass(frozen=True, slots=True)
class ConvolutionGeometry:
    """Sizes of one convolution. Shapes per spatial axis.

    channels_last: how data and output are stored, and the weight too unless weight_first. data_first: except the data.
    """

    n: int
    c: int
    f: int
    groups: int
    spatial: Shape
    out: Shape
    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape
    channels_last: bool
    weight_first: bool = False
    data_first: bool = False

    @property
    def needed(self) -> Shape:
        """Size of the padded input that the windows cover, per axis."""
        return tuple((o - 1) * s + (k - 1) * d + 1
                     for o, s, k, d in zip(self.out, self.stride, self.kernel, self.dilate))

    @property
    def depth(self) -> int:
        """Rows of the window matrix of a group."""
        return self.c // self.groups * math.prod(self.kernel)

    @property
    def pointwise(self) -> bool:
        """True if the input already is its own window matrix."""
        ones = (1,) * len(self.kernel)
        return self.kernel == ones and self.stride == ones and not any(self.pad) and not self.channels_last


def three(values: Sequence[int], fill: int) -> tuple[int, int, int]:
    """Return one number per axis, padded in front to three axes."""
    d, h, w = (*(fill,) * (3 - len(values)), *values)
    return d, h, w
