"""Sentences as batches: words to integers, and an iterator over batches of sentences of similar length."""

from __future__ import annotations

import bisect
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ...errors import ParameterError, check_choice
from ...io import DataBatch, DataDesc, DataIter
from ...ndarray import array


def encode_sentences(sentences: Sequence[Sequence[Any]], vocab: dict[Any, int] | None = None, invalid_label: int = -1,
                     invalid_key: Any = "\n", start_label: int = 0, unknown_token: Any = None
                     ) -> tuple[list[list[int]], dict[Any, int]]:
    """Return (sentences as integers, {word: integer}).

    vocab:          known words. None creates a vocabulary: new words get integers from start_label on, except invalid_label.
    unknown_token:  replaces words missing in vocab. Without it, a missing word is a ParameterError.
    """
    new = vocab is None
    vocab = {invalid_key: invalid_label} if vocab is None else vocab
    next_label = start_label
    encoded = []
    for sentence in sentences:
        labels = []
        for word in sentence:
            if word not in vocab:
                if not new and unknown_token is None:
                    raise ParameterError(f"encode_sentences: {word!r} is not in the vocabulary. Give an unknown_token.")
                if unknown_token is not None:
                    word = unknown_token
                if word not in vocab:
                    next_label += next_label == invalid_label
                    vocab[word] = next_label
                    next_label += 1
            labels.append(vocab[word])
        encoded.append(labels)
    return encoded, vocab


class BucketSentenceIter(DataIter):
    """Batches of sentences of one length. The label of a word is the next word.

    sentences:      lists of integers (see encode_sentences).
    buckets:        lengths. A sentence is padded with invalid_label to the shortest length that fits; longer ones are
                    skipped. None: every length with enough sentences for a batch.
    layout:         "NT" or "TN".
    The bucket_key of a batch is its length. Each reset shuffles the sentences of a bucket with NumPy's random numbers and
    the batches with Python's, as in MXNet: the same seeds give the same order.
    """

    def __init__(self, sentences: Sequence[Sequence[int]], batch_size: int, buckets: Sequence[int] | None = None,
                 invalid_label: int = -1, data_name: str = "data", label_name: str = "softmax_label", dtype: Any = "float32",
                 layout: str = "NT"):
        super().__init__(batch_size)
        check_choice("BucketSentenceIter", "layout", layout, ("NT", "TN"))
        if not buckets:
            counts = np.bincount([len(s) for s in sentences]) if len(sentences) else np.zeros(0, int)
            buckets = [length for length, n in enumerate(counts) if n >= batch_size and length]
        if not buckets:
            raise ParameterError(f"BucketSentenceIter: no length has {batch_size} sentences. Pass buckets.")
        self.buckets = sorted(buckets)
        rows: list[list[np.ndarray]] = [[] for _ in self.buckets]
        self.left_out = 0
        for sentence in sentences:
            k = bisect.bisect_left(self.buckets, len(sentence))
            if k == len(self.buckets):
                self.left_out += 1
                continue
            row = np.full(self.buckets[k], invalid_label, dtype)
            row[:len(sentence)] = sentence
            rows[k].append(row)
        self.data = [np.asarray(r, dtype).reshape(-1, n) for r, n in zip(rows, self.buckets)]
        self.data_name, self.label_name, self.dtype = data_name, label_name, dtype
        self.invalid_label, self.layout = invalid_label, layout
        self.default_bucket_key = max(self.buckets)
        self.provide_data = [self._description(data_name, self.default_bucket_key)]
        self.provide_label = [self._description(label_name, self.default_bucket_key)]
        self.idx = [(k, at) for k, rows_ in enumerate(self.data) for at in range(0, len(rows_) - batch_size + 1, batch_size)]
        self.curr_idx = 0
        self.reset()

    def _description(self, name: str, length: int) -> DataDesc:
        shape = (self.batch_size, length) if self.layout == "NT" else (length, self.batch_size)
        return DataDesc(name, shape, as_dtype(self.dtype).type, self.layout)

    def reset(self) -> None:
        """Shuffle the sentences within buckets, and the batches, and start from the first batch."""
        self.curr_idx = 0
        random.shuffle(self.idx)
        self.label = []
        for rows in self.data:
            np.random.shuffle(rows)
            label = np.full_like(rows, self.invalid_label)
            label[:, :-1] = rows[:, 1:]
            self.label.append(label)

    def next(self) -> DataBatch:
        """Return the next batch. Raises StopIteration at the end."""
        if self.curr_idx == len(self.idx):
            raise StopIteration
        k, at = self.idx[self.curr_idx]
        self.curr_idx += 1
        part = slice(at, at + self.batch_size)
        data, label = self.data[k][part], self.label[k][part]
        if self.layout == "TN":
            data, label = data.T, label.T
        length = self.buckets[k]
        return DataBatch([array(data, dtype=self.dtype)], [array(label, dtype=self.dtype)], pad=0, bucket_key=length,
                         provide_data=[self._description(self.data_name, length)],
                         provide_label=[self._description(self.label_name, length)])
