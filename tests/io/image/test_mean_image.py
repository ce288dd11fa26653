"""mean_img: loaded, or computed and saved if missing. Oracle: the mean of the images in float64; MXNet's file."""

import logging

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.image_files import picture, write_pictures
from tritium.errors import FileError
from tritium.io.image.mean_image import mean_image

SHAPE = (3, 24, 30)


@pytest.fixture
def records(tmp_path):
    write_pictures(tmp_path / "a.rec", 11, 24, 30, ".png")
    return tmp_path / "a.rec"


def iterator(records, path, **kw):
    return mx.io.ImageRecordIter(path_imgrec=records, data_shape=SHAPE, batch_size=4, mean_img=path, **kw)


@pytest.mark.parametrize("given", [{}, {"num_parts": 3, "part_index": 1}, {"preprocess_threads": 3, "shuffle": True}])
def test_a_missing_mean_image_is_computed_over_the_whole_file_and_saved(records, tmp_path, given, caplog):
    caplog.set_level(logging.INFO, "tritium.io")
    path = tmp_path / "mean.bin"
    batch = next(iterator(records, path, **given))
    pictures = np.stack([picture(i, 24, 30) for i in range(11)]).transpose(0, 3, 1, 2)
    mean = mx.nd.load(str(path))["mean_img"].asnumpy()
    assert mean.dtype == np.float32 and np.allclose(mean, pictures.mean(0, dtype=np.float64), rtol=1e-6)  # closer than the table
    assert np.array_equal(batch.data[0].asnumpy(), pictures[batch.index] - mean)
    assert "mean.bin does not exist: computing the mean image" in caplog.text
    caplog.clear()
    again = next(iterator(records, path, **given))
    assert np.array_equal(again.data[0].asnumpy(), batch.data[0].asnumpy()) and not caplog.text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.rec", "mean.bin"]


def test_the_mean_image_is_that_of_an_epoch_without_it(records, tmp_path):
    """With scale and mean_r applied, as MXNet saves it."""
    next(iterator(records, tmp_path / "plain.bin"))
    next(iterator(records, tmp_path / "other.bin", scale=0.5, mean_r=10))
    plain, other = (mx.nd.load(str(tmp_path / f"{name}.bin"))["mean_img"].asnumpy() for name in ("plain", "other"))
    assert_close(other, (plain - np.array([10, 0, 0])[:, None, None]) / 2, scale=0.1)  # 0.1: closer than the table: few roundings


def test_uint8_ignores_the_mean_image(records, tmp_path):
    batch = next(iterator(records, tmp_path / "mean.bin", dtype="uint8"))
    assert np.array_equal(batch.data[0].asnumpy()[0], picture(0, 24, 30).transpose(2, 0, 1))
    assert not (tmp_path / "mean.bin").exists()


@pytest.mark.parametrize("content, text", [
    (None, r"a\.bin: the file does not exist. Write it with mx.nd.save"),
    ([mx.nd.zeros(SHAPE)], r"a\.bin: has no array named 'mean_img'"),
    ({"mean_img": mx.nd.zeros((3, 2, 2))}, r"a\.bin: the mean image is \[3, 2, 2\], data_shape is \[3, 24, 30\]. Delete the"),
])
def test_files_without_a_mean_image_are_refused(tmp_path, content, text):
    if content is not None:
        mx.nd.save(str(tmp_path / "a.bin"), content)
    with pytest.raises(FileError, match=text):
        mean_image(tmp_path / "a.bin", SHAPE)
