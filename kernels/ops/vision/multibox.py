"""MultiBoxPrior, MultiBoxTarget, MultiBoxDetection: the boxes of a single-shot detector (SSD), from anchors to detections.

Boxes are [left, top, right, bottom] as fractions of the image.
Source: Liu et al. 2016, SSD, arXiv:1512.02325.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.indexed import indexed
from ...declare.operator_property import KnownShapes, Shapes, gpu_module
from ...declare.property_op import register_operator
from ...ir.lang import maximum, minimum
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Specs
from .boxes import Selection, centers, decoded, encoded, one_of, overlaps, suppressed


def _prior_shape(data: Shape, *, sizes: tuple[float, ...], ratios: tuple[float, ...], steps: tuple[float, ...],
                 offsets: tuple[float, ...], **_: Any) -> Shape:
    if not sizes or not ratios or min(ratios) <= 0 or len(steps) != 2 or len(offsets) != 2:
        raise ParameterError(f"_contrib_MultiBoxPrior: sizes={sizes} and ratios={ratios} (above 0) must not be empty; "
                             f"steps={steps} and offsets={offsets} must have two numbers each.")
    if len(data) != 4:
        raise ShapeError(f"_contrib_MultiBoxPrior: data {data} must be [n, c, h, w].")
    return 1, data[2] * data[3] * (len(sizes) + len(ratios) - 1), 4


@indexed("_contrib_MultiBoxPrior", shape=_prior_shape, differentiable=False)
def multibox_prior(at: Any, data: Any, *, sizes: tuple[float, ...] = (1.0,), ratios: tuple[float, ...] = (1.0,),
                   clip: bool = False, steps: tuple[float, ...] = (-1.0, -1.0), offsets: tuple[float, ...] = (0.5, 0.5)) -> Any:
    """Anchors around every element of the planes of data [n, c, h, w]: all sizes with the first ratio, then the first size
    with all other ratios.

    sizes: fractions of the image height; ratios: width over height; clip: clip boxes to the image; steps, offsets: of the
    centres, vertical and horizontal (negative steps: 1/h and 1/w). Returns: [1, h · w · (sizes + ratios - 1), 4]. No derivative.
    """
    _, i, c = at
    _, _, h, w = data.shape
    kinds = len(sizes) + len(ratios) - 1
    y, x = (place.astype("float64") for place in (i // kinds // w, i // kinds % w))
    down, across = (s if s > 0 else 1 / n for s, n in zip(steps, (h, w)))
    x, y = (x + offsets[1]) * across, (y + offsets[0]) * down
    roots = [math.sqrt(r) for r in ratios]
    shapes = [(s * roots[0], s / roots[0]) for s in sizes] + [(sizes[0] * r, sizes[0] / r) for r in roots[1:]]
    wide = one_of(i % kinds, [a / 2 for a, _ in shapes]) * (h.astype("float64") / w.astype("float64"))
    high = one_of(i % kinds, [b / 2 for _, b in shapes])
    ends = x - wide, y - high, x + wide, y + high
    return one_of(c, [maximum(minimum(end, 1), 0) for end in ends] if clip else ends)


def _anchors(name: str, anchors: Shape) -> int:
    if len(anchors) != 3 or anchors[0] != 1 or anchors[2] != 4:
        raise ShapeError(f"{name}: anchor {anchors} must be [1, n, 4].")
    return anchors[1]


@register_operator("_contrib_MultiBoxTarget")
class MultiBoxTarget(Selection):
    """Training targets of a detector for each anchor.

    anchor: [1, n, 4]; label: [b, m, 5 or more], each row class, left, top, right, bottom; unused rows at the end
    begin with -1. cls_pred: [b, classes + 1, n], scores before softmax, background first.
    Each label is matched to the anchor it overlaps most; further anchors to a label they overlap by more than overlap_threshold.
    negative_mining_ratio > 0: at most this many background anchors per matched anchor count, those with the lowest background
    score, among anchors that overlap no label by negative_mining_thresh; the rest is ignored. minimum_negative_samples is
    accepted and ignored, as in MXNet.
    Returns: loc_target and loc_mask [b, n · 4], cls_target [b, n] (0 background, else 1 + class). No derivative.
    """

    overlap_threshold: float = 0.5
    ignore_label: float = -1.0
    negative_mining_ratio: float = -1.0
    negative_mining_thresh: float = 0.5
    minimum_negative_samples: int = 0
    variances: tuple[float, ...] = (0.1, 0.1, 0.2, 0.2)
    argument_names = ("anchor", "label", "cls_pred")
    output_names = ("loc_target", "loc_mask", "cls_target")
    gradient_arguments = ()

    def validate(self) -> None:
        if len(self.variances) != 4:
            raise ParameterError(f"{self.name}: variances={self.variances} must be four numbers.")

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        anchor, label, scores = in_shape
        n = _anchors(self.name, anchor)
        if len(label) != 3 or label[2] < 5 or len(scores) != 3 or scores[0] != label[0] or scores[2] != n:
            raise ShapeError(f"{self.name}: label {label} must be [b, m, 5 or more], cls_pred {scores} [b, classes + 1, {n}].")
        return [(label[0], n * 4), (label[0], n * 4), (label[0], n)]

    def _match(self, iou: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Match anchors and labels by overlaps [n, m]; return the label of each anchor, its overlap, and a mask."""
        n, m = iou.shape
        which, best, taken = np.argmax(iou, axis=1), np.max(iou, axis=1), np.zeros(n, bool)
        free = iou.astype(np.float64)
        for _ in range(m):  # match each label to the anchor it overlaps most, best pair first
            i, j = divmod(int(np.argmax(free)), m)
            if free[i, j] <= 1e-6:
                break
            which[i], best[i], taken[i] = j, iou[i, j], True
            free[i], free[:, j] = -1, -1
        if self.overlap_threshold > 0:
            taken |= best > self.overlap_threshold
        return which, best, taken

    def _negatives(self, taken: np.ndarray, best: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Return a mask of the background anchors; the other unmatched anchors are ignored."""
        if self.negative_mining_ratio <= 0:
            return ~taken
        count = int(np.count_nonzero(taken) * self.negative_mining_ratio)
        there = np.flatnonzero(~taken & (best < self.negative_mining_thresh))
        sure = np.exp(scores[0, there] - scores[:, there].max(0)) / np.exp(scores[:, there] - scores[:, there].max(0)).sum(0)
        background = np.zeros(len(taken), bool)
        background[there[np.argsort(sure, kind="stable")[:count]]] = True
        return background

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        anchors, own = arrays[0][0], centers(arrays[0][0])
        b, n = len(arrays[1]), len(anchors)
        target, mask = np.zeros((b, n, 4), np.float32), np.zeros((b, n, 4), np.float32)
        kinds = np.full((b, n), self.ignore_label, np.float32)
        for i, (labels, scores) in enumerate(zip(arrays[1], arrays[2])):
            m = int(np.argmax(np.append(labels[:, 0] == -1, True)))
            if not m:
                continue
            which, best, taken = self._match(overlaps(anchors, labels[:m, 1:5]))
            kinds[i, self._negatives(taken, best, scores)] = 0
            kinds[i, taken] = labels[which[taken], 0] + 1
            mask[i, taken] = 1
            code = encoded(centers(labels[which[taken], 1:5]), own[taken])
            target[i, taken] = code / np.array(self.variances, np.float32)
        return target.reshape(b, -1), mask.reshape(b, -1), kinds

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        module, boxes = gpu_module("vision.triton_multibox"), gpu_module("vision.triton_boxes")
        (_, n, _), (b, m, width), (_, classes, _) = (s.shape for s in ins)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            made = [boxes.written(run, *given) for given in zip(outputs, reqs, outs)]
            module.targets(run, (b, n, m, width, classes), inputs, made, [r == Req.ADD for r in reqs],
                           threshold=float(self.overlap_threshold), ignored=float(self.ignore_label),
                           ratio=float(self.negative_mining_ratio), mining=float(self.negative_mining_thresh),
                           variances=self.variances)

        return kernel


@register_operator("_contrib_MultiBoxDetection")
class MultiBoxDetection(Selection):
    """Detections: the best class and the box of each anchor after non-maximum suppression, best first.

    cls_prob: [b, classes + 1, n], background first; loc_pred: [b, n · 4]; anchor: [1, n, 4]. threshold: drop detections with a
    lower score. nms_threshold: of two boxes of a class (force_suppress: of any class) that overlap by this much, the better one
    stays; outside (0, 1] none is dropped. nms_topk: keep only the best nms_topk before suppression.
    Returns: [b, n, 6]: class (-1: dropped), score, left, top, right, bottom; unused rows are -1. No derivative.
    """

    clip: bool = True
    threshold: float = 0.01
    background_id: int = 0
    nms_threshold: float = 0.5
    force_suppress: bool = False
    variances: tuple[float, ...] = (0.1, 0.1, 0.2, 0.2)
    nms_topk: int = -1
    argument_names = ("cls_prob", "loc_pred", "anchor")
    gradient_arguments = ()

    def validate(self) -> None:
        if len(self.variances) != 4:
            raise ParameterError(f"{self.name}: variances={self.variances} must be four numbers.")

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        scores, loc, anchor = in_shape
        n = _anchors(self.name, anchor)
        if len(scores) != 3 or scores[2] != n or scores[1] < 2 or loc != (scores[0], n * 4):
            raise ShapeError(f"{self.name}: cls_prob {scores} must be [b, kinds + 1, {n}], loc_pred {loc} [b, {n * 4}].")
        return [(scores[0], n, 6)]

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        prob, loc, anchors = arrays
        boxes = decoded(loc.reshape(len(prob), -1, 4) * np.array(self.variances, loc.dtype), centers(anchors[0]))
        boxes = np.clip(boxes, 0, 1) if self.clip else boxes
        out = np.full((*boxes.shape[:2], 6), -1, prob.dtype)
        for b in range(len(prob)):
            kind, score = prob[b, 1:].argmax(0), prob[b, 1:].max(0)
            rows = np.flatnonzero(score >= self.threshold)
            thin = 0 < self.nms_threshold <= 1
            if thin:  # sort the best nms_topk; the others stay in place
                best = rows[np.argsort(-score[rows], kind="stable")]
                rows = np.concatenate([best[:self.nms_topk], rows[self.nms_topk:]]) if self.nms_topk > 0 else best
            made = out[b, :len(rows)]
            made[:, 0], made[:, 1], made[:, 2:] = kind[rows], score[rows], boxes[b, rows]
            if thin:
                top = made[:self.nms_topk] if self.nms_topk > 0 else made
                kinds = None if self.force_suppress else top[:, 0].copy()
                top[suppressed(top[:, 2:], kinds, self.nms_threshold, inclusive=True), 0] = -1
                made[len(top):, 0] = -1
        return out

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        module = gpu_module("vision.triton_multibox")
        b, classes, n = ins[0].shape
        top = 0 if not 0 < self.nms_threshold <= 1 else min(self.nms_topk, n) if self.nms_topk > 0 else n
        return lambda run, inputs, outputs: module.detections(
            run, (b, n, classes), *inputs, outputs[0], least=float(self.threshold), threshold=float(self.nms_threshold), top=top,
            apart=not self.force_suppress, clip=self.clip, variances=self.variances, add=reqs[0] == Req.ADD)
