"""Converters of layers, losses and matrix products. Dropout and BatchNorm are those of inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..library import Unsupported
from .graph import Use, converts


def _per_axis(use: Use, values: Sequence[int] | int, default: int) -> list[int]:
    """Return a parameter with one number for each spatial axis."""
    values = [values] if isinstance(values, int) else list(values)
    return values or [default] * len(use.p.kernel)


def _channels_first(use: Use) -> None:
    if use.p.get("layout") not in (None, "", "NCW", "NCHW", "NCDHW"):
        raise Unsupported(f"layout {use.p.layout}: ONNX has channels first")


@converts("Convolution")
def _convolution(use: Use) -> None:
    _channels_first(use)
    use.emit("Conv", *use.inputs, kernel_shape=list(use.p.kernel), strides=_per_axis(use, use.p.stride, 1),
             dilations=_per_axis(use, use.p.dilate, 1), pads=_per_axis(use, use.p.pad, 0) * 2, group=use.p.num_group)


@converts("Deconvolution")
def _deconvolution(use: Use) -> None:
    _channels_first(use)
    stride, dilate, kernel = _per_axis(use, use.p.stride, 1), _per_axis(use, use.p.dilate, 1), list(use.p.kernel)
    pad, adj = _per_axis(use, use.p.pad, 0), _per_axis(use, use.p.adj, 0)
    if use.p.target_shape:
        sizes = use.shape()[2:]
        over = [s * (n - 1) + d * (k - 1) + 1 - t for s, n, d, k, t in zip(stride, sizes, dilate, kernel, use.p.target_shape)]
        adj, pad = [n % 2 for n in over], [(n + 1) // 2 for n in over]
    use.emit("ConvTranspose", *use.inputs, kernel_shape=kernel, strides=stride, dilations=dilate, pads=pad * 2,
             output_padding=adj, group=use.p.num_group)


@converts("FullyConnected")
def _fully_connected(use: Use) -> None:
    data, weight, *bias = use.inputs
    if use.p.flatten:
        use.emit("Gemm", data if use.ndim() == 2 else use.add("Flatten", data, axis=1), weight, *bias, transB=1)
        return
    product = ("MatMul", data, use.add("Transpose", weight, perm=[1, 0]))
    if bias:
        use.emit("Add", use.add(*product), bias[0])
    else:
        use.emit(*product)


@converts("Activation")
def _activation(use: Use) -> None:
    kinds = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus", "softsign": "Softsign"}
    if use.p.act_type not in kinds:
        raise Unsupported(f"act_type={use.p.act_type!r} has no equivalent")
    use.emit(kinds[use.p.act_type], use.inputs[0])


@converts("LeakyReLU")
def _leaky(use: Use) -> None:
    kind, x = use.p.act_type, use.inputs[0]
    use.outputs = use.outputs[:1]
    if kind in ("leaky", "rrelu"):
        slope = use.p.slope if kind == "leaky" else (use.p.lower_bound + use.p.upper_bound) / 2
        use.emit("LeakyRelu", x, alpha=float(slope))
    elif kind == "elu":
        use.emit("Elu", x, alpha=float(use.p.slope))
    elif kind == "selu":
        use.emit("Selu", x)
    elif kind == "prelu":
        gamma = use.inputs[1]
        if use.ndim() > 2:
            gamma = use.reshape(gamma, [-1, *[1] * (use.ndim() - 2)])
        use.emit("PRelu", x, gamma)
    elif kind == "gelu":
        half = use.add("Mul", x, use.number(0.5))
        erf = use.add("Erf", use.add("Mul", x, use.number(1 / np.sqrt(2))))
        use.emit("Mul", half, use.add("Add", erf, use.number(1)))
    else:
        raise Unsupported(f"act_type={kind!r} has no equivalent")


# ---- normalizations --------------------------------------------------------------------------------------------------
@converts("BatchNorm")
def _batch_norm(use: Use) -> None:
    if use.axis(use.p.axis) != 1:
        raise Unsupported(f"axis={use.p.axis}: ONNX normalizes axis 1")
    data, gamma, *others = use.inputs
    if use.p.fix_gamma:
        gamma = use.writer.constant(np.ones(use.known_shape(1)), use.dtypes[1])
    use.writer.add("BatchNormalization", [data, gamma, *others], use.outputs[:1], use.writer.name(use.name),
                   {"epsilon": float(use.p.eps), "momentum": float(use.p.momentum)})


@converts("InstanceNorm")
def _instance_norm(use: Use) -> None:
    use.emit("InstanceNormalization", *use.inputs, epsilon=float(use.p.eps))


def _standardized(use: Use, x: str, axes: Sequence[int], eps: float) -> str:
    centered = use.add("Sub", x, use.add("ReduceMean", x, axes=list(axes), keepdims=1))
    variance = use.add("ReduceMean", use.add("Mul", centered, centered), axes=list(axes), keepdims=1)
    return use.add("Div", centered, use.add("Sqrt", use.add("Add", variance, use.number(eps))))


@converts("LayerNorm")
def _layer_norm(use: Use) -> None:
    axis = use.axis(use.p.axis)
    gamma, beta = use.inputs[1:]
    if axis != use.ndim() - 1:
        gamma, beta = (use.reshape(a, [-1, *[1] * (use.ndim() - 1 - axis)]) for a in (gamma, beta))
    scaled = use.add("Mul", _standardized(use, use.inputs[0], [axis], use.p.eps), gamma)
    use.writer.add("Add", [scaled, beta], use.outputs[:1], use.writer.name(use.name), {})


@converts("GroupNorm")
def _group_norm(use: Use) -> None:
    grouped = use.reshape(use.inputs[0], [0, use.p.num_groups, -1])
    gamma, beta = (use.reshape(a, [-1, 1]) for a in use.inputs[1:])  # one number per group
    scaled = use.add("Add", use.add("Mul", _standardized(use, grouped, [2], use.p.eps), gamma), beta)
    use.writer.add("Reshape", [scaled, use.add("Shape", use.inputs[0])], use.outputs[:1], use.writer.name(use.name), {})


@converts("L2Normalization")
def _l2(use: Use) -> None:
    axes = {"instance": range(1, use.ndim()), "channel": [1], "spatial": range(2, use.ndim())}[use.p.mode]
    square = use.add("ReduceSumSquare", use.inputs[0], axes=list(axes), keepdims=1)
    use.emit("Div", use.inputs[0], use.add("Sqrt", use.add("Add", square, use.number(use.p.eps))))


@converts("LRN")
def _lrn(use: Use) -> None:
    use.writer.add("LRN", use.inputs, use.outputs[:1], use.writer.name(use.name),
                   {"size": use.p.nsize, "alpha": float(use.p.alpha), "beta": float(use.p.beta), "bias": float(use.p.knorm)})


@converts("Dropout")
def _dropout(use: Use) -> None:
    if use.p.mode == "always":
        raise Unsupported('mode="always" has no equivalent: ONNX drops in training only')
    use.writer.add("Identity", use.inputs[:1], use.outputs[:1], use.writer.name(use.name), {})


# ---- softmax and losses ----------------------------------------------------------------------------------------------
@converts("softmax", "log_softmax")
def _softmax(use: Use) -> None:
    if use.p.use_length:
        raise Unsupported("use_length has no equivalent")
    x, temperature = use.inputs[0], use.p.temperature
    if temperature not in (None, 1.0):
        x = use.add("Div", x, use.number(temperature))
    use.emit("Softmax" if use.op == "softmax" else "LogSoftmax", x, axis=use.axis(use.p.axis))


@converts("SoftmaxOutput")
def _softmax_output(use: Use) -> None:
    if use.p.multi_output or use.p.preserve_shape or use.ndim() == 2:
        use.emit("Softmax", use.inputs[0], axis=1 if use.p.multi_output else use.ndim() - 1)
        return
    flat = use.add("Softmax", use.add("Flatten", use.inputs[0], axis=1), axis=1)
    use.emit("Reshape", flat, use.add("Shape", use.inputs[0]))


@converts("SoftmaxActivation")
def _softmax_activation(use: Use) -> None:
    if use.p.mode == "channel" or use.ndim() == 2:
        use.emit("Softmax", use.inputs[0], axis=1)
        return
    flat = use.add("Softmax", use.add("Flatten", use.inputs[0], axis=1), axis=1)
    use.emit("Reshape", flat, use.add("Shape", use.inputs[0]))


# ---- pooling and resizing --------------------------------------------------------------------------------------------
@converts("Pooling")
def _pooling(use: Use) -> None:
    _channels_first(use)
    p, kind = use.p, use.p.pool_type
    if kind not in ("max", "avg", "lp"):
        raise Unsupported(f"pool_type={kind!r} has no equivalent")
    if p.global_pool:
        use.emit({"max": "GlobalMaxPool", "avg": "GlobalAveragePool", "lp": "GlobalLpPool"}[kind], use.inputs[0],
                 p=p.p_value if kind == "lp" else None)
        return
    if p.pooling_convention == "same":
        raise Unsupported("pooling_convention='same' has no equivalent")
    attrs = {"kernel_shape": list(p.kernel), "strides": _per_axis(use, p.stride, 1), "pads": _per_axis(use, p.pad, 0) * 2}
    if kind == "lp":
        use.emit("LpPool", use.inputs[0], p=p.p_value, **attrs)
        return
    ceil = int(p.pooling_convention == "full")
    counted = int(p.count_include_pad is not False) if kind == "avg" else None
    if kind == "avg" and ceil and counted:
        pads = _per_axis(use, p.pad, 0)
        if any((n + 2 * pad - k) % s for n, k, s, pad in zip(use.shape()[2:], p.kernel, attrs["strides"], pads)):
            raise Unsupported("pooling_convention='full' counts rows beyond the padding, which ONNX does not")
    use.emit("MaxPool" if kind == "max" else "AveragePool", use.inputs[0], ceil_mode=ceil, count_include_pad=counted, **attrs)


@converts("_contrib_AdaptiveAvgPooling2D")
def _adaptive(use: Use) -> None:
    wanted = [use.p.output_size] if isinstance(use.p.output_size, int) else list(use.p.output_size) or [1]
    wanted = wanted * (2 // len(wanted))
    if wanted == [1, 1]:
        use.emit("GlobalAveragePool", use.inputs[0])
        return
    sizes = use.shape()[2:]
    if any(n % w for n, w in zip(sizes, wanted)):
        raise Unsupported(f"output_size={tuple(wanted)} does not divide {tuple(sizes)}")
    kernel = [n // w for n, w in zip(sizes, wanted)]
    use.emit("AveragePool", use.inputs[0], kernel_shape=kernel, strides=kernel)


@converts("UpSampling")
def _upsampling(use: Use) -> None:
    if use.p.sample_type != "nearest" or len(use.inputs) > 1:
        raise Unsupported("only sample_type='nearest' of one array has an equivalent")
    scale = use.p.scale if isinstance(use.p.scale, int) else use.p.scale[0]
    use.emit("Resize", use.inputs[0], "", use.const([1, 1, scale, scale], np.float32), mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@converts("_contrib_BilinearResize2D")
def _bilinear(use: Use) -> None:
    if len(use.inputs) > 1 or use.p.mode not in ("size", "odd_scale", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
        raise Unsupported(f"mode={use.p.mode!r} has no equivalent")
    use.emit("Resize", use.inputs[0], "", "", use.const(use.out_shape()), mode="linear",
             coordinate_transformation_mode="align_corners" if use.p.align_corners else "half_pixel")


@converts("ROIPooling")
def _roi_pooling(use: Use) -> None:
    use.emit("MaxRoiPool", *use.inputs, pooled_shape=list(use.p.pooled_size), spatial_scale=float(use.p.spatial_scale))


@converts("Crop")
def _crop(use: Use) -> None:
    if use.p.center_crop:
        raise Unsupported("center_crop has no equivalent")
    (y, x), out = use.p.offset, use.out_shape()
    use.emit("Slice", use.inputs[0], use.const([y, x]), use.const([y + out[2], x + out[3]]), use.const([2, 3]))


# ---- products --------------------------------------------------------------------------------------------------------
def _turned(use: Use, i: int, turn: bool) -> str:
    order = list(range(use.ndim(i)))
    order[-2:] = order[:-3:-1]
    return use.add("Transpose", use.inputs[i], perm=order) if turn else use.inputs[i]


@converts("dot")
def _dot(use: Use) -> None:
    if use.ndim(0) != 2 or use.ndim(1) != 2:
        raise Unsupported("only the product of two matrices has an equivalent")
    use.emit("MatMul", _turned(use, 0, use.p.transpose_a), _turned(use, 1, use.p.transpose_b))


@converts("batch_dot")
def _batch_dot(use: Use) -> None:
    use.emit("MatMul", _turned(use, 0, use.p.transpose_a), _turned(use, 1, use.p.transpose_b))


@converts("_linalg_gemm2")
def _gemm2(use: Use) -> None:
    if use.p.axis != -2:
        raise Unsupported("axis has no equivalent")
    product = ("MatMul", _turned(use, 0, use.p.transpose_a), _turned(use, 1, use.p.transpose_b))
    if use.p.alpha == 1:
        use.emit(*product)
    else:
        use.emit("Mul", use.add(*product), use.number(use.p.alpha))
