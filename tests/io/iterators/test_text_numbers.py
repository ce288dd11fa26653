"""Parsing of numbers: Python's float() is the oracle; pyarrow must change neither values nor errors."""

import os
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium.io.iterators import text_rows
from tritium.io.iterators.text_rows import numbers

digits = st.text("0123456789", max_size=25)
decimals = st.builds("{}{}{}.{}{}".format, st.sampled_from(["", "-", "+"]), st.text("0", max_size=3), digits, digits,
                     st.sampled_from(["", "e0", "E5", "e-30", "e+300", "e-320", "e999", "e"]))
HOSTILE = ["", "nan", "-NaN", "inf", "-Infinity", "nan(1)", "nan(", "1_0", "0x10", "true", "NA", "null",
           '"1"', "1,0", "1e", ".", "-", "\0", "1\0", " 1", "1 ", "1\t", "\x0b1", "1\r", "\r", "\xff",
           "\ufeff1", "1 2", "1\u0660", "1f", "1d0"]
words = st.lists(st.one_of(decimals, st.sampled_from(HOSTILE), st.floats().map(repr), st.integers(-2**70, 2**70).map(str),
                           st.text("0123456789+-.eEnaif_( \t", max_size=6)), max_size=12)


def laid_out(words, between):
    """Return text, starts and ends of words with separators between them."""
    encoded = [w.encode() for w in words]
    lengths = np.array([len(w) for w in encoded], np.int64)
    starts = 3 + np.cumsum(lengths + len(between)) - lengths - len(between)
    return b"xxx" + between.join(encoded) + b"yy", starts, starts + lengths


def outcome(words, between=b","):
    try:
        return numbers(*laid_out(words, between)).tolist(), None
    except ValueError as e:
        return None, str(e)


def by_python(words):
    for word in words:
        try:
            assert "_" not in word
            float(word.encode())
        except (ValueError, AssertionError):
            return None, f"{word.encode()[:60]!r} is not a number."
    return [float(word.encode()) for word in words], None


@settings(max_examples=300, deadline=None)
@given(words, st.sampled_from([b",", b" ", b"\n", b"7", b"; \xff"]))
def test_pyarrow_and_python_agree(words, between):
    pytest.importorskip("pyarrow")
    want = by_python(words)
    with_pyarrow = outcome(words, between)
    assert repr(with_pyarrow) == repr(want)  # repr: NaN equals itself, -0.0 does not equal 0.0
    before = text_rows._pyarrow_parser
    try:
        text_rows._pyarrow_parser = lambda: None
        assert repr(outcome(words, between)) == repr(want)
    finally:
        text_rows._pyarrow_parser = before


@pytest.mark.parametrize("word", HOSTILE)
def test_words_that_other_parsers_accept_as_numbers(word):
    assert repr(outcome(["1", word, "2"])) == repr(by_python(["1", word, "2"]))


def test_ordinary_numbers_are_parsed_by_pyarrow(monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(text_rows, "_number", None)  # Python's parser is not used
    assert numbers(*laid_out(["1", "-2.5e3", "nan", "+7", "1e-320"], b",")).tolist()[:2] == [1, -2500]


def test_without_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    text_rows._pyarrow_parser.cache_clear()
    try:
        assert numbers(*laid_out(["1", "2.5"], b",")).tolist() == [1, 2.5]
    finally:
        text_rows._pyarrow_parser.cache_clear()


def test_a_forked_child_can_read():
    text = laid_out(["1.5"] * 1000, b"\n")
    assert numbers(*text).sum() == 1500
    pid = os.fork()
    if not pid:
        os._exit(0 if numbers(*text).sum() == 1500 else 1)
    assert os.waitpid(pid, 0)[1] == 0
