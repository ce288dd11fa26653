"""ImageRecordIter: batches, order, threads, resuming, damage. Oracle: the images that were written, and MXNet's digests."""

import hashlib
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import tritium as mx
from support.image_files import picture, write_pictures, write_records
from tritium.errors import FileError, ParameterError
from tritium.io.image.codec import encode

RANDOM = {"rand_crop": True, "rand_mirror": True, "resize": 36, "max_random_contrast": 0.3, "random_h": 10, "brightness": 0.2,
          "max_rotate_angle": 10, "pca_noise": 0.1, "shuffle": True, "seed": 5}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "pictures.rec"
    write_pictures(path, 37)
    return path


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """Nine PNG images, whose pixels do not change."""
    path = tmp_path_factory.mktemp("records") / "exact.rec"
    write_pictures(path, 9, 24, 30, ".png")
    return path


def iterator(path, **kw):
    return mx.io.ImageRecordIter(path_imgrec=path, **{"data_shape": (3, 24, 30), "batch_size": 8, **kw})


def digest(it):
    """Hash one epoch: data, labels, pads."""
    h = hashlib.sha256()
    for batch in it:
        h.update(batch.data[0].asnumpy())
        h.update(batch.label[0].asnumpy())
        h.update(str((batch.pad, batch.index.tolist())).encode())
    return h.hexdigest()


def labels(it):
    """Return the labels of one epoch, without padding."""
    return [x for batch in it for x in batch.label[0].asnumpy()[:8 - batch.pad].astype(int).tolist()]


def test_batches_are_the_images_in_order(exact):
    it = iterator(exact, batch_size=4)
    assert it.provide_data[0] == ("data", (4, 3, 24, 30)) and it.provide_label[0] == ("softmax_label", (4,))
    batches = list(it)
    assert [b.pad for b in batches] == [0, 0, 3]
    assert [b.index.tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 0, 1, 2]]
    for b in batches:
        for row, number in enumerate(b.index):
            assert np.array_equal(b.data[0].asnumpy()[row], picture(int(number), 24, 30).transpose(2, 0, 1))
            assert b.label[0].asnumpy()[row] == number
    it.reset()
    assert [b.index.tolist() for b in it] == [[3, 4, 5, 6], [7, 8, 0, 1]], "round_batch: after the rows that were padding"


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int8", "uint8"])
def test_pixels_are_normalised_by_the_formula(exact, dtype):
    it = iterator(exact, batch_size=1, dtype=dtype, mean_r=10.5, mean_g=20, mean_b=30, std_r=2, std_g=3, std_b=4, scale=0.5,
                  mirror=True)
    pixels = picture(0, 24, 30)[:, ::-1].transpose(2, 0, 1).astype(np.float32)
    mean, std = np.array([10.5, 20, 30], "f")[:, None, None], np.array([2, 3, 4], "f")[:, None, None]
    want = {"uint8": pixels, "int8": np.clip(pixels - mean, -128, 127)}.get(dtype, (pixels - mean) * (np.float32(0.5) / std))
    assert np.array_equal(next(it).data[0].asnumpy()[0], want.astype(dtype))


def test_a_mean_image_and_more_labels_and_a_list(exact, tmp_path):
    image = np.arange(3 * 24 * 30, dtype="f").reshape(3, 24, 30)
    mx.nd.save(str(tmp_path / "mean.bin"), {"mean_img": mx.nd.array(image)})
    (tmp_path / "a.lst").write_text("".join(f"{i}\t{i * 10}\t{i * 10 + 1}\tp{i}.png\n" for i in range(9)))
    batch = next(iterator(exact, batch_size=2, mean_img=tmp_path / "mean.bin", path_imglist=tmp_path / "a.lst", label_width=2))
    assert np.array_equal(batch.data[0].asnumpy()[1], picture(1, 24, 30).transpose(2, 0, 1) - image)
    assert batch.label[0].asnumpy().tolist() == [[0, 1], [10, 11]]
    with pytest.raises(FileError, match=r"exact\.rec: record 0 at byte 0 \(id \d+\): it has 1 labels; label_width is 2"):
        next(iterator(exact, label_width=2))


