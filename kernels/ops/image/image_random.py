"""mx.nd.image.random_*: images [h, w, c] flipped at random, or with randomly changed colours.

uint8 results are clipped to 0 … 255. Only adjust_lighting has a derivative. Index formulas compute the pixels; they read the few
random numbers of a call from memory, so that a replayed CUDA graph has new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from ....dtype import float32, float64
from ....errors import ParameterError
from ...declare.indexed import IndexedOp
from ...declare.operator_property import RANDOM, OperatorProperty, RandomNumbers, Shapes
from ...declare.property_op import register_operator
from ...declare.random_fill import fill, on_host
from ...declare.simple_op import Scalar
from ...ir.expr import const
from ...ir.lang import cos, floor, log1p, maximum, minimum, sqrt, where
from ...ir.strided import whole
from ...kernel import KernelFunction
from ...op import Req, Reqs, Spec, Specs, builtin, compiled
from ..tensor.data_movement import Move, move_kernel
from ..vision.boxes import one_of
from .image import picture_axes

GRAY = 0.299, 0.587, 0.114
#: Principal components of the colours of ImageNet, each times its standard deviation. Source: Krizhevsky, Sutskever, Hinton 2012.
LIGHT = np.array([[55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009],
                  [55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140],
                  [55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203]], np.float32)


# ---- formulas: an element of the changed image, clipped to 0 … 255 and of dtype `kind`. by: float64, the change's numbers ----
def _changed_image(body: Callable[..., Any]) -> IndexedOp:
    return IndexedOp(body, name=f"_image{body.__name__}", dtype=lambda data, *_, kind, **p: kind, free=("by", "mean")[:1 + (
                     "contrast" in body.__name__)], shape=lambda data, *_, **p: data, differentiable=False)


def _settled(value: Any, clip: bool) -> Any:
    return maximum(minimum(value, 255.0), 0.0) if clip else value


def _colours(data: Any, at: Any) -> list[Any]:
    """Return the channels of a pixel as float32."""
    return [data[(*at[:-1], c)].astype("float32") for c in range(data.sizes[-1])]


def _gray_of(colours: Sequence[Any]) -> Any:
    if len(colours) == 1:
        return colours[0]
    red, green, blue = (c * share for c, share in zip(colours, GRAY))
    return red + green + blue


@_changed_image
def _brightness(at: Any, data: Any, by: Any, *, kind: str, clip: bool) -> Any:
    """x · by."""
    return _settled(data[at].astype("float32") * by[0].astype("float32"), clip)


def _gray(at: Any, data: Any) -> Any:
    """The gray of each pixel."""
    return _gray_of(_colours(data, (*at, 0)))


GRAY_IMAGE = IndexedOp(_gray, name="_image_gray", shape=lambda data: data[:-1], dtype=float64, differentiable=False)


@_changed_image
def _contrast(at: Any, data: Any, by: Any, mean: Any, *, kind: str, clip: bool) -> Any:
    """x · by + mean · (1 - by). mean: [1], of the grays of all pixels."""
    return _settled(data[at].astype("float32") * by[0].astype("float32") + (mean[0] * (1 - by[0])).astype("float32"), clip)


@_changed_image
def _saturation(at: Any, data: Any, by: Any, *, kind: str, clip: bool) -> Any:
    """x · by + the pixel's own gray · (1 - by)."""
    colours, share = _colours(data, at), by[0].astype("float32")
    gray = _gray_of(colours) * (1 - by[0]).astype("float32")
    return one_of(at[-1], [_settled(c * share + gray, clip) for c in colours])


