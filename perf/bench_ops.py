"""A hundred operators at three sizes, beside MXNet and torch, or another state of Tritium, on the CPU with two threads each.

    python perf/bench_ops.py [--mxnet PYTHON] [--torch PYTHON] [--only NAME ...] [--pairs 3]
    python perf/bench_ops.py --base FOLDER [--only NAME ...] [--size small]

JSON lines: seconds per call of each operator and package; then how many times as fast as each peer, by operator; then
the geometric mean by group. Each call waits for its result. Peers run in turn with ours. Names that end in "step" are a
forward and a backward. Torch takes part where it has the same function. With --base two processes take turns within each
operator and size, so that a busy machine slows both alike; the ratios are those of their best turns, by the clock and in
processor time, which counts the work of all threads and not how they waited for processors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common

SIZES = {"small": 1 << 10, "medium": 1 << 17, "large": 1 << 22}  # elements of the largest array
ROUNDS = 5
ROUND = 0.1  # seconds that a round takes at most, unless one call takes longer
TURN, TURNS, TAKEN = 0.004, (8, 50), 0.3  # beside another state of Tritium: seconds of a turn, of how many, seconds of all

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
    ("indexing", "take", square, lambda F, x: F.take(x, F._bench_index[x.shape[0]]),
     lambda F, x: F.index_select(x, 0, F._bench_index[x.shape[0]])),
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
    ("fused chain", "chain of 6", flat, lambda F, x: F._bench_chain(x),
     lambda F, x: F.tanh(F.exp(-(x * x)) * 0.5 + x) * 2),
    ("softmax", "softmax step", square, lambda F, x: F._bench_step(F.softmax, x), None),
    ("softmax", "softmax of 1000 step", scores, lambda F, x: F._bench_step(F.softmax, x), None),
    ("softmax", "softmax axis 1 of 4", images, lambda F, x: F.softmax(x, axis=1), None),
    ("softmax", "softmin", square, lambda F, x: F.softmin(x), None),
    ("softmax", "SoftmaxActivation", images, lambda F, x: F.SoftmaxActivation(x, mode="channel"), None),
    ("softmax", "SoftmaxOutput step", classes, lambda F, x, t: F._bench_step(F.SoftmaxOutput, x, t), None),
    ("softmax", "softmax_cross_entropy", classes, lambda F, x, t: F.softmax_cross_entropy(x, t), None),
    ("loss", "LinearRegressionOutput step", two, lambda F, x, t: F._bench_step(F.LinearRegressionOutput, x, t), None),
    ("loss", "LogisticRegressionOutput step", two, lambda F, x, t: F._bench_step(F.LogisticRegressionOutput, x, t), None),
    ("loss", "SVMOutput step", classes, lambda F, x, t: F._bench_step(F.SVMOutput, x, t), None),
    ("normalisation", "LayerNorm step", normed, lambda F, x, g, b: F._bench_step(F.LayerNorm, x, g, b), None),
    ("normalisation", "BatchNorm", moving, lambda F, *a: F.BatchNorm(*a), None),
    ("normalisation", "BatchNorm step", moving, lambda F, *a: F._bench_step(F.BatchNorm, *a), None),
    ("normalisation", "InstanceNorm", scaled, lambda F, x, g, b: F.InstanceNorm(x, g, b), None),
    ("normalisation", "InstanceNorm step", scaled, lambda F, x, g, b: F._bench_step(F.InstanceNorm, x, g, b), None),
    ("normalisation", "GroupNorm", images, lambda F, x: F.GroupNorm(x, F._bench_ones(4), F._bench_ones(4), num_groups=4), None),
    ("normalisation", "L2Normalization channel", images, lambda F, x: F.L2Normalization(x, mode="channel"), None),
    ("normalisation", "LRN", images, lambda F, x: F.LRN(x, nsize=5), None),
    ("normalisation", "LRN step", images, lambda F, x: F._bench_step(lambda y: F.LRN(y, nsize=5), x), None),
    ("activation", "LeakyReLU", flat, lambda F, x: F.LeakyReLU(x), None),
    ("activation", "prelu step", images,
     lambda F, x: F._bench_step(lambda y: F.LeakyReLU(y, F._bench_ones(16), act_type="prelu"), x), None),
    ("activation", "gelu", flat, lambda F, x: F.LeakyReLU(x, act_type="gelu"), None),
    ("activation", "Dropout step", flat, lambda F, x: F._bench_step(lambda y: F.Dropout(y, p=0.5), x), None),
    ("indexing", "take step", square, lambda F, x: F._bench_step(lambda y: F.take(y, F._bench_some(x)), x), None),
    ("indexing", "Embedding step", square, lambda F, x: F._bench_step(
        lambda w: F.Embedding(F._bench_some(x), w, input_dim=x.shape[0], output_dim=x.shape[1]), x), None),
    ("indexing", "pick", classes, lambda F, x, t: F.pick(x, t), None),
    ("indexing", "pick step", classes, lambda F, x, t: F._bench_step(F.pick, x, t), None),
    ("indexing", "one_hot", lambda n: [(max(1, n // 64),)], lambda F, x: F.one_hot(x, depth=64), None),
    ("indexing", "where step", two, lambda F, x, y: F._bench_step(F.where, x, x, y), None),
    ("indexing", "gather_nd", square, lambda F, x: F.gather_nd(x, F.reshape(F._bench_some(x), (1, -1))), None),
    ("indexing", "gather_nd step", square,
     lambda F, x: F._bench_step(lambda y: F.gather_nd(y, F.reshape(F._bench_some(x), (1, -1))), x), None),
    ("indexing", "take wrap", square, lambda F, x: F.take(x, F._bench_some(x), mode="wrap"), None),
    ("indexing", "unravel_index", flat, lambda F, x: F._unravel_index(x, shape=(7, 3)), None),
    ("indexing", "scatter_nd", square,
     lambda F, x: F.scatter_nd(x, F.reshape(F._bench_some(x), (1, -1)), shape=x.shape), None),
    ("indexing", "index_copy", square, lambda F, x: F._contrib_index_copy(x, F._bench_some(x), x), None),
    ("indexing", "SequenceMask", sequences, lambda F, x, t: F.SequenceMask(x, t * 16, use_sequence_length=True), None),
    ("indexing", "SequenceLast", sequences, lambda F, x, t: F.SequenceLast(x, t * 15 + 1, use_sequence_length=True), None),
    ("indexing", "SequenceReverse", sequences, lambda F, x, t: F.SequenceReverse(x, t * 15 + 1, use_sequence_length=True), None),
    ("indexing", "sort", square, lambda F, x: F.sort(x), None),
    ("indexing", "topk", square, lambda F, x: F.topk(x, k=4), None),
    ("indexing", "argmax axis 0", square, lambda F, x: F.argmax(x, axis=0), None),
    ("indexing", "cumsum", square, lambda F, x: F._np_cumsum(x, axis=1), None),
    ("indexing", "histogram", flat, lambda F, x: F._histogram(x, bin_cnt=10, range=(0, 1))[0], None),
    ("shape", "reverse", square, lambda F, x: F.reverse(x, axis=1), None),
    ("shape", "repeat", square, lambda F, x: F.repeat(x, repeats=2, axis=1), None),
    ("shape", "stack", two, lambda F, x, y: F.stack(x, y, axis=1), None),
    ("shape", "split", square, lambda F, x: F.split(x, num_outputs=2, axis=1)[0], None),
    ("shape", "slice step", square, lambda F, x: F._bench_step(lambda y: F.slice(y, begin=(1, 1), end=(-1, -1)), x), None),
    ("shape", "broadcast_to", lambda n: [(1, max(1, n // 16))], lambda F, x: F.broadcast_to(x, shape=(16, x.shape[1])), None),
    ("shape", "Cast", flat, lambda F, x: F.Cast(x, dtype="float16"), None),
    ("shape", "depth_to_space", images, lambda F, x: F.depth_to_space(x, block_size=2), None),
    ("shape", "zeros", flat, lambda F, x: F.zeros(x.shape), None),
    ("shape", "arange", flat, lambda F, x: F.arange(x.shape[0]), None),
    ("shape", "eye", square, lambda F, x: F.eye(x.shape[0], x.shape[1]), None),
    ("shape", "diag", square, lambda F, x: F.diag(x), None),
    ("image", "Pad", images, lambda F, x: F.Pad(x, mode="reflect", pad_width=(0, 0, 0, 0, 1, 1, 1, 1)), None),
    ("image", "Pad edge step", images, lambda F, x: F._bench_step(
        lambda y: F.Pad(y, mode="edge", pad_width=(0, 0, 0, 0, 1, 1, 1, 1)), x), None),
    ("image", "UpSampling step", images,
     lambda F, x: F._bench_step(lambda y: F.UpSampling(y, scale=2, sample_type="nearest"), x), None),
    ("image", "BilinearResize2D", images, lambda F, x: F._contrib_BilinearResize2D(x, height=24, width=24), None),
    ("image", "BilinearResize2D step", images,
     lambda F, x: F._bench_step(lambda y: F._contrib_BilinearResize2D(y, height=24, width=24), x), None),
    ("image", "AdaptiveAvgPooling2D", images, lambda F, x: F._contrib_AdaptiveAvgPooling2D(x, output_size=(2, 2)), None),
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
    ("random", "uniform", flat, lambda F, x: F._random_uniform(shape=x.shape), None),
    ("random", "normal", flat, lambda F, x: F._random_normal(shape=x.shape), None),
    ("random", "gamma", lambda n: [(max(1, n // 16),)], lambda F, x: F._random_gamma(alpha=2.0, beta=1.0, shape=x.shape), None),
    ("random", "shuffle", square, lambda F, x: F._shuffle(x), None),
]


def tritium() -> tuple[Any, Any, Callable[[], None], Callable[[Any], Any]]:
    import tritium as mx
    from tritium.kernels.ir import lang

    @mx.simple_op(name="_bench_chain", replace=True)
    def chain(x: Any) -> Any:
        return lang.tanh(lang.exp(-(x * x)) * 0.5 + x) * 2

    _help(mx)
    return mx.nd, mx.nd.array, mx.nd.waitall, lambda y: y.wait_to_read()


def _help(mx: Any) -> None:
    """Give mx.nd what the cases call: a forward and a backward, and arrays that are made once."""
    def step(function: Callable[..., Any], *arrays: Any) -> Any:
        if arrays[0].grad is None:
            arrays[0].attach_grad()
        with mx.autograd.record():
            y = function(*arrays)
        (y[0] if isinstance(y, (list, tuple)) else y).backward()
        return arrays[0].grad

    made: dict[Any, Any] = {}

    def once(key: Any, make: Callable[[], Any]) -> Any:
        if key not in made:
            made[key] = make()
        return made[key]

    mx.nd._bench_index = {}
    mx.nd._bench_step = step
    mx.nd._bench_ones = lambda *shape: once(shape, lambda: mx.nd.ones(shape))
    mx.nd._bench_some = lambda x: once(("some", x.shape[0]), lambda: mx.nd.array([7 * i % x.shape[0] for i in range(x.shape[0])]))
    mx.nd._bench_grid = lambda x: once(("grid", x.shape), lambda: mx.nd.ones((x.shape[0], 2, *x.shape[2:])) * 0.3)
    mx.nd._bench_bytes = lambda x: once(("bytes", x.shape), lambda: mx.nd.ones(x.shape, dtype="int8"))
    mx.nd._bench_sums = lambda x: once(("sums", x.shape), lambda: mx.nd.ones(x.shape, dtype="int32") * 1000)


def mxnet() -> tuple[Any, Any, Callable[[], None], Callable[[Any], Any]]:
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    import mxnet as mx  # type: ignore[import-not-found]

    _help(mx)
    mx.nd._bench_chain = lambda x: mx.nd.tanh(mx.nd.exp(-(x * x)) * 0.5 + x) * 2
    return mx.nd, mx.nd.array, mx.nd.waitall, lambda y: y.wait_to_read()


def torch() -> tuple[Any, Any, Callable[[], None], Callable[[Any], Any]]:
    import torch  # type: ignore[import-not-found]

    torch.set_num_threads(2)
    torch._bench_index = {}
    return torch, torch.tensor, lambda: None, lambda y: y


def numpy() -> tuple[Any, Any, Callable[[], None], Callable[[Any], Any]]:
    """NumPy's own products, with BLAS on two threads: the upper bound for `dot`."""
    os.environ["OPENBLAS_NUM_THREADS"] = "2"
    import numpy as np

    return SimpleNamespace(dot=lambda x, y, transpose_b=False: np.dot(x, y.T if transpose_b else y)), np.asarray, \
        lambda: None, lambda y: y