def test_an_epoch_does_not_depend_on_the_number_of_threads_and_differs_from_the_next(pictures):
    epochs = []
    for threads in (1, 2, 7):
        it = iterator(pictures, preprocess_threads=threads, **RANDOM)
        assert it.preprocess_threads == threads
        epochs.append([digest(it), it.reset(), digest(it)])
        it.close()
    assert epochs[0] == epochs[1] == epochs[2] and epochs[0][0] != epochs[0][2]
    assert digest(iterator(pictures, **{**RANDOM, "seed": 6})) != epochs[0][0]
    it = iterator(pictures, rand_crop=True, num_parts=5)
    first = next(it).data[0].asnumpy()
    it.reset()
    assert not np.array_equal(next(it).data[0].asnumpy(), first), "the same records with other crops"


GO_ON = """
import json, sys, hashlib
sys.path[:0] = json.loads(sys.argv[4])
from test_image_record_iter import RANDOM, iterator, digest
it = iterator(sys.argv[1], preprocess_threads=int(sys.argv[3]), **RANDOM)
it.load_state_dict(json.loads(sys.argv[2]))
print(digest(it)); it.reset(); print(digest(it))
"""


def test_killed_and_resumed_in_another_process_it_continues_identically(pictures):
    it = iterator(pictures, preprocess_threads=2, **RANDOM)
    digest(it)
    it.reset()
    next(it), next(it)
    state = json.dumps(it.state_dict())
    want = [digest(it), it.reset(), digest(it)]
    here = [os.path.dirname(__file__), os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]
    done = subprocess.run([sys.executable, "-c", GO_ON, str(pictures), state, "1", json.dumps(here)], capture_output=True,
                          text=True, check=True)
    assert done.stdout.split() == [want[0], want[2]]
    assert len(state) < 600, "a state is a few numbers"


@pytest.mark.parametrize("more, text", [
    (None, "the state has data "), ({"shuffle": True}, "the state has plan "),
    ({"seed_aug": 1}, "the state has seed_aug "),
])
def test_a_state_of_another_source_is_refused(pictures, exact, more, text):
    other = iterator(exact) if more is None else iterator(pictures, **more)
    with pytest.raises(ParameterError, match=rf"^ImageRecordIter\.load_state_dict: {text}"):
        iterator(pictures).load_state_dict(other.state_dict())


@pytest.mark.parametrize("change, text", [
    (lambda state: {"epoch": 1}, "this is not a state of ImageRecordIter"),
    (lambda state: {**state, "epoch": -1, "batch": 0}, "epoch -1, begin 0, batch 0 are out of range"),
])
def test_an_invalid_state_is_refused(pictures, change, text):
    it = iterator(pictures)
    with pytest.raises(ParameterError, match=text):
        it.load_state_dict(change(it.state_dict()))


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100, 101])
def test_parts_are_a_disjoint_union_in_equally_many_batches(pictures, parts):
    seen, counts = [], set()
    for part in range(parts):
        with iterator(pictures, num_parts=parts, part_index=part, shuffle=True, data_shape=(3, 8, 8), dtype="uint8",
                      preprocess_threads=1) as it:
            batches = [(b.label[0].asnumpy()[:8 - b.pad].astype(int).tolist(), b.index.tolist()) for b in it]
        counts.add(len(batches))
        seen += [x for kept, _ in batches for x in kept]
        assert all(kept == index[:len(kept)] for kept, index in batches)
    assert sorted(seen) == list(range(37)) and len(counts) == 1


