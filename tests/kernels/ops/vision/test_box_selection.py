"""Suppression, matching, targets, detections and proposals on both devices. Oracle: the definitions in loops over Python numbers.

Coordinates are multiples of 1/64 in float64, so that overlaps at a threshold are exact.
"""

import math

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import DTypeError, ShapeError
from tritium.kernels.declare.check_op import HostRun
from tritium.kernels.op import Req, Spec, get
from tritium.kernels.ops.vision.proposal import base_anchors

C = mx.nd.contrib


def grid_boxes(rng, *shape):
    low = rng.integers(0, 40, (*shape, 2))
    return np.concatenate([low, low + rng.integers(1, 25, (*shape, 2))], -1) / 64


def iou(a, b, pixel=0):
    w, h = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) + pixel for i in (0, 1))
    common = w * h if w > 0 and h > 0 else 0
    area = [max(x[2] - x[0] + pixel, 0) * max(x[3] - x[1] + pixel, 0) for x in (a, b)]
    union = area[0] + area[1] - common
    return common / union if union > 0 else 0


def survivors(order, box, threshold, kinds=None, inclusive=False, pixel=0):
    kept = []
    for i in order:
        found = [iou(box[j], box[i], pixel) for j in kept if not kinds or kinds[i] == kinds[j]]
        if not any(v >= threshold if inclusive else v > threshold for v in found):
            kept.append(i)
    return kept


def nd(a, ctx, dtype="float64"):
    return mx.nd.array(a, ctx=ctx, dtype=dtype)


@pytest.mark.parametrize("n, params", [
    (1, {}), (64, {"id_index": 0, "background_id": 2, "overlap_thresh": 0.25}), (130, {"overlap_thresh": 0.5, "topk": 100}),
    (65, {"id_index": 0, "force_suppress": True, "overlap_thresh": 0.25, "valid_thresh": 0.5})])
def test_nms_keeps_rows_and_moves_their_derivatives(ctx, rng, n, params):
    x = np.concatenate([rng.integers(0, 3, (2, n, 1)), rng.integers(0, 9, (2, n, 1)) / 8, grid_boxes(rng, 2, n)], -1)
    dy, want, slope = rng.normal(size=x.shape), np.full(x.shape, -1.0), np.zeros(x.shape)
    for b, rows in enumerate(x.tolist()):
        by_kind = "id_index" in params and not params.get("force_suppress")
        valid = [i for i, r in enumerate(rows) if r[1] > params.get("valid_thresh", 0) and
                 not ("id_index" in params and r[0] == params.get("background_id", -1))]
        order = sorted(valid, key=lambda i: (-rows[i][1], i))[:params.get("topk")]
        kept = survivors(order, [r[2:] for r in rows], params.get("overlap_thresh", 0.5),
                         [r[0] for r in rows] if by_kind else None)
        for place, i in enumerate(kept):
            want[b, place], slope[b, i] = rows[i], dy[b, place]
    data = nd(x, ctx)
    data.attach_grad()
    with mx.autograd.record():
        y = C.box_nms(data, **params)
    y.backward(nd(dy, ctx))
    np.testing.assert_array_equal(y.asnumpy(), want)
    np.testing.assert_array_equal(data.grad.asnumpy(), slope)


def test_nms_converts_between_corners_and_centres(ctx):
    rows = nd([[0.5, 2, 3, 2, 4], [0.9, 8, 8, 2, 2]], ctx)
    params = {"score_index": 0, "coord_start": 1}
    assert C.box_nms(rows, in_format="center", out_format="corner", **params).asnumpy().tolist() == [
        [0.9, 7, 7, 9, 9], [0.5, 1, 1, 3, 5]]
    assert C.box_nms(rows, in_format="corner", out_format="center", **params).asnumpy().tolist() == [
        [0.9, 5, 5, -6, -6], [0.5, 2, 3.5, 0, 1]]


def test_no_row_with_a_nan_score_is_kept_and_a_nan_box_suppresses_nothing(ctx):
    nan = math.nan
    rows = nd([[nan, 0, 0, 1, 1], [0.9, 0, nan, 1, 1], [0.8, 0, 0, 1, 1], [0.7, 0, 0, 1, 1]], ctx)
    got = C.box_nms(rows, score_index=0, coord_start=1).asnumpy()
    np.testing.assert_array_equal(got, [[0.9, 0, nan, 1, 1], [0.8, 0, 0, 1, 1], [-1] * 5, [-1] * 5])


