"""ImageIter: batches of images from a record file, a list file or a list in memory, with augmenters in Python."""

from __future__ import annotations

import logging
import os
import random
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ...dtype import as_dtype
from ...errors import FileError, MXNetError, ParameterError, ShapeError, UnreachableError, check_choice
from ...ndarray import NDArray, array
from ..iterator import DataBatch, DataDesc, DataIter
from ..iterator_state import MAX_EPOCHS, check_counts, check_keys, integer_pairs, integers
from ..loading.processes import ProcessPool
from ..plan import BatchPlan
from ..records.files import ByteSource, Closable
from ..records.record_file import RecordFile
from ..records.recordio import unpack
from .augmenters import CreateAugmenter, Dumpable
from .image_list import read_lines
from .ops import imdecode

_log = logging.getLogger("tritium.io")
_AHEAD = 4  # images that each worker process prefetches


class _Row(NamedTuple):
    """One image of a batch: its key, the epoch of its augmentation, its label, its pixels [channels, height, width]."""

    key: Any
    epoch: int
    label: Any
    pixels: np.ndarray


class ImageIter(Closable, DataIter):
    """Batches of images, loaded one after another in the caller's thread.

    ImageRecordIter is faster. ImageIter can be changed by augmenters, or by a subclass that overrides next_sample, imdecode,
    augmentation_transform or postprocess_data.

    path_imgrec:   a record file; or path_imglist: a list file (`id<TAB>labels<TAB>path`); or imglist: a list of
                   [label, path]. With path_imgrec, a list gives the labels. Paths are relative to path_root.
    aug_list:      augmenters; by default CreateAugmenter's for the other keyword arguments.
    last_batch_handle:  fill the last batch with "pad" from the front, "discard" it, or "roll_over" its images to the next
                   epoch (then pad is 0).
    shuffle:       a new order every epoch, from Python's `random` unless a seed is given.
    num_parts, part_index:  read one part of the images; all parts give equally many batches (except with "roll_over").
    on_error:      "raise", or "skip": images that cannot be read are skipped, logged, and listed in `skipped`.
    seed:          order and augmentation depend on (seed, epoch, image) alone: Python's and NumPy's global generators are
                   seeded for each image and restored. `state_dict` and `workers` need a seed.
    workers:       number of spawned processes that read, decode and augment ahead; the batches are equal. For slow transforms
                   in Python. They must be picklable, and a script's main part must stand below
                   `if __name__ == "__main__":`. An overridden next_sample is not called then.
    """

    def __init__(self, batch_size: int, data_shape: Sequence[int], label_width: int = 1,
                 path_imgrec: str | os.PathLike | None = None, path_imglist: str | os.PathLike | None = None,
                 path_root: str | os.PathLike | None = None, path_imgidx: str | os.PathLike | None = None,
                 shuffle: bool = False, part_index: int = 0, num_parts: int = 1, aug_list: Sequence[Any] | None = None,
                 imglist: Iterable[Sequence[Any]] | None = None, data_name: str = "data", label_name: str = "softmax_label",
                 dtype: Any = "float32", last_batch_handle: str = "pad", on_error: str = "raise", seed: int | None = None,
                 workers: int = 0, **kwargs: Any):
        super().__init__(int(batch_size))
        name = type(self).__name__
        self.check_data_shape(data_shape)
        check_choice(name, "last_batch_handle", last_batch_handle, ("pad", "discard", "roll_over"))
        check_choice(name, "on_error", on_error, ("raise", "skip"))
        if workers < 0 or (workers and seed is None):
            raise ParameterError(f"{name}: workers={workers} " + ("is less than 0." if workers < 0 else
                                 "needs a seed: otherwise each process would draw its own random numbers."))
        self.data_shape, self.label_width, self.dtype = tuple(data_shape), label_width, as_dtype(dtype)
        self.path_root, self.shuffle, self.last_batch_handle, self.on_error = path_root, shuffle, last_batch_handle, on_error
        self.seed, self.workers = seed, int(workers)
        self.auglist = list(aug_list) if aug_list is not None else self._default_augmenters(kwargs)
        self.imglist = _labels_and_paths(path_imglist, imglist)
        self.imgrec = RecordFile(path_imgrec, path_imgidx, tolerant=on_error == "skip") if path_imgrec else None
        if self.imgrec is None and self.imglist is None:
            raise ParameterError(f"{name}: no images. Give path_imgrec, path_imglist or imglist.")
        self._keys = list(range(len(self.imgrec))) if self.imgrec is not None else list(self.imglist or ())
        self._plan = BatchPlan(len(self._keys), self.batch_size, num_parts=num_parts, part_index=part_index, round_batch=False,
                          shuffle=shuffle, seed=seed or 0, name=name, source=str(path_imgrec or path_imglist or "imglist"))
        self.seq = self._keys[self._plan.first:self._plan.first + self._plan.size]
        self.num_image = len(self.seq)
        self._batches = {"pad": self._plan.batches(),
                         "discard": len(self._keys) // num_parts // self.batch_size}.get(last_batch_handle)
        self.provide_data = [DataDesc(data_name, (self.batch_size, *self.data_shape), self.dtype.type)]
        self.provide_label = [DataDesc(label_name, (self.batch_size, *self._label_shape()))]
        self.skipped: list[str] = []
        self._rest: list[_Row] = []  # rows that were read for the next batch
        self._checksum: int | None = None  # of the list, computed on demand
        self._pool: ProcessPool | None = None
        self._pending: deque[int] = deque()  # positions in seq that the pool works on
        self._epoch = -1
        self.reset()

    # ---- epochs ----
    def reset(self) -> None:
        """Begin the next epoch. With "roll_over", the last one's remaining images come first."""
        self._epoch += 1
        self._reorder()
        self.cur, self._batch = 0, 0
        self.skipped = []
        if self.last_batch_handle != "roll_over":
            self._rest = []

    def hard_reset(self) -> None:
        """Begin the next epoch without the last one's remaining images."""
        self._rest = []
        self.reset()

    def _reorder(self) -> None:
        """Put seq into this epoch's order."""
        self._cancel()
        if self.shuffle and self.seed is None:
            random.shuffle(self.seq)
        elif self.shuffle:
            rows = [self._plan.numbers(self._epoch, 0, batch) for batch in range(self._plan.batches())]
            self.seq = [self._keys[i] for i in np.concatenate(rows)[:self._plan.size]]

    def next(self) -> DataBatch:
        if self._batches is not None and self._batch == self._batches:
            raise StopIteration
        rows = self._rest  # filled in place: rows read before an error are kept
        self._read_until(rows, self.batch_size)
        pad = self.batch_size - len(rows)
        if pad and self.last_batch_handle != "pad":
            if self.last_batch_handle == "discard":
                self._rest = []
            raise StopIteration
        self._rest = []
        if pad:
            rows = rows + self._padding(rows, pad)
        self._batch += 1
        data = np.stack([row.pixels for row in rows])
        return DataBatch([array(data, dtype=self.dtype)], [array(self._labels([row.label for row in rows]))], pad,
                         provide_data=self.provide_data, provide_label=self.provide_label)

    def _read_until(self, rows: list[_Row], count: int) -> None:
        """Append images to rows until there are count, or the epoch ends."""
        while len(rows) < count:
            try:
                rows.append(self._read())
            except StopIteration:
                return

    def _padding(self, rows: list[_Row], count: int) -> list[_Row]:
        """Read rows from the front to fill up the last batch; from the whole source if this part has none."""
        seq, cur, padding = self.seq, self.cur, []
        try:
            for source in (seq, self._keys):
                self.seq, self.cur = source, 0
                self._cancel()
                self._read_until(padding, count)
                repeated = padding or rows
                if repeated:
                    return padding + [repeated[i % len(repeated)] for i in range(count - len(padding))]
        finally:
            self.seq, self.cur = seq, cur
            self._cancel()
        raise FileError(f"{type(self).__name__}: no image can be read.")

    # ---- one image ----
    def next_sample(self) -> tuple[Any, bytes]:
        """Return label and encoded bytes of the next image. Raises StopIteration at the end."""
        if self.cur >= len(self.seq):
            raise StopIteration
        self.cur += 1
        return self._load_sample(self.seq[self.cur - 1])

    def _load_sample(self, key: Any) -> tuple[Any, bytes]:
        if self.imgrec is None:
            label, path = (self.imglist or {})[key]
            return label, self.read_image(path)
        header, data = unpack(self.imgrec.read(key), self.imgrec.where(key))
        if self.imglist is None:
            return header.label, data
        if header.id not in self.imglist:
            raise FileError(f"{self.imgrec.where(key)}: the list has no labels for id {header.id}.")
        return self.imglist[header.id][0], data

    def _read(self) -> _Row:
        """Return the next image that can be read."""
        while True:
            at = self.cur
            try:
                if self.workers:
                    label, pixels = self._next_from_pool()
                else:
                    sample = self.next_sample()
                    label, pixels = self._process(self.seq[at], self._epoch, *sample)
                return _Row(self.seq[at], self._epoch, label, pixels)
            except UnreachableError:
                raise
            except FileError as e:
                self._handle_error(self.seq[at], e)

    def _process(self, key: Any, epoch: int, label: Any, data: bytes) -> tuple[Any, np.ndarray]:
        """Decode and augment a sample; return its label and pixels."""
        for augmenter in self.auglist if self.seed is not None else ():
            if isinstance(augmenter, Dumpable):
                augmenter.restore_order()
        with seeded(None if self.seed is None else (self.seed, epoch, int(key))):
            label, image = self._augment(label, data)
        if image.shape != self.data_shape:
            raise FileError(f"after the augmenters its shape is {image.shape}; data_shape is {self.data_shape}. Add a crop or a "
                            f"resize.")
        return label, image.asnumpy()

    def _augment(self, label: Any, data: bytes) -> tuple[Any, NDArray]:
        if np.size(label) != self.label_width:
            raise FileError(f"it has {np.size(label)} labels; label_width is {self.label_width}.")
        return label, self.postprocess_data(self.augmentation_transform(self.imdecode(data)))

    def _handle_error(self, key: Any, error: FileError) -> None:
        """Raise or log the error of an image, as on_error says."""
        where = self._where(key)
        text = str(error) if where in str(error) else f"{where}: {error}"
        if self.on_error == "raise":
            raise FileError(f"{type(self).__name__}: {text}") from None
        if text not in self.skipped:
            self.skipped.append(text)
            _log.warning("%s: skipped: %s", type(self).__name__, text)

    def _where(self, key: Any) -> str:
        return self.imgrec.where(key) if self.imgrec is not None else os.fspath((self.imglist or {})[key][1])

    def _default_augmenters(self, parameters: dict[str, Any]) -> list[Any]:
        return CreateAugmenter(self.data_shape, **parameters)

    def _label_shape(self) -> tuple[int, ...]:
        return () if self.label_width == 1 else (self.label_width,)

    def _labels(self, labels: list[Any]) -> np.ndarray:
        """Return the label array of a batch."""
        return np.asarray(labels, np.float32).reshape(self.provide_label[0].shape)

    # ---- worker processes ----
    def _next_from_pool(self) -> tuple[Any, np.ndarray]:
        """Return label and pixels of the next image, which a process was given before."""
        if self.cur >= len(self.seq):
            raise StopIteration
        if self._pool is None or self._pool.closed or self._pool.owner != os.getpid():
            self._cancel()
            self._pool = ProcessPool(self._process_task, self.workers, type(self).__name__)
        if not self._pending or self._pending[0] != self.cur:
            self._cancel()
        following = self._pending[-1] + 1 if self._pending else self.cur
        while len(self._pending) < _AHEAD * self.workers and following < len(self.seq):
            self._pool.ask((self.seq[following], self._epoch))
            self._pending.append(following)
            following += 1
        self._pending.popleft()
        self.cur += 1
        try:
            return self._pool.answer()
        except MXNetError as e:
            if self._pool.closed:
                raise MXNetError(f"{e} It was processing {self._where(self.seq[self.cur - 1])}.") from None
            raise

    def _process_task(self, task: tuple[Any, int]) -> tuple[Any, np.ndarray]:
        """Load and process a sample in a worker process, which has a copy of the iterator."""
        key, epoch = task
        return self._process(key, epoch, *self._load_sample(key))

    def _cancel(self) -> None:
        self._pending.clear()
        if self._pool is not None and not self._pool.closed:
            self._pool.cancel()

    def close(self) -> None:
        """End the worker processes and close the file. Dropping the iterator does the same."""
        self._end_pool()
        if self.imgrec is not None:
            self.imgrec.close()

    def _end_pool(self) -> None:
        self._cancel()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_pending": deque(), "_rest": []}

    # ---- resuming ----
    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data, for `load_state_dict` in this or another process. Needs a seed."""
        if self.seed is None:
            raise ParameterError(f"{type(self).__name__}.state_dict: without a seed the order cannot be repeated. Give seed=.")
        return {**self._fixed_state(), "epoch": self._epoch, "cur": self.cur, "given": self._batch,
                "rest": [[row.key, row.epoch] for row in self._rest]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the batch after the one at which the state was saved. Refuses a state of another source or plan."""
        name = type(self).__name__
        check_keys(name, state, self.state_dict(), self._fixed_state())
        epoch, cur, batch = integers(name, state, "epoch", "cur", "given")
        rest = integer_pairs(name, state, "rest")
        known = set(self._keys)
        valid = 0 <= epoch < MAX_EPOCHS and 0 <= batch < MAX_EPOCHS and 0 <= cur <= len(self.seq)
        check_counts(name, valid and all(key in known for key, _ in rest), epoch=epoch, cur=cur, given=batch, rest=rest)
        self._epoch = epoch
        self._reorder()
        self.cur, self._batch = cur, batch
        self._rest = [_Row(key, of, *self._process(key, of, *self._load_sample(key))) for key, of in rest]

    def _fixed_state(self) -> dict[str, Any]:
        """Return the values that a state must share to fit this iterator."""
        if self._checksum is None and self.imglist is not None:
            rows = [(key, np.asarray(label).tolist(), os.fspath(path)) for key, (label, path) in self.imglist.items()]
            self._checksum = zlib.crc32(repr(rows).encode())
        data = {**(self.imgrec.identity() if self.imgrec is not None else {}), "listed": self._checksum}
        return {"data": data, "plan": self._plan.identity(), "last_batch_handle": self.last_batch_handle}

    # ---- for subclasses to override ----
    def check_data_shape(self, data_shape: Sequence[int]) -> None:
        """Raise ParameterError for an invalid data_shape."""
        if len(data_shape) != 3 or data_shape[0] != 3:
            raise ParameterError(f"{type(self).__name__}: data_shape={tuple(data_shape)} is not (3, height, width).")

    def check_valid_image(self, data: Sequence[NDArray]) -> None:
        """Raise ShapeError if the first array of data has no axes: it is no image."""
        if not data[0].shape:
            raise ShapeError(f"{type(self).__name__}: an image without axes.")

    def read_image(self, fname: str) -> bytes:
        """Read a file below path_root."""
        with ByteSource(os.path.join(self.path_root, fname) if self.path_root else fname) as source:
            return source.read(0, source.size)

    def imdecode(self, s: bytes) -> NDArray:
        """Decode an image to uint8[height, width, 3]."""
        return imdecode(s)

    def augmentation_transform(self, data: NDArray) -> NDArray:
        """Apply all augmenters."""
        for augmenter in self.auglist:
            data = augmenter(data)
        return data

    def postprocess_data(self, datum: NDArray) -> NDArray:
        """Transpose [height, width, channels] to [channels, height, width]."""
        return datum.transpose((2, 0, 1))


@contextmanager
def seeded(numbers: tuple[int, ...] | None) -> Iterator[None]:
    """Seed Python's and NumPy's global generators within the context; None leaves them unchanged."""
    if numbers is None:
        yield
        return
    before = random.getstate(), np.random.get_state()
    words = np.random.SeedSequence([n % (1 << 64) for n in numbers]).generate_state(4)
    random.seed(int.from_bytes(words.tobytes(), "little"))
    np.random.seed(words)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def _labels_and_paths(path_imglist: str | os.PathLike | None,
                      imglist: Iterable[Sequence[Any]] | None) -> dict[Any, tuple[Any, str]] | None:
    """Return (label, path) by ID."""
    if path_imglist:
        return {line.id: (float(line.label[0]) if len(line.label) == 1 else line.label, line.path)
                for line in read_lines(path_imglist)}
    if imglist is None:
        return None
    return {i: (np.asarray(row[0], np.float32) if np.ndim(row[0]) else row[0] if len(row) == 2 else
                np.asarray(row[:-1], np.float32), row[-1]) for i, row in enumerate(imglist)}
