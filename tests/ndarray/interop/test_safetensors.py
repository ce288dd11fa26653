"""safetensors: files follow the format, and reading checks every rule of the format."""

import json
import struct

import numpy as np
import pytest
from tritium import nd
from tritium.errors import FileError
from tritium.ndarray.interop.safetensors import read_tensors

DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
          "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back(dtype, tmp_path, ctx):
    arrays = {f"{dtype}{shape}": nd.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2, ctx, dtype)
              for shape in ((), (0,), (3,), (2, 0, 3), (2, 3))}
    nd.save(tmp_path / "x.safetensors", arrays, metadata={"step": "7"})
    back = nd.load(tmp_path / "x.safetensors")
    assert list(back) == list(arrays) and nd.load_metadata(tmp_path / "x.safetensors") == {"step": "7"}
    (n,) = struct.unpack("<Q", (tmp_path / "x.safetensors").read_bytes()[:8])
    header = json.loads((tmp_path / "x.safetensors").read_bytes()[8:8 + n])
    assert {e["dtype"] for name, e in header.items() if name != "__metadata__"} == {DTYPES[dtype]}
    for n, a in arrays.items():
        assert back[n].dtype is a.dtype and back[n].shape == a.shape and back[n].tolist() == a.tolist()


def test_the_bytes_of_a_file(tmp_path):
    nd.save(tmp_path / "x.safetensors", {"w": nd.array([[1, 2]]), "b": nd.array([3], dtype="uint16")}, metadata={"k": "v"})
    data = (tmp_path / "x.safetensors").read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    assert n % 8 == 0 and json.loads(data[8:8 + n]) == {
        "__metadata__": {"k": "v"}, "w": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
        "b": {"dtype": "U16", "shape": [1], "data_offsets": [8, 10]}}
    assert data[8 + n:] == struct.pack("<ffH", 1, 2, 3)


def file_of(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize("data, reason", [
    (b"\0", "the header's length needs 8 bytes"),
    (file_of({}, length=2**63), "the header would have 9,223,372,036,854,775,808 bytes"),
    (file_of(b"{nope"), "the header is not JSON"),
    (file_of(b"{" + b'"a":[' * 100000), "nested too deeply|not JSON"),
    (file_of(b"\xff{}"), "not JSON"),
    (file_of([1]), "not a JSON object"),
    (file_of(b'{"a":' + json.dumps(entry()).encode() + b',"a":' + json.dumps(entry()).encode() + b"}", bytes(4)), "occurs twice"),
    (file_of({"__metadata__": {"a": 1}}), "__metadata__ is not an object of strings"),
    (file_of({"a": 5}), "'a' has no dtype, shape and data_offsets"),
    (file_of({"a": entry("F8_E4M3")}, bytes(4)), "dtype 'F8_E4M3' cannot be read"),
    (file_of({"a": entry(shape=(-1,))}, bytes(4)), r"shape \[-1\] is not a list of sizes"),
    (file_of({"a": entry(shape=(True,))}, bytes(4)), "is not a list of sizes"),
    (file_of({"a": entry(shape=(1,) * 40)}, bytes(4)), "is not a list of sizes"),
    (file_of({"a": entry(offsets=(0, 8))}, bytes(4)), "do not lie in the 4 bytes"),
    (file_of({"a": entry(offsets=(4, 0))}, bytes(4)), "do not lie in"),
    (file_of({"a": entry(shape=(2,))}, bytes(4)), r"float32\[2\] does not have 4 bytes"),
    (file_of({"a": entry(), "b": entry()}, bytes(4)), "'b' begins at 0 of the data, where 4 is next"),
    (file_of({"a": entry(offsets=(4, 8))}, bytes(8)), "'a' begins at 4"),
    (file_of({"a": entry()}, bytes(5)), "1 bytes after the last array"),
    (file_of({"a": entry("BOOL", (4,))}, b"\1\0\2\0"), "neither 0 nor 1"),
])
def test_a_damaged_file_is_refused_with_place_and_reason(data, reason):
    with pytest.raises(FileError, match=reason) as caught:
        read_tensors(data, "m.safetensors")
    assert str(caught.value).startswith("load: m.safetensors: ") and " at byte " in str(caught.value)


A = nd.ones((2,))


@pytest.mark.parametrize("name, data, metadata, text", [
    ("x.safetensors", [A], None, "holds arrays by name. Give a dict"),
    ("x.safetensors", {"a": A}, {"a": 1}, "metadata is not a dict from strings"),
    ("x.safetensors", {"__metadata__": A}, None, "is reserved by the format"),
    ("x.params", {"a": A}, {"a": "b"}, "only safetensors files hold metadata"),
])
def test_save_refuses_data_that_the_format_cannot_hold(name, data, metadata, text, tmp_path):
    with pytest.raises(TypeError, match=text):
        nd.save(tmp_path / name, data, metadata=metadata)
    assert not list(tmp_path.iterdir())  # nothing half-written


def test_an_old_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "x.safetensors"
    nd.save(path, {"a": nd.ones((2,))})
    with pytest.raises(TypeError):
        nd.save(path, {"a": nd.zeros((2,)), "__metadata__": nd.ones((1,))})
    assert nd.load(path)["a"].tolist() == [1, 1]


def test_the_library_of_the_format_agrees(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    nd.save(tmp_path / "x.safetensors", {"a": nd.array([[1, 2], [3, 4]])}, metadata={"k": "v"})
    assert library.load_file(tmp_path / "x.safetensors")["a"].tolist() == [[1, 2], [3, 4]]
    library.save_file({"b": np.arange(3, dtype="u2")}, tmp_path / "y.safetensors", {"k": "v"})
    assert nd.load(tmp_path / "y.safetensors")["b"].tolist() == [0, 1, 2]
