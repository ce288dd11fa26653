"""box_iou, box_nms, matching, codes, MultiBox*, Proposal. Oracle: numbers by hand, definitions, and codes undone.
What MXNet 1.9.1 computes is in tests/golden/ops."""

import numpy as np
import pytest
import tritium as mx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import assert_close
from tritium.errors import ParameterError, ShapeError
from tritium.kernels.cpu import c_compile
from tritium.kernels.ops.vision.boxes import overlaps, suppressed
from tritium.kernels.ops.vision.c_suppress import suppresses
from tritium.kernels.ops.vision.proposal import base_anchors

C = mx.nd.contrib


def boxes(rng, *shape):
    low = rng.uniform(0, 0.7, (*shape, 2))
    return np.concatenate([low, low + rng.uniform(0.05, 0.5, (*shape, 2))], -1).astype("float32")


def test_iou_by_hand(ctx):
    a = mx.nd.array([[0, 0, 2, 2], [0, 0, 0, 0]], ctx=ctx)
    b = mx.nd.array([[1, 1, 3, 3], [0, 0, 2, 2], [5, 5, 6, 6], [0, 0, 0, 0]], ctx=ctx)
    np.testing.assert_allclose(C.box_iou(a, b).asnumpy(), [[1 / 7, 1, 0, 0], [0, 0, 0, 0]], rtol=1e-6)  # closer than the table
    middle = mx.nd.array([[1, 1, 2, 2]], ctx=ctx)
    other = mx.nd.array([[2, 2, 2, 2]], ctx=ctx)
    np.testing.assert_allclose(C.box_iou(middle, other, format="center").asnumpy(), [[1 / 7]], rtol=1e-6)  # closer than the table


@settings(deadline=None)
@given(st.integers(0, 12), st.floats(0.05, 0.9), st.booleans(), st.integers(0, 10**6))
def test_suppression_keeps_just_what_no_better_box_overlaps(n, threshold, by_kind, seed):
    rng = np.random.default_rng(seed)
    x, kinds = boxes(rng, n).astype("float64"), rng.integers(0, 2, n) if by_kind else None
    gone, iou = suppressed(x, kinds, threshold), overlaps(x, x)
    for i in range(n):
        rivals = [j for j in range(i) if not gone[j] and (kinds is None or kinds[i] == kinds[j])]
        assert gone[i] == any(iou[j, i] > threshold for j in rivals)


@pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("more", [{}, {"inclusive": True}, {"pixel": 1}, {"enough": 7}])
@pytest.mark.parametrize("n", [1, 2, 95])
def test_c_suppresses_what_numpy_does(dtype, more, n, rng, monkeypatch):
    low = rng.integers(0, 3, (n, 2))
    x = np.concatenate([low, low + rng.integers(-1, 4, (n, 2))], 1).astype(dtype)  # reversed and equal ones; shares of a half
    x[rng.random(x.shape) < 0.02] = np.nan
    found = []
    for kinds in (None, rng.integers(0, 2, n), rng.integers(0, 2, n).astype(dtype)):
        for mode in ("numpy", "c"):
            monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
            assert suppresses(n, np.dtype(dtype)) == (mode == "c" and n > 1)
            found.append(suppressed(x, kinds, 0.5, **more))
        assert np.array_equal(*found[-2:])
    assert n < 3 or found[0].any()


def test_nms_sorts_and_drops(ctx):
    rows = mx.nd.array([[0, 0.5, 0, 0, 1, 1], [0, 0.9, 0, 0, 1, 1.1], [1, 0.6, 0, 0, 1, 1], [0, 0.0, 5, 5, 6, 6]], ctx=ctx)
    rows.attach_grad()
    with mx.autograd.record():
        kept = C.box_nms(rows, id_index=0)
    # closer than the table
    np.testing.assert_allclose(kept.asnumpy()[:, :2], [[0, 0.9], [1, 0.6], [-1, -1], [-1, -1]], rtol=1e-6)
    kept.backward(mx.nd.array(np.arange(24).reshape(4, 6), ctx=ctx))
    np.testing.assert_array_equal(rows.grad.asnumpy()[:, 0], [0, 0, 6, 0])
    np.testing.assert_allclose(C.box_nms(rows, id_index=0, force_suppress=True).asnumpy()[:, 0], [0, -1, -1, -1])


