"""mx.nd.image.random_*: images [h, w, c] flipped at random, or with randomly changed colours.

uint8 results are clipped to 0 … 255. No derivative. The few random numbers of a call are drawn on the host; they become run-time
scalars of index formulas, which compute the pixels where the image is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ....dtype import float32, float64
from ....errors import ParameterError
from ...declare.indexed import IndexedOp
from ...declare.operator_property import RANDOM, OperatorProperty, RandomNumbers, Shapes
from ...declare.property_op import register_operator
from ...declare.simple_op import Scalar
from ...ir.lang import maximum, minimum, mod, where
from ...kernel import KernelFunction
from ...op import Req, Reqs, Spec, Specs, builtin, compiled_static
from ..vision.boxes import one_of
from .image import picture_axes

GRAY = 0.299, 0.587, 0.114
#: Principal components of the colours of ImageNet, each times its standard deviation. Source: Krizhevsky, Sutskever, Hinton 2012.
LIGHT = np.array([[55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009],
                  [55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140],
                  [55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203]], np.float32)


# ---- formulas: an element of the changed image, clipped to 0 … 255 and of dtype `kind` ---------------------------------
def _changed_image(body: Callable[..., Any]) -> IndexedOp:
    return IndexedOp(body, name=f"_image{body.__name__}", dtype=lambda data, *_, kind, **p: kind, free=("mean",)[:"contrast" in
                     body.__name__], shape=lambda data, *_, **p: data, differentiable=False)


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
def _brightness(at: Any, data: Any, *, by: Scalar, kind: str, clip: bool) -> Any:
    """x · by."""
    return _settled(data[at].astype("float32") * by, clip)


def _gray(at: Any, data: Any) -> Any:
    """The gray of each pixel."""
    return _gray_of(_colours(data, (*at, 0)))


GRAY_IMAGE = IndexedOp(_gray, name="_image_gray", shape=lambda data: data[:-1], dtype=float64, differentiable=False)


@_changed_image
def _contrast(at: Any, data: Any, mean: Any, *, by: Scalar, rest: Scalar, kind: str, clip: bool) -> Any:
    """x · by + mean · rest. mean: [1], of the grays of all pixels."""
    return _settled(data[at].astype("float32") * by + (mean[0] * rest).astype("float32"), clip)


@_changed_image
def _saturation(at: Any, data: Any, *, by: Scalar, rest: Scalar, kind: str, clip: bool) -> Any:
    """x · by + the pixel's own gray · rest."""
    colours = _colours(data, at)
    gray = _gray_of(colours) * rest
    return one_of(at[-1], [_settled(c * by + gray, clip) for c in colours])


@_changed_image
def _hue(at: Any, data: Any, *, by: Scalar, kind: str, clip: bool) -> Any:
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
        place = mod((sixth / 6 + by) * 6 + shift, 6)
        turned = where(place < 1, bottom + (top - bottom) * place, where(place < 3, top, where(
            place < 4, bottom + (top - bottom) * (4 - place), bottom)))
        made.append(_settled(where(some, turned, light) * 255, clip))
    return one_of(at[-1], made)


@_changed_image
def _light(at: Any, data: Any, *, red: Scalar, green: Scalar, blue: Scalar, kind: str, clip: bool) -> Any:
    """A number is added to each channel."""
    return one_of(at[-1], [_settled(c + more, clip) for c, more in zip(_colours(data, at), (red, green, blue))])


# ---- changes: an IndexedOp, and the values of its scalars ---------------------------------------------------------------
Change = tuple[IndexedOp, tuple[float, ...]]
SAME: Change = _brightness, (1.0,)


def brightened(by: float, gray: bool) -> Change:
    """Multiply by `by`."""
    return _brightness, (by,)


def contrasted(by: float, gray: bool) -> Change:
    """Scale the distance from the image's mean gray by `by`."""
    return _contrast, (by, 1 - by)


def saturated(by: float, gray: bool) -> Change:
    """Scale the distance of each pixel from its own gray by `by`."""
    return SAME if gray else (_saturation, (by, 1 - by))


