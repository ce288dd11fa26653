"""`tritium inspect FILE`: summary and damage of a .rec, .params, .safetensors, .states or symbol JSON file.

Reading a file runs no code of it.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..atomic_file import open_regular, read_file
from ..errors import FileError, MXNetError
from ..graph.symbol import json as symbol_json
from ..graph.symbol.node import split_variables, topological
from ..io.image.codec import check_libraries, decode
from ..io.image.image_header import image_format
from ..io.records.framing import MAGIC_BYTES, describe_damage
from ..io.records.record_file import RecordFile
from ..io.records.recordio import MXIndexedRecordIO, unpack
from ..kernels import op as ops
from ..ndarray.interop.params_file import read_arrays
from ..ndarray.interop.safetensors import is_safetensors, read_tensors
from ..progress import Progress
from ..train.optimizer import states
from ..train.optimizer.mxnet_states import is_pickle, read_mxnet_states
from .group import Command

_PARAMS_MAGIC = struct.pack("<Q", 0x112)
_SHOWN = 20  # at most so many formats, and problems of one kind


@dataclass
class Inspection:
    """The summary of a file.

    kind:      the name of its format.
    facts:     properties of the whole file, by name.
    columns, rows:  a table, which may be empty.
    problems:  sentences that name each damaged place; empty for a good file.
    """

    file: str
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def inspect_file(path: str | os.PathLike, progress: Callable[[int, int], None] | None = None,
                 decoding: bool = False) -> Inspection:
    """Read a file to its end and summarise it. Damage becomes a problem in the result, not an error.

    progress:  called with the bytes done and the total while a long file is read.
    decoding:  decode every image of a .rec, and list those that cannot be decoded.
    Raises FileError if the file cannot be opened, or is of an unknown format.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb", opener=open_regular) as f:
            first_bytes = f.read(64)
            size = os.fstat(f.fileno()).st_size
    except OSError as e:
        raise FileError(f"{path}: cannot be opened: {e.strerror}.") from None
    kind, reader = _reader(path, first_bytes, decoding)
    info = Inspection(path, kind, {"bytes": size})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            reader(info, progress or (lambda done, total: None))
        except MXNetError as e:
            info.problems.append(str(e))
    info.problems += [str(w.message) for w in caught]
    return info


def _reader(path: str, data: bytes, decoding: bool) -> tuple[str, Callable[[Inspection, Callable[[int, int], None]], None]]:
    if data[:4] == MAGIC_BYTES or path.endswith(".rec"):
        return "RecordIO", partial(_records, decoding=decoding)
    if path.endswith(".states"):
        return "optimizer states", _states
    if is_safetensors(data) and data[7] == 0:
        return "safetensors", _tensors
    if data[:8] == _PARAMS_MAGIC or path.endswith((".params", ".nd")):
        return "NDArray file (.params)", _arrays
    if data.lstrip()[:1] == b"{":
        return "JSON", _json
    raise FileError(f"{path}: begins with {data[:8].hex(' ') or 'nothing'}: not RecordIO, .params, .safetensors, "
                    f"optimizer states or symbol JSON.")


def _records(info: Inspection, progress: Callable[[int, int], None], decoding: bool) -> None:
    formats: Counter[str] = Counter()
    shapes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    flags: Counter[int] = Counter()
    lengths: list[int] = []
    labels: list[float] = []
    headless, damaged = 0, []
    if decoding:
        check_libraries("inspect")
    file = RecordFile(info.file, tolerant=True)
    for number, start in enumerate(file.offsets.tolist()):
        record = file.read(number)
        lengths.append(len(record))
        if number % 256 == 0:
            progress(start, info.facts["bytes"])
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
            shapes[name].append(shape)
        if decoding:
            try:
                decode(data)
            except FileError as e:
                damaged.append(f"{file.where(number)} (id {header.id}): {str(e).rstrip('.')}.")
    file.close()
    info.facts["records"] = len(lengths)
    if lengths:
        info.facts["record bytes"] = f"{_span(min(lengths), max(lengths))}, mean {sum(lengths) / len(lengths):,.0f}"
    if labels:
        kinds = len(set(labels))
        info.facts["labels"] = ((f"{min(labels):g} to {max(labels):g}, {kinds:,} different; " if kinds > 1 else
                                  f"all {labels[0]:g}; ") + f"{', '.join(str(f or 1) for f in sorted(flags))} per record")
    if headless:
        info.facts["without a header"] = headless
    if file.damage:
        info.facts["bytes in no record"] = sum(lost.stop - lost.start for lost in file.damage)
    if decoding:
        info.facts["images decoded"] = sum(formats.values()) - len(damaged)
    info.columns = ("data", "records", "height", "width")
    for name, count in formats.most_common(_SHOWN):
        info.rows.append((name, count, *([_span(min(s), max(s)) for s in zip(*shapes[name])] or ("", ""))))
    _add_problems(info, [f"{describe_damage(file.path, file.offsets, [lost])}." for lost in file.damage], "damaged places")
    _add_problems(info, damaged, "images that cannot be decoded")
    _check_index(info, file)


def _check_index(info: Inspection, records: RecordFile) -> None:
    """Compare the .idx beside a .rec with the records."""
    path = Path(info.file).with_suffix(".idx")
    if not path.exists():
        return
    with MXIndexedRecordIO(path, info.file, "r") as file:
        keys, offsets = file.keys, file.idx
    info.facts["index"] = f"{path}: {len(keys):,} keys"
    if len(keys) != len(records):
        info.problems.append(f"{path}: {len(keys):,} keys, the file has {len(records):,} records.")
    starts = set(records.offsets.tolist())
    wrong = [key for key in keys if offsets[key] not in starts]
    _add_problems(info, [f"{path}: key {key!r} points at byte {offsets[key]:,}, where no record begins." for key in wrong],
                  "such keys")


