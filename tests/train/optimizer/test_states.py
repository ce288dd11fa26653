"""Optimizer-state files: written and read back, and every damaged file refused."""

import json

import numpy as np
import pytest
from tritium.dtype import bfloat16
from tritium.errors import FileError
from tritium.train.optimizer import states

TREES = {
    0: None,
    "fc_weight": (np.arange(6, dtype="f4").reshape(2, 3), (np.ones((), "f8"), None)),
    7: np.zeros((0, 3), bfloat16),
}
EXTRA = {"optimizer": "sgd", "counts": [[0, 3]]}


def same(a, b):
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    return a is b if a is None or b is None else (a.dtype == b.dtype and np.array_equal(a, b))


def test_a_file_gives_back_the_trees_and_extra():
    got, extra = states.load(states.dump(TREES, EXTRA))
    assert extra == EXTRA
    assert list(got) == list(TREES)
    assert all(same(TREES[k], got[k]) for k in TREES)


def test_a_file_has_the_safetensors_layout():
    data = states.dump(TREES, EXTRA)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    first = header["0"]
    assert (first["dtype"], first["shape"], first["data_offsets"]) == ("F32", [2, 3], [0, 24])
    assert np.frombuffer(data[8 + size : 8 + size + 24], "<f4").tolist() == [0, 1, 2, 3, 4, 5]


def test_a_file_cut_short_anywhere_is_refused():
    data = states.dump(TREES, EXTRA)
    for n in range(len(data)):
        with pytest.raises(FileError, match=r"f\.states: .*, at byte \d+ of \d+"):
            states.load(data[:n], "f.states")


def damaged(change):
    data = states.dump(TREES, EXTRA)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.pop("__metadata__"),
        lambda h: h["__metadata__"].update(format="other"),
        lambda h: h["__metadata__"].update(trees="[[0, 99]]"),
        lambda h: h["__metadata__"].update(trees="[[[1], 0]]"),
        lambda h: h["__metadata__"].update(trees="["),
        lambda h: h["__metadata__"].update(extra="[]"),
        lambda h: h["0"].update(shape=[1 << 60, 1 << 60]),
        lambda h: h["0"].update(shape=[-2, -3]),
        lambda h: h["0"].update(data_offsets=[0, 1 << 40]),
        lambda h: h["0"].update(data_offsets=[-8, 16]),
        lambda h: h["0"].update(dtype="C64"),
        lambda h: h.update(x=3),
    ],
)
def test_a_damaged_header_is_refused(change):
    with pytest.raises(FileError, match=r"f: (.*, at byte 8 of|the metadata of the optimizer states are damaged)"):
        states.load(damaged(change), "f")


def test_a_file_of_another_format_is_refused():
    with pytest.raises(FileError, match="The file is damaged, cut short, or"):
        states.load(b"PNG\r\n" + bytes(range(100, 200)))
