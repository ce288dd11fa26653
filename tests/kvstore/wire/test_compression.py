"""2-bit gradients against MXNet's arithmetic, computed value by value; and their sums on a server."""

from __future__ import annotations

import numpy as np
import pytest
import tritium as mx
from support.kvstore_cluster import array, pull, workers
from tritium.kvstore.wire.compression import TwoBit


def slowly(grad, residual, t):
    """(packed bytes, decoded values), one value at a time; residual keeps the error. The first value has the highest bits."""
    bits, sent = "", []
    for i, g in enumerate(grad):
        residual[i] = np.float32(residual[i] + g)
        code, value = ("11", t) if residual[i] >= t else ("10", -t) if residual[i] <= -t else ("00", 0)
        residual[i] = np.float32(residual[i] - np.float32(value))
        bits, sent = bits + code, [*sent, value]
    bits += "0" * (-len(bits) % 32)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8)), np.array(sent, "f")


@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_compress_and_expand_match_the_slow_form(rng, n):
    two_bit, residual, oracle = TwoBit(0.5), np.zeros(n, "f"), np.zeros(n, "f")
    packed = np.empty(-(-n // 16) * 4, np.uint8)
    for _ in range(4):
        grad = rng.normal(size=n).astype("f")
        two_bit.compress(grad, residual, packed)
        wanted, sent = slowly(grad, oracle, np.float32(0.5))
        assert packed.tobytes() == wanted
        np.testing.assert_array_equal(residual, oracle)
        np.testing.assert_array_equal(two_bit.expand(packed, n), sent)


def test_servers_add_up_compressed_gradients(rng, monkeypatch):
    """Whole and split keys, two workers, several rounds: the sum of the decoded contributions."""
    monkeypatch.setenv("MXNET_KVSTORE_BIGARRAY_BOUND", "1000")
    sizes = {"a": 37, "b": 2001}
    grads = {(k, r, step): rng.normal(size=n).astype("f") for k, n in sizes.items() for r in range(2) for step in range(3)}

    with workers(2, servers=2) as (_, _, each):
        def run(kv):
            kv.set_gradient_compression({"type": "2bit", "threshold": 0.7})
            kv.init(list(sizes), [mx.nd.zeros(n) for n in sizes.values()])
            got = []
            for step in range(3):
                kv.push(list(sizes), [array(grads[k, kv.rank, step]) for k in sizes])
                got.append([pull(kv, k, np.zeros(n, "f")) for k, n in sizes.items()])
            return got

        results = each(run)
    left = {(k, r): np.zeros(n, "f") for k, n in sizes.items() for r in range(2)}
    for step in range(3):
        for i, k in enumerate(sizes):
            wanted = sum(slowly(grads[k, r, step], left[k, r], np.float32(0.7))[1] for r in range(2))
            for got in results:
                np.testing.assert_array_equal(got[step][i], wanted)