def hue_turned(by: float, gray: bool) -> Change:
    """Rotate the hue by the fraction `by` of the colour circle."""
    return SAME if gray else (_hue, (by,))


def lit(amounts: ArrayLike, gray: bool) -> Change:
    """Add light along the principal components of the colours."""
    return SAME if gray else (_light, tuple(map(float, LIGHT @ np.asarray(amounts, np.float32))))


class Changed(OperatorProperty):
    """Base class: an image of the same shape and dtype as data."""

    numbers: ClassVar[int] = 1  # random numbers drawn per call
    colours: ClassVar[bool] = True
    resources = (RANDOM,)
    gradient_arguments = ()
    waits: ClassVar[bool] = True  # it draws on the host, so that no CUDA graph can hold it

    def num_random(self, outs: Specs) -> int:
        return self.numbers

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is not None:
            picture_axes(self.name, len(x))
            if self.colours and x[-1] not in (-1, 1, 3):
                raise ParameterError(f"{self.name}: data {x} must have 1 or 3 channels, last.")
        return [x], [x], []

    def changes(self, draw: np.ndarray, gray: bool) -> list[Change]:
        """Return the changes in their order. draw: `numbers` uniform numbers in [0, 1); gray: the image has one channel."""
        raise NotImplementedError(self.name)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        (image,), (out,), (req,) = ins, outs, reqs
        between, gray, mean = Spec(image.shape, float32), Spec(image.shape[:-1], float64), Spec((1,), float64)

        @cache
        def kernels(op: IndexedOp, first: bool, last: bool) -> tuple[Any, ...]:
            """Return the kernel of one change, after those of the mean gray that it reads, if it does."""
            source, (result, request) = image if first else between, (out, req) if last else (between, Req.WRITE)
            params = {d.name: 0.0 for d in op.params if d.kind == "scalar"}
            params |= {"kind": result.dtype.name, "clip": last and out.dtype == np.uint8}
            if op is not _contrast:
                return (_kernel(op, params, [source], result, request, target),)
            return (_kernel(op, params, [source, mean], result, request, target),
                    _kernel(GRAY_IMAGE, {}, [source], gray, Req.WRITE, target),
                    _kernel(builtin("mean"), {}, [gray], mean, Req.WRITE, target))

        def chosen(draw: np.ndarray) -> list[Change]:
            return self.changes(draw, image.shape[-1] == 1) or [SAME]

        fixed = None if self.numbers else chosen(np.empty(0))

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
            if req == Req.NULL:
                return
            x, changes = inputs[0], fixed or chosen(RandomNumbers(*random).uniform((self.numbers,)))
            for i, (op, scalars) in enumerate(changes):
                last = i == len(changes) - 1
                apply, *averages = kernels(op, i == 0, last)
                arrays = [x]
                if averages:
                    grays, average = run.workspace(gray.shape, float64), run.workspace((1,), float64)
                    averages[0](run, [x], [grays])
                    averages[1](run, [grays], [average])
                    arrays.append(average)
                y = outputs[0] if last else run.workspace(image.shape, float32)
                apply(run, arrays, [y], scalars=scalars)
                x = y

        return kernel


def _kernel(op: Any, params: dict[str, Any], ins: Sequence[Spec], out: Spec, req: Req, target: str) -> Any:
    return compiled_static(op, op.parse(params), tuple(ins), (out,), (req,), target)


def _between(low: float, high: float, share: Any) -> float:
    return low + (high - low) * float(share)


class Scaled(Changed):
    """Base class: a change by a factor between min_factor and max_factor."""

    change: ClassVar[Callable[[float, bool], Change]]

    min_factor: float
    max_factor: float

    def validate(self) -> None:
        if not 0 <= self.min_factor <= self.max_factor:
            raise ParameterError(f"{self.name}: min_factor={self.min_factor} must be at least 0 and at most max_factor="
                                 f"{self.max_factor}.")

    def changes(self, draw: np.ndarray, gray: bool) -> list[Change]:
        return [type(self).change(_between(self.min_factor, self.max_factor, draw[0]), gray)]


