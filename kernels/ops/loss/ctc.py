"""CTCLoss: -log probability of label sequences, summed over all alignments in time.

Source: Graves, Fernández, Gomez, Schmidhuber 2006, Connectionist temporal classification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ....errors import ShapeError
from ....integers import cdiv
from ...declare.numpy_op import NumpyOp
from ...declare.operator_property import KnownShapes, Shapes, assign, gpu_module, upcast
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...kernel import KernelFunction
from ...op import Req, Reqs, Specs
from . import c_ctc

LEAST = -1e300  # a finite logarithm below all others
PIECE = 1 << 16  # elements of data that one thread takes at a time


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """Return log Σ exp(terms) along axis 0, -inf where all terms are -inf. terms is changed."""
    top = np.maximum(terms.max(0), LEAST)
    terms -= top
    found = np.log(np.exp(terms, out=terms).sum(0))
    found += top
    return found


def _reached(seen: np.ndarray, states: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return the log probability [t, s, n] of all ways to be in a state at a step, from the first step on.

    seen: [t, s, n], log probability of each state's class; states: [s, n], the classes; last: [n], the last state in use.
    """
    t, width, n = seen.shape
    place = np.arange(width)[:, None]
    bars = np.zeros((3, width, n))  # from two states before, the one before, and the same
    bars[0] = np.where((place % 2 == 1) & (states != np.roll(states, 2, axis=0)) & (place > 1), 0, -np.inf)
    padded = np.full((t, width + 2, n), -np.inf)  # two states that nothing reaches come first
    before, found = np.moveaxis(np.lib.stride_tricks.sliding_window_view(padded, width, axis=1), -1, 2), padded[:, 2:]
    alive = np.where(place <= last, 0, -np.inf)
    found[0] = np.where(place <= np.minimum(1, last), seen[0], -np.inf)
    for i in range(1, t):
        np.add(_log_sum(before[i - 1] + bars), seen[i], out=found[i])
        found[i] += alive
    return found


def losses(scores: np.ndarray, steps: np.ndarray, labels: np.ndarray, counts: np.ndarray, blank: int
           ) -> tuple[np.ndarray, np.ndarray]:
    """Return (-log probability [n], its derivative by scores [t, n, k]).

    scores: [t, n, k] before softmax; steps: [n], valid time steps; labels: [n, m], of which the first counts[n] are valid.
    What follows a step is what precedes it where both time and label run backwards: one recursion computes both.
    """
    (t, n, _), m, sample = scores.shape, labels.shape[1], np.arange(len(steps))
    top = scores.max(2, keepdims=True)
    grad = np.exp(scores - top)
    total = grad.sum(2, keepdims=True)
    grad /= total
    norm = (top + np.log(total))[:, :, 0]
    last, end = 2 * counts, (steps - 1).clip(0)
    states = np.full((2 * m + 1, 2 * n), blank)
    letter = np.arange(m)[:, None]
    states[1::2] = np.where(letter < np.tile(counts, 2), np.concatenate(
        [labels.T, labels.T[(counts - 1 - letter).clip(0), sample] if m else labels.T], axis=1), blank)
    time = np.arange(t)[:, None]
    time, both = np.concatenate([np.broadcast_to(time, (t, n)), (end - time).clip(0)], axis=1)[:, None], np.tile(sample, 2)
    seen = scores[time, both, states] - norm[time, both]
    ways = _reached(seen, states, np.tile(last, 2))
    ahead, place = ways[..., :n], np.arange(2 * m + 1)[:, None]
    behind = ways[time[..., n:], (last - place).clip(0), n + sample]  # the step's own probability is in both
    ends = np.stack([ahead[end, last, sample], np.where(last > 0, ahead[end, (last - 1).clip(0), sample], -np.inf)])
    log_total = _log_sum(ends)
    some = (ahead > -np.inf) & (behind > -np.inf) & (log_total > -np.inf)  # else a label without any alignment
    with np.errstate(invalid="ignore"):
        share = np.exp(np.where(some, ahead + behind - seen[..., :n] - log_total, -np.inf))
    grad[:, :, blank] -= share[:, ::2].sum(1)
    for j in range(m):
        grad[:, sample, states[2 * j + 1, :n]] -= share[:, 2 * j + 1]
    grad[np.arange(t)[:, None] >= steps] = 0
    return -log_total, grad


