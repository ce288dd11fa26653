"""ImageDetRecordIter: batches against MXNet 1.9.1's (mxnet_det.json), augmentation with boxes whose pixels are known, damage."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.image_files import write_records
from tritium.errors import FileError, ParameterError
from tritium.io.image.codec import encode
from tritium.io.image.det_record_augmenter import DetRecordAugmenter

HERE = Path(__file__).parents[1] / "image"
JPEGS = [np.load(HERE / "mxnet_images.npz")[f"jpeg{i}"].tobytes() for i in range(10)]
CASES = json.loads((HERE / "mxnet_det.json").read_text())


def objects_of(i):
    return [2, 5] + [v for k in range(1 + i % 3) for v in (k, 0.1 + 0.1 * k, 0.2, 0.5 + 0.1 * k, 0.6 + 0.03 * i)]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "a.rec"
    write_records(path, JPEGS, [objects_of(i) for i in range(10)])
    return path


def iterator(path, **kw):
    return mx.io.ImageDetRecordIter(path_imgrec=path, **{"data_shape": (3, 24, 28), "batch_size": 5, **kw})


@pytest.mark.parametrize("case", CASES)
def test_batches_are_mxnets(records, case):
    digests = [hashlib.sha256(b.data[0].asnumpy().tobytes() + b.label[0].asnumpy().tobytes()).hexdigest()[:16]
               for b in iterator(records, **CASES[case]["parameters"])]
    assert digests == CASES[case]["batches"]


RANDOM = {"rand_crop_prob": 0.8, "min_crop_scales": (0.3, 0.5), "max_crop_scales": (1.0, 0.9), "min_crop_overlaps": (0.1, 0.0),
          "min_crop_aspect_ratios": 0.5, "max_crop_aspect_ratios": 2.0, "num_crop_sampler": 2, "rand_pad_prob": 0.5,
          "max_pad_scale": 2.0, "rand_mirror_prob": 0.5, "max_random_hue": 10, "random_hue_prob": 0.5,
          "max_random_contrast": 0.2, "random_contrast_prob": 0.5, "shuffle": True, "seed": 3}


def test_batches_do_not_depend_on_the_number_of_threads(records):
    def digest(threads):
        h = hashlib.sha256()
        with iterator(records, preprocess_threads=threads, **RANDOM) as it:
            for b in it:
                h.update(b.data[0].asnumpy().tobytes() + b.label[0].asnumpy().tobytes())
        return h.hexdigest()

    assert digest(1) == digest(2) == digest(7)


@pytest.mark.parametrize("mode", ["center", "overlap"])
def test_boxes_stay_on_their_objects(rng, mode):
    """The object is the only bright thing: after any crop, pad and mirror its box still holds the bright pixels."""
    augment = DetRecordAugmenter((1, 100, 100), rand_crop_prob=1, min_crop_scales=0.4, max_crop_scales=1,
                                 min_crop_aspect_ratios=0.5, max_crop_aspect_ratios=2, min_crop_object_coverages=0.7,
                                 rand_pad_prob=0.5, max_pad_scale=2, rand_mirror_prob=0.5, fill_value=0, crop_emit_mode=mode)
    changed = 0
    for _ in range(60):
        x0, y0 = rng.integers(0, 120), rng.integers(0, 100)
        w, h = rng.integers(30, 80), rng.integers(30, 60)
        image = np.zeros((160, 200, 1), np.uint8)
        image[y0:y0 + h, x0:x0 + w] = 255
        box = np.array([[7, x0 / 200, y0 / 160, (x0 + w) / 200, (y0 + h) / 160]], np.float32)
        pixels, objects = augment(image, box, rng.random)
        bright = np.argwhere(pixels[:, :, 0] > 127)
        seen = [bright[:, 1].min(), bright[:, 0].min(), bright[:, 1].max() + 1, bright[:, 0].max() + 1]
        assert objects[0, 0] == 7 and np.abs(objects[0, 1:] * 100 - seen).max() < 4
        changed += not np.array_equal(objects, box)
    assert changed > 40


def test_labels_that_are_not_objects_are_named(tmp_path, records):
    for labels in ([2, 4, 1, 1, 1, 1], [1, 5], [2, 5, 1, 2, 3], [float("nan"), 5, 1]):
        write_records(tmp_path / "a.rec", [encode(np.zeros((9, 9, 3), np.uint8), 90, ".jpg")], [labels])
        with pytest.raises(FileError, match=rf"a\.rec: record 0 at byte 0 \(id 0\): its {len(labels)} labels are not objects"):
            next(iterator(tmp_path / "a.rec"))
    with pytest.raises(FileError, match=r"record 1 at byte .*: it has 12 labels; label_width is 7"):
        next(iterator(records, label_width=7))


@pytest.mark.parametrize("wrong, message", [
    ({"label_pad_width": 3}, "label_pad_width=3 is less than the 17 labels of a record"),
    ({"resize_mode": "crop"}, "resize_mode='crop' is not one of 'force', 'shrink', 'fit'"),
    ({"num_crop_sampler": 3, "min_crop_scales": (0.1, 0.2)}, "min_crop_scales has 2 numbers for 3 samplers"),
])
def test_wrong_parameters_are_named(records, wrong, message):
    with pytest.raises(ParameterError, match=f"^ImageDetRecordIter: {message}"):
        iterator(records, **wrong)


def test_unknown_parameters_are_ignored_with_a_warning(records):
    with pytest.warns(UserWarning, match=r"^ImageDetRecordIter: 'rand_mirror' is ignored: .* Did you mean 'rand_mirror_prob'"):
        iterator(records, rand_mirror=True)
