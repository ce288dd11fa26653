"""mx.nd.image. Oracle: NumPy and colorsys, picture by picture. What MXNet 1.9.1 computes is in tests/golden/ops."""

import colorsys

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import DTypeError, ParameterError, ShapeError

I = mx.nd.image


def picture(rng, ctx, *shape):
    x = rng.integers(0, 256, shape).astype("uint8")
    return x, mx.nd.array(x, ctx=ctx, dtype="uint8")


@pytest.mark.parametrize("lead", [(), (2,)])
def test_pictures_to_tensors(rng, ctx, lead):
    x, a = picture(rng, ctx, *lead, 4, 5, 3)
    tensor = I.to_tensor(a)
    assert tensor.dtype == np.float32
    np.testing.assert_allclose(tensor.asnumpy(), np.moveaxis(x, -1, -3) / 255, rtol=1e-6)  # closer than the table
    mean, std = np.array([0.4, 0.5, 0.6]), np.array([0.2, 0.3, 0.4])
    want = (np.moveaxis(x, -1, -3) / 255 - mean[:, None, None]) / std[:, None, None]
    assert_close(I.normalize(tensor, tuple(mean), tuple(std)), want, scale=10)  # 10: rounded in another order
    np.testing.assert_array_equal(I.crop(a, x=1, y=2, width=3, height=2).asnumpy(), x[..., 2:4, 1:4, :])
    np.testing.assert_array_equal(I.flip_left_right(a).asnumpy(), x[..., ::-1, :])
    np.testing.assert_array_equal(I.flip_top_bottom(a).asnumpy(), x[..., ::-1, :, :])


def test_resizing(rng, ctx):
    x, a = picture(rng, ctx, 6, 4, 3)
    assert I.resize(a, size=8, keep_ratio=True).shape == (12, 8, 3)
    assert I.resize(a, size=5).shape == (5, 5, 3)
    np.testing.assert_array_equal(I.resize(a, size=(4, 6)).asnumpy(), x)
    np.testing.assert_array_equal(I.resize(a, size=(8, 12), interp=0).asnumpy(), x.repeat(2, 0).repeat(2, 1))
    halves = x.reshape(3, 2, 2, 2, 3).mean((1, 3))
    assert (abs(I.resize(a, size=(2, 3)).asnumpy() - halves) <= 1).all()  # integers, 11 bits
    np.testing.assert_allclose(I.resize(a.astype("float32"), size=(2, 3)).asnumpy(), halves, rtol=1e-6)  # closer than the table


def sure(name, x, by):
    return getattr(I, f"random_{name}")(x, min_factor=by, max_factor=by).asnumpy()


def test_colours_changed_by_a_sure_amount(rng, ctx):
    x = rng.uniform(0, 255, (3, 4, 3)).astype("float32")
    a = mx.nd.array(x, ctx=ctx)
    gray = x @ [0.299, 0.587, 0.114]
    assert_close(sure("brightness", a, 0.5), x / 2, scale=0.1)  # 0.1: closer than the table: few roundings
    assert_close(sure("contrast", a, 0.5), (x + gray.mean()) / 2)
    assert_close(sure("saturation", a, 0.5), (x + gray[..., None]) / 2)
    turned = sure("hue", a, 0.25)
    for at in np.ndindex(3, 4):
        h, light, s = colorsys.rgb_to_hls(*(x[at] / 255))
        assert_close(turned[at] / 255, colorsys.hls_to_rgb(h + 0.25, light, s), scale=10)  # 10: rounded in another order
    np.testing.assert_array_equal(I.adjust_lighting(a, alpha=(0, 0, 0)).asnumpy(), x)
    a.attach_grad()
    with mx.autograd.record():
        lit = I.adjust_lighting(a, alpha=(1, 2, 3))
    lit.backward(a * 2)
    np.testing.assert_array_equal(a.grad.asnumpy(), 2 * x)
    assert sure("brightness", mx.nd.array(x.astype("uint8"), ctx=ctx, dtype="uint8"), 9.0).max() == 255


def test_chance_is_seeded_and_has_its_share(ctx):
    a = mx.nd.array(np.arange(12).reshape(2, 2, 3), ctx=ctx)
    mx.random.seed(3)
    first = [I.random_flip_left_right(a, p=0.3).asnumpy() for _ in range(80)]
    mx.random.seed(3)
    again = [I.random_flip_left_right(a, p=0.3).asnumpy() for _ in range(20)]
    np.testing.assert_array_equal(first[:20], again)
    flipped = sum(f[0, 0, 0] != 0 for f in first)
    assert 12 < flipped < 36
    jitter = [I.random_color_jitter(a, brightness=0.2, contrast=0.2, saturation=0.2, hue=0.1).asnumpy() for _ in range(5)]
    assert len({j.tobytes() for j in jitter}) == 5
    light = np.array([(I.random_lighting(a, alpha_std=1.0) - a).asnumpy()[0, 0, 0] for _ in range(100)])
    assert abs(light.mean()) < 10 and 24 < light.std() < 40  # 31.8


@pytest.mark.parametrize("call, error, text", [
    (lambda a: I.to_tensor(a[0, 0]), ShapeError, "to_tensor: data has 1 axes. It must be an image"),
    (lambda a: I.normalize(a), DTypeError, "normalize: data is uint8; it must hold floats"),
    (lambda a: I.normalize(a.astype("float32"), mean=(1, 2)), ParameterError, r"normalize: mean=\(1.0, 2.0\) and std=\(1.0,\)"),
    (lambda a: I.crop(a, x=3, y=0, width=3, height=1), ParameterError, "image.crop: x=3, y=0, width=3, height=1 is not within"),
    (lambda a: I.resize(a, size=()), ParameterError, r"_image_resize: size=\(\) must be one or two"),
    (lambda a: I.resize(a, size=3, interp=2), ParameterError, r"interp=2 must be 0 \(nearest\) or 1"),
    (lambda a: I.random_hue(a, min_factor=1, max_factor=0), ParameterError, "min_factor=1.0 must be at least 0 and at most"),
    (lambda a: I.random_lighting(mx.nd.ones((2, 2, 2))), ParameterError, r"data \(2, 2, 2\) must have 1 or 3 channels"),
    (lambda a: I.adjust_lighting(a, alpha=(1, 2)), ParameterError, r"alpha=\(1.0, 2.0\) must be three numbers"),
])
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(mx.nd.ones((4, 5, 3), dtype="uint8"))
