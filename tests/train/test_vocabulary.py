"""Vocabulary and the counting of tokens. Oracle: what MXNet 1.9.1 printed."""

from collections import Counter

import pytest
from tritium.errors import ParameterError
from tritium.train.vocabulary import Vocabulary, count_tokens_from_str

COUNTS = Counter(["a", "b", "b", "c", "c", "c", "d", "d"])


@pytest.mark.parametrize("given, tokens", [
    ({}, ["<unk>", "c", "b", "d", "a"]), ({"most_freq_count": 2}, ["<unk>", "c", "b"]),
    ({"most_freq_count": 3, "reserved_tokens": ["<eos>", "c"]}, ["<unk>", "<eos>", "c", "b", "d", "a"]),
    ({"min_freq": 2, "unknown_token": "?"}, ["?", "c", "b", "d"])])
def test_tokens_come_by_frequency_then_by_name(given, tokens):
    vocabulary = Vocabulary(COUNTS, **given)
    assert vocabulary.idx_to_token == tokens and len(vocabulary) == len(tokens)
    assert vocabulary.token_to_idx == {t: i for i, t in enumerate(tokens)}
    assert vocabulary.unknown_token == tokens[0] and vocabulary.reserved_tokens == given.get("reserved_tokens")


def test_numbers_and_tokens():
    vocabulary = Vocabulary(COUNTS)
    assert vocabulary.to_indices("b") == 2 and vocabulary.to_indices(["d", "zz"]) == [3, 0]
    assert vocabulary.to_tokens(1) == "c" and vocabulary.to_tokens([0, 4]) == ["<unk>", "a"]
    with pytest.raises(ParameterError, match="9 is not an index of 5 tokens"):
        vocabulary.to_tokens([1, 9])


@pytest.mark.parametrize("given, message", [({"min_freq": 0}, "min_freq=0"),
                                            ({"reserved_tokens": ["x", "x"]}, "a reserved token stands twice"),
                                            ({"reserved_tokens": ["<unk>"]}, "the unknown token '<unk>' is among")])
def test_parameters_are_checked(given, message):
    with pytest.raises(ParameterError, match=message):
        Vocabulary(COUNTS, **given)


def test_counting():
    assert count_tokens_from_str(" a  b\nA b ", to_lower=True) == Counter(a=2, b=2)
    counter = Counter(a=1)
    assert count_tokens_from_str("a.b|c.d", ".", "|", counter_to_update=counter) == Counter(a=1), "as regular expressions"
    assert count_tokens_from_str("a.b|c.d", r"\.", r"\|", counter_to_update=counter) is counter
    assert counter == Counter(a=2, b=1, c=1, d=1)