@register_operator("CTCLoss", aliases=("ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss"))
class CTCLoss(NumpyOp):
    """-log of the probability that data spells label, over all alignments.

    data: [time, n, classes], before softmax; label: [n, m]. blank_label "first": class 0 is the blank and 0 ends a label;
    "last": the last class is, and -1 ends a label. data_lengths, label_lengths: [n], given with
    use_data_lengths, use_label_lengths.
    Returns: [n].
    """

    use_data_lengths: bool = False
    use_label_lengths: bool = False
    blank_label: Literal["first", "last"] = "first"
    optional_names = ("data_lengths", "label_lengths")
    output_names = ("output0", "output1")
    gradient_arguments = (0,)
    backward_reads = ("dy0", "y1")
    visible_outputs = 1
    own_dtypes = True
    output_dtypes = (None, None)

    @property
    def argument_names(self) -> tuple[str, ...]:
        lengths = (("data_lengths", self.use_data_lengths), ("label_lengths", self.use_label_lengths))
        return ("data", "label", *(name for name, used in lengths if used))

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        data, label, *lengths = (tuple(s or ()) for s in in_shape)
        if len(data) != 3 or len(label) != 2 or label[0] != data[1] or any(s != data[1:2] for s in lengths) or not data[0]:
            raise ShapeError(f"{self.name}: data {data} must be [time, n, classes], label {label} [n, labels], and lengths "
                             f"{lengths or 'if given'} [n].")
        return [data[1:2], data]

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        with np.errstate(divide="ignore"):
            return losses(arrays[0].astype(np.float64), *self._sizes(*arrays))

    def _sizes(self, data: np.ndarray, label: np.ndarray, *lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Return the valid steps, the labels, how many of them are valid, and the blank class."""
        given: dict[str, Any] = dict(zip(self.argument_names[2:], lengths))
        t, n, k = data.shape
        steps = np.asarray(given.get("data_lengths", np.full(n, t)), np.int64).clip(0, t)
        ending = 0 if self.blank_label == "first" else -1
        whole = label.astype(np.int64)
        counts = np.asarray(given.get("label_lengths", np.argmax(np.c_[whole == ending, np.ones(n, bool)], axis=1)), np.int64)
        return steps, whole.clip(0, k - 1), counts.clip(0, label.shape[1]), 0 if self.blank_label == "first" else k - 1

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if target == "gpu":
            return self.gpu_forward(ins, outs, reqs)
        t, n, k = ins[0].shape
        piece = max(1, PIECE // (t * max(1, k, 2 * ins[1].shape[1])))
        if Req.ADD not in reqs and ins[0].dtype == outs[1].dtype and c_ctc.in_c(t, n, k, np.dtype(ins[0].dtype)):
            return self._in_c(reqs)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            data, *others = map(upcast, inputs)

            def some(i: int) -> None:
                these = slice(i * piece, (i + 1) * piece)
                loss, gradient = self.compute(data[:, these], *(a[these] for a in others))
                for out, req, made in zip((outputs[0][these], outputs[1][:, these]), reqs, (loss, gradient)):
                    if req != Req.NULL:
                        assign(out, req, made)

            run.parallel(some, cdiv(n, piece))

        return kernel

    def _in_c(self, reqs: Reqs) -> KernelFunction:

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            data, *others = map(upcast, inputs)
            wanted = [None if req == Req.NULL else out for out, req in zip(outputs, reqs)]
            left = c_ctc.losses(run, data, *self._sizes(data, *others), *wanted)
            if len(left):
                for out, axis, made in zip(wanted, (0, 1), self.compute(data[:, left], *(a[left] for a in others))):
                    if out is not None:
                        np.moveaxis(out, axis, 0)[left] = np.moveaxis(made, axis, 0)

        return kernel

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        module, names = gpu_module("loss.triton_ctc"), self.argument_names

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            given = dict(zip(names, inputs))
            module.ctc(run, list(inputs[:2]), given.get("data_lengths"), given.get("label_lengths"), *outputs,
                       blank_last=self.blank_label == "last", reqs=reqs)

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        t, n, k = outs[0].shape
        return row_kernel(lambda dy, gradient: dy * gradient, [(n, 1), (t, n, k)], [(t, n, k)], (t, n, k), ins, outs, reqs,
                          target, f"{self.name}_backward")
