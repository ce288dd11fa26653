"""Vocabulary: tokens and their numbers; and the counting of tokens. (`mx.contrib.text.vocab` and `utils` in MXNet.)"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import ParameterError

EOS_TOKEN = "<eos>"  # ends a sentence


class Vocabulary:
    """Tokens and their numbers: first the unknown token, then the reserved ones, then those of counter by falling frequency.

    Tokens of equal frequency are in alphabetical order.

    counter:          frequencies of tokens.
    most_freq_count:  how many of them are taken; None: all.
    min_freq:         the least frequency of a token that is taken.
    unknown_token:    stands for all others, number 0.
    reserved_tokens:  such as "<eos>".
    """

    def __init__(self, counter: Mapping[Any, int] | None = None, most_freq_count: int | None = None, min_freq: int = 1,
                 unknown_token: Hashable = "<unk>", reserved_tokens: Sequence[Hashable] | None = None):
        if min_freq < 1:
            raise ParameterError(f"Vocabulary: min_freq={min_freq} must be at least 1.")
        first = [unknown_token, *(reserved_tokens or ())]
        if len(set(first)) != len(first):
            raise ParameterError(f"Vocabulary: reserved_tokens {reserved_tokens} has a token twice, or unknown_token "
                                 f"{unknown_token!r}. Give each once.")
        self._unknown_token = unknown_token
        self._reserved_tokens = list(reserved_tokens) if reserved_tokens is not None else None
        self._idx_to_token = first
        known = set(first)
        counted = sorted((counter or {}).items(), key=lambda item: item[0])
        counted.sort(key=lambda item: item[1], reverse=True)
        most = len(counted) if most_freq_count is None else most_freq_count
        found = [token for token, count in counted if count >= min_freq and token not in known]
        self._idx_to_token += found[:most]
        self._token_to_idx = {token: i for i, token in enumerate(self._idx_to_token)}

    def __len__(self) -> int:
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict[Any, int]:
        """The numbers of tokens."""
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list[Any]:
        """The tokens in the order of their numbers."""
        return self._idx_to_token

    @property
    def unknown_token(self) -> Any:
        """The token that stands for those not in the vocabulary."""
        return self._unknown_token

    @property
    def reserved_tokens(self) -> list[Any] | None:
        """The reserved tokens."""
        return self._reserved_tokens

    def to_indices(self, tokens: Any) -> Any:
        """Return the number of a token, or those of a list of tokens; 0 for one that is not in the vocabulary."""
        if isinstance(tokens, list):
            return [self._token_to_idx.get(token, 0) for token in tokens]
        return self._token_to_idx.get(tokens, 0)

    def to_tokens(self, indices: int | Iterable[int]) -> Any:
        """Return the token of a number, or those of a list of numbers. Raises ParameterError for a number that is too large."""
        numbers = list(indices) if isinstance(indices, Iterable) else [indices]
        for i in numbers:
            if not 0 <= i < len(self):
                raise ParameterError(f"Vocabulary.to_tokens: index {i} is not one of its {len(self)} tokens.")
        tokens = [self._idx_to_token[i] for i in numbers]
        return tokens if isinstance(indices, Iterable) else tokens[0]


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