def test_matching_takes_the_best_pair_first(ctx):
    rows, columns = C.bipartite_matching(mx.nd.array([[0.5, 0.6], [0.1, 0.8], [0.3, 0.2]], ctx=ctx), threshold=0.25)
    assert rows.asnumpy().tolist() == [0, 1, -1] and columns.asnumpy().tolist() == [0, 1]


def test_codes_undone(rng, ctx):
    anchors, refs = boxes(rng, 2, 5), boxes(rng, 2, 3)
    matches = rng.integers(0, 3, (2, 5))
    means, stds = np.zeros(4), np.array([0.1, 0.1, 0.2, 0.2])
    given_ = (np.ones((2, 5)), matches, anchors, refs, means, stds)
    codes, masks = C.box_encode(*(mx.nd.array(a, ctx=ctx) for a in given_))
    assert (masks.asnumpy() == 1).all()
    for b in range(2):
        back = C.box_decode(codes[b:b + 1], mx.nd.array(anchors[b:b + 1], ctx=ctx), 0.1, 0.1, 0.2, 0.2, format="corner")
        assert_close(back.asnumpy()[0], refs[b][matches[b]], scale=10)  # 10: rounded in another order


def test_prior_by_hand(ctx):
    got = C.MultiBoxPrior(mx.nd.zeros((1, 1, 1, 2), ctx=ctx), sizes=(0.4,), ratios=(1, 4)).asnumpy()
    np.testing.assert_allclose(got[0], [[0.15, 0.3, 0.35, 0.7], [0.05, 0.4, 0.45, 0.6],
                                        [0.65, 0.3, 0.85, 0.7], [0.55, 0.4, 0.95, 0.6]], atol=1e-6)


def test_what_target_codes_detection_reads(rng, ctx):
    """Targets as predictions, with certainty, give the labels back."""
    anchors, labels = boxes(rng, 1, 12), np.full((2, 3, 5), -1, "float32")
    labels[:, :2, 0], labels[:, :2, 1:] = rng.integers(0, 3, (2, 2)), boxes(rng, 2, 2)
    scores = rng.normal(size=(2, 4, 12))
    loc, mask, kinds = C.MultiBoxTarget(*(mx.nd.array(a, ctx=ctx) for a in (anchors, labels, scores)), overlap_threshold=0.9)
    kinds = kinds.asnumpy().astype(int)
    assert ((kinds > 0).sum(1) >= 1).all() and (mask.asnumpy().reshape(2, 12, 4)[..., 0] == (kinds > 0)).all()
    certain = np.eye(4)[kinds].transpose(0, 2, 1)
    found = C.MultiBoxDetection(mx.nd.array(certain, ctx=ctx), loc, mx.nd.array(anchors, ctx=ctx), clip=False).asnumpy()
    for b in range(2):
        for kind, score, *box in found[b][found[b, :, 0] >= 0]:
            assert score == 1
            nearest = labels[b, :2][np.abs(labels[b, :2, 1:] - box).max(1).argmin()]
            np.testing.assert_allclose([kind, *box], nearest, atol=1e-4)  # float32 numbers in a list


def test_mining_keeps_the_least_sure(rng):
    anchors = np.array([[[0, 0, 0.5, 0.5]] + [[0.6, 0.6, 0.61 + i / 100, 0.7] for i in range(5)]], "float32")
    labels = np.array([[[1, 0, 0, 0.5, 0.5]]], "float32")
    scores = np.zeros((1, 2, 6), "float32")
    scores[0, 0] = [0, 5, 1, 4, -2, 3]  # of the background
    _, _, kinds = C.MultiBoxTarget(*map(mx.nd.array, (anchors, labels, scores)), negative_mining_ratio=2.0, ignore_label=-7)
    assert kinds.asnumpy()[0].tolist() == [2, -7, 0, -7, 0, -7]


