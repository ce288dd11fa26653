"""Cache and key_of: bounded, made once, and keys that tell values apart which Python compares as equal."""

import threading

import numpy as np
import pytest
from tritium.cache import Cache, key_of


def test_a_value_is_made_once():
    cache, made = Cache(), []
    for _ in range(3):
        assert cache.get_or_make("k", lambda: made.append(1) or len(made)) == 1
    assert made == [1] and cache == {"k": 1}


def test_none_is_a_value_like_any_other():
    cache = Cache()
    assert cache.get_or_make("k", lambda: None) is None
    assert cache.get_or_make("k", lambda: 1 / 0) is None


def test_a_full_cache_is_emptied():
    cache = Cache(maxsize=3)
    for i in range(4):
        cache[i] = i
    assert cache == {3: 3}


def test_an_error_while_a_value_is_made_keeps_nothing():
    cache = Cache()
    with pytest.raises(KeyError, match="inner"):
        cache.get_or_make("k", lambda: {}["inner"])
    assert not cache


def test_threads_that_fill_a_small_cache_read_only_values_of_their_key():
    cache, wrong = Cache(maxsize=7), []

    def work():
        for i in range(3000):
            k = i % 20
            if cache.get_or_make(k, lambda k=k: -k) != -k:
                wrong.append(k)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(cache) <= 7 + len(threads)


@pytest.mark.parametrize("group", [
    (1, 1.0, True, np.float32(1), np.int64(1)), (0, 0.0, -0.0, False), ((1, 2), (1.0, 2), (True, 2)), ((0.0,), (-0.0,), 0.0)])
def test_keys_tell_types_and_signed_zeros_apart(group):
    keys = [key_of(v) for v in group]
    assert len(set(keys)) == len(group)
    assert [key_of(v) for v in group] == keys


def test_a_value_without_a_hash_has_no_key():
    for value in ([1], (1, [2])):
        with pytest.raises(TypeError, match="unhashable"):
            key_of(value)
