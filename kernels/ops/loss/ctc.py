"""CTCLoss: -log probability of label sequences, summed over all alignments in time.

Source: Graves, Fernández, Gomez, Schmidhuber 2006, Connectionist temporal classification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ....errors import ShapeError
from ...declare.numpy_op import NumpyOp
from ...declare.operator_property import KnownShapes, Shapes, gpu_module
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...kernel import KernelFunction
from ...op import Reqs, Specs


def _log_add(*terms: np.ndarray) -> np.ndarray:
    """Return log Σ exp(terms), -inf where all terms are -inf."""
    total = terms[0]
    for t in terms[1:]:
        total = np.logaddexp(total, t)
    return total


def _shifted(x: np.ndarray, by: int) -> np.ndarray:
    """Shift x [n, s] by `by` places to the right (negative: to the left) and fill with -inf."""
    y = np.full_like(x, -np.inf)
    if abs(by) < x.shape[1]:
        if by > 0:
            y[:, by:] = x[:, :-by]
        else:
            y[:, :by] = x[:, -by:]
    return y


def losses(scores: np.ndarray, steps: np.ndarray, labels: np.ndarray, counts: np.ndarray, blank: int
           ) -> tuple[np.ndarray, np.ndarray]:
    """Return (-log probability [n], its derivative by scores [t, n, k]).

    scores: [t, n, k] before softmax; steps: [n], valid time steps; labels: [n, m], of which the first counts[n] are valid.
    """
    t, n, _ = scores.shape
    top = scores.max(2, keepdims=True)
    log_p = scores - top - np.log(np.exp(scores - top).sum(2, keepdims=True))
    m = labels.shape[1]
    states = np.full((n, 2 * m + 1), blank)
    states[:, 1::2] = np.where(np.arange(m) < counts[:, None], labels, blank)
    place, last = np.arange(2 * m + 1), 2 * counts[:, None]
    alive = place <= last
    jump = (place % 2 == 1) & np.concatenate([np.zeros((n, 2), bool), states[:, 2:] != states[:, :-2]], 1)[:, :2 * m + 1]
    seen = np.take_along_axis(log_p, np.broadcast_to(states, (t, *states.shape)), axis=2)
    ahead, behind = np.full((t, *states.shape), -np.inf), np.full((t, *states.shape), -np.inf)
    now = np.where(place <= np.minimum(1, last), seen[0], -np.inf)
    for i in range(t):
        if i:
            now = _log_add(now, _shifted(now, 1), np.where(jump, _shifted(now, 2), -np.inf)) + seen[i]
        ahead[i] = now = np.where(alive, now, -np.inf)
    ends = alive & (place >= last - 1)
    for i in range(t - 1, -1, -1):
        if i + 1 < t:
            onward = now + seen[i + 1]
            now = _log_add(now + seen[i + 1], _shifted(onward, -1), _shifted(np.where(jump, onward, -np.inf), -2))
        now = np.where((steps - 1 == i)[:, None], np.where(ends, 0.0, -np.inf), np.where((steps - 1 > i)[:, None], now, -np.inf))
        behind[i] = np.where(alive, now, -np.inf)
    at_end = np.take_along_axis(ahead, (steps - 1)[None, :, None].clip(0), axis=0)[0]
    log_total = np.logaddexp.reduce(np.where(ends, at_end, -np.inf), axis=1)
    grad = np.exp(log_p)
    with np.errstate(invalid="ignore"):  # a label without any alignment
        share = np.exp(np.where(np.isfinite(log_total)[:, None], ahead + behind - log_total[:, None], -np.inf))
    rows = np.arange(n)[:, None]
    for i in range(t):
        np.subtract.at(grad[i], (rows, states), share[i])
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
        data, label, *lengths = arrays
        given: dict[str, Any] = dict(zip(self.argument_names[2:], lengths))
        t, n, k = data.shape
        steps = np.asarray(given.get("data_lengths", np.full(n, t)), np.int64).clip(0, t)
        ending = 0 if self.blank_label == "first" else -1
        whole = label.astype(np.int64)
        counts = np.asarray(given.get("label_lengths", np.argmax(np.c_[whole == ending, np.ones(n, bool)], axis=1)), np.int64)
        loss, grad = losses(data.astype(np.float64), steps, whole.clip(0, k - 1), counts.clip(0, label.shape[1]),
                            0 if self.blank_label == "first" else k - 1)
        return loss, grad

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