@pytest.mark.parametrize("params", [{"threshold": 0.25}, {"threshold": 0.5, "is_ascend": True}, {"threshold": -1, "topk": 2}])
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 20, 3)])
def test_matching_is_greedy_and_stable(ctx, rng, shape, params):
    x = rng.integers(0, 9, shape) / 8
    want = [np.full(shape[:-1], -1.0), np.full((shape[0], shape[2]), -1.0)]
    up = params.get("is_ascend", False)
    for b, scores in enumerate(x.tolist()):
        pairs = sorted(((s if up else -s, i, j) for i, row in enumerate(scores) for j, s in enumerate(row)))
        for s, i, j in pairs:
            if s > (params["threshold"] if up else -params["threshold"]):
                break
            if want[0][b, i] < 0 and want[1][b, j] < 0:
                want[0][b, i], want[1][b, j] = j, i
                if "topk" in params and (want[0][b] >= 0).sum() > params["topk"]:
                    break
    for got, wanted in zip(C.bipartite_matching(nd(x, ctx), **params), want):
        np.testing.assert_array_equal(got.asnumpy(), wanted)


def test_nan_matches_last_and_only_if_every_number_passes(ctx):
    x = nd([[[math.nan, 3], [1, 2]], [[math.nan, 3], [-1, 2]]], ctx)
    rows, columns = C.bipartite_matching(x, threshold=0)
    assert rows.asnumpy().tolist() == [[1, 0], [1, -1]] and columns.asnumpy().tolist() == [[1, 0], [-1, 0]]


def test_a_matrix_without_columns_has_no_matches(ctx):
    rows, columns = C.bipartite_matching(mx.nd.zeros((2, 3, 0), ctx=ctx), threshold=0)
    assert rows.asnumpy().tolist() == [[-1] * 3] * 2 and columns.shape == (2, 0)


@pytest.mark.parametrize("params", [{}, {"overlap_threshold": 0.25}, {"overlap_threshold": -1.0, "ignore_label": -7},
                                    {"negative_mining_ratio": 2.0, "negative_mining_thresh": 0.25, "ignore_label": -7}])
def test_targets_are_the_labels_of_the_best_anchors(ctx, rng, params):
    n, m, variances = 20, 4, (0.1, 0.1, 0.2, 0.2)
    anchors, labels, scores = grid_boxes(rng, 1, n), np.full((3, m, 6), -1.0), rng.normal(size=(3, 3, n))
    labels[..., 0], labels[..., 1:5] = rng.integers(0, 2, (3, m)), grid_boxes(rng, 3, m)
    labels[1, 2:, 0] = labels[2, 0, 0] = -1  # images of four, two and no labels
    limit, ratio = params.get("overlap_threshold", 0.5), params.get("negative_mining_ratio", -1)
    kinds, codes, masks = np.full((3, n), params.get("ignore_label", -1.0)), np.zeros((3, n, 4)), np.zeros((3, n, 4))
    for b in range(3):
        used = next((j for j in range(m) if labels[b, j, 0] == -1), m)
        over = [[iou(a, row[1:5]) for row in labels[b, :used].tolist()] for a in anchors[0].tolist()]
        which = {}
        for v, i, j in sorted((-over[i][j], i, j) for i in range(n) for j in range(used)):
            if v < -1e-6 and i not in which and j not in which.values():
                which[i] = j
        rest = [i for i in range(n) if i not in which]
        for i in rest if limit > 0 and used else ():
            if max(over[i]) > limit:
                which[i] = over[i].index(max(over[i]))
        rest = [i for i in rest if i not in which and used]
        if ratio > 0 and used:
            p = np.exp(scores[b, 0]) / np.exp(scores[b]).sum(0)
            rest = sorted((i for i in rest if max(over[i]) < params["negative_mining_thresh"]), key=lambda i: p[i])
            rest = rest[:int(len(which) * ratio)]
        kinds[b, rest] = 0
        for i, j in which.items():
            (l, t, r, o), (left, top, right, bottom) = anchors[0, i].tolist(), labels[b, j, 1:5].tolist()
            w, h = r - l, o - t
            code = [((left + right) - (l + r)) / 2 / w, ((top + bottom) - (t + o)) / 2 / h, math.log((right - left) / w),
                    math.log((bottom - top) / h)]
            kinds[b, i], masks[b, i], codes[b, i] = labels[b, j, 0] + 1, 1, np.divide(code, variances)
    got = C.MultiBoxTarget(nd(anchors, ctx), nd(labels, ctx), nd(scores, ctx), **params)
    np.testing.assert_allclose(got[0].asnumpy(), codes.reshape(3, -1), rtol=1e-5)  # rounded to float32
    np.testing.assert_array_equal(got[1].asnumpy(), masks.reshape(3, -1))
    np.testing.assert_array_equal(got[2].asnumpy(), kinds)