# ---- damage ----
@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """24 records, of which 3, 4, 11, 22 and 23 are not valid images."""
    path = tmp_path_factory.mktemp("records") / "damaged.rec"
    good = [encode(picture(i), 90, ".jpg") for i in range(24)]
    bad = {3: good[3][:len(good[3]) // 2], 4: b"", 11: b"Dear reader, this is a letter.", 22: good[22][:100],
           23: b"\xff\xd8" + bytes(200)}
    return path, write_records(path, [bad.get(i, g) for i, g in enumerate(good)]), sorted(bad)


def test_a_bad_record_raises_an_error_that_names_it_and_the_next_batch_is_complete(damaged):
    path, offsets, _ = damaged
    it = iterator(path, batch_size=8)
    with pytest.raises(FileError, match=rf"damaged\.rec: record 3 at byte {offsets[3]:,} \(id 3\): the JPEG image of .* is "
                                        rf"damaged: .*\(1 more in this batch\.\) Give on_error='skip' to"):
        next(it)
    with pytest.raises(FileError, match=r"record 11 at byte .*: these 30 bytes are not an image that can be read; they "
                                        r"begin with b'Dear rea'"):
        next(it)
    with pytest.raises(FileError, match="record 22 at byte"):
        next(it)
    assert not list(it)
    it.reset()
    with pytest.raises(FileError, match="record 3 at byte"):
        next(it)


@pytest.mark.parametrize("threads", [1, 7])
def test_skip_gives_every_good_record_once_and_counts_the_bad_ones(damaged, threads, caplog):
    path, _, bad = damaged
    it = iterator(path, on_error="skip", preprocess_threads=threads)
    for epoch in range(2):
        batches = list(it)
        assert [b.pad for b in batches] == [2, 1, 2]
        kept = [x for b in batches for x in b.index[:8 - b.pad].tolist()]
        assert kept == [i for i in range(24) if i not in bad]
        for b in batches:
            assert b.label[0].asnumpy().astype(int).tolist() == b.index.tolist()
            assert np.array_equal(b.data[0].asnumpy()[-1], alone(path, int(b.index[-1]))), "padding is an image, too"
        assert sorted(it.skipped) == bad and "record 11 at byte" in it.skipped[11]
        assert f"epoch {epoch}: 5 of 24 records could not be read" in caplog.text
        it.reset()
        assert it.skipped == {}


def alone(path, number):
    """Return the pixels of one record, read as a part of its own."""
    with iterator(path, batch_size=1, num_parts=24, part_index=number) as it:
        return next(it).data[0].asnumpy()[0]


def test_substitute_uses_the_next_good_record(damaged):
    path, _, _ = damaged
    it = iterator(path, on_error="substitute")
    assert [b.index.tolist() for b in it] == [[0, 1, 2, 5, 5, 5, 6, 7], [8, 9, 10, 12, 12, 13, 14, 15],
                                              [16, 17, 18, 19, 20, 21, 0, 0]]
    assert sorted(it.skipped) == [3, 4, 11, 22, 23]


def test_a_part_with_only_bad_records_raises_an_error(tmp_path):
    write_records(tmp_path / "a.rec", [b"no", b"images"])
    with pytest.raises(FileError, match=r"record 0 at byte 0 .*And no other record of this part can be read"):
        next(iterator(tmp_path / "a.rec", on_error="skip"))


def test_lost_framing_is_named_or_skipped(pictures, tmp_path, caplog):
    data = bytearray(pictures.read_bytes())
    offsets = iterator(pictures)._file.offsets.tolist()
    data[offsets[5]] ^= 1  # record 5's header
    data[offsets[9] + 40:offsets[9] + 90] = b""  # bytes missing inside record 9
    path = tmp_path / "lost.rec"
    path.write_bytes(data)
    with pytest.raises(FileError, match=rf"lost\.rec: record 5 at byte {offsets[5]:,} has no magic number"):
        iterator(path)
    it = iterator(path, on_error="skip")
    assert labels(it) == [i for i in range(37) if i not in (5, 9)]
    assert f"and {offsets[6] - offsets[5] + offsets[10] - offsets[9] - 50:d} bytes of" in caplog.text


def test_a_file_that_became_shorter_raises_an_error_and_does_not_crash(pictures, tmp_path):
    path = tmp_path / "short.rec"
    path.write_bytes(pictures.read_bytes())
    it = iterator(path, prefetch_buffer=0)
    next(it)
    os.truncate(path, 3000)
    with pytest.raises(FileError, match=r"short\.rec: (record .*|became shorter while it was read)"):
        list(it)
    with pytest.raises(FileError, match="Open it again"):
        it.reset()


def test_remote_files_give_equal_batches(pictures):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://far/pictures.rec", "wb") as file:
        file.write(pictures.read_bytes())
    assert digest(iterator("memory://far/pictures.rec", **RANDOM)) == digest(iterator(pictures, **RANDOM))


# ---- lifetime ----
def test_batches_that_are_kept_are_never_overwritten(pictures):
    it = iterator(pictures, prefetch_buffer=1)
    kept = [b.data[0] for b in it]
    it.reset()
    kept += [b.data[0][2:4] for b in it]  # a view also keeps its batch
    before = [a.asnumpy() for a in kept]
    for _ in range(2):
        it.reset()
        list(it)
    assert all(np.array_equal(a.asnumpy(), b) for a, b in zip(kept, before))


def test_a_task_that_is_still_queued_reads_its_own_batch(exact):
    it = iterator(exact, batch_size=1, prefetch_buffer=0)
    release = threading.Event()
    engine = mx.engine.current()
    gate = engine.new_variable()
    engine.push_async(lambda run, done: threading.Thread(target=lambda: (release.wait(), done())).start(), mx.cpu(), [], [gate])
    got = []
    for b in it:
        a = b.data[0]
        engine.push_sync(lambda run, a=a: got.append(a.device_array().copy()), mx.cpu(), [gate, a.chunk.var], [])
        del a, b
    release.set()
    engine.wait_for_all()
    want = [picture(i, 24, 30).transpose(2, 0, 1).astype("f") for i in range(9)]
    assert sorted(g.tobytes() for g in got) == sorted(w.tobytes() for w in want)


def test_stopping_early_leaves_no_thread_and_no_file(tmp_path):
    pictures = tmp_path / "own.rec"
    write_pictures(pictures, 37)

    def open_files():
        return sum(1 for n in os.listdir("/proc/self/fd") if str(pictures) in readlink(f"/proc/self/fd/{n}"))

    for how in ("dropped", "closed", "raised"):
        it = iterator(pictures, preprocess_threads=3)
        next(it)
        threads = list(it._loader.workers._threads)
        assert len(threads) == 3 and open_files() == 1
        if how == "closed":
            it.close()
        elif how == "raised":
            with pytest.raises(ZeroDivisionError):
                for _ in it:
                    1 / 0
        del it
        mx.nd.waitall()
        for thread in threads:
            thread.join(250)
        assert not any(t.is_alive() for t in threads) and open_files() == 0, how


def readlink(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_continues_to_read(pictures):
    it = iterator(pictures, **RANDOM)
    next(it)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, digest(it).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        from_child = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    assert from_child == digest(it)


@pytest.mark.parametrize("kind", [mx.engine.NaiveEngine, mx.engine.CheckedEngine])
def test_other_engines_give_the_same(pictures, kind):
    want = digest(iterator(pictures, **RANDOM))
    before = mx.engine.current(), mx.engine.memory.storage.access_checker
    mx.engine.set_current(kind())
    try:
        assert digest(iterator(pictures, **RANDOM)) == want
    finally:
        mx.engine.set_current(before[0])
        mx.engine.memory.storage.access_checker = before[1]


def test_reset_in_the_middle_begins_the_next_epoch_and_a_second_reset_changes_nothing(exact):
    it = iterator(exact, batch_size=2)
    it.reset()
    next(it)
    it.reset()
    it.reset()
    assert [it.state_dict()[k] for k in ("epoch", "begin", "batch")] == [1, 0, -1]
    assert len(list(it)) == 5
    with pytest.raises(StopIteration):
        next(it)
    with pytest.raises(ParameterError, match="no current batch"):
        it.getdata()


@pytest.mark.parametrize("wrong, message", [
    ({"data_shape": (2, 8, 8)}, r"data_shape=\(2, 8, 8\) is not \(channels, height, width\)"),
    ({"on_error": "ignore"}, "on_error='ignore' is not one of 'raise', 'skip'"),
    ({"inter_method": 7}, "inter_method=7 is not one of"), ({"std_r": 0}, "a standard deviation is 0.0"),
    ({"batch_size": 0}, "batch_size=0 is less than 1"),
    ({"min_crop_size": 9, "max_crop_size": 8}, "min_crop_size=9 is more than"),
    ({"prefetch_buffer": -1}, "prefetch_buffer=-1"), ({"preprocess_threads": -2}, "preprocess_threads=-2 is less than 1"),
    ({"data_shape": (1, 8, 8), "random_h": 3}, "colours can be changed in images of 3 channels only"),
])
def test_wrong_parameters_are_named(exact, wrong, message):
    with pytest.raises(ParameterError, match=f"^ImageRecordIter: .*{message}"):
        iterator(exact, **wrong)


def test_unknown_parameters_are_ignored_with_a_warning(exact):
    with pytest.warns(UserWarning, match="^ImageRecordIter: 'colour' is ignored: no such parameter"):
        assert next(iterator(exact, colour=1)).data


def test_int8_and_uint8_iterators(exact):
    assert next(mx.io.ImageRecordUInt8Iter(path_imgrec=exact, data_shape=(3, 8, 8), batch_size=2)).data[0].dtype == np.uint8
    assert next(mx.io.ImageRecordInt8Iter(path_imgrec=exact, data_shape=(3, 8, 8), batch_size=2)).data[0].dtype == np.int8


@pytest.mark.parametrize("given", [{"min_random_area": 1.0, "max_random_area": 1.0}, {"min_random_area": 0.999}])
def test_an_impossible_sized_crop_becomes_an_ordinary_crop(exact, given):
    """As in MXNet: no part with nearly all of an oblong image's area has an aspect near 1."""
    small = {"data_shape": (3, 16, 16), "batch_size": 9}
    sized = next(iterator(exact, random_resized_crop=True, **given, **small))
    assert np.array_equal(sized.data[0].asnumpy(), next(iterator(exact, **small)).data[0].asnumpy())


def test_no_threads_are_refused(exact):
    with pytest.raises(ParameterError, match="preprocess_threads=0 is less than 1"):
        iterator(exact, preprocess_threads=0)


def test_a_scale_may_give_fractional_sizes(tmp_path):
    """33 pixels times 1.5 are 49.5, of which 49 are kept: pixel x comes from x / 1.5."""
    ramp = np.broadcast_to(np.arange(33, dtype=np.uint8)[None, :, None] * 7, (28, 33, 3))
    write_records(tmp_path / "a.rec", [encode(np.ascontiguousarray(ramp), 1, ".png")])
    batch = next(iterator(tmp_path / "a.rec", data_shape=(3, 42, 49), batch_size=1, min_random_scale=1.5, max_random_scale=1.5))
    assert np.abs(batch.data[0].asnumpy()[:, :, :40] - np.arange(49) / 1.5 * 7).max() <= 0.6, "except where the border begins"


def test_photographs_of_turned_cameras_become_upright(tmp_path):
    """As in MXNet's record iterators; for the same file, `mx.image` returns the pixels as stored."""
    stored = encode(picture(0, 24, 30), 95, ".jpg")
    mark = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    turned = stored[:2] + b"\xff\xe1" + (len(mark) + 2).to_bytes(2, "big") + mark + stored[2:]
    write_records(tmp_path / "a.rec", [turned])
    batch = next(iterator(tmp_path / "a.rec", data_shape=(3, 30, 24), batch_size=1))
    assert np.array_equal(batch.data[0].asnumpy()[0].transpose(1, 2, 0), np.rot90(mx.image.imdecode(stored).asnumpy(), -1))
    assert mx.image.imdecode(turned).shape == (24, 30, 3)
