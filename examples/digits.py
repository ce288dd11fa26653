"""The bundled handwritten digits: 1,797 images of 8 × 8 pixels, with a fixed split. Origin and licence: digits.md."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..io import read_arrays

RECORDS = Path(__file__).with_name("digits.rec")


class Split(NamedTuple):
    """images: float32[N, 1, 8, 8], 0 to 1. labels: float32[N], 0 to 9."""

    images: np.ndarray
    labels: np.ndarray


def load_digits(path: str | Path = RECORDS) -> tuple[Split, Split]:
    """Return the 1,437 training digits and the 360 held-out digits.

    Sorted by label, and in file order within a label, every fifth image is held out, starting with the first: 35 to 37 of
    each digit, always the same images.
    """
    images, labels, _ = read_arrays(path, (1, 8, 8))
    held_out = np.zeros(len(labels), bool)
    held_out[np.argsort(labels, kind="stable")[::5]] = True
    scaled = images.astype(np.float32) / 16
    return Split(scaled[~held_out], labels[~held_out]), Split(scaled[held_out], labels[held_out])
