"""ImageRecordLoader: one record of images, from its bytes in the file to its rows in a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import FileError
from ..image.codec import decode
from ..image.record_augmenter import RecordAugmenter
from ..image.to_batch import BatchRowWriter
from ..loading.counter_random import draw_from
from ..records.record_file import RecordFile
from ..records.recordio import unpack


class ImageRecordLoader:
    """Called with a record's number, it decodes, augments and normalises into the rows of a batch. Any thread may call.

    channels:     of the decoded image.
    label_width:  how many labels a record must have.
    labels:       by id; replace those in the records.
    """

    def __init__(self, file: RecordFile, channels: int, augment: RecordAugmenter, normalise: BatchRowWriter, label_width: int,
                 labels: Mapping[int, np.ndarray] | None):
        self.file, self.channels, self.augment, self.normalise = file, channels, augment, normalise
        self.label_width, self.labels = label_width, labels

    def __call__(self, record: int, numbers: Sequence[float], rows: list[np.ndarray], fetched: bytes | None = None) -> None:
        """rows: data [1, channels, height, width] and label [1] or [1, label_width]. Raises FileError that says where."""
        draw = draw_from(numbers)
        where = self.file.where(record)
        header, data = unpack(self.file.read(record, fetched), where)
        label = header.label if self.labels is None else self.labels.get(int(header.id))
        if label is None:
            raise FileError(f"{where}: the list has no labels for id {header.id}.")
        if np.size(label) != self.label_width:
            raise FileError(f"{where} has {np.size(label)} labels; label_width is {self.label_width}.")
        try:
            self.normalise(self.augment(decode(data, self.channels, upright=True), draw, leave=True), rows[0][0], draw)
        except FileError as e:
            raise FileError(f"{where} (id {header.id}): {str(e).rstrip('.')}.") from None
        rows[1][...] = label
