"""ImageIter: batches of images from a record file, a list of files or a list in memory, changed by augmenters in Python."""

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
from ...errors import FileError, MXNetError, ParameterError, UnreachableError
from ...ndarray import NDArray, array
from ..iterator import DataBatch, DataDesc, DataIter
from ..iterator_state import MOST_EPOCHS, check_keys, integer_pairs, integers
from ..loading.processes import ProcessPool
from ..plan import BatchPlan
from ..records.files import ByteSource
from ..records.record_file import RecordFile
from ..records.recordio import unpack
from .augmenters import CreateAugmenter, Dumpable
from .image_list import read_lines
from .ops import imdecode

_log = logging.getLogger("tritium.io")
_AHEAD = 4  # images that each worker process is asked for ahead of their use


class _Row(NamedTuple):
    """One image of a batch: which, as it was changed in which epoch; its label, and its pixels [channels, height, width]."""

    key: Any
    epoch: int
    label: Any
    pixels: np.ndarray


class ImageIter(DataIter):
    """Batches of images, one after another, in the caller's thread. ImageRecordIter is faster, this one can be changed:
    by augmenters, or by a subclass that overrides next_sample, imdecode, augmentation_transform or postprocess_data.

    path_imgrec:   a record file, or path_imglist: a list file (`id<TAB>labels<TAB>path`), or imglist: a list of
                   [label, path]; with path_imgrec, a list gives the labels. Paths are below path_root.
    aug_list:      augmenters; or else CreateAugmenter's, of the other keyword arguments.
    last_batch_handle:  "pad" from the front, "discard", or "roll_over" into the next epoch (there they count: pad is 0).
    shuffle:       a new order every epoch, from Python's `random` unless there is a seed.
    num_parts, part_index:  one part of the images; all parts give equally many batches (but under "roll_over").
    on_error:      "raise", or "skip": images that cannot be read are left out, logged, and named in `skipped`.
    seed:          order and augmentation depend on (seed, epoch, image) alone: Python's and NumPy's global generators are
                   set for each image and put back. `state_dict` and `workers` need it.
    workers:       so many spawned processes read, decode and augment ahead; the batches are the same. For transforms
                   written in Python; they must be picklable, and a script's main part must stand below
                   `if __name__ == "__main__":`. An overridden next_sample is not asked then.
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
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ParameterError(f"{name}: last_batch_handle={last_batch_handle!r} is not one of 'pad', 'discard', "
                                 f"'roll_over'.")
        if on_error not in ("raise", "skip"):
            raise ParameterError(f"{name}: on_error={on_error!r} is not one of 'raise', 'skip'.")
        if workers < 0 or (workers and seed is None):
            raise ParameterError(f"{name}: workers={workers} " + ("is less than 0." if workers < 0 else
                                 "needs a seed: without one, every process would draw numbers of its own."))
        self.data_shape, self.label_width, self.dtype = tuple(data_shape), label_width, as_dtype(dtype)
        self.path_root, self.shuffle, self.last_batch_handle, self.on_error = path_root, shuffle, last_batch_handle, on_error
        self.seed, self.workers = seed, int(workers)
        self.auglist = list(aug_list) if aug_list is not None else self._augmenters(kwargs)
        self.imglist = _labels_and_paths(path_imglist, imglist)
        self.imgrec = RecordFile(path_imgrec, path_imgidx, tolerant=on_error == "skip") if path_imgrec else None
        if self.imgrec is None and self.imglist is None:
            raise ParameterError(f"{name}: there is nothing to read. Give path_imgrec, path_imglist or imglist.")
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
        self._rest: list[_Row] = []  # rows that were read for a batch that was not given yet
        self._checksum: int | None = None  # of the list, once somebody asked
        self._pool: ProcessPool | None = None
        self._asked: deque[int] = deque()  # the places in seq that the pool works on
        self._epoch = -1
        self.reset()

    # ---- epochs ----
    def reset(self) -> None:
        """Begin the next epoch; under "roll_over" with what the last one left."""
        self._epoch += 1
        self._reorder()
        self.cur, self._given = 0, 0
        self.skipped = []
        if self.last_batch_handle != "roll_over":
            self._rest = []

    def hard_reset(self) -> None:
        """Begin the next epoch, and forget what the last one left."""
        self._rest = []
        self.reset()

    def _reorder(self) -> None:
        """Put seq into this epoch's order."""
        self._forget()
        if self.shuffle and self.seed is None:
            random.shuffle(self.seq)
        elif self.shuffle:
            places = [self._plan.numbers(self._epoch, 0, batch) for batch in range(self._plan.batches())]
            self.seq = [self._keys[i] for i in np.concatenate(places)[:self._plan.size]]

    def next(self) -> DataBatch:
        if self._batches is not None and self._given == self._batches:
            raise StopIteration
        rows = self._rest  # filled here: after an error, what was read before it is not lost
        self._take(rows, self.batch_size)
        pad = self.batch_size - len(rows)
        if pad and self.last_batch_handle != "pad":
            if self.last_batch_handle == "discard":
                self._rest = []
            raise StopIteration
        self._rest = []
        if pad:
            rows = rows + self._fillers(rows, pad)
        self._given += 1
        data = np.stack([row.pixels for row in rows])
        return DataBatch([array(data, dtype=self.dtype)], [array(self._labels([row.label for row in rows]))], pad,
                         provide_data=self.provide_data, provide_label=self.provide_label)

    def _take(self, rows: list[_Row], count: int) -> None:
        """Read on until rows are count, or the epoch ends."""
        while len(rows) < count:
            try:
                rows.append(self._read())
            except StopIteration:
                return

    def _fillers(self, rows: list[_Row], count: int) -> list[_Row]:
        """Rows from the front, to fill a last batch up; from the whole source, if this part has none."""
        seq, at, found = self.seq, self.cur, []
        try:
            for source in (seq, self._keys):
                self.seq, self.cur = source, 0
                self._forget()
                self._take(found, count)
                again = found or rows
                if again:
                    return found + [again[i % len(again)] for i in range(count - len(found))]
        finally:
            self.seq, self.cur = seq, at
            self._forget()
        raise FileError(f"{type(self).__name__}: not one image can be read.")

    # ---- one image ----
    def next_sample(self) -> tuple[Any, bytes]:
        """The label and the encoded image of the next one. Raises StopIteration at the end."""
        if self.cur >= len(self.seq):
            raise StopIteration
        self.cur += 1
        return self._sample(self.seq[self.cur - 1])

    def _sample(self, key: Any) -> tuple[Any, bytes]:
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
        """The next image that can be read."""
        while True:
            at = self.cur
            try:
                if self.workers:
                    label, pixels = self._by_worker()
                else:
                    sample = self.next_sample()
                    label, pixels = self._changed(self.seq[at], self._epoch, *sample)
                return _Row(self.seq[at], self._epoch, label, pixels)
            except UnreachableError:
                raise
            except FileError as e:
                self._bad(self.seq[at], e)

    def _changed(self, key: Any, epoch: int, label: Any, data: bytes) -> tuple[Any, np.ndarray]:
        """Label and pixels of a sample after everything that is done to them."""
        for augmenter in self.auglist if self.seed is not None else ():
            if isinstance(augmenter, Dumpable):
                augmenter.restore_order()
        with seeded(None if self.seed is None else (self.seed, epoch, int(key))):
            label, image = self._made(label, data)
        if image.shape != self.data_shape:
            raise FileError(f"after the augmenters it is {image.shape}; data_shape is {self.data_shape}. Add a crop or a resize.")
        return label, image.asnumpy()

    def _made(self, label: Any, data: bytes) -> tuple[Any, NDArray]:
        if np.size(label) != self.label_width:
            raise FileError(f"it has {np.size(label)} labels; label_width is {self.label_width}.")
        return label, self.postprocess_data(self.augmentation_transform(self.imdecode(data)))

    def _bad(self, key: Any, error: FileError) -> None:
        """What on_error says of an image that cannot be read."""
        where = self._where(key)
        text = str(error) if where in str(error) else f"{where}: {error}"
        if self.on_error == "raise":
            raise FileError(f"{type(self).__name__}: {text}") from None
        if text not in self.skipped:
            self.skipped.append(text)
            _log.warning("%s: left out: %s", type(self).__name__, text)

    def _where(self, key: Any) -> str:
        return self.imgrec.where(key) if self.imgrec is not None else os.fspath((self.imglist or {})[key][1])

    def _augmenters(self, parameters: dict[str, Any]) -> list[Any]:
        return CreateAugmenter(self.data_shape, **parameters)

    def _label_shape(self) -> tuple[int, ...]:
        return () if self.label_width == 1 else (self.label_width,)

    def _labels(self, labels: list[Any]) -> np.ndarray:
        """The label array of a batch."""
        return np.asarray(labels, np.float32).reshape(self.provide_label[0].shape)

    # ---- worker processes ----
    def _by_worker(self) -> tuple[Any, np.ndarray]:
        """Label and pixels of the next image, which a process was asked for before."""
        if self.cur >= len(self.seq):
            raise StopIteration
        if self._pool is None or self._pool.closed or self._pool.owner != os.getpid():
            self._forget()
            self._pool = ProcessPool(_Work(self), self.workers, type(self).__name__)
        if not self._asked or self._asked[0] != self.cur:
            self._forget()
        following = self._asked[-1] + 1 if self._asked else self.cur
        while len(self._asked) < _AHEAD * self.workers and following < len(self.seq):
            self._pool.ask((self.seq[following], self._epoch))
            self._asked.append(following)
            following += 1
        self._asked.popleft()
        self.cur += 1
        try:
            return self._pool.answer()
        except MXNetError as e:
            if self._pool.closed:
                raise MXNetError(f"{e} It was at {self._where(self.seq[self.cur - 1])}.") from None
            raise

    def _forget(self) -> None:
        self._asked.clear()
        if self._pool is not None and not self._pool.closed:
            self._pool.forget()

    def close(self) -> None:
        """End the worker processes and give the file back. Dropping the iterator does the same."""
        self._end_pool()
        if self.imgrec is not None:
            self.imgrec.close()

    def _end_pool(self) -> None:
        self._forget()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_asked": deque(), "_rest": []}

    # ---- resuming ----
    def state_dict(self) -> dict[str, Any]:
        """Where the iterator stands, as plain numbers: `load_state_dict` goes on from there in any process. Needs a seed."""
        if self.seed is None:
            raise ParameterError(f"{type(self).__name__}.state_dict: without a seed nobody can go on with the same images. "
                                 f"Give seed=.")
        return {"data": self._identity(), "plan": self._plan.identity(), "last_batch_handle": self.last_batch_handle,
                "epoch": self._epoch, "cur": self.cur, "given": self._given,
                "rest": [[row.key, row.epoch] for row in self._rest]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where state_dict() was taken: the next batch is the one behind it. Refuses one of another data set."""
        name, mine = type(self).__name__, self.state_dict()
        check_keys(name, state, mine)
        for what in ("data", "plan", "last_batch_handle"):
            if state[what] != mine[what]:
                raise ParameterError(f"{name}.load_state_dict: the state is of another {what}: {state[what]}, this iterator "
                                     f"has {mine[what]}.")
        epoch, cur, given = integers(name, state, "epoch", "cur", "given")
        rest = integer_pairs(name, state, "rest")
        known = set(self._keys)
        counted = 0 <= epoch < MOST_EPOCHS and 0 <= given < MOST_EPOCHS and 0 <= cur <= len(self.seq)
        if not counted or not all(key in known for key, _ in rest):
            raise ParameterError(f"{name}.load_state_dict: epoch {epoch}, cur {cur}, given {given}, rest {rest} cannot be.")
        self._epoch = epoch
        self._reorder()
        self.cur, self._given = cur, given
        self._rest = [_Row(key, of, *self._changed(key, of, *self._sample(key))) for key, of in rest]

    def _identity(self) -> dict[str, Any]:
        """What tells this set of images from another."""
        if self._checksum is None and self.imglist is not None:
            rows = [(key, np.asarray(label).tolist(), os.fspath(path)) for key, (label, path) in self.imglist.items()]
            self._checksum = zlib.crc32(repr(rows).encode())
        return {**(self.imgrec.identity() if self.imgrec is not None else {}), "listed": self._checksum}

    # ---- what a subclass may change ----
    def check_data_shape(self, data_shape: Sequence[int]) -> None:
        """Raises ParameterError if data_shape cannot be."""
        if len(data_shape) != 3 or data_shape[0] != 3:
            raise ParameterError(f"{type(self).__name__}: data_shape={tuple(data_shape)} is not (3, height, width).")

    def read_image(self, fname: str) -> bytes:
        """The bytes of a file below path_root."""
        with ByteSource(os.path.join(self.path_root, fname) if self.path_root else fname) as source:
            return source.read(0, source.size)

    def imdecode(self, s: bytes) -> NDArray:
        """An encoded image as uint8[height, width, 3]."""
        return imdecode(s)

    def augmentation_transform(self, data: NDArray) -> NDArray:
        """The image after all augmenters."""
        for augmenter in self.auglist:
            data = augmenter(data)
        return data

    def postprocess_data(self, datum: NDArray) -> NDArray:
        """[height, width, channels] as [channels, height, width]."""
        return datum.transpose((2, 0, 1))


class _Work:
    """What a worker process does for an iterator of which it holds a copy."""

    def __init__(self, it: ImageIter):
        self.it = it

    def __call__(self, task: tuple[Any, int]) -> tuple[Any, np.ndarray]:
        key, epoch = task
        return self.it._changed(key, epoch, *self.it._sample(key))


@contextmanager
def seeded(numbers: tuple[int, ...] | None) -> Iterator[None]:
    """Python's and NumPy's global generators, set by these numbers for a while; as they are, if there are none."""
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
    """(label, path) by id."""
    if path_imglist:
        return {line.id: (float(line.label[0]) if len(line.label) == 1 else line.label, line.path)
                for line in read_lines(path_imglist)}
    if imglist is None:
        return None
    return {i: (np.asarray(row[0], np.float32) if np.ndim(row[0]) else row[0] if len(row) == 2 else
                np.asarray(row[:-1], np.float32), row[-1]) for i, row in enumerate(imglist)}