@pytest.mark.parametrize("params", [
    {"threshold": 0.5, "nms_threshold": 0.25}, {"threshold": 0.25, "force_suppress": True}, {"threshold": 0.5, "nms_topk": 9},
    {"threshold": 0.75, "nms_threshold": -1.0, "clip": False}])
def test_detections_are_sorted_and_thinned_by_class(ctx, rng, params):
    n, classes = 40, 4
    anchors, prob, code = grid_boxes(rng, 1, n), rng.integers(0, 9, (2, classes, n)) / 8, rng.normal(size=(2, n, 4)) * 2
    code[:, ::3] = 0
    want = np.full((2, n, 6), -1.0)
    for b in range(2):
        boxes, kinds, scores = [], [], []
        for i, (l, t, r, o) in enumerate(anchors[0].tolist()):
            x, y, u, v = code[b, i] * (0.1, 0.1, 0.2, 0.2)
            w, h, x, y = r - l, o - t, x * (r - l) + (l + r) / 2, y * (o - t) + (t + o) / 2
            box = [x - math.exp(u) * w / 2, y - math.exp(v) * h / 2, x + math.exp(u) * w / 2, y + math.exp(v) * h / 2]
            boxes.append([min(max(c, 0), 1) for c in box] if params.get("clip", True) else box)
            column = prob[b, 1:, i].tolist()
            kinds.append(column.index(max(column)))
            scores.append(max(column))
        rows, thin = [i for i in range(n) if scores[i] >= params["threshold"]], params.get("nms_threshold", 0.5) > 0
        top = params.get("nms_topk", n) if thin else 0
        order = sorted(rows, key=lambda i: (-scores[i], i))[:top]
        kept = survivors(order, boxes, params.get("nms_threshold", 0.5), inclusive=True,
                         kinds=None if params.get("force_suppress") else kinds)
        for place, i in enumerate(order + rows[top:]):
            want[b, place] = [kinds[i] if not thin or (i in kept and place < top) else -1, scores[i], *boxes[i]]
    got = C.MultiBoxDetection(nd(prob, ctx), nd(code.reshape(2, -1), ctx), nd(anchors, ctx), **params).asnumpy()
    np.testing.assert_array_equal(got[..., 0], want[..., 0])
    assert_close(got, want)


@pytest.mark.parametrize("iou_loss", [False, True])
@pytest.mark.parametrize("before, after", [(-1, 30), (20, 5)])
def test_proposals_are_the_best_apart(ctx, rng, before, after, iou_loss):
    h, w, base = 3, 4, base_anchors(16, (0.5, 1.0), (1.0, 2.0)).tolist()
    prob, code = rng.permutation(2 * 8 * h * w).reshape(2, 8, h, w) / 512, rng.integers(-2, 3, (2, 16, h, w)) / 8
    info = np.array([[45.0, 60.0, 1.0], [33.0, 60.0, 1.5]])
    want = []
    for b in range(2):
        boxes, scores = [], []
        for y, x, a in np.ndindex(h, w, 4):
            l, t, r, o = (v + 16 * s for v, s in zip(base[a], (x, y, x, y)))
            d = code[b, 4 * a:4 * a + 4, y, x].tolist()
            if iou_loss:
                box = [l + d[0], t + d[1], r + d[2], o + d[3]]
            else:
                cx, cy = d[0] * (r - l + 1) + l + (r - l) / 2, d[1] * (o - t + 1) + t + (o - t) / 2
                half = [(math.exp(d[2]) * (r - l + 1) - 1) / 2, (math.exp(d[3]) * (o - t + 1) - 1) / 2]
                box = [cx - half[0], cy - half[1], cx + half[0], cy + half[1]]
            box = [min(max(v, 0), size - 1) for v, size in zip(box, (info[b, 1], info[b, 0]) * 2)]
            least = 16 * info[b, 2]
            small = min(box[2] - box[0], box[3] - box[1]) + 1 < least
            boxes.append([v + s * least / 2 for v, s in zip(box, (-1, -1, 1, 1))] if small else box)
            bad = small or y >= int(info[b, 0] / 16) or x >= int(info[b, 1] / 16)
            scores.append(-1 if bad else prob[b, 4 + a, y, x])
        order = sorted(range(len(boxes)), key=lambda i: (-scores[i], i))
        kept = survivors(order[:before] if before > 0 else order, boxes, 0.5, pixel=1)
        want += [[b, *boxes[i], scores[i]] for i in (kept * after)[:after]]
    rows, scores = C.MultiProposal(
        nd(prob, ctx), nd(code, ctx), nd(info, ctx), rpn_pre_nms_top_n=before, rpn_post_nms_top_n=after, threshold=0.5,
        scales=(1, 2), ratios=(0.5, 1), output_score=True, iou_loss=iou_loss)
    got = np.concatenate([rows.asnumpy(), scores.asnumpy()], 1)
    assert_close(got, np.array(want), scale=100)  # 100: base anchors are float32


