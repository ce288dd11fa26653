"""im2rec: list files of the images in a folder, and record files of what a list names."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...atomic_file import read_file, replace_file, write_atomic
from ...errors import FileError, ParameterError
from ...integers import cdiv
from ..records.recordio import IRHeader, MXIndexedRecordIO, pack
from .codec import check_libraries, decode, encode, opencv, stored_channels
from .image_list import ListLine, read_lines

EXTENSIONS = (".jpeg", ".jpg", ".png")


class PackOptions(NamedTuple):
    """What is done to each image before it is packed.

    pass_through:  the file's bytes as they are, checked all the same.
    resize:        the shorter edge, in pixels; 0 leaves the size.   center_crop: cut to a square before.
    quality:       of JPEG 1 to 100; of PNG, compression 0 to 9.
    color:         1 colour, 0 grey, -1 as stored.
    form:          ".jpg" or ".png".
    pack_label:    all labels of a line, and not the first alone.
    """

    pass_through: bool = False
    resize: int = 0
    center_crop: bool = False
    quality: int = 95
    color: int = 1
    form: str = ".jpg"
    pack_label: bool = False


class PackResult(NamedTuple):
    """What packing gave: the record file, how many records, and (path, what is wrong) of the images left out."""

    path: Path
    records: int
    bad: list[tuple[str, str]]


def find_images(root: str | os.PathLike, recursive: bool,
                extensions: Sequence[str] = EXTENSIONS) -> Iterator[tuple[int, str, int]]:
    """(id, path below root, label) of each image; with recursive, each folder that has images is a label, by name."""
    top, endings = Path(root), {e.lower() for e in extensions}
    if not top.is_dir():
        raise FileError(f"{top}: is not a folder of images.")
    number, labels = 0, {}
    for folder, inside, files in os.walk(top, followlinks=True):
        inside.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.suffix.lower() in endings and path.is_file():
                yield number, path.relative_to(top).as_posix(), labels.setdefault(folder, len(labels)) if recursive else 0
                number += 1
        if not recursive:
            return


def write_lists(prefix: str | os.PathLike, images: Sequence[tuple[int, str, int]], *, shuffle: bool = True, chunks: int = 1,
                train_ratio: float = 1.0, test_ratio: float = 0.0) -> list[Path]:
    """The list files PREFIX.lst, or PREFIX_train.lst and its like, MXNet's im2rec's for the same images.

    Raises ParameterError for ratios that cannot be, FileError if there are no images, or none for a list that has some now;
    then nothing is written.
    """
    if not images:
        raise FileError(f"{os.fspath(prefix)}: there are no images to list. Give the folder that has them, or --recursive.")
    if not (0 < train_ratio <= 1 and 0 <= test_ratio <= 1 and train_ratio + test_ratio <= 1) or chunks < 1:
        raise ParameterError(f"im2rec: train_ratio={train_ratio}, test_ratio={test_ratio} and chunks={chunks} cannot be.")
    order = list(images)
    if shuffle:
        random.Random(100).shuffle(order)
    size, lists = cdiv(len(order), chunks), []
    for chunk in range(chunks):
        rows, suffix = order[chunk * size:(chunk + 1) * size], f"_{chunk}" if chunks > 1 else ""
        train, test = int(size * train_ratio), int(size * test_ratio)
        if train_ratio == 1:
            parts = {"": rows}
        else:
            parts = {"_test": rows[:test] if test_ratio else None, "_train": rows[test:test + train],
                     "_val": rows[test + train:] if train_ratio + test_ratio < 1 else None}
        for part, lines in parts.items():
            if lines is not None:
                path = Path(f"{os.fspath(prefix)}{suffix}{part}.lst")
                if not lines and _holds(path):
                    raise FileError(f"{path}: nothing would be in it, where something is now: {len(order):,} images do not fill "
                                    f"all lists. No list was written. Delete it, or ask for fewer lists.")
                lists.append((path, "".join(f"{number}\t{label:f}\t{name}\n" for number, name, label in lines)))
    for path, text in lists:
        write_atomic(path, text)
    return [path for path, _ in lists]


def _holds(path: Path) -> bool:
    """Whether a file stands there that is not empty."""
    return path.exists() and path.stat().st_size > 0


def pack_list(list_path: str | os.PathLike, root: str | os.PathLike, how: PackOptions = PackOptions(), threads: int = 1,
              progress: Callable[[int], object] = lambda done: None) -> PackResult:
    """The images of a list as a record file and its index beside the list, in the list's order.

    Every image is decoded and so checked; those that are damaged are left out and told. The two files appear whole or
    not at all, and without a record only where none were listed and nothing stands there. The same list gives the same
    bytes with any number of threads.
    progress:  called with how many images are done.
    Raises:    MissingLibraryError before anything is written; FileError where no image can be packed.
    """
    check_libraries("im2rec")
    lines = list(read_lines(list_path))
    path = Path(list_path).with_suffix(".rec")
    index, bad, count = path.with_suffix(".idx"), [], 0
    with (replace_file(index) as new_index, replace_file(path) as new,
          MXIndexedRecordIO(new_index, new, "w") as records, ThreadPoolExecutor(threads, "im2rec") as pool):
        for done, (line, record) in enumerate(_ahead(pool, lines, Path(root), how, 4 * threads), 1):
            try:
                data = record.result()
            except FileError as e:
                bad.append((line.path, str(e)))
            else:
                records.write_idx(line.id, data)
                count += 1
            progress(done)
        if not count and (lines or _holds(path) or _holds(index)):
            why = "; ".join(f"{name}: {what}" for name, what in bad[:3]) + "; ..." * (len(bad) > 3)
            what = f"none of its {len(lines):,} images can be packed: {why}" if lines else "lists no image"
            raise FileError(f"{os.fspath(list_path)}: {what}. {path} and its index stay as they were.")
    return PackResult(path, count, bad)


def _ahead(pool: ThreadPoolExecutor, lines: list[ListLine], root: Path, how: PackOptions,
           depth: int) -> Iterator[tuple[ListLine, Future[bytes]]]:
    """Each line with its record under way, at most `depth` of them at once."""
    waiting: deque[tuple[ListLine, Future[bytes]]] = deque()
    for line in lines:
        if len(waiting) == depth:
            yield waiting.popleft()
        waiting.append((line, pool.submit(_record, line, root, how)))
    yield from waiting


def _record(line: ListLine, root: Path, how: PackOptions) -> bytes:
    try:
        data = read_file(root / line.path)
    except FileError:
        raise
    except (OSError, ValueError) as e:
        raise FileError(f"cannot be read: {getattr(e, 'strerror', e)}") from None
    if not len(line.label):
        raise FileError("the list has no label for it")
    if not 0 <= line.id < 1 << 64:
        raise FileError(f"its id {line.id:,} does not fit into a record: 0 to 2^64 - 1 do")
    header = IRHeader(0, line.label if how.pack_label and len(line.label) > 1 else float(line.label[0]), line.id, 0)
    channels = 3 if how.color == 1 else 1 if how.color == 0 else stored_channels(data)
    pixels = decode(data, channels, upright=how.color >= 0)
    return pack(header, data if how.pass_through else _encode(pixels, how))


def _encode(pixels: np.ndarray, how: PackOptions) -> bytes:
    height, width = pixels.shape[:2]
    if how.center_crop and height != width:
        edge = min(height, width)
        y, x = (height - edge) // 2, (width - edge) // 2
        pixels = pixels[y:y + edge, x:x + edge]
        height = width = edge
    if how.resize:
        size = (how.resize, height * how.resize // width) if height > width else (width * how.resize // height, how.resize)
        made = opencv("im2rec").resize(pixels, size)
        pixels = made.reshape(*made.shape[:2], pixels.shape[2])
    if how.form == ".jpg" and pixels.shape[2] == 4:
        pixels = np.ascontiguousarray(pixels[:, :, :3])
    return encode(pixels, how.quality, how.form)
