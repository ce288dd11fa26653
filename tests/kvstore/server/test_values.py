"""Snapshots of a server's values: complete, or rejected. And the placement of keys on servers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tritium as mx
from hypothesis import given
from hypothesis import strategies as st
from tritium.errors import FileError, ParameterError
from tritium.kvstore.protocol.key_table import bounds, place, tag, untag
from tritium.kvstore.server.optimizer_codec import hook
from tritium.kvstore.server.values import StoredValues


def make_values(folder):
    v = StoredValues(folder)
    v.create((1, 0), "s:w", (4, 2), "float32")
    v.set_optimizer(hook("to_spec")(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1)))
    return v


def test_a_snapshot_restores_value_states_and_counts(tmp_path):
    a, b = make_values(tmp_path), make_values(tmp_path)
    grads = [np.arange(8, dtype="f") * i for i in range(4)]
    assert a[1, 0].load() is None
    for g in grads[:2]:
        a[1, 0].update([g, g])
    a[1, 0].save(2, {0: 2, 1: 1})
    assert b[1, 0].load() == (2, {0: 2, 1: 1}) and b[1, 0].durable == 2
    for v in (a, b):
        for g in grads[2:]:
            v[1, 0].update([g, g])
    np.testing.assert_array_equal(a[1, 0].flat, b[1, 0].flat)
    assert [p.name for p in tmp_path.iterdir()] == ["1.0.1.snapshot"]


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:-3] + b"abc", lambda d: b"\xff" * 8 + d[8:], lambda d: d[:20],
                                    lambda d: d.replace(b'"s:w"', b'"s:x"')])
def test_a_damaged_snapshot_is_rejected(tmp_path, damage):
    a = make_values(tmp_path)
    a[1, 0].update([np.ones(8, "f")])
    a[1, 0].save(1, {})
    file = tmp_path / "1.0.1.snapshot"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(FileError, match=r"1\.0\.1\.snapshot: a damaged snapshot"):
        make_values(tmp_path)[1, 0].load()


@given(st.integers(0, 10**7), st.integers(1, 9))
def test_slices_cover_every_element_once(size, parts):
    ranges = bounds(size, parts)
    assert ranges[0][0] == 0 and ranges[-1][1] == size and all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    assert max(b - a for a, b in ranges) - min(b - a for a, b in ranges) <= 1


def test_a_key_goes_to_the_server_with_the_fewest_bytes_and_large_keys_are_split():
    assert place((100,), [0], 10) == [(0, 0, 100)]
    assert place((100,), [5, 3, 3], 1000) == [(1, 0, 100)]
    assert place((100,), [0, 0], 100) == [(0, 0, 50), (1, 50, 100)]
    assert place((100,), [0, 0], 100, never_split=True) == [(0, 0, 100)]


@pytest.mark.parametrize("key", [7, -3, "7", "", "s:x", 2**70])
def test_keys_keep_their_type(key):
    assert untag(tag(key)) == key and type(untag(tag(key))) is type(key)


@pytest.mark.parametrize("text", ["", "w", "i:x", "x:1", "i:"])
def test_a_text_without_type_prefix_is_not_a_key(text):
    with pytest.raises(ParameterError, match="is not a key with a type prefix"):
        untag(text)
