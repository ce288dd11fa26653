"""RNN: layers of recurrent cells, in one direction or both, as one operator with one parameter vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ....errors import ParameterError, ShapeError
from ... import op as registry
from ...declare.operator_property import RANDOM, Dtypes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...ir.strided import View
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Spec, Specs, is_known, merge_shapes
from ..tensor.data_movement import Move, move_kernel
from . import c_rnn
from .cells import cell
from .layer import Layer, Weights, stacked


@register_operator("RNN")
class RNN(OperatorProperty):
    """num_layers recurrent layers of state_size cells, each reading the outputs of the one below.

    data:        [steps, batch, inputs].
    parameters:  one vector. For every layer and direction: the weights of its input [gates · h, inputs] and of its previous
                 output [gates · h, h]; then in the same order the biases [gates · h] of both. Order of gates: lstm i, f, c, o;
                 gru r, z, n.
    state, state_cell:  [layers · directions, batch, h], the initial states; state_cell for lstm only.
    p:           dropout probability of the outputs of every layer but the last, in training.
    lstm_state_clip_min, lstm_state_clip_max:  bounds of the cell state of an lstm.
    Returns:     [steps, batch, directions · h]; with state_outputs also the states after the last step.
    """

    drops_hidden_at_inference = True
    costly = True

    optional_names = ("state_cell", "sequence_length")
    state_size: int
    num_layers: int
    bidirectional: bool = False
    mode: Literal["rnn_relu", "rnn_tanh", "lstm", "gru"]
    p: float = 0.0
    state_outputs: bool = False
    projection_size: int | None = None
    lstm_state_clip_min: float | None = None
    lstm_state_clip_max: float | None = None
    lstm_state_clip_nan: bool = False
    use_sequence_length: bool = False

    def validate(self) -> None:
        if self.state_size < 1 or self.num_layers < 1:
            raise ParameterError(f"{self.name}: state_size={self.state_size}, num_layers={self.num_layers} must be at least 1.")
        if not 0 <= self.p < 1:
            raise ParameterError(f"{self.name}: p={self.p} must be a probability below 1: 0 <= p < 1.")
        if (self.lstm_state_clip_min is None) != (self.lstm_state_clip_max is None):
            raise ParameterError(f"{self.name}: lstm_state_clip_min={self.lstm_state_clip_min} and lstm_state_clip_max="
                                 f"{self.lstm_state_clip_max} must be given together.")
        if self.projection_size is not None:
            raise ParameterError(f"{self.name}: projection_size={self.projection_size}: RNN has no projections. Use "
                                 f"gluon.rnn.LSTM, whose operator is _rnn_projected.")
        if self.use_sequence_length:
            raise ParameterError(f"{self.name}: use_sequence_length is not supported (nor by MXNet on a CPU). Put SequenceMask "
                                 f"and SequenceReverse around it.")

    # ---- names, shapes ----------------------------------------------------------------------------------------------
    @property
    def directions(self) -> int:
        """Number of directions: 1 or 2."""
        return 2 if self.bidirectional else 1

    @property
    def _lstm(self) -> bool:
        return self.mode == "lstm"

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data", "parameters", "state", *(("state_cell",) if self._lstm else ()))

    @property
    def output_names(self) -> tuple[str, ...]:
        """The visible outputs, then hidden ones: arrays for backward, and the dropout mask."""
        return ("output", *self._state_names(), "kept", *(("mask",) if self._drops else ()))

    def _state_names(self) -> list[str]:
        return ["state_output", *(["statecell_output"] if self._lstm else [])] if self.state_outputs else []

    @property
    def visible_outputs(self) -> int:
        return 1 + len(self._state_names())

    @property
    def _drops(self) -> bool:
        return self.p > 0 and self.num_layers > 1

    def _widths(self, inputs: int) -> list[int]:
        """Return the input size of each layer."""
        return [inputs] + [self.directions * self.state_size] * (self.num_layers - 1)

    def _vector(self, inputs: int) -> tuple[list[tuple[tuple[int, int], ...]], int]:
        """Return the (start, size) of wx, wh, bx, bh in the parameter vector per layer and direction, and its size."""
        rows, at, found = cell(self.mode).gates * self.state_size, 0, []
        for width in self._widths(inputs):
            for _ in range(self.directions):
                found.append([(at, rows * width), (at + rows * width, rows * self.state_size)])
                at += rows * (width + self.state_size)
        for places in found:
            places += [(at, rows), (at + rows, rows)]
            at += 2 * rows
        return [tuple(places) for places in found], at

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, h, d = in_shape[0], self.state_size, self.directions
        if x is not None and len(x) != 3:
            raise ShapeError(f"{self.name}: data {x} has {len(x)} axes; it must be [steps, batch, inputs].")
        state: Shape | None = (self.num_layers * d, -1 if x is None else x[1], h)
        for s in in_shape[2:]:
            state = merge_shapes(self.name, "state", state, s)
        assert state is not None
        y = merge_shapes(self.name, "the output", out_shape[0], (-1 if x is None else x[0], state[1], d * h))
        assert y is not None
        x = (y[0], y[1], -1 if x is None else x[2])
        vector = (self._vector(x[2])[1] if x[2] >= 0 else -1,)
        if in_shape[1] is not None and is_known(in_shape[1]) and -1 not in vector and in_shape[1] != vector:
            raise ShapeError(f"{self.name}: parameters {in_shape[1]} must be {vector} for {self.num_layers} layers of {h} "
                             f"{self.mode} cells in {d} direction{'s' * (d > 1)} over data {x}.")
        states = [(state[0], y[1], h)] * (1 + self._lstm)
        kept = (self._places(x)[-1][-1] if is_known(x) else -1,)
        mask = [(self.num_layers - 1, *y)] if self._drops else []
        return [x, vector, *states], [y, *states[:len(self._state_names())], kept, *mask], []

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        known = [t for t in (*in_type, out_type[0]) if t is not None]
        d = known[0] if known else None
        outs: Dtypes = [d] * (self.visible_outputs + 1)
        if self._drops:
            outs.append(np.dtype(np.uint8))
        return [d] * len(in_type), outs, []

    # ---- what backward needs ----------------------------------------------------------------------------------------
    @property
    def resources(self) -> tuple[str, ...]:
        return (RANDOM,) if self._drops else ()

    def num_random(self, outs: Specs) -> int:
        return outs[-1].size if self._drops else 0

    @property
    def backward_reads(self) -> tuple[str, ...]:
        return ("dy", "x0", "x1", *(f"y{i}" for i in range(self.visible_outputs, len(self.output_names))))

    def _places(self, x: Shape) -> tuple[list[list[int]], list[int]]:
        """Return the offsets within the output `kept`.

        First, per layer and direction: gates, hidden, cells, end. Second, the input of each layer above the first, and the end.
        """
        step = x[1] * self.state_size
        sizes = [cell(self.mode).slots * x[0] * step, (x[0] + 1) * step, (x[0] + 1) * step * self._lstm]
        one = stacked(sizes)
        layers = self.num_layers * self.directions
        found = [[one[-1] * k + start for start in one] for k in range(layers)]
        inputs = stacked([x[0] * step * self.directions * (self._drops or self.bidirectional)] * (self.num_layers - 1))
        return found, [one[-1] * layers + start for start in inputs]

    # ---- computing --------------------------------------------------------------------------------------------------
    def _layers(self, x: Shape, dtype: np.dtype, target: str) -> list[Layer]:
        made = cell(self.mode, self.lstm_state_clip_min, self.lstm_state_clip_max)
        found: list[Layer] = []
        for width in self._widths(x[2]):
            sizes = (x[0], x[1], width, self.state_size)
            in_c = c_rnn.in_c(self.mode, self.lstm_state_clip_min is not None, sizes, made.gates, dtype, target)
            for reverse in (False, True)[:self.directions]:
                more = (made, sizes, reverse, dtype, target)
                found.append(c_rnn.CLayer(self.mode, *more) if in_c else Layer(*more))
        return found

    def _cut(self, x: Shape) -> tuple[Any, Any, Any]:
        """Return three functions that cut arrays into views.

        weights(vector, k); parts(kept, k): gates, hidden, cells of direction k; entering(kept, l): the input of layer l.
        """
        vector, _ = self._vector(x[2])
        places, inputs = self._places(x)
        states, size = (x[0] + 1) * x[1] * self.state_size, x[0] * x[1] * self.state_size * self.directions

        def weights(array: Any, k: int) -> Weights:
            return Weights(*(array[a:a + n] for a, n in vector[k]))

        def parts(kept: Any, k: int) -> tuple[Any, Any, Any]:
            gates, hidden, cells, _ = places[k]
            return kept[gates:hidden], kept[hidden:hidden + states], kept[cells:cells + states]

        def entering(kept: Any, layer: int) -> Any:
            if self._drops or self.bidirectional:
                return kept[inputs[layer - 1]:inputs[layer - 1] + size]
            return parts(kept, layer - 1)[1][x[1] * self.state_size:]

        return weights, parts, entering

    def _copies(self, x: Shape, dtype: np.dtype, target: str) -> tuple[Any, Any, Any]:
        """Return three functions that make copies: copy(size, req) of contiguous arrays; join(d, req) and part(d), which copy the
        outputs of direction d to and from the outputs of both."""
        t, n, h = x[0], x[1], self.state_size
        one, both = Spec((t, n, h), dtype), Spec((t, n, self.directions * h), dtype)

        def made(a: Spec, b: Spec, take: View, put: View, req: Req) -> Any:
            move = move_kernel([Move(0, take, 0, put)], [a], [b], [req], target)
            return lambda run, src, dst: move(run, [src.reshape(a.shape)], [dst.reshape(b.shape)])

        def within(d: int) -> View:
            return lambda a: a[:, :, d * h:(d + 1) * h]

        return (lambda size, req=Req.WRITE: made(Spec((size,), dtype), Spec((size,), dtype), lambda a: a, lambda a: a, req),
                lambda d, req: made(one, both, lambda a: a, within(d), req),
                lambda d: made(both, one, within(d), lambda a: a, Req.WRITE))

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        x, dtype = ins[0].shape, ins[0].dtype
        step, visible, dirs = x[1] * self.state_size, self.visible_outputs, self.directions
        layers = self._layers(x, dtype, target)
        weights, parts, entering = self._cut(x)
        copy, join, _ = self._copies(x, dtype, target)
        copy_state = copy(step)
        inner, joins = [join(d, Req.WRITE) for d in range(dirs)], [join(d, reqs[0]) for d in range(dirs)]
        ends = [copy(step, r) for r in reqs[1:visible]]
        keeps = reqs[visible] != Req.NULL  # at inference, room for two layers is enough
        one, joined = self._places(x)[0][0][-1], self.bidirectional or (self._drops and keeps)
        dropout = self._dropout(x, dtype, target).forward(train) if self._drops and keeps else None
        forwards = [layer.forward() for layer in layers]

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
            kept, below, above = outputs[visible], inputs[0].reshape(-1), None
            for k, (layer, forward) in enumerate(zip(layers, forwards)):
                level, d = divmod(k, dirs)
                _gates, hidden, cells = now = parts(kept, k) if keeps else parts(run.workspace((one,), dtype), 0)
                for given, states in zip(inputs[2:], (hidden, cells)):
                    copy_state(run, given.reshape(-1)[k * step:(k + 1) * step], layer.edge(states, False))
                forward(run, below, weights(inputs[1], k), *now)
                for i, (end, states) in enumerate(zip(ends, (hidden, cells))):
                    end(run, layer.edge(states, True), outputs[1 + i].reshape(-1)[k * step:(k + 1) * step])
                if level == self.num_layers - 1:
                    joins[d](run, layer.after(hidden), outputs[0])
                    continue
                if keeps:
                    above = entering(kept, level + 1)
                elif d == 0:
                    above = run.workspace((x[0] * step * dirs,), dtype) if dirs > 1 else layer.after(hidden)
                if joined:
                    inner[d](run, layer.after(hidden), above)
                if d == dirs - 1:
                    if dropout is not None:
                        dropout(run, level, above, outputs[visible + 1], random)
                    below = above

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        visible, dirs = self.visible_outputs, self.directions
        x, dtype = ins[visible].shape, ins[visible].dtype
        step, size = x[1] * self.state_size, x[0] * x[1] * self.state_size * dirs
        layers = self._layers(x, dtype, target)
        weights, parts, entering = self._cut(x)
        copy, _, part = self._copies(x, dtype, target)
        copy_state, split = copy(step), [part(d) for d in range(dirs)]
        starts = [copy(step, r) if r != Req.NULL else None for r in reqs[2:]]
        zero = Spec((step,), dtype)
        clear = move_kernel([], [], [zero], [Req.WRITE], target, clear=True)
        dropout = self._dropout(x, dtype, target).backward() if self._drops else None
        backwards = [layer.backward((reqs[0] if k < dirs else Req.WRITE) if not k % dirs else
                                    (Req.ADD if k > 1 or reqs[0] != Req.NULL else Req.NULL), reqs[1],
                                    any(r != Req.NULL for r in reqs[2:]))
                     for k, layer in enumerate(layers)]

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            heads, data, vector, kept = inputs[:visible], inputs[visible].reshape(-1), inputs[visible + 1], inputs[visible + 2]
            dy = heads[0].reshape(-1)
            carry = [run.workspace((step,), dtype) for _ in range(1 + self._lstm)]
            for level in reversed(range(self.num_layers)):
                dx = run.workspace((size,), dtype) if level else outputs[0]
                below = entering(kept, level) if level else data
                for d in range(dirs):
                    k = level * dirs + d
                    for i, c in enumerate(carry):
                        if self.state_outputs:
                            copy_state(run, heads[1 + i].reshape(-1)[k * step:(k + 1) * step], c)
                        else:
                            clear(run, [], [c])
                    mine = dy
                    if dirs > 1:
                        mine = run.workspace((size // dirs,), dtype)
                        split[d](run, dy, mine)
                    dw = weights(outputs[1], k) if reqs[1] != Req.NULL else None
                    backwards[k](run, below, weights(vector, k), *parts(kept, k), mine, carry[0], carry[-1], dx, dw)
                    for start, c, out in zip(starts, carry, outputs[2:]):
                        if start is not None:
                            start(run, c, out.reshape(-1)[k * step:(k + 1) * step])
                if level and dropout is not None:
                    dropout(run, level - 1, dx, inputs[visible + 3])
                dy = dx

        return kernel

    def _dropout(self, x: Shape, dtype: np.dtype, target: str) -> _Between:
        return _Between(self.p, (x[0], x[1], self.directions * self.state_size), dtype, target)


class _Between:
    """Dropout of the outputs of one layer, in place, by the operator Dropout. mask: [layers - 1, *shape]."""

    def __init__(self, p: float, shape: Shape, dtype: np.dtype, target: str):
        self.op, self.target = registry.builtin("Dropout"), target
        self.params, self.data, self.mask = self.op.parse({"p": p}), Spec(shape, dtype), Spec(shape, np.dtype(np.uint8))

    def _one(self, mask: Any, level: int) -> Any:
        return mask.reshape(-1)[level * self.mask.size:(level + 1) * self.mask.size].reshape(self.mask.shape)

    def forward(self, train: bool) -> KernelFunction:
        """Return kernel(run, level, x, mask, random)."""
        apply = self.op.kernel(self.params, [self.data], [self.data, self.mask], [Req.INPLACE, Req.WRITE], self.target, train)

        def kernel(run: Any, level: int, x: Any, mask: Any, random: tuple[int, int]) -> None:
            seed, offset = random
            x = x.reshape(self.data.shape)
            apply(run, [x], [x, self._one(mask, level)], random=(seed, offset + level * self.mask.size))

        return kernel

    def backward(self) -> KernelFunction:
        """Return kernel(run, level, dx, mask)."""
        gradient = self.op.gradient_of(self.params)
        assert gradient is not None
        apply = gradient.op.kernel(self.params, [self.data, self.mask], [self.data], [Req.INPLACE], self.target)

        def kernel(run: Any, level: int, dx: Any, mask: Any) -> None:
            dx = dx.reshape(self.data.shape)
            apply(run, [dx, self._one(mask, level)], [dx])

        return kernel