@_changed_image
def _hue(at: Any, data: Any, by: Any, *, kind: str, clip: bool) -> Any:
    """The hue rotated by the fraction `by` of the colour circle, at the same lightness and saturation."""
    r, g, b = (c / 255 for c in _colours(data, at))
    high, low = maximum(maximum(r, g), b), minimum(minimum(r, g), b)
    spread, light = high - low, (high + low) / 2
    some = spread > 1e-7
    safe = where(some, spread, 1)
    saturation = where(some, safe / where(light < 0.5, high + low, 2 - high - low), 0)
    sixth = where(high == r, (g - b) / safe, where(high == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    top = where(light <= 0.5, light * (1 + saturation), light + saturation - light * saturation)
    bottom = 2 * light - top
    made = []
    for shift in (2, 0, -2):
        place = (sixth / 6 + by[0].astype("float32")) * 6 + shift
        place = place - floor(place / 6) * 6
        turned = where(place < 1, bottom + (top - bottom) * place, where(place < 3, top, where(
            place < 4, bottom + (top - bottom) * (4 - place), bottom)))
        made.append(_settled(where(some, turned, light) * 255, clip))
    return one_of(at[-1], made)


@_changed_image
def _light(at: Any, data: Any, by: Any, *, kind: str, clip: bool) -> Any:
    """A number is added to each channel."""
    return one_of(at[-1], [_settled(c + by[i].astype("float32"), clip) for i, c in enumerate(_colours(data, at))])


# ---- the numbers of a change, from uniform numbers ----------------------------------------------------------------------
def _factor(at: Any, draw: Any, *, low: Scalar, high: Scalar) -> Any:
    """A number from low to high. draw: [1]."""
    return low + (high - low) * draw[0].astype("float64")


def _lights(at: Any, draw: Any, *, spread: Scalar) -> Any:
    """The light of each colour: normal amounts, with this standard deviation, of each component. draw: [6]."""
    made: Any = 0.0
    for i, shares in enumerate(LIGHT.T.tolist()):
        radius, angle = (draw[k].astype("float64") for k in (i, 3 + i))
        amount = spread * sqrt(-2 * log1p(-radius)) * cos(2 * math.pi * angle)
        made = made + one_of(at[0], [const(share, float32) for share in shares]) * amount.astype("float32")
    return made


FACTOR = IndexedOp(_factor, name="_image_factor", shape=lambda draw: draw, dtype=float64, differentiable=False)
LIGHTS = IndexedOp(_lights, name="_image_lights", shape=lambda draw: (3,), dtype=float64, differentiable=False)

# ---- changes: an IndexedOp, and its numbers -----------------------------------------------------------------------------
Change = tuple[IndexedOp, Any]
ONE = np.ones(1)


class Changed(OperatorProperty):
    """Base class: an image of the same shape and dtype as data.

    numbers:  random numbers drawn per call. needs_colours: an image of one channel stays as it is.
    """

    numbers: ClassVar[int] = 1
    needs_colours: ClassVar[bool] = True
    resources = (RANDOM,)
    gradient_arguments = ()

    def num_random(self, outs: Specs) -> int:
        return self.numbers

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is not None:
            picture_axes(self.name, len(x))
            if x[-1] not in (-1, 1, 3):
                raise ParameterError(f"{self.name}: data {x} must have 1 or 3 channels, last.")
        return [x], [x], []

    def changes(self, target: str, gray: bool) -> Callable[[Any, tuple[Any, int]], list[Change]]:
        """Return a function (run, random) that returns the changes in their order. gray: the image has one channel."""
        raise NotImplementedError(self.name)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        (image,), (out,), (req,) = ins, outs, reqs
        between, gray, mean = Spec(image.shape, float32), Spec(image.shape[:-1], float64), Spec((1,), float64)

        @cache
        def kernels(op: IndexedOp, numbers: int, first: bool, last: bool) -> tuple[Any, ...]:
            """Return the kernel of one change, after those of the mean gray that it reads, if it does."""
            source, (result, request) = image if first else between, (out, req) if last else (between, Req.WRITE)
            given = [source, Spec((numbers,), float64)]
            params = {"kind": result.dtype.name, "clip": last and out.dtype == np.uint8}
            if op is not _contrast:
                return (_kernel(op, params, given, result, request, target),)
            return (_kernel(op, params, [*given, mean], result, request, target),
                    _kernel(GRAY_IMAGE, {}, [source], gray, Req.WRITE, target),
                    _kernel(builtin("mean"), {}, [gray], mean, Req.WRITE, target))

        channels = image.shape[-1]
        changes = self.changes(target, channels == 1) if channels > 1 or not self.needs_colours else None

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[Any, int] = (0, 0)) -> None:
            x, chosen = inputs[0], changes and changes(run, random)
            for i, (op, by) in enumerate(chosen := chosen or [(_brightness, run.constant(ONE))]):
                last = i == len(chosen) - 1
                apply, *averages = kernels(op, by.shape[0], i == 0, last)
                arrays = [x, by]
                if averages:
                    grays, average = run.workspace(gray.shape, float64), run.workspace((1,), float64)
                    averages[0](run, [x], [grays])
                    averages[1](run, [grays], [average])
                    arrays.append(average)
                y = outputs[0] if last else run.workspace(image.shape, float32)
                apply(run, arrays, [y])
                x = y

        return kernel


def _kernel(op: Any, params: dict[str, Any], ins: Sequence[Spec], out: Spec, req: Req, target: str) -> Any:
    return compiled(op, op.parse(params), tuple(ins), (out,), (req,), target)


def _drawn(op: IndexedOp, params: dict[str, float], draws: int, numbers: int, target: str
           ) -> Callable[[Any, tuple[Any, int]], Any]:
    """Return a function (run, random) that returns the numbers which op computes from uniform ones."""
    compute = _kernel(op, params, [Spec((draws,), float32)], Spec((numbers,), float64), Req.WRITE, target)

    def drawn(run: Any, random: tuple[Any, int]) -> Any:
        draw, made = run.workspace((draws,), float32), run.workspace((numbers,), float64)
        fill(run, target, draw, random)
        compute(run, [draw], [made])
        return made

    return drawn


class Scaled(Changed):
    """Base class: a change by a factor between min_factor and max_factor."""

    change: ClassVar[IndexedOp]

    min_factor: float
    max_factor: float

    def validate(self) -> None:
        if not 0 <= self.min_factor <= self.max_factor:
            raise ParameterError(f"{self.name}: min_factor={self.min_factor} must be at least 0 and at most max_factor="
                                 f"{self.max_factor}.")

    def changes(self, target: str, gray: bool) -> Callable[[Any, tuple[Any, int]], list[Change]]:
        factor = _drawn(FACTOR, {"low": self.min_factor, "high": self.max_factor}, 1, 1, target)
        return lambda run, random: [(self.change, factor(run, random))]


@register_operator("_image_random_brightness")
class RandomBrightness(Scaled):
    """data times a factor from min_factor to max_factor. data: [h, w, c]."""

    change = _brightness
    needs_colours: ClassVar[bool] = False


@register_operator("_image_random_contrast")
class RandomContrast(Scaled):
    """data's distance from its mean gray, times a factor from min_factor to max_factor. data: [h, w, c]."""

    change = _contrast
    needs_colours: ClassVar[bool] = False


@register_operator("_image_random_saturation")
class RandomSaturation(Scaled):
    """Each element's distance from its gray, times a factor from min_factor to max_factor. data: [h, w, c].

    MXNet 1.9.1 uses black instead of gray, which changes the brightness. This operator keeps the brightness.
    """

    change = _saturation


@register_operator("_image_random_hue")
class RandomHue(Scaled):
    """Hue rotated by a fraction of the colour circle, from min_factor to max_factor. data: [h, w, c]."""

    change = _hue


@register_operator("_image_random_color_jitter")
class RandomColorJitter(Changed):
    """Brightness, contrast and saturation changed by random factors within 1 ± their parameter, hue rotated within ± hue.

    The four changes are made in random order. data: [h, w, c].
    """

    numbers: ClassVar[int] = 8
    needs_colours: ClassVar[bool] = False
    waits: ClassVar[bool] = True  # the numbers say which kernels run

    brightness: float
    contrast: float
    saturation: float
    hue: float

    def validate(self) -> None:
        if min(self.brightness, self.contrast, self.saturation, self.hue) < 0:
            raise ParameterError(f"{self.name}: brightness={self.brightness}, contrast={self.contrast}, saturation="
                                 f"{self.saturation}, hue={self.hue} must be at least 0.")

    def changes(self, target: str, gray: bool) -> Callable[[Any, tuple[Any, int]], list[Change]]:
        steps = ((_brightness, self.brightness, 1.0), (_contrast, self.contrast, 1.0), (_saturation, self.saturation, 1.0),
                 (_hue, self.hue, 0.0))
        steps = steps[:2] if gray else steps

        def chosen(run: Any, random: tuple[Any, int]) -> list[Change]:
            draw, made = RandomNumbers(*on_host(run, random)).uniform((self.numbers,)), []
            for i in np.argsort(draw[4:], kind="stable"):
                if i < len(steps) and (most := steps[i][1]) > 0:
                    op, _, about = steps[i]
                    low = max(about - most, 0.0) if about else -most
                    by = run.workspace((1,), float64)
                    run.from_host(by, np.array([low + (about + most - low) * float(draw[i])]))
                    made.append((op, by))
            return made

        return chosen


@register_operator("_image_adjust_lighting")
class AdjustLighting(Changed):
    """Light added along the principal components of the colours, alpha[i] of each. data: [h, w, c]; alpha: three numbers."""

    numbers: ClassVar[int] = 0

    alpha: tuple[float, ...]
    resources = ()
    gradient_arguments = (0,)
    backward_reads = ("dy",)

    def validate(self) -> None:
        if len(self.alpha) != 3:
            raise ParameterError(f"{self.name}: alpha={self.alpha} must be three numbers.")

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return move_kernel([Move(0, whole, 0, whole)], ins, outs, reqs, target)

    def changes(self, target: str, gray: bool) -> Callable[[Any, tuple[Any, int]], list[Change]]:
        lights = (LIGHT @ np.asarray(self.alpha, np.float32)).astype(np.float64)
        return lambda run, random: [(_light, run.constant(lights))]


@register_operator("_image_random_lighting")
class RandomLighting(Changed):
    """Random light along the principal components, normal with standard deviation alpha_std. data: [h, w, c]."""

    numbers: ClassVar[int] = 6

    alpha_std: float = 0.05

    def changes(self, target: str, gray: bool) -> Callable[[Any, tuple[Any, int]], list[Change]]:
        lights = _drawn(LIGHTS, {"spread": self.alpha_std}, self.numbers, 3, target)
        return lambda run, random: [(_light, lights(run, random))]


def _maybe_flipped(at: Any, data: Any, draw: Any, *, axis: int, p: Scalar) -> Any:
    """data, reversed along an axis if draw is below p. draw: [1]."""
    there = data.shape[axis] - 1 - at[axis]
    return data[(*at[:axis], where(draw[0] < p, there, at[axis]), *at[axis + 1:])]


FLIP = IndexedOp(_maybe_flipped, name="_image_maybe_flipped", free=("draw",), shape=lambda data, draw, **_: data,
                 differentiable=False)


class RandomFlip(Changed):
    """Base class: a flip with probability p."""

    axis: ClassVar[int]

    p: float = 0.5

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is not None:
            picture_axes(self.name, len(x))
        return [x], [x], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        params = {"axis": len(ins[0].shape) + self.axis, "p": self.p}
        flip = _kernel(FLIP, params, [*ins, Spec((1,), float32)], outs[0], reqs[0], target)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[Any, int] = (0, 0)) -> None:
            draw = run.workspace((1,), float32)
            fill(run, target, draw, random)
            flip(run, [*inputs, draw], outputs)

        return kernel


@register_operator("_image_random_flip_left_right")
class RandomFlipLeftRight(RandomFlip):
    """data [h, w, c] flipped left to right with probability p."""

    axis: ClassVar[int] = -2


@register_operator("_image_random_flip_top_bottom")
class RandomFlipTopBottom(RandomFlip):
    """data [h, w, c] flipped top to bottom with probability p."""

    axis: ClassVar[int] = -3
