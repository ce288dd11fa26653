"""read_arrays: round trip, the bundled digits, and records of another size."""

import numpy as np
import pytest
from tritium.errors import FileError
from tritium.examples.digits import RECORDS
from tritium.io import read_arrays
from tritium.io.records.recordio import IRHeader, MXRecordIO, pack


def test_packed_arrays_are_read_back(tmp_path, rng):
    data, labels = rng.normal(size=(7, 2, 3)).astype("float32"), rng.integers(0, 9, 7)
    with MXRecordIO(tmp_path / "a.rec", "w") as file:
        for i, (x, y) in enumerate(zip(data, labels)):
            file.write(pack(IRHeader(0, float(y), 2**63 + i, 0), x.tobytes()))
    got, label, ids = read_arrays(tmp_path / "a.rec", (2, 3), "float32")
    assert np.array_equal(got, data) and np.array_equal(label, labels)
    assert ids.tolist() == [2**63 + i for i in range(7)]


def test_an_empty_file_has_no_examples(tmp_path):
    (tmp_path / "a.rec").touch()
    data, labels, _ = read_arrays(tmp_path / "a.rec", (2, 3))
    assert data.shape == (0, 2, 3) and labels.shape == (0,)


@pytest.mark.parametrize("label, payload", [(1.0, bytes(63)), ([1, 2], bytes(64))])
def test_a_record_that_does_not_fit_is_named(tmp_path, label, payload):
    with MXRecordIO(tmp_path / "a.rec", "w") as file:
        file.write(pack(IRHeader(0, 1.0, 0, 0), bytes(64)))
        file.write(pack(IRHeader(0, label, 1, 0), payload))
    with pytest.raises(FileError, match=rf"a\.rec: record 1 holds {len(payload)} bytes .*takes 64 bytes, with 1 label"):
        read_arrays(tmp_path / "a.rec", (8, 8))


def test_the_bundled_digits_are_read():
    data, labels, ids = read_arrays(RECORDS, (8, 8))
    assert data.shape == (1797, 8, 8) and data.max() == 16
    assert np.bincount(labels.astype(int)).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert ids.tolist() == list(range(1797))
