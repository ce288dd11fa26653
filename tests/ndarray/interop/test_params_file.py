"""save and load: MXNet's bytes. Oracle: files MXNet wrote, and records packed by hand."""

import json
import struct
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tritium import ndarray as nd
from tritium.errors import DTypeError, FileError
from tritium.ndarray.interop.params_file import read_arrays, write_arrays

GOLDEN = Path(__file__).parents[2] / "golden" / "ndarray"
FILES = sorted(p.name for p in GOLDEN.iterdir() if p.suffix in (".nd", ".params"))
DAMAGED = json.loads((GOLDEN / "index.json").read_text())["corrupt"]
WARNED = {"trailing_bytes.nd", "duplicate_names.nd"}


@pytest.mark.parametrize("name", FILES)
def test_reads_what_mxnet_wrote(name):
    got = nd.load(str(GOLDEN / name))
    got = got if isinstance(got, dict) else {str(i): a for i, a in enumerate(got)}
    stored = np.load(GOLDEN / f"{name}.npz")
    want = {k.replace("<empty>", "").replace("__slash__", "/"): stored[k] for k in stored.files}
    assert sorted(got) == sorted(want)
    for k, w in want.items():
        a = got[k].asnumpy()
        assert a.dtype == w.dtype and a.shape == w.shape and a.tobytes() == w.tobytes()


@pytest.mark.parametrize("name", [n for n in FILES if not n.startswith(("handmade_v0", "handmade_v1", "np_"))])
def test_writes_the_bytes_mxnet_writes(name, tmp_path):
    nd.save(tmp_path / name, nd.load(GOLDEN / name))
    assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", sorted(set(DAMAGED) - WARNED))
def test_refuses_damaged_files_by_name_and_byte(name):
    with pytest.raises(FileError, match=rf"load: .*{name}: .* at byte [\d,]+ of "):
        nd.load(GOLDEN / "corrupt" / name)


def test_every_cut_of_a_file_is_refused():
    whole = (GOLDEN / "dict.params").read_bytes()
    for n in range(len(whole)):
        with pytest.raises(FileError, match="load: buffer"):
            nd.load_frombuffer(whole[:n])


def test_trailing_bytes_and_duplicate_names_warn():
    with pytest.warns(UserWarning, match="8 bytes after the last name"):
        assert sorted(nd.load(GOLDEN / "corrupt" / "trailing_bytes.nd")) == ["a", "b"]
    with pytest.warns(UserWarning, match="names stand more than once.*'a'"):
        assert nd.load(GOLDEN / "corrupt" / "duplicate_names.nd")["a"].tolist() == [0, 1, 2, 3]


def _shape(shape):
    return struct.pack(f"<i{len(shape)}q", len(shape), *shape)


def _sparse(stype, stored, shape, *places):
    """A record of float32 ones."""
    places = [np.array(p, np.int64).reshape(-1) for p in places]
    return (struct.pack("<Ii", 0xF993FAC9, stype) + _shape(stored) + _shape(shape) + struct.pack("<iii", 1, 0, 0)
            + b"".join(struct.pack("<i", 6) + _shape(p.shape) for p in places)
            + np.ones(stored, "f").tobytes() + b"".join(p.tobytes() for p in places))


def _record(shape, flag, data, magic=0xF993FAC9):
    return struct.pack(f"<Iii{len(shape)}qiii", magic, 0, len(shape), *shape, 2, 3, flag) + data


def _file(*records, names=(), reserved=0):
    body = struct.pack("<QQQ", 0x112, reserved, len(records)) + b"".join(records) + struct.pack("<Q", len(names))
    return body + b"".join(struct.pack("<Q", len(n)) + n for n in names)


def test_gpu_arrays_load_on_the_current_context():
    a, = nd.load_frombuffer(_file(_record((2,), 0, np.float32([1, 2]).tobytes())))
    assert a.context == nd.array([1]).context and a.tolist() == [1, 2]