def _add_problems(info: Inspection, problems: list[str], kind: str) -> None:
    info.problems += problems[:_SHOWN]
    if len(problems) > _SHOWN:
        info.problems.append(f"{info.file}: {len(problems) - _SHOWN:,} more {kind}.")


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _arrays(info: Inspection, progress: Callable[[int, int], None]) -> None:
    names, arrays = read_arrays(read_file(info.file), info.file)
    _table(info, [(names[i] if names else f"[{i}]", a) for i, a in enumerate(arrays)])
    if names and all(n.startswith(("arg:", "aux:")) for n in names):
        info.kind += ", a checkpoint's"


def _tensors(info: Inspection, progress: Callable[[int, int], None]) -> None:
    arrays, metadata = read_tensors(read_file(info.file), info.file)
    _table(info, list(arrays.items()))
    info.facts |= {f"metadata {k}": v for k, v in metadata.items()}


def _table(info: Inspection, arrays: list[tuple[str, Any]]) -> None:
    info.facts["arrays"] = len(arrays)
    info.facts["numbers"] = sum(a.size for _, a in arrays)
    info.columns = ("name", "dtype", "shape", "bytes")
    info.rows = [(name, a.dtype.name, "x".join(map(str, a.shape)) or "()", a.nbytes) for name, a in arrays]


def _states(info: Inspection, progress: Callable[[int, int], None]) -> None:
    data = read_file(info.file)
    if is_pickle(data):
        info.kind += ", MXNet's pickle (read by a parser that runs no code)"
        trees, extra = read_mxnet_states(data, info.file)
    else:
        trees, extra = states.load(data, info.file)
    info.facts |= {k: v for k, v in extra.items() if isinstance(v, (str, int, float))}
    info.facts["keys"] = len(trees)


def _json(info: Inspection, progress: Callable[[int, int], None]) -> None:
    """Summarise a symbol. Other JSON is named as such, with its keys: it is not damaged, nor is it a network."""
    data = read_file(info.file)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):  # cut short perhaps: the reader of symbols names the place
        document = None
    if isinstance(document, dict) and not {"nodes", "heads"} & document.keys():
        info.kind = "JSON, not a symbol (it has no nodes)"
        info.facts["keys"] = _few([str(k)[:80] for k in document])
        return
    if document is not None or b'"nodes"' in data:
        info.kind = "symbol JSON"
    _symbol(info, data)


def _symbol(info: Inspection, data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        raise symbol_json.not_a_symbol(info.file, f"it is not UTF-8 ({e.reason} at byte {e.start:,})") from None
    nodes, version = _plain(text)
    used = Counter(str(node.get("op")) for node in nodes if isinstance(node, dict) and node.get("op") != "null")
    info.facts["written by"] = f"MXNet {_dotted(version)}"
    info.facts["nodes"] = len(nodes)
    known = set(ops.registered())
    info.columns = ("operator", "nodes", "known here")
    info.rows = [(name[:80], count, "yes" if name in known else "NO") for name, count in used.most_common()]
    heads = symbol_json.loads(text, info.file)
    arguments, auxiliary = split_variables(topological([node for node, _ in heads]))
    info.facts["arguments"] = _few([n.name for n in arguments])
    info.facts["auxiliary states"] = _few([n.name for n in auxiliary])
    info.facts["outputs"] = _few([node.output_names()[i] for node, i in heads])


def _plain(text: str) -> tuple[list[Any], int]:
    """Return the nodes and the version in the file, also of a graph that cannot be loaded."""
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


# ---- the command ----------------------------------------------------------------------------------------------------
@click.command(cls=Command, name="inspect", context_settings={"show_default": True},
               examples=["inspect resnet-symbol.json resnet-0090.params", "inspect --decode --json train.rec"])
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each file, and nothing else.")
@click.option("--rows", type=click.IntRange(1), default=100, help="Rows of a table to show at most.")
@click.option("--decode", "decoding", is_flag=True, help="Decode every image of a .rec file, and name those that are damaged.")
def inspect(files: tuple[Path, ...], as_json: bool, rows: int, decoding: bool) -> None:
    """Summarise files of records, arrays or a network, which are read to the end and checked.

    Nothing in a file is run. The command fails if a file is damaged.
    """
    console = Console(highlight=False)
    bad = 0
    for file in files:
        try:
            with Progress(title=str(file), unit="B") as progress:
                found = inspect_file(file, progress.reach, decoding)
        except FileError as e:
            found = Inspection(str(file), "unknown", problems=[str(e)])
        bad += bool(found.problems)
        if as_json:
            click.echo(json.dumps(asdict(found)))
        else:
            show(console, found, rows)
    if bad:
        sys.exit(1)


def show(console: Console, found: Inspection, rows: int) -> None:
    """Print the facts, the table, and the problems last."""
    console.print(f"[bold]{escape(found.file)}[/bold]: {escape(found.kind)}", soft_wrap=True)
    for name, value in found.facts.items():
        console.print(f"  {escape(name)}: {escape(f'{value:,}' if isinstance(value, int) else str(value))}", soft_wrap=True)
    if found.rows:
        table = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
        for name, value in zip(found.columns, found.rows[0]):
            table.add_column(name, justify="right" if isinstance(value, int) else "left")
        for row in found.rows[:rows]:
            table.add_row(*(escape(f"{v:,}" if isinstance(v, int) else str(v)) for v in row))
        console.print(table)
        if len(found.rows) > rows:
            console.print(f"  ... {len(found.rows) - rows:,} more rows; --rows shows more")
    for problem in found.problems:
        console.print(f"  [red]problem:[/red] {escape(problem)}", soft_wrap=True)
