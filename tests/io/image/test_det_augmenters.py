"""Detection augmenters: results of MXNet 1.9.1 for the same seeds (mxnet_det_image.npz); boxes; refusals."""

import hashlib
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import ParameterError

GIVEN = dict(np.load(Path(__file__).with_name("mxnet_det_image.npz")))
SAID = json.loads(str(GIVEN["json"]))
JPEG = np.load(Path(__file__).with_name("mxnet_images.npz"))["jpeg0"].tobytes()
LABEL = np.array([[0, 0.1137, 0.2111, 0.5239, 0.6173], [3, 0.4371, 0.3193, 0.9117, 0.9577],
                  [7, 0.0173, 0.7031, 0.2399, 0.8111]], "f")


@pytest.mark.parametrize("name", SAID["augmenters"])
def test_the_same_seed_gives_mxnets_batches(name):
    kind, parameters = SAID["augmenters"][name]
    random.seed(7)
    np.random.seed(7)
    made = getattr(mx.image, kind)(**parameters)
    chain = made if isinstance(made, list) else [made]
    dumps = [re.sub(r"\d+\.\d{5,}", lambda number: f"{float(number[0]):.5g}", str(a.dumps())) for a in chain]
    assert dumps == GIVEN[f"dumps.{name}"].tolist(), "as MXNet's; mean and deviation are float32 here"
    for k in range(8):
        image, label = mx.image.imdecode(JPEG), LABEL.copy()
        for augmenter in chain:
            image, label = augmenter(image, label)
        assert_close(label, GIVEN[f"label.{name}.{k}"])
        if f"{name}.{k}" in SAID["digests"]:
            assert hashlib.sha256(image.asnumpy().tobytes()).hexdigest()[:16] == SAID["digests"][f"{name}.{k}"]
        elif f"image.{name}.{k}" in GIVEN:
            assert_close(image, GIVEN[f"image.{name}.{k}"], scale=10)  # as in test_image


def bright(box, height=160, width=200):
    """Return an image whose bright pixels are exactly those in the box."""
    x0, y0, x1, y1 = np.round(box * [width, height, width, height]).astype(int)
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[y0:y1, x0:x1] = 255
    return mx.nd.array(pixels, dtype="uint8")


@pytest.mark.parametrize("make", [
    lambda: mx.image.DetHorizontalFlipAug(1), lambda: mx.image.DetRandomPadAug(area_range=(1, 4), pad_val=0),
    lambda: mx.image.DetRandomCropAug(min_object_covered=0.7, area_range=(0.2, 0.9)),
])
def test_boxes_stay_on_their_objects(rng, make):
    random.seed(1)
    augmenter, changed = make(), 0
    for _ in range(40):
        left, top = rng.uniform(0, 0.6, 2)
        box = np.array([left, top, left + rng.uniform(0.15, 0.4), top + rng.uniform(0.2, 0.4)])
        image, label = augmenter(bright(box), np.array([[4, *box]], np.float32))
        seen = np.argwhere(image.asnumpy()[:, :, 0] > 127)
        edges = [seen[:, 1].min(), seen[:, 0].min(), seen[:, 1].max() + 1, seen[:, 0].max() + 1]
        height, width = image.shape[:2]
        assert label[0, 0] == 4 and np.abs(label[0, 1:] * [width, height, width, height] - edges).max() < 1.01
        changed += image.shape != (160, 200, 3) or not np.allclose(label[0, 1:], box)
    assert changed > 30


def test_a_random_crop_meets_its_limits():
    """Area and aspect are within their limits, touched objects are covered enough, objects mostly cut off are dropped."""
    random.seed(2)
    augmenter = mx.image.DetRandomCropAug(0.4, (0.5, 1.5), (0.2, 0.6), 0.5)
    image = mx.nd.zeros((60, 80, 3), dtype="uint8")
    cropped = 0
    for _ in range(100):
        out, label = augmenter(image, LABEL)
        if out is image:
            continue
        cropped += 1
        height, width = out.shape[:2]
        assert 0.2 <= height * width / 4800 <= 0.6 and 0.45 < width / height < 1.6
        assert 1 <= len(label) <= 3 and label[:, 1:].min() >= 0 and label[:, 1:].max() <= 1
        whole = {int(o[0]): (o[3] - o[1]) * (o[4] - o[2]) for o in LABEL}
        for number in label:
            left = (number[3] - number[1]) * (number[4] - number[2]) * height * width / 4800
            assert left / whole[int(number[0])] > 0.5 - 1e-4
    assert cropped > 50


def test_without_a_fitting_place_nothing_is_changed():
    image = mx.nd.zeros((20, 20, 3), dtype="uint8")
    for augmenter in (mx.image.DetRandomCropAug(0.999, area_range=(0.01, 0.02)), mx.image.DetRandomPadAug(area_range=(1, 1.01)),
                      mx.image.DetRandomSelectAug([]), mx.image.DetRandomSelectAug(mx.image.DetHorizontalFlipAug(1), 1)):
        out, label = augmenter(image, LABEL)
        assert out is image and label is LABEL


def test_after_restore_order_the_result_depends_on_the_seed_alone():
    choose = mx.image.DetRandomSelectAug([mx.image.DetBorrowAug(mx.image.CastAug(d)) for d in ("float32", "float16", "int32")])

    def draw(restore_order):
        random.seed(3)
        if restore_order:
            choose.restore_order()
        return choose(mx.nd.zeros((2, 2, 3)), LABEL)[0].dtype

    first = draw(True)
    assert len({draw(False) for _ in range(8)}) > 1, "without it, the order of the last call is shuffled further, as in MXNet"
    assert draw(True) == first


@pytest.mark.parametrize("make, message", [
    (lambda: mx.image.DetBorrowAug(mx.image.DetHorizontalFlipAug(1)), "^DetBorrowAug: augmenter is a DetHorizontalFlipAug, not"),
    (lambda: mx.image.DetRandomSelectAug([mx.image.CastAug()]), "^DetRandomSelectAug: CastAug is not a DetAugmenter"),
    (lambda: mx.image.DetRandomCropAug(area_range=(2, 1)), r"^DetRandomCropAug: area_range=\(2, 1\)\. Give \(min, max\)"),
    (lambda: mx.image.DetRandomCropAug(aspect_ratio_range=(0, 1)), r"^DetRandomCropAug: aspect_ratio_range=\(0, 1\)"),
    (lambda: mx.image.DetRandomPadAug(area_range=(0.5, 1)), "^DetRandomPadAug: .*the maximum must be above 1"),
    (lambda: mx.image.CreateMultiRandCropAugmenter([0.1, 0.2], max_attempts=[1, 2, 3]),
     "^CreateMultiRandCropAugmenter: min_object_covered has 2 values, another parameter has 3"),
])
def test_refusals(make, message):
    with pytest.raises(ParameterError, match=message):
        make()
    with pytest.raises(NotImplementedError, match=r"DetAugmenter\.__call__"):
        mx.image.DetAugmenter()(mx.nd.zeros((2, 2, 3)), LABEL)
