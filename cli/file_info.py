"""What a file holds, found by reading it and running nothing: .rec, .params, .safetensors, .states, symbol JSON."""

from __future__ import annotations

import json
import os
import struct
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..atomic_file import open_regular, read_file
from ..errors import FileError, MXNetError
from ..graph.symbol import json as symbol_json
from ..graph.symbol.node import split_variables, topological
from ..io.image.codec import check_libraries, decode
from ..io.records.framing import MAGIC_BYTES, describe_damage
from ..io.records.record_file import RecordFile
from ..io.records.recordio import MXIndexedRecordIO, unpack
from ..kernels import op as ops
from ..ndarray.interop.params_file import read_arrays
from ..ndarray.interop.safetensors import is_safetensors, read_tensors
from ..train.optimizer import states
from ..train.optimizer.mxnet_states import is_pickle, read_mxnet_states

_PARAMS_MAGIC = struct.pack("<Q", 0x112)
_SHOWN = 20  # rows of a table of formats, and problems of one kind


@dataclass
class Inspection:
    """What was found.

    kind:      the file's format, in words.
    facts:     name and value of each thing to say about the whole.
    columns, rows:  one table, may be empty.
    problems:  what is wrong with the file, each a sentence that names the place; empty if nothing is.
    """

    file: str
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def inspect_file(path: str | os.PathLike, progress: Callable[[int, int], None] | None = None,
                 decoding: bool = False) -> Inspection:
    """Read a file to its end and tell what it holds. Damage becomes a problem of the result, not an error.

    progress:  called with bytes done and bytes in all while a long file is read.
    decoding:  decode every image of a .rec, and tell which cannot be.
    Raises FileError if the file cannot be opened, or is of no format known here.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb", opener=open_regular) as f:
            head = f.read(64)
            size = os.fstat(f.fileno()).st_size
    except OSError as e:
        raise FileError(f"{path}: cannot be opened: {e.strerror}.") from None
    kind, reader = _reader(path, head, decoding)
    found = Inspection(path, kind, {"bytes": size})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            reader(found, progress or (lambda done, total: None))
        except MXNetError as e:
            found.problems.append(str(e))
    found.problems += [str(w.message) for w in said]
    return found


def _reader(path: str, head: bytes, decoding: bool) -> tuple[str, Callable[[Inspection, Callable[[int, int], None]], None]]:
    if head[:4] == MAGIC_BYTES or path.endswith(".rec"):
        return "RecordIO", partial(_records, decoding=decoding)
    if path.endswith(".states"):
        return "optimizer states", _states
    if is_safetensors(head) and head[7] == 0:
        return "safetensors", _tensors
    if head[:8] == _PARAMS_MAGIC or path.endswith((".params", ".nd")):
        return "NDArray file (.params)", _arrays
    if head.lstrip()[:1] == b"{":
        return "symbol JSON", _symbol
    raise FileError(f"{path}: begins with {head[:8].hex(' ') or 'nothing'}: not RecordIO, .params, .safetensors, "
                    f"optimizer states or symbol JSON.")


def _records(found: Inspection, progress: Callable[[int, int], None], decoding: bool) -> None:
    formats: Counter[str] = Counter()
    shapes: dict[str, list[tuple[int, int]]] = {}
    flags: Counter[int] = Counter()
    lengths: list[int] = []
    labels: list[float] = []
    headless, damaged = 0, []
    if decoding:
        check_libraries("inspect")
    file = RecordFile(found.file, tolerant=True)
    for number, start in enumerate(file.offsets.tolist()):
        record = file.read(number)
        lengths.append(len(record))
        if number % 256 == 0:
            progress(start, found.facts["bytes"])
        try:
            header, data = unpack(record, file.where(number))
        except FileError:
            headless += 1
            continue
        flags[header.flag] += 1
        labels += [header.label] if not header.flag else header.label[:1].tolist()
        name, shape = image_format(data)
        formats[name] += 1
        if shape:
            low, high = shapes.setdefault(name, [shape, shape])
            shapes[name] = [(min(low[0], shape[0]), min(low[1], shape[1])), (max(high[0], shape[0]), max(high[1], shape[1]))]
        if decoding:
            try:
                decode(data)
            except FileError as e:
                damaged.append(f"{file.where(number)} (id {header.id}): {str(e).rstrip('.')}.")
    file.close()
    found.facts["records"] = len(lengths)
    if lengths:
        found.facts["record bytes"] = f"{_span(min(lengths), max(lengths))}, mean {sum(lengths) / len(lengths):,.0f}"
    if labels:
        kinds = len(set(labels))
        found.facts["labels"] = ((f"{min(labels):g} to {max(labels):g}, {kinds:,} different; " if kinds > 1 else
                                  f"all {labels[0]:g}; ") + f"{', '.join(str(f or 1) for f in sorted(flags))} per record")
    if headless:
        found.facts["without a header"] = headless
    if file.damage:
        found.facts["bytes in no record"] = sum(lost.stop - lost.start for lost in file.damage)
    if decoding:
        found.facts["images decoded"] = sum(formats.values()) - len(damaged)
    found.columns = ("data", "records", "height", "width")
    for name, count in formats.most_common(_SHOWN):
        (h0, w0), (h1, w1) = shapes.get(name, [(0, 0), (0, 0)])
        found.rows.append((name, count, _span(h0, h1) if h1 else "", _span(w0, w1) if w1 else ""))
    _tell(found, [f"{describe_damage(file.path, file.offsets, [lost])}." for lost in file.damage], "damaged places")
    _tell(found, damaged, "images that cannot be decoded")
    _check_index(found, file)


def _check_index(found: Inspection, records: RecordFile) -> None:
    """What the .idx beside a .rec says, against where records are."""
    path = Path(found.file).with_suffix(".idx")
    if not path.exists():
        return
    with MXIndexedRecordIO(path, found.file, "r") as file:
        keys, places = file.keys, file.idx
    found.facts["index"] = f"{path}: {len(keys):,} keys"
    if len(keys) != len(records):
        found.problems.append(f"{path}: {len(keys):,} keys, the file has {len(records):,} records.")
    heads = set(records.offsets.tolist())
    astray = [key for key in keys if places[key] not in heads]
    _tell(found, [f"{path}: key {key!r} points at byte {places[key]:,}, where no record begins." for key in astray], "such keys")


def _tell(found: Inspection, problems: list[str], what: str) -> None:
    found.problems += problems[:_SHOWN]
    if len(problems) > _SHOWN:
        found.problems.append(f"{found.file}: {len(problems) - _SHOWN:,} more {what}.")


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def image_format(data: bytes) -> tuple[str, tuple[int, int] | None]:
    """What encoded data are, by their first bytes, and (height, width) if the format's head says them.

    JPEG: ITU T.81 annex B; PNG: RFC 2083; GIF89a; BMP: its 40-byte head.
    """
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        if len(data) < 24:
            return "PNG", None
        width, height = struct.unpack_from(">II", data, 16)
        return "PNG", (height, width)
    if data[:4] == b"GIF8" and len(data) >= 10:
        width, height = struct.unpack_from("<HH", data, 6)
        return "GIF", (height, width)
    if data[:2] == b"BM" and len(data) >= 26:
        width, height = struct.unpack_from("<ii", data, 18)
        return "BMP", (abs(height), abs(width))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP", None
    if data[:2] != b"\xff\xd8":
        return ("NumPy" if data[:6] == b"\x93NUMPY" else "bytes"), None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a start of frame
            height, width = struct.unpack_from(">HH", data, at + 5)
            return "JPEG", (height, width)
        alone = marker == 0x01 or 0xD0 <= marker <= 0xD7  # without a length; an FF only fills
        at += 1 if marker == 0xFF else 2 if alone else 2 + struct.unpack_from(">H", data, at + 2)[0]
    return "JPEG without a frame", None


def _arrays(found: Inspection, progress: Callable[[int, int], None]) -> None:
    names, arrays = read_arrays(read_file(found.file), found.file)
    _table(found, [(names[i] if names else f"[{i}]", a) for i, a in enumerate(arrays)])
    if names and all(n.startswith(("arg:", "aux:")) for n in names):
        found.kind += ", a checkpoint's"


def _tensors(found: Inspection, progress: Callable[[int, int], None]) -> None:
    arrays, metadata = read_tensors(read_file(found.file), found.file)
    _table(found, list(arrays.items()))
    found.facts |= {f"metadata {k}": v for k, v in metadata.items()}


def _table(found: Inspection, arrays: list[tuple[str, Any]]) -> None:
    found.facts["arrays"] = len(arrays)
    found.facts["numbers"] = sum(a.size for _, a in arrays)
    found.columns = ("name", "dtype", "shape", "bytes")
    found.rows = [(name, a.dtype.name, "x".join(map(str, a.shape)) or "()", a.nbytes) for name, a in arrays]


def _states(found: Inspection, progress: Callable[[int, int], None]) -> None:
    data = read_file(found.file)
    if is_pickle(data):
        found.kind += ", MXNet's pickle (read by a parser that runs nothing)"
        trees = read_mxnet_states(data, found.file)
    else:
        trees, extra = states.load(data, found.file)
        found.facts |= {k: v for k, v in extra.items() if isinstance(v, (str, int, float))}
    found.facts["keys"] = len(trees)


def _symbol(found: Inspection, progress: Callable[[int, int], None]) -> None:
    try:
        text = read_file(found.file).decode()
    except UnicodeDecodeError as e:
        raise symbol_json.not_a_symbol(found.file, f"it is not UTF-8 ({e.reason} at byte {e.start:,})") from None
    nodes, version = _plain(text)
    used = Counter(str(node.get("op")) for node in nodes if isinstance(node, dict) and node.get("op") != "null")
    found.facts["written by"] = f"MXNet {_dotted(version)}"
    found.facts["nodes"] = len(nodes)
    known = set(ops.registered())
    found.columns = ("operator", "nodes", "known here")
    found.rows = [(name[:80], count, "yes" if name in known else "NO") for name, count in used.most_common()]
    heads = symbol_json.loads(text, found.file)
    arguments, auxiliary = split_variables(topological([node for node, _ in heads]))
    found.facts["arguments"] = _few([n.name for n in arguments])
    found.facts["auxiliary states"] = _few([n.name for n in auxiliary])
    found.facts["outputs"] = _few([node.output_names()[i] for node, i in heads])


def _plain(text: str) -> tuple[list[Any], int]:
    """The nodes and the version of a graph as they stand in the file, whatever else is wrong with it."""
    try:
        graph = json.loads(text)
        nodes, stated = graph["nodes"], graph.get("attrs", {}).get("mxnet_version", ["int", 800])[1]
        return (nodes if isinstance(nodes, list) else []), (stated if type(stated) is int else 800)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return [], 800


def _dotted(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}" if version >= 1000 else "0.8 or before"


def _few(names: list[str]) -> str:
    rest = f", ... ({len(names)} in all)" if len(names) > 6 else ""
    return (", ".join(names[:6]) or "none") + rest
