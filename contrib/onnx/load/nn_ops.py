"""Converters of ONNX's layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.symbol import namespace
from ....graph.symbol.symbol import Symbol
from ..library import Unsupported
from .graph import Use, converts
from .shape_ops import _padded

S: Any = namespace  # its functions, by the names of operators


def _geometry(use: Use, spatial: int, kernel: Sequence[int]) -> tuple[Symbol, dict[str, Any]]:
    """Return the data and the parameters of a window. Padding that differs between the ends is added before."""
    strides, dilations = use.attr("strides") or [1] * spatial, use.attr("dilations") or [1] * spatial
    pads = list(use.attr("pads") or [0] * 2 * spatial)
    auto = use.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = use.shape()[2:]
        if 0 in sizes:
            raise Unsupported(f"auto_pad={auto} with sizes that may differ")
        total = [max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0) for n, s, d, k in zip(sizes, strides, dilations, kernel)]
        low = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total]
        pads = low + [t - a for t, a in zip(total, low)]
    settings = {"kernel": tuple(kernel), "stride": tuple(strides), "dilate": tuple(dilations)}
    if pads[:spatial] == pads[spatial:]:
        return use.sym(), {**settings, "pad": tuple(pads[:spatial])}
    value = -np.inf if use.op == "MaxPool" else 0.0
    if use.op == "AveragePool" and not use.attr("count_include_pad", 0):
        raise Unsupported("padding that differs between the ends, and is not counted, has no equivalent")
    data = use.sym()
    if value == 0.0 and spatial in (2, 3):
        widths = (0, 0, 0, 0, *(n for pair in zip(pads[:spatial], pads[spatial:]) for n in pair))
        data = S.Pad(data, mode="constant", pad_width=widths)
    else:
        for i, pair in enumerate(zip(pads[:spatial], pads[spatial:])):
            data = _padded(use, data, i + 2, pair, float(np.finfo(np.float32).min) if value else 0.0, spatial + 2)
    return data, {**settings, "pad": (0,) * spatial}


@converts("Conv", "ConvTranspose")
def _conv(use: Use) -> Symbol:
    weight = use.shape(1)
    data, settings = _geometry(use, len(weight) - 2, use.attr("kernel_shape") or weight[2:])
    groups, more = use.attr("group", 1), [use.sym(i) for i in range(1, 3) if use.has(i)]
    settings |= {"num_group": groups, "no_bias": len(more) == 1, "name": use.name}
    if use.op == "Conv":
        return S.Convolution(data, *more, num_filter=weight[0], **settings)
    if use.attr("output_shape"):
        settings["target_shape"] = tuple(use.attr("output_shape")[-len(settings["kernel"]):])
    return S.Deconvolution(data, *more, num_filter=weight[1] * groups, adj=tuple(use.attr("output_padding") or ()), **settings)


@converts("MaxPool", "AveragePool", "LpPool")
def _pool(use: Use) -> Symbol:
    if len(use.outputs) > 1:
        raise Unsupported("the indices of the maxima have no equivalent")
    kernel = use.attr("kernel_shape")
    data, settings = _geometry(use, len(kernel), kernel)
    if any(d != 1 for d in settings.pop("dilate")):
        raise Unsupported("dilations have no equivalent")
    if use.op == "AveragePool":
        settings["count_include_pad"] = bool(use.attr("count_include_pad", 0))
    if use.op == "LpPool":
        settings["p_value"] = use.attr("p", 2)
    kind: Any = {"MaxPool": "max", "AveragePool": "avg", "LpPool": "lp"}[use.op]
    return S.Pooling(data, pool_type=kind, name=use.name,
                     pooling_convention="full" if use.attr("ceil_mode", 0) else "valid", **settings)


@converts("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def _global_pool(use: Use) -> Symbol:
    kind: Any = {"GlobalMaxPool": "max", "GlobalAveragePool": "avg", "GlobalLpPool": "lp"}[use.op]
    more: dict[str, Any] = {"p_value": use.attr("p", 2)} if kind == "lp" else {}
    return S.Pooling(use.sym(), global_pool=True, kernel=(1,) * (use.ndim() - 2), pool_type=kind, name=use.name, **more)


@converts("BatchNormalization")
def _batch_norm(use: Use) -> Symbol:
    return S.BatchNorm(*use.syms(), eps=use.attr("epsilon", 1e-5), momentum=use.attr("momentum", 0.9), fix_gamma=False,
                       name=use.name)


@converts("InstanceNormalization")
def _instance_norm(use: Use) -> Symbol:
    return S.InstanceNorm(*use.syms(), eps=use.attr("epsilon", 1e-5), name=use.name)


@converts("LayerNormalization")
def _layer_norm(use: Use) -> Symbol:
    if use.attr("axis", -1) % use.ndim() != use.ndim() - 1 or len(use.outputs) > 1:
        raise Unsupported("only the last axis, with one output, has an equivalent")
    beta = use.sym(2) if use.has(2) else use.param("beta", np.zeros(use.shape(1), np.float32))
    return S.LayerNorm(use.sym(0), use.sym(1), beta, axis=-1, eps=use.attr("epsilon", 1e-5), name=use.name)


@converts("LRN")
def _lrn(use: Use) -> Symbol:
    return S.LRN(use.sym(), nsize=use.attr("size"), alpha=use.attr("alpha", 1e-4), beta=use.attr("beta", 0.75),
                 knorm=use.attr("bias", 1.0), name=use.name)


@converts("LpNormalization")
def _lp_norm(use: Use) -> Symbol:
    axis = use.attr("axis", -1)
    return S.broadcast_div(use.sym(), S.norm(use.sym(), ord=use.attr("p", 2), axis=axis, keepdims=True), name=use.name)


@converts("Dropout")
def _dropout(use: Use) -> Symbol:
    return S.Dropout(use.sym(), p=use.scalar("ratio", 1, 0.5), name=use.name)


@converts("MaxRoiPool")
def _roi_pool(use: Use) -> Symbol:
    return S.ROIPooling(*use.syms(), pooled_size=tuple(use.attr("pooled_shape")), spatial_scale=use.attr("spatial_scale", 1.0),
                        name=use.name)


@converts("RoiAlign")
def _roi_align(use: Use) -> Symbol:
    if use.attr("mode", "avg") != "avg" or use.attr("coordinate_transformation_mode", "output_half_pixel") != "output_half_pixel":
        raise Unsupported("only mode='avg' with coordinate_transformation_mode='output_half_pixel' has an equivalent")
    image = S.expand_dims(S.Cast(use.sym(2), dtype="float32"), axis=1)
    return S.contrib.ROIAlign(use.sym(0), S.Concat(image, use.sym(1), dim=1), name=use.name,
                              pooled_size=(use.attr("output_height", 1), use.attr("output_width", 1)),
                              sample_ratio=use.attr("sampling_ratio", 0) or -1, spatial_scale=use.attr("spatial_scale", 1.0))


@converts("Resize", "Upsample")
def _resize(use: Use) -> Symbol:
    mode, how = use.attr("mode", "nearest"), use.attr("coordinate_transformation_mode", "asymmetric" if use.op == "Upsample"
                                                      else "half_pixel")
    place = 1 if use.op == "Upsample" or use.reader.opset < 11 else 2
    scales = use.attr("scales") or (use.const(place).tolist() if use.has(place) and use.const(place).size else None)
    sizes = [int(n) for n in use.const(3)] if use.has(3) else None
    shape = use.shape()
    if mode == "nearest" and scales is not None and how == "asymmetric" and scales[2] == scales[3] == int(scales[2]):
        return S.UpSampling(use.sym(), scale=int(scales[2]), sample_type="nearest", name=use.name)
    known = how in ("align_corners", "half_pixel", "pytorch_half_pixel") and len(shape) == 4 and 0 not in shape[2:]
    if mode == "linear" and known:
        height, width = sizes[2:] if sizes else [int(n * s) for n, s in zip(shape[2:], (scales or [])[2:])]
        return S.contrib.BilinearResize2D(use.sym(), height=height, width=width, align_corners=how == "align_corners",
                                          name=use.name)
    raise Unsupported(f"mode={mode!r} with coordinate_transformation_mode={how!r} has no equivalent")
