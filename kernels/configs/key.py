"""Key: the operator, layouts and sizes that a config holds for. Two uses with one key have one best configuration.

A size that varies with the batch is rounded to a step, so that a batch of 250 finds what 256 was tuned to; sizes that
are a model's own (channels, filters, the inner size of a product) are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...integers import cdiv

Config = dict[str, int]  # block sizes and the like, by name

STEPPED = frozenset({"m", "r", "elements", "rows"})  # sizes that vary with the batch


@dataclass(frozen=True)
class Key:
    """One kind of work for one template.

    template:  "gpu conv forward", "cpu tile" ...
    dtype:     of the result.
    layout:    how arrays lie: "nt", "nchw", "row" ...
    align:     the largest power of two, at most 16, of which every row of every array starts at a multiple, in bytes.
    sizes:     (name, size), in a fixed order per template.
    """

    template: str
    dtype: str
    layout: str
    align: int
    sizes: tuple[tuple[str, int], ...]

    @property
    def bucket(self) -> str:
        """Return the sizes as text for the store: `m4096 n1024 k1024`, with stepped sizes rounded up."""
        return " ".join(f"{n}{step(s) if n in STEPPED else s}" for n, s in self.sizes)

    @property
    def size(self) -> dict[str, int]:
        return dict(self.sizes)


def key(template: str, dtype: str, layout: str = "", align: int = 16, **sizes: int) -> Key:
    """Return a Key; sizes are keywords."""
    return Key(template, str(dtype), layout, align, tuple(sizes.items()))


def step(n: int) -> int:
    """Return n rounded up to a quarter of a power of two: 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 ..."""
    if n <= 4:
        return max(n, 0)
    quarter = 1 << (n - 1).bit_length() - 3
    return cdiv(n, quarter) * quarter


def alignment(*nbytes: int) -> int:
    """Return the largest power of two up to 16 that divides all nbytes."""
    return math.gcd(16, *nbytes)


def parse_bucket(bucket: str) -> dict[str, int]:
    """{"m": 4096, ...} of a bucket's text; {} for other text."""
    sizes = {}
    for word in bucket.split():
        name = word.rstrip("0123456789")
        if not name or name == word:
            return {}
        sizes[name] = int(word[len(name):])
    return sizes


def distance(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """Return the distance of two sets of sizes: the sum of the doublings between them; inf where names differ."""
    if set(a) != set(b):
        return math.inf
    return sum(abs(math.log2(max(a[n], 1)) - math.log2(max(b[n], 1))) for n in a)
