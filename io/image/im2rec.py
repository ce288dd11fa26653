"""im2rec: list files of the images in a folder, and record files of the images in a list."""

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
from .ops import shorter_edge_to

EXTENSIONS = (".jpeg", ".jpg", ".png")


class PackOptions(NamedTuple):
    """Options of packing.

    pass_through:  pack the file's bytes unchanged, after checking them.
    resize:        the shorter edge, in pixels; 0 keeps the size.   center_crop: cut to a square first.
    quality:       of JPEG 1 to 100; of PNG, compression 0 to 9.
    color:         1 colour, 0 grey, -1 as stored.
    form:          ".jpg" or ".png".
    pack_label:    all labels of a line instead of the first only.
    """

    pass_through: bool = False
    resize: int = 0
    center_crop: bool = False
    quality: int = 95
    color: int = 1
    form: str = ".jpg"
    pack_label: bool = False


class PackResult(NamedTuple):
    """The record file, its number of records, and (path, error) of the images that were left out."""

    path: Path
    records: int
    bad: list[tuple[str, str]]


def find_images(root: str | os.PathLike, recursive: bool,
                extensions: Sequence[str] = EXTENSIONS) -> Iterator[tuple[int, str, int]]:
    """Yield (ID, path relative to root, label) of each image. With recursive, each folder with images is a label, by name."""
    top, endings = Path(root), {e.lower() for e in extensions}
    if not top.is_dir():
        raise FileError(f"{top}: is not a folder.")
    number, labels = 0, {}
    for folder, subfolders, files in os.walk(top, followlinks=True):
        subfolders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.suffix.lower() in endings and path.is_file():
                yield number, path.relative_to(top).as_posix(), labels.setdefault(folder, len(labels)) if recursive else 0
                number += 1
        if not recursive:
            return


def write_lists(prefix: str | os.PathLike, images: Sequence[tuple[int, str, int]], *, shuffle: bool = True, chunks: int = 1,
                train_ratio: float = 1.0, test_ratio: float = 0.0) -> list[Path]:
    """Write the list files PREFIX.lst, or PREFIX_train.lst and so on, equal to those of MXNet's im2rec.

    Raises ParameterError for invalid ratios, FileError without images or if a list that has some now would become empty; then
    nothing is written.
    """
    if not images:
        raise FileError(f"{os.fspath(prefix)}: no images to list. Give the folder that contains them, or --recursive.")
    if not (0 < train_ratio <= 1 and 0 <= test_ratio <= 1 and train_ratio + test_ratio <= 1) or chunks < 1:
        raise ParameterError(f"im2rec: train_ratio={train_ratio}, test_ratio={test_ratio} and chunks={chunks} are invalid.")
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
                if not lines and _has_content(path):
                    raise FileError(f"{path}: this list has lines now and would be empty: {len(order):,} images do not "
                                    f"fill all lists. No list was written. Delete it, or ask for fewer lists.")
                lists.append((path, "".join(f"{number}\t{label:f}\t{name}\n" for number, name, label in lines)))
    for path, text in lists:
        write_atomic(path, text)
    return [path for path, _ in lists]


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def pack_list(list_path: str | os.PathLike, root: str | os.PathLike, options: PackOptions = PackOptions(), threads: int = 1,
              progress: Callable[[int], object] = lambda done: None) -> PackResult:
    """Pack the images of a list into a record file and its index beside the list, in the list's order.

    Every image is decoded as a check; damaged ones are left out and returned. Both files are written atomically. They are
    empty only if the list is empty and neither has content. The bytes do not depend on the number of threads.
    progress:  called with the number of images done.
    Raises:    MissingLibraryError before anything is written; FileError if no image can be packed.
    """
    check_libraries("im2rec")
    lines = list(read_lines(list_path))
    path = Path(list_path).with_suffix(".rec")
    index, bad, count = path.with_suffix(".idx"), [], 0
    with (replace_file(index) as new_index, replace_file(path) as new,
          MXIndexedRecordIO(new_index, new, "w") as records, ThreadPoolExecutor(threads, "im2rec") as pool):
        for done, (line, record) in enumerate(_ahead(pool, lines, Path(root), options, 4 * threads), 1):
            try:
                data = record.result()
            except FileError as e:
                bad.append((line.path, str(e)))
            else:
                records.write_idx(line.id, data)
                count += 1
            progress(done)
        if not count and (lines or _has_content(path) or _has_content(index)):
            errors = "; ".join(f"{name}: {error}" for name, error in bad[:3]) + "; ..." * (len(bad) > 3)
            why = f"none of its {len(lines):,} images can be packed: {errors}" if lines else "lists no images"
            raise FileError(f"{os.fspath(list_path)}: {why}. {path} and its index are unchanged.")
    return PackResult(path, count, bad)


def _ahead(pool: ThreadPoolExecutor, lines: list[ListLine], root: Path, options: PackOptions,
           depth: int) -> Iterator[tuple[ListLine, Future[bytes]]]:
    """Yield each line with its record, computing at most `depth` records ahead."""
    waiting: deque[tuple[ListLine, Future[bytes]]] = deque()
    for line in lines:
        if len(waiting) == depth:
            yield waiting.popleft()
        waiting.append((line, pool.submit(_record, line, root, options)))
    yield from waiting


def _record(line: ListLine, root: Path, options: PackOptions) -> bytes:
    try:
        data = read_file(root / line.path)
    except (OSError, ValueError) as e:
        refused = isinstance(e, FileError) and not isinstance(e, OSError)
        raise e if refused else FileError(f"cannot be read: {getattr(e, 'strerror', e)}") from None
    if not len(line.label):
        raise FileError("the list has no label for it")
    if not 0 <= line.id < 1 << 64:
        raise FileError(f"its ID {line.id:,} is out of range: 0 to 2^64 - 1")
    header = IRHeader(0, line.label if options.pack_label and len(line.label) > 1 else float(line.label[0]), line.id, 0)
    channels = 3 if options.color == 1 else 1 if options.color == 0 else stored_channels(data)
    pixels = decode(data, channels, upright=options.color >= 0)
    return pack(header, data if options.pass_through else _encode(pixels, options))


def _encode(pixels: np.ndarray, options: PackOptions) -> bytes:
    height, width = pixels.shape[:2]
    if options.center_crop and height != width:
        edge = min(height, width)
        y, x = (height - edge) // 2, (width - edge) // 2
        pixels = pixels[y:y + edge, x:x + edge]
        height = width = edge
    if options.resize:
        height, width = shorter_edge_to(options.resize, height, width)
        pixels = opencv("im2rec").resize(pixels, (width, height)).reshape(height, width, pixels.shape[2])
    if options.form == ".jpg" and pixels.shape[2] == 4:
        pixels = np.ascontiguousarray(pixels[:, :, :3])
    return encode(pixels, options.quality, options.form)
