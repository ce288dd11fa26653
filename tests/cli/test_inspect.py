"""`tritium inspect`: summaries and damage of files."""

import json
import struct

import numpy as np
import pytest
import tritium as mx
from click.testing import CliRunner
from tritium.cli.commands import main
from tritium.cli.inspect import inspect_file
from tritium.errors import FileError
from tritium.io.image.image_header import image_format
from tritium.io.records.recordio import IRHeader, MXIndexedRecordIO, pack


def run(*args):
    return CliRunner().invoke(main, ["inspect", *map(str, args)])


@pytest.fixture
def records(tmp_path):
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as file:
        for i in range(5):
            file.write_idx(i, pack(IRHeader(0, float(i % 3), i, 0), bytes(range(i + 1))))
    return tmp_path / "a.rec"


def net():
    return mx.sym.SoftmaxOutput(mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc"), name="bn"),
                                name="out")


def test_records(records):
    found = inspect_file(records)
    assert found.kind == "RecordIO" and found.problems == []
    assert found.facts["records"] == 5
    assert found.facts["record bytes"] == "25 to 29, mean 27"
    assert found.facts["labels"] == "0 to 2, 3 different; 1 per record"
    assert found.facts["index"].endswith("a.idx: 5 keys")
    assert found.rows == [("bytes", 5, "", "")]


