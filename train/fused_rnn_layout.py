"""How the parameters of a fused recurrent layer lie in their one vector: what cells, initializers and checkpoints agree on."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ParameterError

GATES = {"rnn_relu": ("",), "rnn_tanh": ("",), "lstm": ("_i", "_f", "_c", "_o"), "gru": ("_r", "_z", "_o")}


@dataclass(frozen=True)
class Fused:
    """num_layers of num_hidden cells of one mode, in one direction or both."""

    num_hidden: int
    num_layers: int
    mode: str
    bidirectional: bool = False

    @property
    def gates(self) -> tuple[str, ...]:
        """What the names of each gate's parameters have in them."""
        return GATES[self.mode]

    @property
    def directions(self) -> tuple[str, ...]:
        """The letter of each direction."""
        return ("l", "r") if self.bidirectional else ("l",)

    def size(self, features: int) -> int:
        """Elements of the vector for inputs of so many features."""
        h, d = self.num_hidden, len(self.directions)
        return d * len(self.gates) * h * (features + h + 2 + (self.num_layers - 1) * (h * d + h + 2))

    def places(self, size: int, prefix: str = "") -> list[tuple[str, int, tuple[int, ...]]]:
        """(name, where it begins, shape) of each gate's weights and biases in a vector of this size: all weights, then all
        biases. Raises ParameterError when no number of features gives the size."""
        h, d = self.num_hidden, len(self.directions)
        features = 1 + (size - self.size(1)) // (d * len(self.gates) * h)
        if features < 1 or self.size(features) != size:
            raise ParameterError(f"FusedRNNCell: {size} parameters do not fit {self.num_layers} layers of {h} {self.mode} cells.")
        found: list[tuple[str, int, tuple[int, ...]]] = []
        at = 0
        for kind in ("weight", "bias"):
            for layer in range(self.num_layers):
                for direction in self.directions:
                    for group in ("i2h", "h2h"):
                        width = (features if layer == 0 else h * d) if group == "i2h" else h
                        shape = (h, width) if kind == "weight" else (h,)
                        for gate in self.gates:
                            found.append((f"{prefix}{direction}{layer}_{group}{gate}_{kind}", at, shape))
                            at += h * width if kind == "weight" else h
        return found
