"""Samplers, datasets, batches and image transforms on data that follow from formulas.

`python data_cases.py` with MXNet 1.9.1 installed records data_cases.json, .npz and random_transforms.npz, which
tests/gluon/data/test_golden.py reads.
The functions take the package as mx, so that the same code runs with both.
"""

import json
import random
from pathlib import Path

import numpy as np


def picture(height, width, dtype="uint8"):
    """A colour image in which every pixel has another colour."""
    i, j = np.mgrid[:height, :width]
    planes = [(37 * i + 11 * j + 5) % 256, (5 * i + 53 * j) % 256, (i * j * 3 + 91) % 256]
    return np.stack(planes, axis=2).astype(dtype)


def batches(mx):
    """{what: [the batches of three epochs, and the length before each]}."""
    data = mx.gluon.data
    found = {}
    for rows, size in ((10, 4), (7, 3), (6, 3), (2, 5)):
        for last in ("keep", "discard", "rollover"):
            sampler = data.BatchSampler(data.SequentialSampler(rows, 2), size, last)
            found[f"{rows} by {size}, {last}"] = [[len(sampler), list(sampler)] for _ in range(3)]
            loader = data.DataLoader(list(range(rows)), batch_size=size, last_batch=last)
            loaded = [[len(loader), [b.asnumpy().tolist() for b in loader]] for _ in range(3)]
            found[f"loader of {rows} by {size}, {last}"] = loaded
    np.random.seed(5)
    loader = data.DataLoader(np.arange(12), batch_size=5, shuffle=True)
    found["shuffled by NumPy's generator"] = [[b.asnumpy().tolist() for b in loader] for _ in range(2)]
    return found


def datasets(mx):
    """{what: samples}."""
    data = mx.gluon.data
    whole = data.SimpleDataset(list(range(11)))
    pairs = data.ArrayDataset(np.arange(5), list("abcde"))
    interval = mx.gluon.contrib.data.IntervalSampler
    return {
        "shards": [[whole.shard(3, i)[j] for j in range(len(whole.shard(3, i)))] for i in range(3)],
        "take": [[whole.take(n)[i] for i in range(len(whole.take(n)))] for n in (None, 4, 99)],
        "filter": list(whole.filter(lambda x: x % 3 == 1)),
        "sample": list(whole.sample(interval(11, 4))),
        "transform": [int(x) for x in whole.transform(lambda x: x * x)],
        "transform of pairs": [[int(a), b] for a, b in pairs.transform(lambda a, b: (a + 1, b * 2), lazy=False)],
        "transform_first": [[int(a), b] for a, b in pairs.transform_first(lambda a: -a)],
        "intervals": [list(interval(13, 3)), list(interval(13, 3, rollover=False)), len(interval(13, 3, rollover=False))],
    }


def batch_forms(mx):
    """[(type, shape, dtype) of what the default function makes of samples]."""
    make = mx.gluon.data.dataloader.default_batchify_fn

    def form(x):
        return [form(e) for e in x] if isinstance(x, (list, tuple)) else [list(x.shape), np.dtype(x.dtype).name]

    return [form(make(samples)) for samples in (
        [1, 2, 3], [1.5, 2.5], [np.float32(1), np.float32(2)], [np.zeros((2, 3), "uint8")] * 4, [[1, 2], [3, 4]],
        [(1, np.ones(3, "float32"))] * 2, [(mx.nd.ones((2,)), (1, 2.0))] * 3, [mx.nd.ones((2, 2), dtype="int32")] * 2)]


def transforms(mx):
    """{name: (transform, image)}."""
    t = mx.gluon.data.vision.transforms
    small, large = picture(9, 14), picture(40, 31)
    tensor = picture(12, 10).transpose(2, 0, 1).astype("float32") / 255
    batch = np.stack([picture(9, 14), picture(9, 14)[::-1]])
    compose = t.Compose([t.Resize(20, keep_ratio=True), t.CenterCrop((12, 16)), t.ToTensor(),
                         t.Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))])
    found = {
        "cast": (t.Cast("float16"), small), "to_tensor": (t.ToTensor(), small), "to_tensor batch": (t.ToTensor(), batch),
        "normalize": (t.Normalize(0.4, 0.3), tensor),
        "normalize channels": (t.Normalize((0.4, 0.5, 0.6), (0.1, 0.2, 0.3)), tensor),
        "center_crop": (t.CenterCrop((6, 4)), small), "center_crop larger": (t.CenterCrop(20), small),
        "crop_resize": (t.CropResize(2, 1, 8, 6), small), "crop_resize to": (t.CropResize(2, 1, 8, 6, (5, 9), 1), small),
        "crop_resize batch": (t.CropResize(2, 1, 8, 6, 4, 0), batch),
        "rotate": (t.Rotate(30), tensor), "rotate in": (t.Rotate(-50, zoom_in=True), tensor),
        "rotate out": (t.Rotate(100, zoom_out=True), tensor), "random_rotation": (t.RandomRotation((-40, 20)), tensor),
        "random_rotation sometimes": (t.RandomRotation((-40, 20), rotate_with_proba=0.5), tensor),
        "random_resized_crop": (t.RandomResizedCrop((8, 6), (0.3, 0.8)), large),
        "random_apply": (t.RandomApply(t.CenterCrop(5), p=0.6), small), "compose": (compose, large),
    }
    for interpolation in (0, 1, 2, 3, 4):
        found[f"resize {interpolation}"] = t.Resize((11, 7), interpolation=interpolation), large
    found["resize keep"] = t.Resize(10, keep_ratio=True), large
    found["resize batch"] = t.Resize((6, 5)), batch
    return found


def transformed(mx, name):
    """What the transform gives, called twice with seeded generators."""
    transform, image = transforms(mx)[name]
    random.seed(7)
    np.random.seed(7)
    x = mx.nd.array(image, dtype=image.dtype)
    return np.stack([transform(x).asnumpy() for _ in range(2)])


def random_transforms(mx):
    """{name: a transform that draws numbers by a generator of the package's own}; without RandomSaturation, see docs/mxnet.md."""
    t = mx.gluon.data.vision.transforms
    return {"brightness": t.RandomBrightness(0.3), "contrast": t.RandomContrast(0.5),
            "hue": t.RandomHue(0.3), "lighting": t.RandomLighting(0.2), "color_jitter": t.RandomColorJitter(brightness=0.4),
            "flip_left_right": t.RandomFlipLeftRight(), "flip_top_bottom": t.RandomFlipTopBottom()}


def drawn(mx, name):
    """Return the results of four calls of the transform, with each of two dtypes."""
    return {f"{name} {dtype}": np.stack([random_transforms(mx)[name](mx.nd.array(picture(8, 6), dtype=dtype)).asnumpy()
                                         for _ in range(4)]) for dtype in ("uint8", "float32")}


if __name__ == "__main__":
    import mxnet

    target = Path(__file__)
    np.savez_compressed(target.with_suffix(".npz"), **{name: transformed(mxnet, name) for name in transforms(mxnet)})
    np.savez_compressed(target.with_name("random_transforms.npz"),
                        **{k: v for name in random_transforms(mxnet) for k, v in drawn(mxnet, name).items()})
    found = {"batches": batches(mxnet), "datasets": datasets(mxnet), "forms": batch_forms(mxnet)}
    target.with_suffix(".json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
