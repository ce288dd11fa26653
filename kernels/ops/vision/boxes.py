"""box_iou, box_nms, bipartite_matching, box_encode, box_decode: compare, filter, match and encode bounding boxes.

A box is [left, top, right, bottom] ("corner") or [x, y, width, height] around its centre ("center").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ....dtype import is_float
from ....errors import DTypeError, ParameterError, ShapeError
from ...declare.indexed import indexed
from ...declare.numpy_op import NumpyOp
from ...declare.operator_property import Dtypes, KnownShapes, Shapes, gpu_module
from ...declare.property_op import register_operator
from ...gpu import copy
from ...ir.lang import exp, log, maximum, minimum, where
from ...ir.strided import layout
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Specs
from .c_suppress import suppress, suppresses

Format = Literal["corner", "center"]


class Selection(NumpyOp):
    """Base class: a selection among boxes or pairs, each depending on earlier ones. All arrays have one floating dtype."""

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes] | None:
        for name, dtype in zip(self.list_arguments(), in_type):
            if dtype is not None and not is_float(dtype):
                raise DTypeError(f"{self.name}: {name} is {dtype}. Boxes and scores must be floats; cast them first.")
        return super().infer_type(in_type, out_type)


def corners(boxes: np.ndarray, form: str) -> np.ndarray:
    """Convert boxes [..., 4] from form to corners."""
    if form == "corner":
        return boxes
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], -1)


def centers(boxes: np.ndarray) -> np.ndarray:
    """Convert boxes from corners to centre and size."""
    return np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], -1)


def encoded(boxes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Return boxes relative to anchors, both as centre and size: the distance of centres and the logarithm of sizes."""
    with np.errstate(all="ignore"):
        apart, ratio = (boxes[..., :2] - anchors[..., :2]) / anchors[..., 2:], boxes[..., 2:] / anchors[..., 2:]
        return np.concatenate([apart, np.log(ratio)], -1)


