"""Proposal and MultiProposal: the most likely object regions of a region proposal network.

Source: Ren, He, Girshick, Sun 2015, Faster R-CNN, arXiv:1506.01497.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.host_op import known
from ...declare.operator_property import Shapes, gpu_module
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Specs
from .boxes import Selection, suppressed


def base_anchors(stride: int, ratios: tuple[float, ...], scales: tuple[float, ...]) -> np.ndarray:
    """Return boxes [ratios · scales, 4] around the first element, last pixel included, with rounded sides."""
    middle, boxes = 0.5 * (stride - 1), []
    for ratio in ratios:
        for scale in scales:
            w = np.floor(np.sqrt(np.floor(stride * stride / ratio)) + 0.5)
            h = np.floor(w * ratio + 0.5)
            half = 0.5 * np.array([w * scale - 1, h * scale - 1])
            boxes.append([*(middle - half), *(middle + half)])
    return np.array(boxes, np.float32)


@register_operator("_contrib_Proposal")
class Proposal(Selection):
    """Regions [image, left, top, right, bottom], in pixels with the last included, best first; with output_score also [.., 1].

    cls_prob: [1, 2 · anchors, h, w], probabilities of background, then of an object; bbox_pred: [1, 4 · anchors, h, w];
    im_info: [1, 3], height, width, scale. scales, ratios: of the anchors, which are feature_stride apart.
    The best rpn_pre_nms_top_n are compared; of two that overlap by more than threshold the better one stays. rpn_post_nms_top_n
    are returned; if fewer remain, they are repeated in order. rpn_min_size: smaller regions come last.
    iou_loss: bbox_pred holds distances of the corners. No derivative.
    """

    whole_batch: ClassVar[bool] = False

    rpn_pre_nms_top_n: int = 6000
    rpn_post_nms_top_n: int = 300
    threshold: float = 0.7
    rpn_min_size: int = 16
    scales: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0)
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    feature_stride: int = 16
    output_score: bool = False
    iou_loss: bool = False
    argument_names = ("cls_prob", "bbox_pred", "im_info")
    output_names = ("output", "score")
    gradient_arguments = ()

    def validate(self) -> None:
        if self.rpn_post_nms_top_n < 1 or self.feature_stride < 1 or not self.scales or min((*self.ratios, 1.0)) <= 0:
            raise ParameterError(f"{self.name}: rpn_post_nms_top_n={self.rpn_post_nms_top_n} and feature_stride="
                                 f"{self.feature_stride} must be at least 1, scales={self.scales} not empty, and "
                                 f"ratios={self.ratios} above 0.")

    @property
    def visible_outputs(self) -> int:
        return 2 if self.output_score else 1

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        scores = in_shape[0]
        if scores is None or -1 in scores:
            return list(in_shape), list(out_shape), []
        anchors = len(self.scales) * len(self.ratios)
        if len(scores) != 4 or scores[1] != 2 * anchors or (not self.whole_batch and scores[0] != 1):
            raise ShapeError(f"{self.name}: cls_prob {scores} must be [{'n' if self.whole_batch else 1}, {2 * anchors}, h, w]: "
                             f"two for each of {anchors} anchors.")
        if not math.prod(scores):
            raise ShapeError(f"{self.name}: cls_prob {scores} has no elements. It must hold an image with a row and a column.")
        n = scores[0]
        rows = n * self.rpn_post_nms_top_n
        ins: Shapes = [scores, (n, 4 * anchors, *scores[2:]), (n, 3)]
        if known(in_shape) and list(in_shape) != ins:
            raise ShapeError(f"{self.name}: for cls_prob {scores}, bbox_pred {in_shape[1]} must be {ins[1]}, and im_info "
                             f"{in_shape[2]} {ins[2]}.")
        return ins, [(rows, 5), (rows, 1)], []

    def _boxes(self, code: np.ndarray, info: np.ndarray) -> np.ndarray:
        """[h · w · anchors, 4]: the anchors displaced by code [4 · anchors, h, w], clipped to the image."""
        base, (h, w) = base_anchors(self.feature_stride, self.ratios, self.scales), code.shape[1:]
        x, y = np.meshgrid(np.arange(w), np.arange(h))
        shift = (np.stack([x, y, x, y], -1) * self.feature_stride)[:, :, None].astype(np.float32)
        boxes = base + shift
        code = code.reshape(len(base), 4, h, w).transpose(2, 3, 0, 1)
        if self.iou_loss:
            moved = boxes + code
        else:
            size = boxes[..., 2:] - boxes[..., :2] + 1
            middle = code[..., :2] * size + boxes[..., :2] + np.float32(0.5) * (size - 1)
            with np.errstate(over="ignore"):
                half = np.float32(0.5) * (np.exp(code[..., 2:]) * size - 1)
            moved = np.concatenate([middle - half, middle + half], -1)
        return np.clip(moved, 0, np.array([info[1], info[0]] * 2, np.float32) - 1).reshape(-1, 4)

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        made = [self._image(i, *parts) for i, parts in enumerate(zip(*arrays))]
        return np.concatenate([b for b, _ in made]), np.concatenate([s for _, s in made])

    def _image(self, number: int, scores: np.ndarray, code: np.ndarray, info: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        anchors = len(scores) // 2
        boxes = self._boxes(code, info)
        score = scores[anchors:].transpose(1, 2, 0).copy()
        score[int(info[0] / self.feature_stride):] = -1
        score[:, int(info[1] / self.feature_stride):] = -1
        score = score.ravel()
        least = max(self.rpn_min_size, 1) * info[2]
        small = (boxes[:, 2:] - boxes[:, :2] + 1 < least).any(1)
        boxes[small] += np.array([-1, -1, 1, 1], np.float32) * least / 2
        score[small] = -1
        order = np.argsort(-score, kind="stable")
        order = order[:self.rpn_pre_nms_top_n] if self.rpn_pre_nms_top_n > 0 else order
        kept = order[~suppressed(boxes[order], None, self.threshold, pixel=1, enough=self.rpn_post_nms_top_n)]
        rows = kept[np.arange(self.rpn_post_nms_top_n) % len(kept)]
        return np.concatenate([np.full((len(rows), 1), number, np.float32), boxes[rows]], 1), score[rows, None]

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        module, boxes = gpu_module("vision.triton_proposal"), gpu_module("vision.triton_boxes")
        anchors = base_anchors(self.feature_stride, self.ratios, self.scales)
        before = self.rpn_pre_nms_top_n if self.rpn_pre_nms_top_n > 0 else len(anchors) * math.prod(ins[0].shape[2:])

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            made = [boxes.written(run, *given) for given in zip(outputs, reqs, outs)]
            module.proposals(run, inputs, anchors, made, [r == Req.ADD for r in reqs], stride=self.feature_stride,
                             least=float(max(self.rpn_min_size, 1)), before=before, after=self.rpn_post_nms_top_n,
                             threshold=float(self.threshold), iou_loss=self.iou_loss)

        return kernel


@register_operator("_contrib_MultiProposal")
class MultiProposal(Proposal):
    """Proposal for a whole batch: cls_prob [n, 2 · anchors, h, w]. Returns: [n · rpn_post_nms_top_n, 5], image after image.

    The parameters (feature_stride, scales, ratios, rpn_pre_nms_top_n, rpn_min_size, threshold, output_score, iou_loss) are
    those of Proposal.
    """

    whole_batch: ClassVar[bool] = True
