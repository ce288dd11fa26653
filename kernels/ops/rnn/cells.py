"""One step of each kind of recurrent cell and its derivative, as traced bodies for both devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir.lang import exp, maximum, minimum, tanh, where


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + exp(-x))


@dataclass(frozen=True)
class Cell:
    """A kind of cell with g gates. Each step keeps `slots` arrays [batch, hidden].

    recurrent:  (first gate, count, first slot): the slots that sum the recurrent products of these gates.
    forward:    (slots..., [cell before | output before]) -> (slots..., [cell], output); a body may skip the last slots.
    backward:   (d output by the next step, d output, [d cell], slots..., arrays kept by the step) -> (d slots..., the derivative
                by the previous state without the part through products: of the cell for lstm, of the output for gru).
    """

    gates: int
    slots: int
    recurrent: tuple[tuple[int, int, int], ...]
    forward: Callable[..., Any]
    backward: Callable[..., Any]

    @property
    def shared(self) -> int:
        """Number of gates that add both products and both biases; the recurrent part of the other gates has its own slot."""
        return sum(count for first, count, slot in self.recurrent if first == slot)


def _vanilla(act: str) -> Cell:
    def forward(a: Any) -> Any:
        return tanh(a) if act == "tanh" else maximum(a, 0)

    def backward(dh: Any, dy: Any, h: Any) -> Any:
        d = dh + dy
        return d * (1 - h * h) if act == "tanh" else where(h > 0, d, 0)

    return Cell(1, 1, ((0, 1, 0),), forward, backward)


def _lstm(low: float | None, high: float | None) -> Cell:
    def clipped(c: Any) -> Any:
        return c if low is None or high is None else minimum(maximum(c, low), high)

    def forward(i: Any, f: Any, g: Any, o: Any, before: Any) -> Any:
        i, f, g, o = _sigmoid(i), _sigmoid(f), tanh(g), _sigmoid(o)
        c = clipped(f * before + i * g)
        return i, f, g, o, c, o * tanh(c)

    def backward(dh: Any, dy: Any, dc: Any, i: Any, f: Any, g: Any, o: Any, c: Any, before: Any) -> Any:
        d, t = dh + dy, tanh(c)
        dc = dc + d * o * (1 - t * t)
        if low is not None and high is not None:
            raw = f * before + i * g
            dc = where((raw >= low) & (raw <= high), dc, 0)
        return dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g), d * t * o * (1 - o), dc * f

    return Cell(4, 4, ((0, 4, 0),), forward, backward)


def _gru() -> Cell:
    def forward(r: Any, z: Any, n: Any, m: Any, before: Any) -> Any:
        r, z = _sigmoid(r), _sigmoid(z)
        n = tanh(n + r * m)
        return r, z, n, (1 - z) * n + z * before

    def backward(dh: Any, dy: Any, r: Any, z: Any, n: Any, m: Any, before: Any) -> Any:
        d = dh + dy
        dn = d * (1 - z) * (1 - n * n)
        return dn * m * r * (1 - r), d * (before - n) * z * (1 - z), dn, dn * r, d * z

    return Cell(3, 4, ((0, 2, 0), (2, 1, 3)), forward, backward)


def cell(mode: str, low: float | None = None, high: float | None = None) -> Cell:
    """Return the cell for RNN's `mode`; low and high clip the cell state of an lstm. Gates: lstm i, f, g, o; gru r, z, n.

    Source: Elman 1990; Hochreiter, Schmidhuber 1997; Cho et al. 2014, arXiv:1406.1078, with the reset gate after the product.
    """
    if mode == "lstm":
        return _lstm(low, high)
    return _gru() if mode == "gru" else _vanilla(mode.removeprefix("rnn_"))