@register_operator("_image_random_brightness")
class RandomBrightness(Scaled):
    """data times a factor from min_factor to max_factor. data: [h, w, c]."""

    change = staticmethod(brightened)


@register_operator("_image_random_contrast")
class RandomContrast(Scaled):
    """data's distance from its mean gray, times a factor from min_factor to max_factor. data: [h, w, c]."""

    change = staticmethod(contrasted)


@register_operator("_image_random_saturation")
class RandomSaturation(Scaled):
    """Each element's distance from its gray, times a factor from min_factor to max_factor. data: [h, w, c].

    MXNet 1.9.1 uses black instead of gray, which changes the brightness. This operator keeps the brightness.
    """

    change = staticmethod(saturated)


@register_operator("_image_random_hue")
class RandomHue(Scaled):
    """Hue rotated by a fraction of the colour circle, from min_factor to max_factor. data: [h, w, c]."""

    change = staticmethod(hue_turned)


@register_operator("_image_random_color_jitter")
class RandomColorJitter(Changed):
    """Brightness, contrast and saturation changed by random factors within 1 ± their parameter, hue rotated within ± hue.

    The four changes are made in random order. data: [h, w, c].
    """

    numbers: ClassVar[int] = 8

    brightness: float
    contrast: float
    saturation: float
    hue: float

    def validate(self) -> None:
        if min(self.brightness, self.contrast, self.saturation, self.hue) < 0:
            raise ParameterError(f"{self.name}: brightness={self.brightness}, contrast={self.contrast}, saturation="
                                 f"{self.saturation}, hue={self.hue} must be at least 0.")

    def changes(self, draw: np.ndarray, gray: bool) -> list[Change]:
        steps = ((brightened, self.brightness, 1.0), (contrasted, self.contrast, 1.0), (saturated, self.saturation, 1.0),
                 (hue_turned, self.hue, 0.0))
        return [change(_between(max(about - most, 0.0) if about else -most, about + most, draw[i]), gray)
                for i in np.argsort(draw[4:], kind="stable") for change, most, about in (steps[i],) if most > 0]


@register_operator("_image_adjust_lighting")
class AdjustLighting(Changed):
    """Light added along the principal components of the colours, alpha[i] of each. data: [h, w, c]; alpha: three numbers."""

    numbers: ClassVar[int] = 0

    alpha: tuple[float, ...]
    resources = ()
    waits: ClassVar[bool] = False

    def validate(self) -> None:
        if len(self.alpha) != 3:
            raise ParameterError(f"{self.name}: alpha={self.alpha} must be three numbers.")

    def changes(self, draw: np.ndarray, gray: bool) -> list[Change]:
        return [lit(self.alpha, gray)]


@register_operator("_image_random_lighting")
class RandomLighting(Changed):
    """Random light along the principal components, normal with standard deviation alpha_std. data: [h, w, c]."""

    numbers: ClassVar[int] = 6

    alpha_std: float = 0.05

    def changes(self, draw: np.ndarray, gray: bool) -> list[Change]:
        radius = np.sqrt(-2 * np.log1p(-draw[:3].astype(np.float64)))
        return [lit(self.alpha_std * radius * np.cos(2 * math.pi * draw[3:]), gray)]


class RandomFlip(Changed):
    """Base class: a flip with probability p."""

    axis: ClassVar[int]
    colours: ClassVar[bool] = False

    p: float = 0.5

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        whole = _kernel(builtin("_copy"), {}, ins, outs[0], reqs[0], target)
        flipped = _kernel(builtin("reverse"), {"axis": (len(ins[0].shape) + self.axis,)}, ins, outs[0], reqs[0], target)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
            (flipped if RandomNumbers(*random).uniform((1,))[0] < self.p else whole)(run, inputs, outputs)

        return kernel


@register_operator("_image_random_flip_left_right")
class RandomFlipLeftRight(RandomFlip):
    """data [h, w, c] flipped left to right with probability p."""

    axis: ClassVar[int] = -2


@register_operator("_image_random_flip_top_bottom")
class RandomFlipTopBottom(RandomFlip):
    """data [h, w, c] flipped top to bottom with probability p."""

    axis: ClassVar[int] = -3