@pytest.mark.parametrize("data, reason", [
    (_file(reserved=5), "reserved field is 0x5"),
    (_file(_record((2,), 0, bytes(8)), names=(b"\xff",)), "name 0 is not UTF-8"),
    (_file(_record((-1,), 0, b"")), r"negative size in shape \(-1,\)"),
    (_file(_record((), 0, b"")), "has no shape"),
    (_file(_record((1 << 62, 1 << 62), 0, b"")), "are left"),
    (_file(_record((1 << 62, 0), 0, b"")), "larger than memory"),
    (struct.pack("<QQQ", 0x112, 0, 1 << 60), "do not fit"),
    (struct.pack("<QQQII", 0x112, 0, 1, 0x7FFFFFFF, 0) + bytes(40), "neither a record magic"),
    (_file(struct.pack("<Ii", 0xF993FAC9, 3) + bytes(60)), r"storage type unknown \(3\)"),
    (_file(struct.pack("<Iii", 0xF993FAC9, 1, -1) + bytes(60)), "shape of the elements: -1 axes"),
    (_file(_sparse(2, (1,), (1, 3), [0, 1], [3])), "array 0: csr_matrix: indices from 3 to 3 in a matrix of 3 columns"),
    (_file(_sparse(1, (1, 2), (3, 2), [3])), "array 0: row_sparse_array: row indices from 3 to 3 do not fit"),
    (_file(_sparse(1, (2, 2), (3, 2), [1])), r"array 0: row_sparse_array: data \(2, 2\) is not 1 rows"),
])
def test_a_damaged_record_is_refused_with_its_reason(data, reason):
    with pytest.raises(FileError, match=reason):
        nd.load_frombuffer(data)


def test_bfloat16_scalars_and_empty_arrays_come_back(tmp_path):
    arrays = {"b": nd.array([1.5, -2], dtype="bfloat16"), "s": nd.array(3.0), "e": nd.array(np.zeros((0, 3)))}
    nd.save(tmp_path / "x", arrays)
    back = nd.load(tmp_path / "x")
    assert back["b"].dtype is ml_dtypes.bfloat16 and back["b"].tolist() == [1.5, -2]
    assert back["s"].shape == () and back["s"].item() == 3 and back["e"].shape == (0, 3)


def test_random_lists_round_trip(rng):
    for _ in range(30):
        arrays = [rng.integers(0, 9, rng.integers(1, 4, rng.integers(1, 4))).astype(d)
                  for d in rng.choice(["float64", "uint8", "int8", "int64"], 3)]
        names, back = read_arrays(b"".join(bytes(b) for b in write_arrays([], arrays)))
        assert not names
        for a, b in zip(arrays, back):
            assert a.dtype == b.dtype and np.array_equal(a, b)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    file = tmp_path / "x"
    nd.save(file, nd.array([1]))
    with pytest.raises(DTypeError, match="the format has no such dtype"):
        nd.save(file, [nd.array([2]), nd.array([1], dtype="uint16")])
    assert nd.load(file)[0].tolist() == [1]
    with pytest.raises(FileError, match=r"no/folder: cannot be written: No such file or directory\."):
        nd.save(tmp_path / "no" / "folder", nd.array([1]))
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("data, reason", [
    (3, "data is a int"), ([1], "item 0 is a int"), ({"a": 1}, "'a' is a int"), ({1: nd.array([1])}, "name 1 is a int"),
])
def test_save_refuses_other_types_with_a_hint(data, reason, tmp_path):
    with pytest.raises(TypeError, match=reason):
        nd.save(tmp_path / "x", data)


def test_load_frombuffer_needs_bytes():
    with pytest.raises(TypeError, match="not bytes"):
        nd.load_frombuffer("text")
    with warnings.catch_warnings():
        assert nd.load_frombuffer(bytearray(_file())) == []
