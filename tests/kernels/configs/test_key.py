"""Keys of tuned kernels: buckets, what is near what. Oracle: numbers worked out by hand."""

import math

import pytest
from tritium.kernels.configs.key import alignment, distance, key, parse_bucket, step


@pytest.mark.parametrize("n, rounded", [(0, 0), (1, 1), (3, 3), (4, 4), (5, 5), (8, 8), (9, 10), (11, 12), (13, 14), (15, 16),
                                        (250, 256), (257, 320), (1000, 1024), (100_352, 114_688)])
def test_sizes_of_a_batch_are_rounded_up_to_a_quarter_of_a_power_of_two(n, rounded):
    assert step(n) == rounded


def test_steps_lie_at_most_a_quarter_apart():
    for n in range(4, 3000):
        assert n <= step(n) <= n * 1.25 and step(step(n)) == step(n)


def test_a_bucket_rounds_only_sizes_that_vary_with_the_batch():
    made = key("gpu gemm", "float16", "nt", batch=1, m=1000, n=1000, k=333)
    assert made.bucket == "batch1 m1024 n1000 k333"
    assert parse_bucket(made.bucket) == {"batch": 1, "m": 1024, "n": 1000, "k": 333}


@pytest.mark.parametrize("text", ["m", "12", "m12 x", ""])
def test_text_that_is_not_a_key_parses_to_no_sizes(text):
    assert parse_bucket(text) == {}


def test_distance_counts_doublings():
    assert distance({"m": 64, "k": 7}, {"m": 256, "k": 7}) == 2
    assert distance({"m": 64, "k": 8}, {"m": 32, "k": 16}) == 2
    assert distance({"m": 64}, {"m": 64, "k": 8}) == math.inf


@pytest.mark.parametrize("nbytes, aligned", [((64, 48), 16), ((64, 24), 8), ((2,), 2), ((7, 16), 1)])
def test_alignment(nbytes, aligned):
    assert alignment(*nbytes) == aligned
