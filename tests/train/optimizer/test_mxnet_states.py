"""MXNet's optimizer-state files are read; every other pickle is refused, with a reason, and never run.

Oracle: a file of MXNet 1.9.1, and pickles that Python writes.
"""

import io
import pickle
import pickletools
import time
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from tritium import optimizer
from tritium.errors import FileError
from tritium.train.optimizer.mxnet_states import is_pickle, read_mxnet_states

FILE = Path(__file__).parents[2] / "golden/symbols/digits_mlp-0020.states"


class NDArray:
    """A class that has the name of MXNet's NDArray in a pickle."""

    def __init__(self, handle=None):
        pass

    def __reduce__(self):
        return NDArray, (None,), {"handle": bytearray(self.record)}


NDArray.__module__ = "mxnet.ndarray.ndarray"


class _Pickler(pickle._Pickler):
    def save_global(self, obj, name=None):
        if obj is NDArray and self.proto < 4:
            self.write(b"cmxnet.ndarray.ndarray\nNDArray\n")
            self.memoize(obj)
        elif obj is NDArray:
            self.save("mxnet.ndarray.ndarray")
            self.save("NDArray")
            self.write(pickle.STACK_GLOBAL)
            self.memoize(obj)
        else:
            super().save_global(obj, name)

    dispatch = {**pickle._Pickler.dispatch, type: save_global}


def as_mxnet(tree, protocol):
    """Return the pickle that MXNet would write for tree, with each array as an NDArray."""

    def wrap(x):
        if isinstance(x, np.ndarray):
            a = NDArray()
            mx.nd.save(name := str(as_mxnet.folder / "one.nd"), [mx.nd.array(x, dtype=x.dtype)])
            a.record = Path(name).read_bytes()[24:-8]
            return a
        return tuple(map(wrap, x)) if isinstance(x, tuple) else x

    out = io.BytesIO()
    _Pickler(out, protocol).dump({k: wrap(v) for k, v in tree.items()})
    return out.getvalue()


def test_training_continues_with_states_of_mxnet():
    data = FILE.read_bytes()
    states, _ = read_mxnet_states(data, "f")
    assert {k: v.shape for k, v in states.items()} == {0: (64, 64), 1: (64,), 2: (10, 64), 3: (10,)}
    updater = optimizer.get_updater(optimizer.SGD(momentum=0.9, learning_rate=1.0))
    updater.set_states(data)
    weight = mx.nd.zeros((10,))
    updater(3, mx.nd.zeros((10,)), weight)
    np.testing.assert_allclose(weight.asnumpy(), 0.9 * states[3], rtol=1e-6)  # closer than the table


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_every_protocol_are_read(protocol, tmp_path):
    as_mxnet.folder = tmp_path
    tree = {0: (np.arange(6, dtype=np.float32).reshape(2, 3), None), "name": np.arange(3, dtype=np.float16), 2: None,
            3: (np.ones(2, np.float32), (np.zeros(1, np.float32), np.full(3, 5.0, np.float32)))}
    data = as_mxnet(tree, protocol)
    assert is_pickle(data)
    got, extra = read_mxnet_states(data)
    assert list(got) == list(tree) and extra == {}
    assert np.array_equal(got[0][0], tree[0][0]) and got[0][1] is None and got[2] is None
    assert np.array_equal(got["name"], tree["name"]) and np.array_equal(got[3][1][1], tree[3][1][1])


class Evil:
    ran = False

    def __reduce__(self):
        return exec, (f"import sys; sys.modules[{__name__!r}].Evil.ran = True",)


class Plain:
    pass


@pytest.mark.parametrize("value, reason", [
    (Evil(), r"builtin(s|__)\.exec"), (Plain(), r"[Pp]lain"), ({0: np.zeros(2)}, "numpy"), ({0: 1.5}, "a state is a float"),
    ([], "it holds a list"), ({1.5: None}, "a key is a float"),
])
@pytest.mark.parametrize("protocol", [2, 4])
def test_other_pickles_are_refused_and_not_run(value, reason, protocol):
    with pytest.raises(FileError, match=rf"g: byte [\d,]+: this is not an optimizer-state file of MXNet: .*{reason}"):
        read_mxnet_states(pickle.dumps(value, protocol), "g")
    assert not Evil.ran


NESTED = b"N" + b"q\x00h\x00\x86" * 28  # b = (b, b), 28 times, is a tree of 500 million parts in 141 bytes


@pytest.mark.parametrize("content, reason", [
    (b"}K\x00" + NESTED + b"s", "its states have more than [0-9]+ parts"), (b"}" + NESTED + b"Ns", "a key is a tuple"),
    (NESTED + b")R", "it calls a tuple"), (NESTED + b"\x8c\x01a\x93", "it names a class by a tuple"),
])
def test_tuples_that_share_tuples_are_refused_before_they_are_expanded(content, reason):
    began = time.process_time()
    with pytest.raises(FileError, match=reason):
        read_mxnet_states(b"\x80\x04" + content + b".", "g")
    assert time.process_time() - began < 1


def test_a_file_cut_short_anywhere_is_refused():
    data = FILE.read_bytes()
    ends = [at for _, _, at in pickletools.genops(data) if at]
    for at in ends:
        with pytest.raises(FileError, match="not an optimizer-state file"):
            read_mxnet_states(data[:at])
    for at in range(0, len(data), 997):
        changed = bytearray(data)
        changed[at] ^= 0x55
        try:
            read_mxnet_states(bytes(changed))  # a changed number in an array cannot be detected
        except FileError:
            pass