def test_proposals_without_moves_are_anchors(ctx):
    anchors = base_anchors(16, (0.5, 1.0), (1.0,))
    assert anchors.tolist() == [[-3.5, 2.0, 18.5, 13.0], [0.0, 0.0, 15.0, 15.0]]
    score = np.zeros((1, 4, 2, 2), "float32")
    score[0, 3, 1, 0] = 0.9  # something, second anchor, one row down
    inputs = (score, np.zeros((1, 8, 2, 2)), [[32, 32, 1.0]])
    rois, best = C.Proposal(*(mx.nd.array(a, ctx=ctx) for a in inputs), scales=(1,), ratios=(0.5, 1), rpn_min_size=1,
                            rpn_post_nms_top_n=3, output_score=True)
    assert rois.asnumpy()[0].tolist() == [0, 0, 16, 15, 31]
    np.testing.assert_allclose(best.asnumpy()[:, 0], [0.9, 0, 0], rtol=1e-6)  # closer than the table


@pytest.mark.parametrize("call, error, text", [
    (lambda: C.box_iou(mx.nd.ones((2, 3)), mx.nd.ones((2, 4))), ShapeError, r"_contrib_box_iou: lhs \(2, 3\) and rhs \(2, 4\)"),
    (lambda: C.box_nms(mx.nd.ones((2, 5))), ShapeError, r"_contrib_box_nms: data \(2, 5\) must be \[..., n, k\] with k above 5"),
    (lambda: C.bipartite_matching(mx.nd.ones(3), threshold=0.1), ShapeError, r"data \(3,\) must be \[..., rows, columns\]"),
    (lambda: C.box_encode(*[mx.nd.ones((2, 3))] * 6), ShapeError, r"_contrib_box_encode: samples \(2, 3\)"),
    (lambda: C.box_decode(mx.nd.ones((2, 3, 4)), mx.nd.ones((2, 3, 4))), ShapeError, r"anchors \(2, 3, 4\) \[1, n, 4\]"),
    (lambda: C.box_decode(mx.nd.ones((2, 3, 4)), mx.nd.ones((1, 3, 4)), std0="inf"), ParameterError,
     "std0 ... std3 must be finite"),
    (lambda: C.MultiBoxPrior(mx.nd.ones((2, 3))), ShapeError, r"_contrib_MultiBoxPrior: data \(2, 3\) must be \[n, c, h, w\]"),
    (lambda: C.MultiBoxPrior(mx.nd.ones((1, 1, 2, 2)), ratios=(0,)), ParameterError, r"ratios=\(0.0,\) \(above 0\)"),
    (lambda: C.MultiBoxTarget(*[mx.nd.ones((2, 3, 4))] * 3), ShapeError, r"anchor \(2, 3, 4\) must be \[1, n, 4\]"),
    (lambda: C.MultiBoxTarget(mx.nd.ones((1, 3, 4)), *[mx.nd.ones((2, 3, 4))] * 2), ShapeError, r"label \(2, 3, 4\) must be"),
    (lambda: C.MultiBoxDetection(*[mx.nd.ones((2, 3, 4))] * 2, mx.nd.ones((1, 4, 4))), ShapeError,
     r"loc_pred \(2, 3, 4\) \[b, 16\]"),
    (lambda: C.MultiBoxTarget(*[mx.nd.ones((1, 3, 4))] * 3, variances=(1,)), ParameterError, r"variances=\(1.0,\) must be four"),
    (lambda: C.Proposal(mx.nd.ones((2, 24, 2, 2)), mx.nd.ones((2, 48, 2, 2)), mx.nd.ones((2, 3))), ShapeError,
     r"_contrib_Proposal: cls_prob \(2, 24, 2, 2\) must be \[1, 24, h, w\]"),
    (lambda: C.MultiProposal(mx.nd.ones((2, 24, 2, 2)), mx.nd.ones((2, 8, 2, 2)), mx.nd.ones((2, 3))), ShapeError,
     r"bbox_pred \(2, 8, 2, 2\) must be \(2, 48, 2, 2\)"),
    (lambda: C.Proposal(*[mx.nd.ones((1, 24, 2, 2))] * 3, rpn_post_nms_top_n=0), ParameterError, "rpn_post_nms_top_n=0 and"),
])
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()
