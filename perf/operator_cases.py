"""The operators that bench_ops.py measures: their shapes, and calls in MXNet's names and in torch's.

Names that begin with _bench_ are helpers that bench_ops.py gives to each package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

SIZES = {"small": 1 << 10, "medium": 1 << 17, "large": 1 << 22}  # elements of the largest array

Shapes = Callable[[int], list[tuple[int, ...]]]


def flat(n: int) -> list[tuple[int, ...]]:
    return [(n,)]


def two(n: int) -> list[tuple[int, ...]]:
    return [(n,), (n,)]


def square(n: int) -> list[tuple[int, ...]]:
    return [(1 << (n.bit_length() // 2), n >> (n.bit_length() // 2))]


def row(n: int) -> list[tuple[int, ...]]:
    (s,) = square(n)
    return [s, (1, s[1])]


def column(n: int) -> list[tuple[int, ...]]:
    (s,) = square(n)
    return [s, (s[0], 1)]


def matrices(n: int) -> list[tuple[int, ...]]:
    k = int(math.sqrt(n)) // (4 if n > 1 << 20 else 1)
    return [(k, k), (k, k)]


def images(n: int) -> list[tuple[int, ...]]:
    side = {SIZES["small"]: 4, SIZES["medium"]: 16, SIZES["large"]: 32}[n]
    return [(max(1, n // (16 * side * side)), 16, side, side)]


def normed(n: int) -> list[tuple[int, ...]]:
    return [*square(n), *[(square(n)[0][1],)] * 2]


def classes(n: int) -> list[tuple[int, ...]]:
    """Scores, and numbers below 1 for the labels of the rows."""
    (s,) = square(n)
    return [s, s[:1]]


def scaled(n: int) -> list[tuple[int, ...]]:
    return [*images(n), (16,), (16,)]


def moving(n: int) -> list[tuple[int, ...]]:
    return [*images(n), *[(16,)] * 4]


def sequences(n: int) -> list[tuple[int, ...]]:
    """[time, batch, channels], and numbers below 1 for the lengths."""
    return [(16, max(1, n // 512), 32), (max(1, n // 512),)]


def regions(n: int) -> list[tuple[int, ...]]:
    """Images, and regions [image, x, y, x, y] with fractions below 1."""
    return [(2, max(1, n // 2048), 32, 32), (8, 5)]


def boxes(n: int) -> list[tuple[int, ...]]:
    k = int(math.sqrt(n))
    return [(k, 4), (k, 4)]


def scores(n: int) -> list[tuple[int, ...]]:
    return [(max(1, n // 1024), min(n, 1024))]


def photograph(n: int) -> list[tuple[int, ...]]:
    side = int(math.sqrt(n // 3))
    return [(side, side, 3)]


def tiny(n: int) -> list[tuple[int, ...]]:
    """One small array, at the smallest size alone."""
    return [(32,)] if n == SIZES["small"] else []


def only(*shapes: tuple[int, ...]) -> Shapes:
    """Return the shapes of a case that has one size, called large."""
    return lambda n: list(shapes) if n == SIZES["large"] else []


def filtered(filters: int, kernel: int, groups: int = 1) -> Shapes:
    """Images of 16 channels, or of as many as there are groups, and a weight."""
    def shapes(n: int) -> list[tuple[int, ...]]:
        (size, channels, *sides), = images(n)
        return [(size, channels, *sides), (filters, channels // groups, kernel, kernel)]
    return shapes


def arrays_of(number: int) -> Shapes:
    """So many arrays of the same size for each of twenty parameters."""
    return lambda n: [(max(1, n // 20),)] * (20 * number)


def six(F: Any, x: Any) -> Any:
    """Six calls in a row, in any package."""
    return F.tanh(F.exp(-(x * x)) * 0.5 + x)


def twenty(F: Any, x: Any) -> Any:
    """Twenty calls in a row, in any package."""
    y = x
    for _ in range(4):
        y = F.relu(F.tanh(y * x + 0.5) - 0.1)
    return y


def conv(F: Any, x: Any, w: Any, **given: Any) -> Any:
    """Call MXNet's Convolution without a bias, with padding that keeps the size."""
    pad = tuple(k // 2 for k in w.shape[2:])
    return F.Convolution(x, w, kernel=w.shape[2:], num_filter=w.shape[0], pad=pad, no_bias=True, **given)


def pool(F: Any, x: Any, kind: str, kernel: int, stride: int) -> Any:
    """Call MXNet's Pooling."""
    return F.Pooling(x, kernel=(kernel, kernel), stride=(stride, stride), pool_type=kind)


#: group, operator, shapes, with MXNet's names (F is mx.nd), in torch (F is torch) or None
TABLE: list[tuple[str, str, Shapes, Callable[..., Any], Callable[..., Any] | None]] = [
    ("elementwise", "exp", flat, lambda F, x: F.exp(x), lambda F, x: F.exp(x)),
    ("elementwise", "log", flat, lambda F, x: F.log(x), lambda F, x: F.log(x)),
    ("elementwise", "tanh", flat, lambda F, x: F.tanh(x), lambda F, x: F.tanh(x)),
    ("elementwise", "sigmoid", flat, lambda F, x: F.sigmoid(x), lambda F, x: F.sigmoid(x)),
    ("elementwise", "relu", flat, lambda F, x: F.relu(x), lambda F, x: F.relu(x)),
    ("elementwise", "sqrt", flat, lambda F, x: F.sqrt(x), lambda F, x: F.sqrt(x)),
    ("elementwise", "square", flat, lambda F, x: F.square(x), lambda F, x: F.square(x)),
    ("elementwise", "abs", flat, lambda F, x: F.abs(x), lambda F, x: F.abs(x)),
    ("elementwise", "erf", flat, lambda F, x: F.erf(x), lambda F, x: F.erf(x)),
    ("elementwise", "sin", flat, lambda F, x: F.sin(x), lambda F, x: F.sin(x)),
    ("elementwise", "clip", flat, lambda F, x: F.clip(x, 0.3, 0.8), lambda F, x: F.clamp(x, 0.3, 0.8)),
    ("elementwise", "smooth_l1", flat, lambda F, x: F.smooth_l1(x, scalar=1.0),
     lambda F, x: F.nn.functional.smooth_l1_loss(x, F.zeros_like(x), reduction="none")),
    ("elementwise", "add", two, lambda F, x, y: x + y, lambda F, x, y: x + y),
    ("elementwise", "mul", two, lambda F, x, y: x * y, lambda F, x, y: x * y),
    ("elementwise", "div", two, lambda F, x, y: x / y, lambda F, x, y: x / y),
    ("elementwise", "add scalar", flat, lambda F, x: x + 1.5, lambda F, x: x + 1.5),
    ("elementwise", "greater", two, lambda F, x, y: x > y, lambda F, x, y: (x > y).float()),
    ("elementwise", "where", two, lambda F, x, y: F.where(x, x, y), lambda F, x, y: F.where(x != 0, x, y)),
    ("broadcast", "add row", row, lambda F, x, y: F.broadcast_add(x, y), lambda F, x, y: x + y),
    ("broadcast", "mul column", column, lambda F, x, y: F.broadcast_mul(x, y), lambda F, x, y: x * y),
    ("broadcast", "maximum row", row, lambda F, x, y: F.broadcast_maximum(x, y), lambda F, x, y: F.maximum(x, y)),
    ("reduction", "sum", square, lambda F, x: F.sum(x), lambda F, x: F.sum(x)),
    ("reduction", "sum axis 0", square, lambda F, x: F.sum(x, axis=0), lambda F, x: F.sum(x, 0)),
    ("reduction", "sum axis 1", square, lambda F, x: F.sum(x, axis=1), lambda F, x: F.sum(x, 1)),
    ("reduction", "mean axis 1", square, lambda F, x: F.mean(x, axis=1), lambda F, x: F.mean(x, 1)),
    ("reduction", "max axis 1", square, lambda F, x: F.max(x, axis=1), lambda F, x: F.amax(x, 1)),
    ("softmax", "softmax", square, lambda F, x: F.softmax(x), lambda F, x: F.softmax(x, -1)),
    ("softmax", "log_softmax", square, lambda F, x: F.log_softmax(x), lambda F, x: F.log_softmax(x, -1)),
    ("normalisation", "LayerNorm", normed, lambda F, x, g, b: F.LayerNorm(x, g, b),
     lambda F, x, g, b: F.nn.functional.layer_norm(x, g.shape, g, b)),
    ("normalisation", "L2Normalization", square, lambda F, x: F.L2Normalization(x),
     lambda F, x: F.nn.functional.normalize(x)),
    ("indexing", "take", square, lambda F, x: F.take(x, F._bench_some(x)),
     lambda F, x: F.index_select(x, 0, F._bench_some(x))),
    ("indexing", "slice_axis", square, lambda F, x: F.slice_axis(x, axis=1, begin=1, end=-1),
     lambda F, x: x[:, 1:-1].contiguous()),
    ("indexing", "argmax", square, lambda F, x: F.argmax(x, axis=1), lambda F, x: F.argmax(x, 1)),
    ("indexing", "concat", square, lambda F, x: F.concat(x, x, dim=1), lambda F, x: F.cat((x, x), 1)),
    ("shape", "transpose", square, lambda F, x: F.transpose(x), lambda F, x: x.t().contiguous()),
    ("shape", "tile", square, lambda F, x: F.tile(x, (2, 1)), lambda F, x: x.repeat(2, 1)),
    ("dot", "dot", matrices, lambda F, x, y: F.dot(x, y), lambda F, x, y: x @ y),
    ("dot", "dot transposed", matrices, lambda F, x, y: F.dot(x, y, transpose_b=True), lambda F, x, y: x @ y.t()),
    ("pooling", "max pooling", images, lambda F, x: F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"),
     lambda F, x: F.nn.functional.max_pool2d(x, 2)),
    ("chain in a graph", "chain of 6", flat, lambda F, x: F._bench_chain(x), lambda F, x: F._bench_chain(x)),
    ("chain imperative", "chain of 6 calls", flat, six, six),
    ("chain imperative", "chain of 6 calls step", flat, lambda F, x: F._bench_step(lambda y: six(F, y), x),
     lambda F, x: F._bench_step(lambda y: six(F, y), x)),
    ("autograd", "20 small operators step", tiny, lambda F, x: F._bench_step(lambda y: twenty(F, y), x),
     lambda F, x: F._bench_step(lambda y: twenty(F, y), x)),
    ("softmax", "softmax step", square, lambda F, x: F._bench_step(F.softmax, x),
     lambda F, x: F._bench_step(lambda y: F.softmax(y, -1), x)),
    ("softmax", "softmax of 1000 step", scores, lambda F, x: F._bench_step(F.softmax, x),
     lambda F, x: F._bench_step(lambda y: F.softmax(y, -1), x)),
    ("softmax", "softmax axis 1 of 4", images, lambda F, x: F.softmax(x, axis=1), lambda F, x: F.softmax(x, 1)),
    ("softmax", "softmin", square, lambda F, x: F.softmin(x), lambda F, x: F.softmax(-x, -1)),
    ("softmax", "SoftmaxActivation", images, lambda F, x: F.SoftmaxActivation(x, mode="channel"),
     lambda F, x: F.softmax(x, 1)),
    ("softmax", "SoftmaxOutput step", classes, lambda F, x, t: F._bench_step(F.SoftmaxOutput, x, t),
     lambda F, x, t: F._bench_step(lambda y: F.nn.functional.cross_entropy(y, F._bench_numbers(t), reduction="sum"), x)),
    ("softmax", "softmax_cross_entropy", classes, lambda F, x, t: F.softmax_cross_entropy(x, t),
     lambda F, x, t: F.nn.functional.cross_entropy(x, F._bench_numbers(t), reduction="sum")),
    ("loss", "LinearRegressionOutput step", two, lambda F, x, t: F._bench_step(F.LinearRegressionOutput, x, t),
     lambda F, x, t: F._bench_step(lambda y: F.nn.functional.mse_loss(y, t, reduction="sum"), x)),
    ("loss", "LogisticRegressionOutput step", two, lambda F, x, t: F._bench_step(F.LogisticRegressionOutput, x, t),
     lambda F, x, t: F._bench_step(lambda y: F.nn.functional.binary_cross_entropy_with_logits(y, t, reduction="sum"), x)),
    ("loss", "SVMOutput step", classes, lambda F, x, t: F._bench_step(F.SVMOutput, x, t),
     lambda F, x, t: F._bench_step(lambda y: F.nn.functional.multi_margin_loss(y, F._bench_numbers(t), p=2, reduction="sum"), x)),
    ("normalisation", "LayerNorm step", normed, lambda F, x, g, b: F._bench_step(F.LayerNorm, x, g, b),
     lambda F, x, g, b: F._bench_step(lambda y: F.nn.functional.layer_norm(y, g.shape, g, b), x)),
    ("normalisation", "BatchNorm", moving, lambda F, *a: F.BatchNorm(*a),
     lambda F, x, g, b, m, v: F.nn.functional.batch_norm(x, m, v, g, b)),
    ("normalisation", "BatchNorm step", moving, lambda F, *a: F._bench_step(F.BatchNorm, *a),
     lambda F, x, g, b, m, v: F._bench_step(lambda y: F.nn.functional.batch_norm(y, m, v, g, b, True), x)),
    ("normalisation", "InstanceNorm", scaled, lambda F, x, g, b: F.InstanceNorm(x, g, b),
     lambda F, x, g, b: F.nn.functional.instance_norm(x, weight=g, bias=b)),
    ("normalisation", "InstanceNorm step", scaled, lambda F, x, g, b: F._bench_step(F.InstanceNorm, x, g, b),
     lambda F, x, g, b: F._bench_step(lambda y: F.nn.functional.instance_norm(y, weight=g, bias=b), x)),
    ("normalisation", "GroupNorm", images, lambda F, x: F.GroupNorm(x, F._bench_ones(4), F._bench_ones(4), num_groups=4),
     lambda F, x: F.nn.functional.group_norm(x, 4, F._bench_ones(16), F._bench_ones(16))),
    ("normalisation", "L2Normalization channel", images, lambda F, x: F.L2Normalization(x, mode="channel"),
     lambda F, x: F.nn.functional.normalize(x, dim=1)),
    ("normalisation", "LRN", images, lambda F, x: F.LRN(x, nsize=5), lambda F, x: F.nn.functional.local_response_norm(x, 5)),
    ("normalisation", "LRN step", images, lambda F, x: F._bench_step(lambda y: F.LRN(y, nsize=5), x),
     lambda F, x: F._bench_step(lambda y: F.nn.functional.local_response_norm(y, 5), x)),
    ("activation", "LeakyReLU", flat, lambda F, x: F.LeakyReLU(x), lambda F, x: F.nn.functional.leaky_relu(x, 0.25)),
    ("activation", "prelu step", images,
     lambda F, x: F._bench_step(lambda y: F.LeakyReLU(y, F._bench_ones(16), act_type="prelu"), x),
     lambda F, x: F._bench_step(lambda y: F.prelu(y, F._bench_ones(16)), x)),
    ("activation", "gelu", flat, lambda F, x: F.LeakyReLU(x, act_type="gelu"), lambda F, x: F.nn.functional.gelu(x)),
    ("dropout", "Dropout step", flat, lambda F, x: F._bench_step(lambda y: F.Dropout(y, p=0.5), x),
     lambda F, x: F._bench_step(lambda y: F.dropout(y, 0.5, True), x)),
    ("indexing", "take step", square, lambda F, x: F._bench_step(lambda y: F.take(y, F._bench_some(x)), x),
     lambda F, x: F._bench_step(lambda y: F.index_select(y, 0, F._bench_some(x)), x)),
    ("indexing", "Embedding step", square, lambda F, x: F._bench_step(
        lambda w: F.Embedding(F._bench_some(x), w, input_dim=x.shape[0], output_dim=x.shape[1]), x),
     lambda F, x: F._bench_step(lambda w: F.nn.functional.embedding(F._bench_some(x), w), x)),
    ("indexing", "pick", classes, lambda F, x, t: F.pick(x, t), lambda F, x, t: F.gather(x, 1, F._bench_numbers(t)[:, None])),
    ("indexing", "pick step", classes, lambda F, x, t: F._bench_step(F.pick, x, t),
     lambda F, x, t: F._bench_step(lambda y: F.gather(y, 1, F._bench_numbers(t)[:, None]), x)),
    ("indexing", "one_hot", lambda n: [(max(1, n // 64),)], lambda F, x: F.one_hot(x, depth=64),
     lambda F, x: F.nn.functional.one_hot(F._bench_numbers(x), 64).float()),
    ("indexing", "where step", two, lambda F, x, y: F._bench_step(F.where, x, x, y),
     lambda F, x, y: F._bench_step(lambda z: F.where(x != 0, z, y), x)),
    ("indexing", "gather_nd", square, lambda F, x: F.gather_nd(x, F.reshape(F._bench_some(x), (1, -1))),
     lambda F, x: x[F._bench_some(x)]),
    ("indexing", "gather_nd step", square,
     lambda F, x: F._bench_step(lambda y: F.gather_nd(y, F.reshape(F._bench_some(x), (1, -1))), x),
     lambda F, x: F._bench_step(lambda y: y[F._bench_some(x)], x)),
    ("indexing", "take wrap", square, lambda F, x: F.take(x, F._bench_some(x), mode="wrap"), None),
    ("indexing", "unravel_index", flat, lambda F, x: F._unravel_index(x, shape=(7, 3)), None),
    ("indexing", "scatter_nd", square,
     lambda F, x: F.scatter_nd(x, F.reshape(F._bench_some(x), (1, -1)), shape=x.shape), None),
    ("indexing", "index_copy", square, lambda F, x: F._contrib_index_copy(x, F._bench_some(x), x),
     lambda F, x: F.index_copy(x, 0, F._bench_some(x), x)),
    ("indexing", "SequenceMask", sequences, lambda F, x, t: F.SequenceMask(x, t * 16, use_sequence_length=True), None),
    ("indexing", "SequenceLast", sequences, lambda F, x, t: F.SequenceLast(x, t * 15 + 1, use_sequence_length=True), None),
    ("indexing", "SequenceReverse", sequences, lambda F, x, t: F.SequenceReverse(x, t * 15 + 1, use_sequence_length=True), None),
    ("indexing", "sort", square, lambda F, x: F.sort(x), lambda F, x: F.sort(x)[0]),
    ("indexing", "topk", square, lambda F, x: F.topk(x, k=4), lambda F, x: F.topk(x, 4)[1]),
    ("indexing", "argmax axis 0", square, lambda F, x: F.argmax(x, axis=0), lambda F, x: F.argmax(x, 0)),
    ("indexing", "cumsum", square, lambda F, x: F._np_cumsum(x, axis=1), lambda F, x: F.cumsum(x, 1)),
    ("indexing", "histogram", flat, lambda F, x: F._histogram(x, bin_cnt=10, range=(0, 1))[0],
     lambda F, x: F.histc(x, 10, 0, 1)),
    ("shape", "reverse", square, lambda F, x: F.reverse(x, axis=1), lambda F, x: F.flip(x, (1,))),
    ("shape", "repeat", square, lambda F, x: F.repeat(x, repeats=2, axis=1), lambda F, x: F.repeat_interleave(x, 2, 1)),
    ("shape", "stack", two, lambda F, x, y: F.stack(x, y, axis=1), lambda F, x, y: F.stack((x, y), 1)),
    ("shape", "split", square, lambda F, x: F.split(x, num_outputs=2, axis=1)[0],
     lambda F, x: tuple(part.contiguous() for part in F.chunk(x, 2, 1))),
    ("shape", "slice step", square, lambda F, x: F._bench_step(lambda y: F.slice(y, begin=(1, 1), end=(-1, -1)), x),
     lambda F, x: F._bench_step(lambda y: y[1:-1, 1:-1].contiguous(), x)),
    ("shape", "broadcast_to", lambda n: [(1, max(1, n // 16))], lambda F, x: F.broadcast_to(x, shape=(16, x.shape[1])),
     lambda F, x: x.expand(16, -1).contiguous()),
    ("shape", "Cast", flat, lambda F, x: F.Cast(x, dtype="float16"), lambda F, x: x.half()),
    ("shape", "depth_to_space", images, lambda F, x: F.depth_to_space(x, block_size=2), lambda F, x: F.pixel_shuffle(x, 2)),
    ("shape", "zeros", flat, lambda F, x: F.zeros(x.shape), lambda F, x: F.zeros(x.shape)),
    ("shape", "arange", flat, lambda F, x: F.arange(x.shape[0]), lambda F, x: F.arange(x.shape[0], dtype=F.float32)),
    ("shape", "eye", square, lambda F, x: F.eye(x.shape[0], x.shape[1]), lambda F, x: F.eye(*x.shape)),
    ("shape", "diag", square, lambda F, x: F.diag(x), lambda F, x: F.diag(x)),
    ("image", "Pad", images, lambda F, x: F.Pad(x, mode="reflect", pad_width=(0, 0, 0, 0, 1, 1, 1, 1)),
     lambda F, x: F.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect")),
    ("image", "Pad edge step", images, lambda F, x: F._bench_step(
        lambda y: F.Pad(y, mode="edge", pad_width=(0, 0, 0, 0, 1, 1, 1, 1)), x),
     lambda F, x: F._bench_step(lambda y: F.nn.functional.pad(y, (1, 1, 1, 1), mode="replicate"), x)),
    ("image", "UpSampling step", images,
     lambda F, x: F._bench_step(lambda y: F.UpSampling(y, scale=2, sample_type="nearest"), x),
     lambda F, x: F._bench_step(lambda y: F.nn.functional.interpolate(y, scale_factor=2), x)),
    ("image", "BilinearResize2D", images, lambda F, x: F._contrib_BilinearResize2D(x, height=24, width=24),
     lambda F, x: F.nn.functional.interpolate(x, size=24, mode="bilinear", align_corners=True)),
    ("image", "BilinearResize2D step", images,
     lambda F, x: F._bench_step(lambda y: F._contrib_BilinearResize2D(y, height=24, width=24), x),
     lambda F, x: F._bench_step(lambda y: F.nn.functional.interpolate(y, size=24, mode="bilinear", align_corners=True), x)),
    ("image", "AdaptiveAvgPooling2D", images, lambda F, x: F._contrib_AdaptiveAvgPooling2D(x, output_size=(2, 2)),
     lambda F, x: F.nn.functional.adaptive_avg_pool2d(x, 2)),
    ("image", "Pooling_v1", images, lambda F, x: F.Pooling_v1(x, kernel=(2, 2), stride=(2, 2), pool_type="max"), None),
    ("image", "image resize", photograph, lambda F, x: F._image_resize(x, size=(32, 32)), None),
    ("image", "image flip", photograph, lambda F, x: F._image_flip_left_right(x), None),
    ("image", "image normalize", photograph, lambda F, x: F._image_normalize(
        F.transpose(x, (2, 0, 1)), mean=(0.1, 0.2, 0.3), std=(1, 2, 3)), None),
    ("image", "image adjust_lighting", photograph, lambda F, x: F._image_adjust_lighting(x, alpha=(0.1, 0.2, 0.3)), None),
    ("image", "image random_hue", photograph, lambda F, x: F._image_random_hue(x, min_factor=0.5, max_factor=1.5), None),
    ("vision", "ROIPooling", regions, lambda F, x, r: F.ROIPooling(x, r * 31, pooled_size=(4, 4), spatial_scale=1.0), None),
    ("vision", "ROIAlign", regions,
     lambda F, x, r: F._contrib_ROIAlign(x, r * 31, pooled_size=(4, 4), spatial_scale=1.0, sample_ratio=2), None),
    ("vision", "ROIAlign step", regions, lambda F, x, r: F._bench_step(
        lambda y: F._contrib_ROIAlign(y, r * 31, pooled_size=(4, 4), spatial_scale=1.0, sample_ratio=2), x), None),
    ("vision", "BilinearSampler", images, lambda F, x: F.BilinearSampler(x, F._bench_grid(x)), None),
    ("vision", "box_iou", boxes, lambda F, x, y: F._contrib_box_iou(x, y), None),
    ("vision", "box_nms", lambda n: [(min(512, max(8, n // 64)), 6)], lambda F, x: F._contrib_box_nms(x), None),
    ("vision", "MultiBoxPrior", images, lambda F, x: F._contrib_MultiBoxPrior(x, sizes=(0.3, 0.5), ratios=(1, 2)), None),
    ("quantisation", "quantize", flat,
     lambda F, x: F._contrib_quantize_v2(x, min_calib_range=-1.0, max_calib_range=1.0)[0], None),
    ("quantisation", "dequantize", flat,
     lambda F, x: F._contrib_dequantize(F._bench_bytes(x), F._bench_ones(1) * -1, F._bench_ones(1)), None),
    ("quantisation", "quantize uncalibrated", flat, lambda F, x: F._contrib_quantize_v2(x)[0], None),
    ("quantisation", "requantize", flat, lambda F, x: F._contrib_requantize(
        F._bench_sums(x), F._bench_ones(1) * -1, F._bench_ones(1))[0], None),
    ("quantisation", "requantize calibrated", flat, lambda F, x: F._contrib_requantize(
        F._bench_sums(x), F._bench_ones(1) * -1, F._bench_ones(1), min_calib_range=-1.0, max_calib_range=1.0)[0], None),
    ("contrib", "count_sketch", square,
     lambda F, x: F._contrib_count_sketch(x, F._bench_ones(x.shape[1]), F._bench_ones(x.shape[1]), out_dim=8), None),
    ("contrib", "index_array", square, lambda F, x: F._contrib_index_array(x), None),
    ("contrib", "fft", square, lambda F, x: F._contrib_fft(x), None),
    ("contrib", "CTCLoss", lambda n: [(16, max(1, n // 512), 32)],
     lambda F, x: F.CTCLoss(x, F._bench_ones(x.shape[1], 4)), None),
    ("random", "uniform", flat, lambda F, x: F._random_uniform(shape=x.shape), lambda F, x: F.rand(x.shape)),
    ("random", "normal", flat, lambda F, x: F._random_normal(shape=x.shape), lambda F, x: F.randn(x.shape)),
    ("random", "gamma", lambda n: [(max(1, n // 16),)], lambda F, x: F._random_gamma(alpha=2.0, beta=1.0, shape=x.shape),
     lambda F, x: F._standard_gamma(F._bench_ones(*x.shape) * 2)),
    ("random", "shuffle", square, lambda F, x: F._shuffle(x), lambda F, x: x[F.randperm(x.shape[0])]),
    ("pooling", "max pooling step", images, lambda F, x: F._bench_step(lambda y: pool(F, y, "max", 2, 2), x),
     lambda F, x: F._bench_step(lambda y: F.nn.functional.max_pool2d(y, 2), x)),
    ("pooling", "max pooling 3", images, lambda F, x: pool(F, x, "max", 3, 2), lambda F, x: F.nn.functional.max_pool2d(x, 3, 2)),
    ("pooling", "average pooling", images, lambda F, x: pool(F, x, "avg", 2, 2), lambda F, x: F.nn.functional.avg_pool2d(x, 2)),
    ("pooling", "average pooling step", images, lambda F, x: F._bench_step(lambda y: pool(F, y, "avg", 2, 2), x),
     lambda F, x: F._bench_step(lambda y: F.nn.functional.avg_pool2d(y, 2), x)),
    ("pooling", "global average", images, lambda F, x: F.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg"),
     lambda F, x: F.nn.functional.adaptive_avg_pool2d(x, 1)),
    ("pooling", "global average step", images,
     lambda F, x: F._bench_step(lambda y: F.Pooling(y, global_pool=True, kernel=(1, 1), pool_type="avg"), x),
     lambda F, x: F._bench_step(lambda y: F.nn.functional.adaptive_avg_pool2d(y, 1), x)),
    ("convolution", "convolution 3 of 16", filtered(16, 3), conv, lambda F, x, w: F.conv2d(x, w, padding=1)),
    ("convolution", "convolution 3 of 16 step", filtered(16, 3),
     lambda F, x, w: F._bench_step(lambda y, v: conv(F, y, v), x, w, wanted=2),
     lambda F, x, w: F._bench_step(lambda y, v: F.conv2d(y, v, padding=1), x, w, wanted=2)),
    ("convolution", "convolution 1 of 16", filtered(64, 1), conv, lambda F, x, w: F.conv2d(x, w)),
    ("convolution", "convolution 5 of 16", filtered(32, 5), conv, lambda F, x, w: F.conv2d(x, w, padding=2)),
    ("convolution", "convolution stride 2", filtered(32, 3), lambda F, x, w: conv(F, x, w, stride=(2, 2)),
     lambda F, x, w: F.conv2d(x, w, padding=1, stride=2)),
    ("convolution", "convolution of each channel", filtered(16, 3, 16), lambda F, x, w: conv(F, x, w, num_group=16),
     lambda F, x, w: F.conv2d(x, w, padding=1, groups=16)),
    ("convolution", "convolution of each channel step", filtered(16, 3, 16),
     lambda F, x, w: F._bench_step(lambda y, v: conv(F, y, v, num_group=16), x, w, wanted=2),
     lambda F, x, w: F._bench_step(lambda y, v: F.conv2d(y, v, padding=1, groups=16), x, w, wanted=2)),
    ("convolution", "convolution 64 of 56 x 56", only((8, 64, 56, 56), (64, 64, 3, 3)), conv,
     lambda F, x, w: F.conv2d(x, w, padding=1)),
    ("convolution", "convolution 64 of 56 x 56 step", only((8, 64, 56, 56), (64, 64, 3, 3)),
     lambda F, x, w: F._bench_step(lambda y, v: conv(F, y, v), x, w, wanted=2),
     lambda F, x, w: F._bench_step(lambda y, v: F.conv2d(y, v, padding=1), x, w, wanted=2)),
    ("dot", "64 x 784 x 512", only((64, 784), (512, 784)), lambda F, x, w: F.dot(x, w, transpose_b=True),
     lambda F, x, w: F.nn.functional.linear(x, w)),
    ("dot", "FullyConnected step", only((64, 784), (512, 784)),
     lambda F, x, w: F._bench_step(lambda y, v: F.FullyConnected(y, v, num_hidden=512, no_bias=True), x, w, wanted=2),
     lambda F, x, w: F._bench_step(lambda y, v: F.nn.functional.linear(y, v), x, w, wanted=2)),
    ("dot", "1024 cubed", only((1024, 1024), (1024, 1024)), lambda F, x, y: F.dot(x, y), lambda F, x, y: x @ y),
    ("dot", "batch_dot", only((64, 128, 64), (64, 64, 128)), lambda F, x, y: F.batch_dot(x, y), lambda F, x, y: F.bmm(x, y)),
    ("dot", "matrix and vector", only((2048, 2048), (2048,)), lambda F, x, y: F.dot(x, y), lambda F, x, y: F.mv(x, y)),
    ("update", "sgd_update", two, lambda F, w, g: F.sgd_update(w, g, lr=0.01, out=w),
     lambda F, w, g: F._bench_update("SGD", [w], [g])),
    ("update", "sgd_mom_update", lambda n: [(n,)] * 3,
     lambda F, w, g, m: F.sgd_mom_update(w, g, m, lr=0.01, momentum=0.9, out=w),
     lambda F, w, g, m: F._bench_update("SGD", [w], [g], momentum=0.9)),
    ("update", "adam_update", lambda n: [(n,)] * 4, lambda F, w, g, m, v: F.adam_update(w, g, m, v, lr=0.01, out=w),
     lambda F, w, g, m, v: F._bench_update("Adam", [w], [g])),
    ("update", "sgd_mom_update of 20 arrays", arrays_of(3), lambda F, *a: F._bench_multi(a),
     lambda F, *a: F._bench_update("SGD", a[::3], a[1::3], momentum=0.9)),
]