PACKAGES = {f.__name__: f for f in (tritium, mxnet, torch, numpy)}


def cases(package: str, only: list[str], sizes: list[str]) -> Iterator[
        tuple[dict[str, str], Callable[[], None], Callable[[], None], int]]:
    """Yield the names of each operator and size, a call that waits for its result, what waits for all, and the most calls
    of a round. only: operators and groups; sizes: names of SIZES; of both, none for all."""
    F, array, finish, wait = PACKAGES[package]()
    import numpy as np

    rng = np.random.default_rng(0)
    for group, name, shapes, ours, torchs in TABLE:
        function = torchs if package == "torch" else ours
        if function is None or (only and name not in only and group not in only):
            continue
        for size, n in SIZES.items():
            if sizes and size not in sizes:
                continue
            arrays = [array(rng.uniform(0.1, 1, s).astype("float32")) for s in shapes(n)]
            if name == "take":
                index = rng.integers(0, arrays[0].shape[0], arrays[0].shape[0])
                F._bench_index[arrays[0].shape[0]] = array(index if package == "torch" else index.astype("float32"))

            def call(f: Callable[..., Any] = function, a: list[Any] = arrays) -> None:
                wait(f(F, *a))

            yield {"group": group, "op": name, "size": size}, call, finish, max(3, min(400, (1 << 22) // n))


def measure(package: str, only: list[str], sizes: list[str]) -> list[dict[str, Any]]:
    """Print and return one line per operator and size, of one package in this process."""
    lines = []
    for names, call, finish, most in cases(package, only, sizes):
        try:
            (once,) = common.rounds_of(call, calls=1, rounds=1, warmup=1, finish=finish)
            seconds = common.rounds_of(call, calls=max(1, min(most, int(ROUND / once))), rounds=ROUNDS, warmup=1, finish=finish)
        except Exception as e:
            common.say({"bench": "ops", **names, "package": package, "error": str(e)[:200]})
            continue
        lines.append(common.emit("ops", seconds, **names, package=package))
    return lines


# ---- two states of Tritium, in turn -------------------------------------------------------------------------------------
def serve(only: list[str], sizes: list[str]) -> None:
    """Answer orders from standard input: "next", or a number of calls to time. Answers are JSON."""
    every = cases("tritium", only, sizes)
    call, finish = None, None
    for order in sys.stdin:
        try:
            if order.strip() == "next":
                names, call, finish, most = next(every)
                call()
                (once,) = common.rounds_of(call, calls=1, rounds=1, warmup=1, finish=finish)
                answer = {**names, "calls": max(1, min(most, int(TURN / once))), "once": once}
            else:
                call()
                finish()
                begun = time.process_time()
                (seconds,) = common.rounds_of(call, calls=int(order), rounds=1, warmup=0, finish=finish)
                answer = {"seconds": seconds, "cpu_seconds": (time.process_time() - begun) / int(order)}
        except StopIteration:
            answer = {"end": True}
        except Exception as e:
            answer = {**names, "error": str(e)[:200]}
        print(json.dumps(answer), flush=True)


def compare(base: str, chosen: list[str]) -> None:
    """Print how many times as fast this state is as the one in the folder base: a process of each, which take turns of calls.

    chosen: the arguments that choose operators and sizes.
    """
    if not (Path(base) / "tritium" / "__init__.py").is_file():
        raise SystemExit(f"bench_ops: {base} has no folder tritium with another state of it. Name the folder around it.")

    def start(folder: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, __file__, "--serve", *chosen], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": folder})

    workers = {"tritium": start(str(Path(__file__).resolve().parents[2])), "base": start(base)}

    def ask(name: str, order: str) -> dict[str, Any]:
        stdin, stdout = workers[name].stdin, workers[name].stdout
        assert stdin is not None and stdout is not None
        stdin.write(order + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    by_group: dict[str, list[float]] = {}
    while True:
        found = {name: ask(name, "next") for name in workers}
        if any("end" in f for f in found.values()):
            break
        wrong = {name: f["error"] for name, f in found.items() if "error" in f}
        names = {k: found["tritium"][k] for k in ("group", "op", "size")}
        if wrong:
            common.say({"bench": "ops", **names, "errors": wrong})
            continue
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
        each = max(TURN, *(f["once"] for f in found.values()))
        for _ in range(max(TURNS[0], min(TURNS[1], int(TAKEN / each)))):
            for name in workers:
                turns[name].append(ask(name, str(found[name]["calls"])))
        ours, theirs = (min(t["seconds"] for t in turns[name]) for name in ("tritium", "base"))
        ours_cpu, theirs_cpu = (min(t["cpu_seconds"] for t in turns[name]) for name in ("tritium", "base"))
        by_group.setdefault(names["group"], []).append(theirs / ours)
        common.say({"bench": "ops", **names, "best_s": float(f"{ours:.4g}"), "base_best_s": float(f"{theirs:.4g}"),
                    "times_as_fast_as": "base", "ratio_of_best": float(f"{theirs / ours:.3g}"),
                    "ratio_of_cpu": float(f"{theirs_cpu / max(ours_cpu, 1e-9):.3g}"), "rounds": len(turns["base"])})
    for worker in workers.values():
        worker.communicate()
    say_means(by_group, "base")


def say_means(by_group: dict[str, list[float]], package: str) -> None:
    """Print the geometric mean of the ratios of each group."""
    for group, ratios in by_group.items():
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        common.say({"bench": "ops", "group": group, "geometric_mean_times_as_fast_as": package, "ratio": round(mean, 3),
                    "cases": len(ratios)})


def summarise(ours: list[list[dict[str, Any]]], peers: list[list[dict[str, Any]]]) -> None:
    """Ratios by operator and size over the pairs of runs, and their geometric means by group."""

    def key(line: dict[str, Any]) -> tuple[str, str, str]:
        return line["group"], line["op"], line["size"]

    by_group: dict[str, list[float]] = {}
    for k in map(key, ours[0]):
        a = [line for run in ours for line in run if key(line) == k]
        b = [line for run in peers for line in run if key(line) == k and "error" not in line]
        if b:
            found = common.ratio("ops", a, b, group=k[0], op=k[1], size=k[2])
            by_group.setdefault(k[0], []).append(found["ratio"])
    package = peers[0][0]["package"] if peers and peers[0] else "?"
    say_means(by_group, package)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--package", choices=PACKAGES, help="measure this package in this process, and nothing else")
    parser.add_argument("--base", metavar="FOLDER", help="a folder with another state of Tritium, in a folder called tritium")
    parser.add_argument("--serve", action="store_true", help="answer the orders of --base")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="operators and groups")
    parser.add_argument("--size", nargs="+", default=[], choices=SIZES)
    parser.add_argument("--pairs", type=int, default=3, help="how often ours and each peer's are measured in turn")
    given = parser.parse_args()
    if given.package:
        measure(given.package, given.only, given.size)
        return
    if given.serve:
        serve(given.only, given.size)
        return
    common.say({"bench": "ops", **common.machine()})
    chosen = [word for name in ("only", "size") if getattr(given, name) for word in (f"--{name}", *getattr(given, name))]
    if given.base:
        compare(given.base, chosen)
        return
    peers = {name: python for name, python in (("mxnet", given.mxnet), ("torch", given.torch)) if python}
    runs: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in ("tritium", *peers)}
    for _ in range(given.pairs):
        for name, python in {"tritium": sys.executable, **peers}.items():
            runs[name].append(common.run_peer(python, __file__, "--package", name, *chosen, timeout=1800))
        if not given.only or "dot" in given.only:
            runs.setdefault("numpy", []).append(common.run_peer(sys.executable, __file__, "--package", "numpy", "--only", "dot"))
    for name in [n for n in runs if n != "tritium"]:
        summarise([[line for line in run if "error" not in line] for run in runs["tritium"]], runs[name])


if __name__ == "__main__":
    main()
