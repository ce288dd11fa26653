"""Vocabulary: tokens and their numbers; and the counting of tokens. (`mx.contrib.text.vocab` and `utils` in MXNet.)"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError, ParameterError
from ..show import Shown

EOS_TOKEN = "<eos>"  # ends a sentence
UNKNOWN_INDEX = 0


class Vocabulary(Shown):
    """Tokens by index: the unknown token, then reserved tokens, then the tokens of a counter, the most frequent first.

    counter:          a Counter of tokens; equal counts are in the order of the tokens.
    most_freq_count:  the largest number of its tokens; None: all.
    min_freq:         tokens that are rarer are left out.
    unknown_token:    stands for every token that is not in the vocabulary; its index is 0.
    reserved_tokens:  tokens such as "<pad>", each once.
    Raises: ParameterError for a min_freq below 1, a reserved token that stands twice or is the unknown one; DTypeError for a
            counter that is no Counter.
    """

    def __init__(self, counter: Counter[Any] | None = None, most_freq_count: int | None = None, min_freq: int = 1,
                 unknown_token: Hashable = "<unk>", reserved_tokens: Sequence[Any] | None = None):
        if min_freq < 1:
            raise ParameterError(f"Vocabulary: min_freq={min_freq} must be at least 1.")
        if reserved_tokens is not None and unknown_token in reserved_tokens:
            raise ParameterError(f"Vocabulary: the unknown token {unknown_token!r} is among the reserved tokens. Leave it out.")
        if reserved_tokens is not None and len(set(reserved_tokens)) < len(reserved_tokens):
            raise ParameterError("Vocabulary: a reserved token stands twice.")
        self._unknown_token = unknown_token
        self._reserved_tokens = None if reserved_tokens is None else list(reserved_tokens)
        self._idx_to_token: list[Any] = [unknown_token, *(reserved_tokens or ())]
        if counter is not None:
            if not isinstance(counter, Counter):
                raise DTypeError(f"Vocabulary: counter is a {type(counter).__name__}, not a collections.Counter.")
            self._add(counter, most_freq_count, min_freq)
        self._token_to_idx: dict[Any, int] = {token: i for i, token in enumerate(self._idx_to_token)}

    def _facts(self) -> Mapping[str, Any]:
        return {"tokens": len(self._idx_to_token), "unknown_token": self._unknown_token}

    def _add(self, counter: Counter[Any], most: int | None, min_freq: int) -> None:
        special = set(self._idx_to_token)
        frequent = sorted(counter, key=lambda token: token)
        frequent.sort(key=counter.__getitem__, reverse=True)
        tokens = [t for t in frequent if counter[t] >= min_freq and t not in special]
        self._idx_to_token += tokens if most is None else tokens[:most]

    def __len__(self) -> int:
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict[Any, int]:
        """The index of each token."""
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list[Any]:
        """The tokens by index."""
        return self._idx_to_token

    @property
    def unknown_token(self) -> Any:
        """The token that stands for all that are not in the vocabulary."""
        return self._unknown_token

    @property
    def reserved_tokens(self) -> list[Any] | None:
        """The reserved tokens, or None."""
        return self._reserved_tokens

    def to_indices(self, tokens: Any) -> Any:
        """Return the index of a token, or the indices of a list of tokens; 0 for unknown ones."""
        if isinstance(tokens, list):
            return [self._token_to_idx.get(t, UNKNOWN_INDEX) for t in tokens]
        return self._token_to_idx.get(tokens, UNKNOWN_INDEX)

    def to_tokens(self, indices: Any) -> Any:
        """Return the token of an index, or the tokens of several: a list, or a NumPy array of one axis.

        Raises ParameterError for an index without one.
        """
        several = isinstance(indices, (list, np.ndarray))
        given = list(indices) if several else [indices]
        for i in given:
            if not isinstance(i, (int, np.integer)) or not 0 <= i < len(self):
                raise ParameterError(f"Vocabulary.to_tokens: {i!r} is not an index of {len(self)} tokens.")
        tokens = [self._idx_to_token[i] for i in given]
        return tokens if several else tokens[0]


def count_tokens_from_str(source_str: str, token_delim: str = " ", seq_delim: str = "\n", to_lower: bool = False,
                          counter_to_update: Counter[str] | None = None) -> Counter[str]:
    """Count the tokens of a text.

    token_delim, seq_delim:  regular expressions of what stands between tokens, and between sequences.
    to_lower:                count lower-case tokens.
    counter_to_update:       a Counter to add to, which is returned.
    """
    tokens = [t for t in re.split(f"{token_delim}|{seq_delim}", source_str) if t]
    counter: Counter[str] = Counter() if counter_to_update is None else counter_to_update
    counter.update(t.lower() for t in tokens) if to_lower else counter.update(tokens)
    return counter