USES = [("_contrib_box_nms", [(2, 9, 6)], {"overlap_thresh": 0.1}),
        ("_contrib_bipartite_matching", [(2, 4, 3)], {"threshold": -1}),
        ("_contrib_MultiBoxTarget", [(1, 6, 4), (2, 3, 5), (2, 4, 6)], {"negative_mining_ratio": 1.0}),
        ("_contrib_MultiBoxDetection", [(2, 4, 6), (2, 24), (1, 6, 4)], {"nms_topk": 3}),
        ("_contrib_MultiProposal", [(2, 8, 3, 4), (2, 16, 3, 4), (2, 3)],
         {"scales": (1, 2), "ratios": (1, 2), "rpn_post_nms_top_n": 4})]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, shapes, params", USES)
def test_a_gpu_adds_what_the_cpu_writes_and_leaves_what_is_not_asked_for(rng, name, shapes, params, dtype):
    torch = pytest.importorskip("torch")
    if mx.context.GPU_MODE != "interpret":
        pytest.skip("reads the memory of an interpreted GPU")

    class Run(HostRun):
        def workspace(self, shape, dtype):
            return torch.from_numpy(rng.integers(0, 255, (*shape, np.dtype(dtype).itemsize), "uint8").view(dtype)[..., 0].copy())

    op = get(name)
    p = op.parse(params)
    x = [np.abs(rng.normal(size=s)).astype(dtype) for s in shapes]
    if name == "_contrib_MultiProposal":
        x[2][:] = 60, 70, 1
    outs = [Spec(tuple(s), np.dtype(d)) for s, d in zip(op.infer_shape(p, shapes)[1], op.infer_dtype(p, [a.dtype for a in x])[1])]
    ins = [Spec(a.shape, a.dtype) for a in x]
    plain = [np.zeros(s.shape, s.dtype) for s in outs]
    op.kernel(p, ins, outs, [Req.WRITE] * len(outs), "cpu", True)(HostRun(), x, plain)
    seen = op.visible_outputs(p)
    for skipped in range(len(outs)):
        reqs = [Req.NULL if i == skipped and len(outs) > 1 else Req.ADD if i < seen else Req.WRITE for i in range(len(outs))]
        made = [None if r == Req.NULL else torch.from_numpy(np.full(s.shape, 2, s.dtype)) for s, r in zip(outs, reqs)]
        op.kernel(p, ins, outs, reqs, "gpu", True)(Run(), [torch.from_numpy(a.copy()) for a in x], made)
        for got, want, req in zip(made, plain, reqs):
            if got is not None:
                assert_close(got.numpy(), want + 2 if req == Req.ADD else want)


@pytest.mark.parametrize("call, error, text", [
    (lambda: C.box_nms(mx.nd.ones((2, 6), dtype="int32")), DTypeError,
     "_contrib_box_nms: data is int32. Boxes and scores must be floats; cast them first."),
    (lambda: C.MultiBoxTarget(*[mx.nd.ones(s, dtype="int8") for s in ((1, 3, 4), (1, 2, 5), (1, 2, 3))]), DTypeError,
     "_contrib_MultiBoxTarget: anchor is int8"),
    (lambda: C.Proposal(mx.nd.ones((1, 24, 0, 2)), mx.nd.ones((1, 48, 0, 2)), mx.nd.ones((1, 3))), ShapeError,
     r"_contrib_Proposal: cls_prob \(1, 24, 0, 2\) has no elements"),
])
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()
