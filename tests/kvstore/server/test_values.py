"""A shard's values on disk: whole, or refused. And placement, which decides what a shard holds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tritium as mx
from hypothesis import given
from hypothesis import strategies as st
from tritium.errors import FileError, ParameterError
from tritium.kvstore.protocol.placement import bounds, place, tag, untag
from tritium.kvstore.server.optimizer_codec import hook
from tritium.kvstore.server.values import Values


def shard(folder):
    v = Values(folder)
    v.make((1, 0), "s:w", (4, 2), "float32")
    v.set_optimizer(hook("to_spec")(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1)))
    return v


def test_a_snapshot_brings_back_value_states_and_counts(tmp_path):
    a, b = shard(tmp_path), shard(tmp_path)
    grads = [np.arange(8, dtype="f") * i for i in range(4)]
    assert a.load((1, 0)) is None
    for g in grads[:2]:
        a[1, 0].update([g, g])
    a.save((1, 0), 2, {0: 2, 1: 1})
    assert b.load((1, 0)) == (2, {0: 2, 1: 1}) and b[1, 0].durable == 2
    for v in (a, b):
        for g in grads[2:]:
            v[1, 0].update([g, g])
    np.testing.assert_array_equal(a[1, 0].flat, b[1, 0].flat)
    assert [p.name for p in tmp_path.iterdir()] == ["1.0.snapshot"]


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:-3] + b"abc", lambda d: b"\xff" * 8 + d[8:], lambda d: d[:20],
                                    lambda d: d.replace(b'"s:w"', b'"s:x"')])
def test_a_damaged_snapshot_is_refused(tmp_path, damage):
    a = shard(tmp_path)
    a[1, 0].update([np.ones(8, "f")])
    a.save((1, 0), 1, {})
    file = tmp_path / "1.0.snapshot"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(FileError, match=r"1\.0\.snapshot: a damaged snapshot"):
        shard(tmp_path).load((1, 0))


@given(st.integers(0, 10**7), st.integers(1, 9))
def test_parts_cover_everything_once(size, parts):
    found = bounds(size, parts)
    assert found[0][0] == 0 and found[-1][1] == size and all(a[1] == b[0] for a, b in itertools.pairwise(found))
    assert max(b - a for a, b in found) - min(b - a for a, b in found) <= 1


def test_placement_by_bytes():
    assert place((100,), 4, [0], 10) == [(0, 0, 100)]
    assert place((100,), 4, [5, 3, 3], 1000) == [(1, 0, 100)]
    assert place((100,), 4, [0, 0], 100) == [(0, 0, 50), (1, 50, 100)]
    assert place((100,), 4, [0, 0], 100, whole=True) == [(0, 0, 100)]


@pytest.mark.parametrize("key", [7, -3, "7", "", "s:x", 2**70])
def test_keys_keep_their_type(key):
    assert untag(tag(key)) == key and type(untag(tag(key))) is type(key)


@pytest.mark.parametrize("text", ["", "w", "i:x", "x:1", "i:"])
def test_what_is_no_key(text):
    with pytest.raises(ParameterError, match="no key with its type"):
        untag(text)
