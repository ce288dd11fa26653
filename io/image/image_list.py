"""Image lists: lines of `id<TAB>label<TAB>...<TAB>path`, as MXNet's im2rec reads and writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...errors import FileError
from ..records.files import ByteSource


class ListLine(NamedTuple):
    """One line: the image's ID, its labels float32[n], and its path relative to the root."""

    id: int
    label: np.ndarray
    path: str


def read_lines(path: str | os.PathLike) -> Iterator[ListLine]:
    """Yield the lines of a list in order. Raises FileError that names a malformed line."""
    with ByteSource(path) as source:
        text = source.read(0, source.size)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            first, *labels, last = line.decode("utf-8").split("\t")
            image_id = int(first) if first.isdigit() else int(float(first))  # exact also above 2^53
            yield ListLine(image_id, np.array([float(x) for x in labels], np.float32), last.strip())
        except (ValueError, OverflowError):
            raise FileError(f"{os.fspath(path)}: line {number} is not `id<TAB>label<TAB>path`: {line[:60]!r}.") from None


def read_image_list(path: str | os.PathLike, label_width: int) -> dict[int, np.ndarray]:
    """Return the labels float32[label_width] of every id. Raises FileError if a line has another number of labels."""
    labels = {}
    for line in read_lines(path):
        if len(line.label) != label_width:
            raise FileError(f"{os.fspath(path)}: id {line.id} has {len(line.label)} labels; label_width is {label_width}.")
        labels[line.id] = line.label
    return labels
