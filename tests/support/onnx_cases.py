"""Networks that go to ONNX and back: (name, symbol, shapes of inputs), and how to run them."""

import numpy as np
import tritium as mx

S = mx.sym
x = S.Variable("data")


def words(text):
    return text.split()


def conv(data, n, kernel=3, name=None, **settings):
    return S.Convolution(data, kernel=(kernel, kernel), num_filter=n, pad=(kernel // 2, kernel // 2), name=name, **settings)


def residual(data, n, name):
    y = S.Activation(S.BatchNorm(conv(data, n, name=f"{name}_conv1"), fix_gamma=False, name=f"{name}_bn1"), act_type="relu")
    y = S.BatchNorm(conv(y, n, name=f"{name}_conv2", no_bias=True), name=f"{name}_bn2")
    return S.Activation(y + data, act_type="relu", name=f"{name}_out")


def lenet():
    y = S.Pooling(S.Activation(S.Convolution(x, kernel=(5, 5), num_filter=4), act_type="tanh"), kernel=(2, 2), stride=(2, 2))
    y = S.Activation(S.FullyConnected(S.Flatten(y), num_hidden=6), act_type="tanh")
    return S.SoftmaxOutput(S.FullyConnected(y, num_hidden=3), name="softmax")


def mobile():
    y = S.BatchNorm(conv(x, 4, name="first", stride=(2, 2)))
    y = S.clip(S.BatchNorm(conv(y, 4, name="depthwise", num_group=4)), 0, 6)
    y = S.Pooling(S.Convolution(y, kernel=(1, 1), num_filter=5), global_pool=True, kernel=(1, 1), pool_type="avg")
    return S.softmax(S.Dropout(S.Flatten(y), p=0.3))


NETWORKS = {
    "mlp": (S.SoftmaxOutput(S.FullyConnected(S.relu(S.FullyConnected(x, num_hidden=5)), num_hidden=3), name="softmax"), (2, 4)),
    "lenet": (lenet(), (2, 1, 12, 12)),
    "resnet": (S.FullyConnected(S.Pooling(residual(conv(x, 4, name="stem"), 4, "block"), global_pool=True, pool_type="avg",
                                          kernel=(1, 1)), num_hidden=3), (2, 3, 6, 6)),
    "mobilenet": (mobile(), (2, 3, 8, 8)),
}
IMAGE, MATRIX, CUBE = (2, 3, 6, 6), (3, 4), (2, 3, 4)
OPERATORS = {
    **{n: (getattr(S, n)(x), MATRIX) for n in words(
        "abs arccos arcsin arctan ceil cos cosh erf exp expm1 floor identity negative reciprocal relu sigmoid sign sin sinh "
        "softsign square tan tanh zeros_like ones_like log_softmax softmax BlockGrad arctanh arcsinh Flatten")},
    **{n: (getattr(S, n)(S.abs(x) + 0.5), MATRIX) for n in words("log log2 log10 log1p sqrt rsqrt cbrt")},
    **{f"scalar {n}": (f(S.abs(x) + 0.5), MATRIX) for n, f in {
        "plus": lambda a: a + 2, "minus": lambda a: a - 2, "rminus": lambda a: 2 - a, "mul": lambda a: a * 3,
        "div": lambda a: a / 3,
        "rdiv": lambda a: 3 / a, "power": lambda a: a**2, "rpower": lambda a: 2**a, "max": lambda a: S.maximum(a, 0.7),
        "min": lambda a: S.minimum(a, 0.7), "greater": lambda a: a > 0.7, "lesser": lambda a: a < 0.7, "equal": lambda a: a == 1,
        "not equal": lambda a: a != 1, "mod": lambda a: a % 0.3}.items()},
    **{n: (getattr(S, n)(x, S.Variable("b", shape=(1, 4))), MATRIX) for n in words(
        "broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_maximum broadcast_minimum broadcast_greater "
        "broadcast_lesser broadcast_lesser_equal broadcast_greater_equal broadcast_equal broadcast_not_equal broadcast_mod "
        "broadcast_logical_and broadcast_logical_or broadcast_logical_xor")},
    "broadcast_power": (S.broadcast_power(S.abs(x), S.Variable("b", shape=(1, 4))), MATRIX),
    "add_n": (S.add_n(x, x * 2, S.exp(x)), MATRIX), "logical_not": (S.logical_not(x > 0), MATRIX),
    **{f"{n} {k}": (getattr(S, n)(x, axis=a, keepdims=d), CUBE) for n in words("sum mean max min prod norm")
       for k, a, d in (("one", 1, False), ("two", (0, 2), True), ("all", None, False))},
    "norm 1": (S.norm(x, ord=1, axis=2), CUBE), "sum exclude": (S.sum(x, axis=1, exclude=True), CUBE),
    "argmax": (S.argmax(x, axis=1), CUBE), "argmin keep": (S.argmin(x, axis=-1, keepdims=True), CUBE),
    "argmax all": (S.argmax(x), CUBE), "cumsum": (S.cumsum(x, axis=1), CUBE), "clip": (S.clip(x, -0.5, 0.5), MATRIX),
    "cast": (S.Cast(x * 3, dtype="int32"), MATRIX), "where": (S.where(x > 0, x, x * 0), MATRIX),
    # ---- shapes
    "reshape": (S.reshape(x, shape=(0, -1)), CUBE), "reshape codes": (S.reshape(x, shape=(-3, -4, 2, -1)), CUBE),
    "reshape_like": (S.reshape_like(x, S.transpose(x)), CUBE), "transpose": (S.transpose(x), CUBE),
    "transpose axes": (S.transpose(x, axes=(1, 0, 2)), CUBE), "swapaxes": (S.swapaxes(x, dim1=0, dim2=2), CUBE),
    "expand_dims": (S.expand_dims(x, axis=-1), CUBE), "squeeze": (S.squeeze(S.expand_dims(x, axis=1), axis=1), CUBE),
    "squeeze all": (S.squeeze(S.expand_dims(x, axis=1)), CUBE), "concat": (S.concat(x, x * 2, dim=-1), CUBE),
    "stack": (S.stack(x, x * 2, axis=1), CUBE), "slice_axis": (S.slice_axis(x, axis=2, begin=1, end=None), CUBE),
    "slice_axis negative": (S.slice_axis(x, axis=-1, begin=-3, end=-1), CUBE),
    "slice": (S.slice(x, begin=(None, 1), end=(1, None)), CUBE),
    "slice steps": (S.slice(x, begin=(None, None, None), end=(None, None, None), step=(1, -1, 2)), CUBE),
    "slice_like": (S.slice_like(x, S.slice_axis(x, axis=2, begin=0, end=2)), CUBE), "reverse": (S.reverse(x, axis=1), CUBE),
    "split": (S.Group(list(S.split(x, num_outputs=3, axis=1))), CUBE),
    "split squeezed": (S.Group(list(S.split(x, num_outputs=3, axis=1, squeeze_axis=True))), CUBE),
    "split_v2": (S.Group(list(S.split_v2(x, (1,), axis=1))), CUBE), "tile": (S.tile(x, reps=(2, 1, 1, 3)), CUBE),
    "tile few": (S.tile(x, reps=(2,)), CUBE), "repeat": (S.repeat(x, repeats=2, axis=1), CUBE),
    "repeat flat": (S.repeat(x, repeats=2), CUBE),
    "broadcast_to": (S.broadcast_to(S.sum(x, axis=1, keepdims=True), shape=CUBE), CUBE),
    "broadcast_axis": (S.broadcast_axis(S.sum(x, axis=1, keepdims=True), axis=1, size=5), CUBE),
    "broadcast_like": (S.broadcast_like(S.sum(x, axis=1, keepdims=True), x), CUBE),
    "pad": (S.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 2, 0, 1), constant_value=2), IMAGE),
    "pad edge": (S.pad(x, mode="edge", pad_width=(0, 0, 0, 0, 1, 2, 0, 1)), IMAGE),
    "depth_to_space": (S.depth_to_space(x, block_size=2), (2, 8, 3, 3)),
    "space_to_depth": (S.space_to_depth(x, block_size=2), IMAGE),
    "take": (S.take(S.Variable("w", shape=(5, 2)), x * 2), MATRIX),
    "take axis": (S.take(x, S.Variable("i", shape=(2,)), axis=1), CUBE),
    "Embedding": (S.Embedding(S.abs(x) * 3, S.Variable("w"), input_dim=5, output_dim=2), MATRIX),
    "gather_nd": (S.gather_nd(x, S.Cast(S.Variable("i", shape=(2, 4)) * 0 + 1, dtype="int32")), CUBE),
    "one_hot": (S.one_hot(x * 3, depth=3, on_value=2, off_value=-1), MATRIX), "topk": (S.topk(x, k=2, axis=1), CUBE),
    "topk both": (S.Group(list(S.topk(x, k=2, ret_typ="both", is_ascend=True))), CUBE),
    "topk value": (S.topk(x, k=2, ret_typ="value"), CUBE), "argsort": (S.argsort(x), CUBE),
    "sort": (S.sort(x, is_ascend=False), CUBE),
    "arange": (S.broadcast_add(x, S.arange(4)), MATRIX), "full": (S.broadcast_add(x, S.full((1, 4), 2.5)), MATRIX),
    "shape_array": (S.shape_array(x), CUBE), "size_array": (S.size_array(x), CUBE),
    # ---- layers
    "conv 1d": (S.Convolution(x, kernel=(3,), num_filter=2, stride=(2,), dilate=(2,), pad=(1,)), (2, 3, 9)),
    "conv 3d": (S.Convolution(x, kernel=(2, 2, 2), num_filter=2, no_bias=True), (1, 2, 3, 4, 5)),
    "deconv": (S.Deconvolution(x, kernel=(3, 3), num_filter=2, stride=(2, 2), pad=(1, 1), adj=(1, 1), no_bias=False), IMAGE),
    "deconv target": (S.Deconvolution(x, kernel=(4, 4), num_filter=3, stride=(2, 2), target_shape=(12, 12), num_group=3), IMAGE),
    "dense flatten": (S.FullyConnected(x, num_hidden=4), CUBE),
    "dense": (S.FullyConnected(x, num_hidden=4, flatten=False), CUBE),
    "dense no bias": (S.FullyConnected(x, num_hidden=4, flatten=False, no_bias=True), CUBE),
    **{f"activation {n}": (S.Activation(x, act_type=n), MATRIX) for n in ("relu", "sigmoid", "tanh", "softrelu", "softsign")},
    **{f"leaky {n}": (S.LeakyReLU(x, act_type=n), IMAGE) for n in ("leaky", "elu", "selu", "gelu", "prelu", "rrelu")},
    "hard_sigmoid": (S.hard_sigmoid(x, alpha=0.3), MATRIX),
    "batch norm fixed": (S.BatchNorm(x, fix_gamma=True, eps=0.01), IMAGE), "instance norm": (S.InstanceNorm(x), IMAGE),
    "layer norm": (S.LayerNorm(x), CUBE), "layer norm axis": (S.LayerNorm(x, axis=1), CUBE),
    "group norm": (S.GroupNorm(x, num_groups=2), (2, 4, 3, 3)),
    **{f"l2 {m}": (S.L2Normalization(x, mode=m), IMAGE) for m in ("instance", "channel", "spatial")},
    "lrn": (S.LRN(x, nsize=3), IMAGE), "softmax axis": (S.softmax(x, axis=1, temperature=2), CUBE),
    "softmax output": (S.SoftmaxOutput(x, name="s", multi_output=True), IMAGE),
    "softmax flat": (S.SoftmaxOutput(x, name="s"), CUBE),
    "softmax activation": (S.SoftmaxActivation(x, mode="channel"), IMAGE),
    "logistic": (S.LogisticRegressionOutput(x, name="l"), MATRIX),
    "linear": (S.LinearRegressionOutput(x, name="l"), MATRIX),
    **{f"pool {t} {c}": (S.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type=t, pooling_convention=c), s)
       for t, c, s in (("max", "valid", IMAGE), ("max", "full", IMAGE), ("avg", "valid", IMAGE), ("avg", "full", (2, 3, 7, 7)))},
    "pool avg not counted": (S.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="avg", count_include_pad=False), IMAGE),
    "pool 1d": (S.Pooling(x, kernel=(2,), stride=(2,), pool_type="max"), (2, 3, 8)),
    "global max": (S.Pooling(x, global_pool=True, kernel=(2, 2), pool_type="max"), IMAGE),
    "adaptive 1": (S.contrib.AdaptiveAvgPooling2D(x, output_size=1), IMAGE),
    "adaptive 3": (S.contrib.AdaptiveAvgPooling2D(x, output_size=3), IMAGE),
    "upsampling": (S.UpSampling(x, scale=2, sample_type="nearest"), IMAGE),
    "bilinear": (S.contrib.BilinearResize2D(x, height=9, width=12), IMAGE),
    "bilinear half": (S.contrib.BilinearResize2D(x, height=12, width=12, align_corners=False), IMAGE),
    "crop": (S.Crop(x, offset=(1, 2), h_w=(3, 2), num_args=1), IMAGE),
    "dot": (S.dot(x, S.Variable("w", shape=(5, 4)), transpose_b=True), MATRIX),
    "batch_dot": (S.batch_dot(x, x * 2, transpose_b=True), CUBE),
    "gemm2": (S.linalg.gemm2(x, x, transpose_a=True, alpha=2), CUBE),
    "div_sqrt_dim": (S.contrib.div_sqrt_dim(x), CUBE),
}
T = S.Variable("lengths", shape=(3,))
_qkv, _kv = (4, 2, 3 * 2 * 5), S.Variable("kv", shape=(6, 2, 2 * 2 * 5))
OPERATORS |= {
    "self attention scores": (S.contrib.interleaved_matmul_selfatt_qk(x, heads=2), _qkv),
    "self attention": (S.contrib.interleaved_matmul_selfatt_valatt(
        x, S.softmax(S.contrib.interleaved_matmul_selfatt_qk(x, heads=2)), heads=2), _qkv),
    "attention": (S.contrib.interleaved_matmul_encdec_valatt(
        _kv, S.softmax(S.contrib.interleaved_matmul_encdec_qk(x, _kv, heads=2)), heads=2), (4, 2, 2 * 5)),
    "sequence mask": (S.SequenceMask(x, S.abs(T) * 4, use_sequence_length=True, value=-1), (4, 3, 2)),
    "sequence mask axis 1": (S.SequenceMask(x, S.abs(T) * 4, use_sequence_length=True, axis=1), (3, 4)),
    "sequence mask off": (S.SequenceMask(x), (4, 3, 2)),
    "sequence reverse": (S.SequenceReverse(x, S.abs(T) * 2 + 1, use_sequence_length=True), (4, 3, 2)),
    "sequence reverse all": (S.SequenceReverse(x), (4, 3, 2)),
    "roi align": (S.contrib.ROIAlign(x, S.broadcast_mul(S.abs(S.Variable("rois", shape=(2, 5))) + 1, S.concat(
        S.zeros((1, 1)), S.ones((1, 2)), S.ones((1, 2)) * 3, dim=1)), pooled_size=(2, 2), spatial_scale=0.5,
        sample_ratio=2), IMAGE),
}
RECURRENT = {
    "lstm": (S.RNN(x, S.Variable("p"), S.Variable("h"), S.Variable("c"), state_size=3, num_layers=2, mode="lstm",
                   bidirectional=True, state_outputs=True), (4, 2, 5)),
    "gru": (S.RNN(x, S.Variable("p"), S.Variable("h"), state_size=3, num_layers=2, mode="gru", state_outputs=True), (4, 2, 5)),
    "rnn relu": (S.RNN(x, S.Variable("p"), S.Variable("h"), state_size=3, num_layers=1, mode="rnn_relu"), (4, 2, 5)),
    "rnn tanh": (S.RNN(x, S.Variable("p"), S.Variable("h"), state_size=3, num_layers=1, mode="rnn_tanh",
                       bidirectional=True), (4, 2, 5)),
}


def prepared(sym, shape, rng):
    """Return (arguments without labels and data, auxiliary states, labels, data) with random values."""
    shapes, _, states = sym.infer_shape(data=shape)
    args = {n: mx.nd.array(rng.normal(size=s) * 0.5) for n, s in zip(sym.list_arguments(), shapes)}
    data = np.round(args.pop("data").asnumpy(), 2).clip(-0.9, 0.9) if len(shape) < 3 else args.pop("data").asnumpy()
    labels = {n: args.pop(n) for n in list(args) if n.endswith("label")}
    auxes = {n: mx.nd.array(np.abs(rng.normal(size=s)) + 0.5) for n, s in zip(sym.list_auxiliary_states(), states)}
    return args, auxes, labels, data


def run(sym, args, auxes, data):
    """Return the outputs for data as NumPy arrays."""
    data = {n: mx.nd.array(v, dtype=v.dtype) for n, v in data.items()}
    executor = sym.bind(mx.cpu(), {n: a for n, a in {**args, **data}.items() if n in sym.list_arguments()}, None, "null", auxes)
    return [o.asnumpy() for o in executor.forward(is_train=False)]
