"""The layout of the parameters of a fused recurrent layer in their one vector. Cells, initializers and checkpoints use it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from ..errors import ParameterError

GATES = {"rnn_relu": ("",), "rnn_tanh": ("",), "lstm": ("_i", "_f", "_c", "_o"), "gru": ("_r", "_z", "_o")}


@dataclass(frozen=True)
class FusedRNNLayout:
    """The layout for num_layers layers of num_hidden cells of one mode, in one direction or both."""

    num_hidden: int
    num_layers: int
    mode: str
    bidirectional: bool = False

    @property
    def gates(self) -> tuple[str, ...]:
        """The part of parameter names that stands for each gate."""
        return GATES[self.mode]

    @property
    def directions(self) -> tuple[str, ...]:
        """The letter that stands for each direction."""
        return ("l", "r") if self.bidirectional else ("l",)

    def size(self, features: int) -> int:
        """Return the number of elements of the vector, for inputs with this number of features."""
        h, d = self.num_hidden, len(self.directions)
        return d * len(self.gates) * h * (features + h + 2 + (self.num_layers - 1) * (h * d + h + 2))

    def places(self, size: int, prefix: str = "") -> list[tuple[str, int, tuple[int, ...]]]:
        """Return (name, offset, shape) of the weights of each gate, then of the biases, in a vector of this size.

        Raises ParameterError if no number of features gives the size.
        """
        h, d = self.num_hidden, len(self.directions)
        features = 1 + (size - self.size(1)) // (d * len(self.gates) * h)
        if features < 1 or self.size(features) != size:
            raise ParameterError(f"FusedRNNCell: {size} parameters do not fit {self.num_layers} layers of {h} {self.mode} cells.")
        places: list[tuple[str, int, tuple[int, ...]]] = []
        offset = 0
        for kind, layer, direction, group, gate in product(("weight", "bias"), range(self.num_layers), self.directions,
                                                           ("i2h", "h2h"), self.gates):
            width = (features if layer == 0 else h * d) if group == "i2h" else h
            shape = (h, width) if kind == "weight" else (h,)
            places.append((f"{prefix}{direction}{layer}_{group}{gate}_{kind}", offset, shape))
            offset += math.prod(shape)
        return places
