"""`mx.contrib.text.utils`: count tokens."""

from __future__ import annotations

import re
from collections import Counter


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
