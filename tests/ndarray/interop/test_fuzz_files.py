"""Damaged files: 2,000 mutations here, 100,000 in the nightly run. Each is read, or refused with file, place and reason.

No other exception gets out, and no reader takes more memory than a small multiple of the file (tracemalloc sees NumPy's).
"""

import gc
import json
import re
import struct
import tracemalloc
import warnings

import numpy as np
import pytest
import tritium as mx
from tritium import nd
from tritium.errors import FileError
from tritium.ndarray.interop.params_file import write_arrays
from tritium.ndarray.interop.safetensors import write_tensors

RNG = np.random.default_rng(7)
KINDS = (((3, 4), "float32"), ((2,), "float16"), ((1, 2, 2), "int64"), ((5,), "uint8"))
ARRAYS = [RNG.normal(size=s).astype(d) for s, d in KINDS]
NAMES = ["arg:fc_weight", "arg:fc_bias", "aux:mean", "ü"]


def old_records():
    """A list of a V0 and a V1 record, which only old MXNet wrote."""
    tail = struct.pack("<iii", 1, 0, 0) + np.arange(6, dtype="<f4").tobytes()
    records = struct.pack("<III", 2, 2, 3) + tail + struct.pack("<IIqq", 0xF993FAC8, 2, 2, 3) + tail
    return struct.pack("<QQQ", 0x112, 0, 2) + records + struct.pack("<Q", 0)


PARAMS = [b"".join(write_arrays(NAMES, ARRAYS)), b"".join(write_arrays([], [*ARRAYS, np.zeros((0, 3), "f4"), np.float32(1)])),
          old_records()]
TENSORS = [b"".join(write_tensors(NAMES, ARRAYS, {"made by": "hand"})), b"".join(write_tensors([], []))]


def network():
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    x = mx.sym.BatchNorm(x, name="bn", fix_gamma=False)
    x = mx.sym.Pooling(mx.sym.Activation(x, act_type="relu"), kernel=(2, 2), pool_type="max")
    x = mx.sym.concat(x, x * 2, dim=1)
    x = mx.sym.FullyConnected(mx.sym.SliceChannel(x, num_outputs=2)[1], num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax").tojson()


def old_network():
    nodes = [{"op": "null", "name": n, "inputs": [], "backward_source_id": -1, "param": {}} for n in ("data", "w", "b")]
    nodes.append({"op": "FullyConnected", "name": "fc", "param": {"num_hidden": "3", "no_bias": "False"},
                  "inputs": [[0, 0], [1, 0], [2, 0]], "backward_source_id": -1, "attr": {"lr_mult": "2"}})
    return json.dumps({"nodes": nodes, "arg_nodes": [0, 1, 2], "heads": [[3, 0]]})


SYMBOLS = [network().encode(), old_network().encode()]
HARD = [struct.pack("<Q", n) for n in (0, 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)]
WORDS = [b"-1", b"0", b"99999999999999999999", b"1e999", b"NaN", b"null", b"[]", b"{}", b'""', b"true", b"[" * 300, b'"\\u0000"',
         b"(9999999,9999999)", b'"num_outputs": "65536"', b"__metadata__", b'"Custom"', b'"_arange"', b'"SliceChannel"']


def mutate(data, rng, others):
    """data with one to four faults: flipped bits, cuts, insertions, extreme numbers, words, pieces of another file."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(data) + 1))
        kind = rng.integers(0, 7)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at:at + int(rng.integers(1, 9))]
        elif kind == 3:
            data[at:at] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 4:
            data[at - at % 4:at - at % 4 + 8] = HARD[rng.integers(0, len(HARD))]
        elif kind == 5:
            other = others[rng.integers(0, len(others))]
            begin = int(rng.integers(0, len(other)))
            data[at:at + 16] = other[begin:begin + int(rng.integers(1, 64))]
        else:
            data[at:at + int(rng.integers(0, 6))] = WORDS[rng.integers(0, len(WORDS))]
    return bytes(data)


def read_arrays(data):
    loaded = nd.load_frombuffer(data)
    for a in loaded.values() if isinstance(loaded, dict) else loaded:
        assert a.nbytes <= len(data)


def read_symbol(data):
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    mx.sym.load_json(text)


PLACE = {read_arrays: r"load: buffer: .*, at byte [\d,]+ of [\d,]+\. The file is", read_symbol: r"symbol JSON: "}
READERS = {"params": (PARAMS, read_arrays, 8), "safetensors": (TENSORS, read_arrays, 60), "symbol": (SYMBOLS, read_symbol, 200)}


def torment(name, count, seed):
    seeds, read, factor = READERS[name]
    rng = np.random.default_rng(seed)
    everything = [*PARAMS, *TENSORS, *SYMBOLS]
    refused = 0
    for data in seeds:  # imports and caches are not the file's fault
        read(data)
    gc.collect()
    tracemalloc.start()
    try:
        for i in range(count):
            data = mutate(seeds[i % len(seeds)], rng, everything)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    read(data)
            except FileError as e:
                refused += 1
                assert re.match(PLACE[read], str(e), re.DOTALL), (e, data)
                assert len(str(e)) < 1000
                e.__traceback__ = None
            except BaseException as e:
                raise AssertionError(f"mutation {i} of seed {seed}: {type(e).__name__}: {e}: {data!r}") from e
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < factor * len(data) + 200_000, (i, peak, len(data), data)
    finally:
        tracemalloc.stop()
    return refused


@pytest.mark.parametrize("name", READERS)
def test_mutated_files(name):
    count = 667
    assert count * 0.4 < torment(name, count, 1) <= count


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("seed", range(10))
def test_many_mutated_files(name, seed):
    torment(name, 3334, 100 + seed)


@pytest.mark.parametrize("name", READERS)
def test_every_cut(name):
    """A file that ends early is refused wherever it ends."""
    seeds, read, _ = READERS[name]
    for data in seeds:
        for end in range(0, len(data), max(1, len(data) // 200)):
            with pytest.raises(FileError):
                read(data[:end])


def test_a_file_names_itself(tmp_path):
    for name, data in (("a.params", PARAMS[0]), ("b.safetensors", TENSORS[0]), ("c-symbol.json", SYMBOLS[0])):
        path = tmp_path / name
        path.write_bytes(data[: len(data) // 2])
        with pytest.raises(FileError, match=re.escape(name)):
            (mx.sym.load if name.endswith("json") else nd.load)(str(path))


@pytest.mark.parametrize("shape", [(0, 2**40, 2**40), (0, 2**62), (2**31, 2**31, 0, 2)])
def test_an_empty_array_of_impossible_shape(shape):
    record = struct.pack(f"<Iii{len(shape)}qiii", 0xF993FACA, 0, len(shape), *shape, 1, 0, 0)
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    for data in (struct.pack("<QQQ", 0x112, 0, 1) + record + bytes(8), struct.pack("<Q", len(header)) + header):
        with pytest.raises(FileError, match="buffer: "):
            nd.load_frombuffer(data)