def decoded(code: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Return in corner form the boxes that are encoded relative to anchors, which are centre and size."""
    with np.errstate(over="ignore"):
        half = np.exp(code[..., 2:]) * anchors[..., 2:] / 2
    middle = code[..., :2] * anchors[..., 2:] + anchors[..., :2]
    return np.concatenate([middle - half, middle + half], -1)


def overlaps(a: np.ndarray, b: np.ndarray, pixel: float = 0) -> np.ndarray:
    """Return the intersection over union of every box of a [n, 4] and b [m, 4] in corner form; 0 for an empty union.

    pixel: 1 if boxes include their last pixel.
    """
    size = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2]) + pixel
    common = np.maximum(size, 0).prod(-1)
    return _shares(common, _areas(a, pixel)[:, None] + _areas(b, pixel) - common)


def _areas(boxes: np.ndarray, pixel: float) -> np.ndarray:
    """Return the areas of boxes in corner form, 0 for one that ends before it begins."""
    size = boxes[:, 2:] - boxes[:, :2] + pixel
    return np.where(size.min(-1) < 0, 0, size.prod(-1))


def _shares(common: np.ndarray, union: np.ndarray) -> np.ndarray:
    return np.divide(common, union, out=np.zeros_like(common), where=union > 0)


def suppressed(boxes: np.ndarray, kinds: np.ndarray | None, threshold: float, inclusive: bool = False, pixel: float = 0,
               enough: int | None = None) -> np.ndarray:
    """Return a mask [n] of the boxes (best first) that overlap a better, kept box by more than threshold.

    kinds: boxes of different classes do not suppress one another. inclusive: an overlap equal to threshold suppresses.
    enough: the largest number of kept boxes; later ones count as suppressed.
    """
    n, areas, ends = len(boxes), _areas(boxes, pixel), np.ascontiguousarray(boxes.T)  # by coordinate: rows of numbers
    if suppresses(n, boxes.dtype):
        return suppress(ends, areas, kinds, threshold, inclusive, pixel, enough)
    gone, low, high = np.zeros(n, bool), ends[:2], ends[2:]
    kept = 0
    for i in range(n):
        if gone[i]:
            continue
        kept += 1
        if kept == enough:
            gone[i + 1:] = True
            break
        size = np.minimum(high[:, i + 1:], high[:, i:i + 1])
        size -= np.maximum(low[:, i + 1:], low[:, i:i + 1])
        width, height = np.maximum(size + pixel if pixel else size, 0)
        common = width * height
        iou = _shares(common, areas[i + 1:] + areas[i] - common)
        hit = iou >= threshold if inclusive else iou > threshold
        gone[i + 1:] |= hit if kinds is None else hit & (kinds[i + 1:] == kinds[i])
    return gone


def _sides(box: Sequence[Any], form: str) -> tuple[Any, ...]:
    """Return left, top, right, bottom of a traced box in `form`."""
    a, b, c, d = box
    return (a, b, c, d) if form == "corner" else (a - c / 2, b - d / 2, a + c / 2, b + d / 2)


def _area(left: Any, top: Any, right: Any, bottom: Any) -> Any:
    w, h = right - left, bottom - top
    return where(minimum(w, h) < 0, 0, w * h)


def _all_pairs(lhs: Shape, rhs: Shape, **_: Any) -> Shape:
    if not lhs or not rhs or lhs[-1] != 4 or rhs[-1] != 4:
        raise ShapeError(f"_contrib_box_iou: lhs {lhs} and rhs {rhs} must have a last axis of size 4.")
    return *lhs[:-1], *rhs[:-1]


@indexed("_contrib_box_iou", shape=_all_pairs, differentiable=False)
def box_iou(at: Any, lhs: Any, rhs: Any, *, format: Format = "corner") -> Any:
    """Intersection over union of every pair of boxes.

    lhs: [..., 4], rhs: [..., 4]. Returns: lhs.shape[:-1] + rhs.shape[:-1]; 0 where both are empty. No derivative.
    """
    i, j = at[:lhs.ndim - 1], at[lhs.ndim - 1:]
    a, b = _sides([lhs[(*i, c)] for c in range(4)], format), _sides([rhs[(*j, c)] for c in range(4)], format)
    w, h = (minimum(a[c + 2], b[c + 2]) - maximum(a[c], b[c]) for c in (0, 1))
    common = maximum(w, 0) * maximum(h, 0)
    union = _area(*a) + _area(*b) - common
    return where(union > 0, common / union, 0)


def _rows(shape: Shape) -> tuple[int, int, int]:
    """Return shape [..., n, width] as three numbers."""
    return math.prod(shape[:-2]), shape[-2], shape[-1]


@register_operator("_contrib_box_nms", aliases=("_contrib_box_non_maximum_suppression",))
class BoxNms(Selection):
    """Non-maximum suppression: the boxes that do not overlap a better box of their class by more than overlap_thresh.

    Kept rows come first, best first; the other rows are -1.

    data: [..., n, k]; score_index, coord_start and id_index: positions of score, box and class (id_index -1: one class).
    valid_thresh: drop boxes with this score or less; topk: keep only the best topk before comparing; background_id: drop boxes of
    this class. force_suppress: compare boxes of all classes. Kept rows have a derivative.
    """

    overlap_thresh: float = 0.5
    valid_thresh: float = 0.0
    topk: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = -1
    background_id: int = -1
    force_suppress: bool = False
    in_format: Format = "corner"
    out_format: Format = "corner"
    output_names = ("output0", "output1")
    gradient_arguments = (0,)
    backward_reads = ("dy0", "y1")
    visible_outputs = 1
    output_dtypes = (None, np.dtype(np.int32))

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0] if in_shape[0] is not None else out_shape[0]
        if x is None or -1 in x:
            return [x], [x, None], []
        last = max(self.coord_start + 3, self.score_index, self.id_index)
        if len(x) < 2 or x[-1] <= last or min(self.coord_start, self.score_index) < 0:
            raise ShapeError(f"{self.name}: data {x} must be [..., n, k] with k above {last}, for coord_start="
                             f"{self.coord_start}, score_index={self.score_index}, id_index={self.id_index}.")
        return [x], [x, x[:-1]], []

    def _kept(self, x: np.ndarray) -> np.ndarray:
        """Return the indices of the kept rows of x [n, k], best first."""
        score = x[:, self.score_index]
        valid = score > self.valid_thresh
        if self.id_index >= 0:
            valid &= x[:, self.id_index].astype(np.int64) != self.background_id
        rows = np.flatnonzero(valid)
        rows = rows[np.argsort(-score[rows], kind="stable")]
        rows = rows[:self.topk] if self.topk > 0 else rows
        kinds = x[rows, self.id_index].astype(np.int64) if self.id_index >= 0 and not self.force_suppress else None
        boxes = corners(x[rows, self.coord_start:self.coord_start + 4], self.in_format)
        return rows[~suppressed(boxes, kinds, self.overlap_thresh)]

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        x = arrays[0].reshape(_rows(arrays[0].shape))
        y, index = np.full(x.shape, -1, x.dtype), np.full(x.shape[:2], -1, np.int32)
        box = slice(self.coord_start, self.coord_start + 4)
        for b, rows in enumerate(map(self._kept, x)):
            y[b, :len(rows)], index[b, :len(rows)] = x[b, rows], rows
            if self.in_format != self.out_format:
                boxes = y[b, :len(rows), box]
                y[b, :len(rows), box] = corners(boxes, "center") if self.out_format == "corner" else centers(boxes)
        return y.reshape(arrays[0].shape), index.reshape(arrays[0].shape[:-1])

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        dx = np.zeros_like(dy[0])
        outer, row = np.nonzero(y[1].reshape(-1, y[1].shape[-1]) >= 0)
        flat, index = dx.reshape(-1, *dx.shape[-2:]), y[1].reshape(-1, y[1].shape[-1])
        flat[outer, index[outer, row]] = dy[0].reshape(flat.shape)[outer, row]
        return dx

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        module, rows, n = gpu_module("vision.triton_boxes"), _rows(ins[0].shape), ins[0].shape[-2]

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            y, index = (module.written(run, *given) for given in zip(outputs, reqs, outs))
            module.nms(run, rows, inputs[0], y, index, score=self.score_index, box=self.coord_start, kind=self.id_index,
                       background=self.background_id, least=float(self.valid_thresh), most=self.topk if self.topk > 0 else n,
                       threshold=float(self.overlap_thresh), apart=self.id_index >= 0 and not self.force_suppress,
                       center=self.in_format == "center", form=self.out_format if self.out_format != self.in_format else "",
                       add=reqs[0] == Req.ADD)

        return kernel

    def gpu_backward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        module, rows = gpu_module("vision.triton_boxes"), _rows(outs[0].shape)
        return lambda run, inputs, outputs: module.nms_backward(run, rows, *inputs, outputs[0], add=reqs[0] == Req.ADD)


@register_operator("_contrib_bipartite_matching")
class BipartiteMatching(Selection):
    """Greedy matching of rows and columns by score, each at most once.

    data: [..., n, m] scores. is_ascend: smaller scores are better. threshold: the worst score of a match. topk > 0: stop
    after topk + 1 matches, as MXNet does. Returns: the column of each row [..., n] and the row of each column [..., m],
    -1 if unmatched. No derivative.
    """

    is_ascend: bool = False
    threshold: float
    topk: int = -1
    output_names = ("output0", "output1")
    gradient_arguments = ()

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        if len(x) < 2:
            raise ShapeError(f"{self.name}: data {x} must be [..., rows, columns].")
        return [x[:-1], (*x[:-2], x[-1])]

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        x = arrays[0].reshape(_rows(arrays[0].shape))
        rows, columns = np.full(x.shape[:2], -1, x.dtype), np.full((len(x), x.shape[2]), -1, x.dtype)
        for b, scores in enumerate(x):
            pairs = 0
            for at in np.argsort(scores.ravel() if self.is_ascend else -scores.ravel(), kind="stable"):
                i, j = divmod(int(at), x.shape[2])
                if (scores[i, j] > self.threshold) if self.is_ascend else (scores[i, j] < self.threshold):
                    break
                if rows[b, i] < 0 and columns[b, j] < 0:
                    rows[b, i], columns[b, j] = j, i
                    pairs += 1
                    if 0 < self.topk < pairs:
                        break
        shape = arrays[0].shape
        return rows.reshape(shape[:-1]), columns.reshape(*shape[:-2], shape[-1])

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        module, sizes = gpu_module("vision.triton_boxes"), _rows(ins[0].shape)
        stores = [copy.plan(dense, dense, r == Req.ADD) for s, r in zip(outs, reqs) for dense in (layout(s.shape),)]

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            found = module.match(run, sizes, inputs[0], float(self.threshold), up=self.is_ascend,
                                 rounds=self.topk + 1 if self.topk > 0 else min(sizes[1:]))
            for store, numbers, out, req in zip(stores, found, outputs, reqs):
                if req != Req.NULL:
                    store(run, numbers, out)

        return kernel


def one_of(i: Any, values: Sequence[Any]) -> Any:
    """Return values[i], where i is traced."""
    found = values[-1]
    for k in reversed(range(len(values) - 1)):
        found = where(i == k, values[k], found)
    return found


def _encoded_shapes(samples: Shape, matches: Shape, anchors: Shape, refs: Shape, means: Shape, stds: Shape
                    ) -> tuple[Shape, Shape]:
    if len(samples) != 2 or matches != samples or anchors != (*samples, 4) or len(refs) != 3 or refs[::2] != (samples[0], 4) \
            or means != (4,) or stds != (4,):
        raise ShapeError(f"_contrib_box_encode: samples {samples} and matches {matches} must be [b, n], anchors {anchors} "
                         f"[b, n, 4], refs {refs} [b, m, 4], means {means} and stds {stds} [4].")
    return anchors, anchors


@indexed("_contrib_box_encode", shape=_encoded_shapes, outputs=("output0", "output1"), differentiable=False)
def box_encode(at: Any, samples: Any, matches: Any, anchors: Any, refs: Any, means: Any, stds: Any) -> tuple[Any, Any]:
    """Training targets of each anchor: its reference box, encoded relative to the anchor.

    samples: [b, n], above 0.5 for anchors with a reference; matches: [b, n], its index; anchors: [b, n, 4], refs: [b, m, 4],
    in corner form; means, stds: [4]. Returns: targets [b, n, 4], (difference - means) / stds, and masks [b, n, 4]. No derivative.
    """
    b, i, c = at
    axis, chosen = c % 2, samples[b, i] > 0.5
    which = maximum(minimum(matches[b, i].astype("int64"), refs.shape[1] - 1), 0)
    low, high, left, right = anchors[b, i, axis], anchors[b, i, axis + 2], refs[b, which, axis], refs[b, which, axis + 2]
    apart = ((left + right) / 2 - (low + high) / 2) / (high - low)
    length = log((right - left) / (high - low))
    code = where(c // 2 == 0, where(chosen, (apart - means[axis]) / stds[axis], 0),
                 where(chosen, (length - means[axis + 2]) / stds[axis + 2], 0))
    return code, where(chosen, 1, 0)


def _decoded_shape(data: Shape, anchors: Shape, *, std0: float, std1: float, std2: float, std3: float, **_: Any) -> Shape:
    if not all(math.isfinite(s) for s in (std0, std1, std2, std3)):
        raise ParameterError("_contrib_box_decode: std0 ... std3 must be finite numbers.")
    if len(data) != 3 or data[2] != 4 or anchors != (1, *data[1:]):
        raise ShapeError(f"_contrib_box_decode: data {data} must be [b, n, 4], anchors {anchors} [1, n, 4].")
    return data


@indexed("_contrib_box_decode", shape=_decoded_shape, differentiable=False)
def box_decode(at: Any, data: Any, anchors: Any, *, std0: float = 1.0, std1: float = 1.0, std2: float = 1.0, std3: float = 1.0,
               clip: float = -1.0, format: Format = "center") -> Any:
    """Decode data [b, n, 4] relative to anchors [1, n, 4] to boxes in corner form: the inverse of box_encode.

    std0, std1, std2, std3: factors of the codes. clip > 0: upper bound of the logarithm of a size. format: of the anchors.
    No derivative.
    """
    b, i, c = at
    axis, side = c % 2, c // 2
    low, high = anchors[0, i, axis], anchors[0, i, axis + 2]
    middle, size = (low, high) if format == "center" else ((low + high) / 2, high - low)
    code = data[b, i, axis + 2] * where(axis == 0, std2, std3)
    half = exp(minimum(code, clip) if clip > 0 else code) * size / 2
    middle = data[b, i, axis] * where(axis == 0, std0, std1) * size + middle
    return where(side == 0, middle - half, middle + half)