def test_the_records_before_damage_are_summarised_and_the_damage_is_reported(records):
    records.write_bytes(records.read_bytes()[:-9])
    result = run(records, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["facts"]["records"] == 4
    assert "record 4 at byte" in found["problems"][0] and "is cut short" in found["problems"][0]


def test_an_index_that_does_not_fit_is_reported(records):
    index = records.with_suffix(".idx")
    index.write_text(index.read_text().rsplit("\n", 2)[0] + "\n")
    assert inspect_file(records).problems == [f"{index}: 4 keys, the file has 5 records."]


@pytest.mark.parametrize("data, want", [
    (b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", 7, 5), ("PNG", (5, 7))),
    (b"\xff\xd8\xff\xe0\x00\x04ab" + b"\xff\xff\xc0\x00\x11\x08" + struct.pack(">HHB", 9, 11, 3), ("JPEG", (9, 11))),
    (b"\xff\xd8\xff\xc4\x00\x04ab\xff\xc2\x00\x11\x08" + struct.pack(">HHB", 3, 4, 3), ("JPEG", (3, 4))),
    (b"\xff\xd8\xff\xc0", ("JPEG without a frame", None)),
    (b"\x93NUMPY...", ("NumPy", None)),
    (b"", ("bytes", None)),
])
def test_image_formats_by_their_headers(data, want):
    assert image_format(data) == want


def test_a_checkpoint(tmp_path):
    sym = net()
    mx.model.save_checkpoint(str(tmp_path / "net"), 3, sym, {"fc_weight": mx.nd.zeros((3, 4))}, {"bn_mean": mx.nd.zeros((3,))})
    params = inspect_file(tmp_path / "net-0003.params")
    assert params.kind.endswith("a checkpoint's") and params.facts["numbers"] == 15
    assert params.rows == [("arg:fc_weight", "float32", "3x4", 48), ("aux:bn_mean", "float32", "3", 12)]
    symbol = inspect_file(tmp_path / "net-symbol.json")
    assert symbol.facts["written by"].startswith("MXNet 1.") and symbol.facts["outputs"] == "out_output"
    assert symbol.facts["auxiliary states"] == "bn_moving_mean, bn_moving_var"
    assert ("BatchNorm", 1, "yes") in symbol.rows and symbol.problems == []


def test_an_unknown_operator_is_reported(tmp_path):
    text = net().tojson().replace('"FullyConnected"', '"FullyDisconnected"')
    (tmp_path / "a.json").write_text(text)
    found = inspect_file(tmp_path / "a.json")
    assert ("FullyDisconnected", 1, "NO") in found.rows
    assert "node 3 ('fc', FullyDisconnected)" in found.problems[0]


def test_states_and_safetensors(tmp_path):
    mx.nd.save(str(tmp_path / "a.safetensors"), {"w": mx.nd.ones((2, 3))}, metadata={"note": "x"})
    found = inspect_file(tmp_path / "a.safetensors")
    assert found.kind == "safetensors" and found.rows == [("w", "float32", "2x3", 24)] and found.facts["metadata note"] == "x"
    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd", momentum=0.9))
    updater(0, mx.nd.ones((2,)), mx.nd.ones((2,)))
    (tmp_path / "a.states").write_bytes(updater.get_states())
    assert inspect_file(tmp_path / "a.states").facts["keys"] == 1


@pytest.mark.parametrize("name, data, message", [
    ("a.params", np.arange(4).tobytes(), "magic is 0x0, not 0x112, at byte 0"),
    ("a.json", b"{nothing}", "not a symbol: it is not JSON"),
    ("a.json", b'{"a": "\xff"}', "it is not UTF-8"),
    ("a.states", b"nothing", "a.states"),
    ("a.rec", b"nothing at all..", "this is not a RecordIO file"),
])
def test_damage_is_a_problem(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    found = inspect_file(tmp_path / name)
    assert len(found.problems) == 1 and message in found.problems[0]


def test_foreign_files_and_missing_ones(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(FileError, match=r"begins with 68 65 6c 6c 6f: not RecordIO, \.params"):
        inspect_file(tmp_path / "a.txt")
    result = run(tmp_path / "none.rec")
    assert result.exit_code == 1 and "problem:" in result.stdout and "cannot be opened" in result.stdout


def test_the_printed_summary(records):
    result = run(records)
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0].endswith("a.rec: RecordIO")
    assert "  records: 5" in lines
    assert any(line.split() == ["bytes", "5"] for line in lines)


def test_every_damaged_place_is_reported(records):
    offsets = [0, 36, 72, 108, 144]
    data = bytearray(records.read_bytes())
    assert [data.find(b"\n#\xd7\xce", o) for o in offsets] == offsets
    data[offsets[1]] ^= 1
    data[offsets[3] + 4] = 200
    records.write_bytes(data)
    found = inspect_file(records)
    assert found.facts["records"] == 3 and found.facts["bytes in no record"] == 72
    index = records.with_suffix(".idx")
    assert found.problems == [
        f"{records}: record 1 at byte 36 has no magic number (bytes 36 to 72).",
        f"{records}: record 2 at byte 108 is cut short: it takes 200 bytes, 28 are left (bytes 108 to 144).",
        f"{index}: 5 keys, the file has 3 records.",
        f"{index}: key 1 points at byte 36, where no record begins.",
        f"{index}: key 3 points at byte 108, where no record begins."]


def test_many_problems_of_one_kind_are_counted(tmp_path):
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as file:
        for i in range(25):
            file.write_idx(i, pack(IRHeader(0, 1.0, i, 0), b"no image"))
    found = inspect_file(tmp_path / "a.rec", decoding=True)
    assert found.facts["images decoded"] == 0 and len(found.problems) == 21
    assert found.problems[20] == f"{tmp_path / 'a.rec'}: 5 more images that cannot be decoded."
    result = run("--decode", tmp_path / "a.rec")
    assert result.exit_code == 1
    assert "record 3 at byte 120 (id 3): these 8 bytes are not an image that can be read" in result.stdout


@pytest.mark.parametrize("data, want", [
    (b"GIF89a" + struct.pack("<HH", 7, 5), ("GIF", (5, 7))), (b"RIFF\x10\0\0\0WEBPVP8 ", ("WebP", None)),
    (b"BM" + bytes(16) + struct.pack("<ii", 7, -5), ("BMP", (5, 7))),
    (b"BM" + bytes(12) + struct.pack("<IHHI", 12, 7, 5, 0), ("BMP", (5, 7))),
    (b"RIFF\x20\0\0\0WEBPVP8X" + bytes(8) + b"\x06\0\0\x04\0\0", ("WebP", (5, 7))),
    (b"\xff\xd8\xff\x01\xff\xc0\x00\x11\x08" + struct.pack(">HHB", 9, 11, 3), ("JPEG", (9, 11))),
])
def test_rarer_formats_by_their_headers(data, want):
    assert image_format(data) == want
