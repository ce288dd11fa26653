"""`tritium convert`: parameter files, symbol files and ONNX files from one format to another."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ..atomic_file import read_file, write_atomic
from ..errors import FileError, ParameterError, describe
from ..graph.symbol.symbol import load as load_symbol
from ..ndarray.interop.params_file import SparseRecord, read_arrays, write_arrays
from ..ndarray.interop.safetensors import is_safetensors, read_tensors, write_tensors
from ..progress import Progress
from ..train.checkpoint import params_file, save_params
from .group import Command
from .parameters import named_shape

_ARRAYS = (".params", ".nd", ".safetensors")


@click.command(cls=Command,
               examples=["convert resnet-0090.params resnet.safetensors", "convert old-symbol.json new-symbol.json",
                         "convert resnet-symbol.json resnet.onnx --params resnet-0090.params --shape data=1,3,224,224",
                         "convert resnet.onnx resnet-symbol.json"])
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--params", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="The parameters of a symbol, for an ONNX file.")
@click.option("--shape", "shapes", type=named_shape, multiple=True, metavar="NAME=N,N,...",
              help="Shape of an input, for an ONNX file: data=1,3,224,224. Once per input.")
@click.option("--dtype", default="float32", show_default=True, help="Dtype of the inputs of an ONNX file.")
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, and nothing else.")
def convert(source: Path, target: Path, params: Path | None, shapes: tuple[tuple[str, tuple[int, ...]], ...], dtype: str,
            force: bool, as_json: bool) -> None:
    """Convert SOURCE to TARGET; the endings of their names say how.

    \b
    .params, .nd <-> .safetensors     arrays by name
    .json         -> .json            a symbol of any version of MXNet, to that of 1.x
    .json         -> .onnx            a network with its parameters (--params), for inference
    .onnx         -> X-symbol.json    and its parameters, to X-0000.params
    """
    facts = _converter(source, target)(source, target, params=params, shapes=dict(shapes), dtype=dtype, force=force)
    facts = {"source": str(source), **facts}
    if as_json:
        click.echo(json.dumps(facts))
    else:
        click.echo(f"{' and '.join(facts['targets'])}: {facts['summary']}")


def _converter(source: Path, target: Path) -> Callable[..., dict[str, Any]]:
    start, end = source.suffix.lower(), target.suffix.lower()
    if start in _ARRAYS and end in _ARRAYS:
        return _convert_arrays
    if (start, end) == (".json", ".json"):
        return _convert_symbol
    if (start, end) == (".json", ".onnx"):
        return _to_onnx
    if (start, end) == (".onnx", ".json"):
        return _from_onnx
    raise click.UsageError(f"{source} cannot be converted to {target}: from {start or 'a name without ending'} to "
                           f"{end or 'a name without ending'} there is no way. `tritium convert --help` lists those there are.")


def _onnx() -> Any:
    """Import ONNX's converters, with Gluon below them: no other command needs them."""
    return importlib.import_module("..contrib.onnx", __package__)


def _refuse_existing(force: bool, *targets: Path) -> None:
    for target in targets:
        if target.exists() and not force:
            raise FileError(f"{target}: exists already. Give another name, or --force to replace it.")


def _convert_arrays(source: Path, target: Path, *, force: bool, **unused: Any) -> dict[str, Any]:
    """Write the arrays of a file in the other format, byte for byte."""
    _refuse_existing(force, target)
    data = read_file(source)
    dropped: dict[str, str] = {}
    if is_safetensors(data):
        named, dropped = read_tensors(data, str(source))
        names, arrays = list(named), list(named.values())
    else:
        names, arrays = read_arrays(data, str(source))
    if target.suffix.lower() == ".safetensors":
        if arrays and not names:
            raise FileError(f"{source}: its arrays have no names, and a safetensors file holds arrays by name.")
        if len(set(names)) < len(names):
            twice = sorted({n for n in names if names.count(n) > 1})
            raise FileError(f"{source}: names stand more than once: {', '.join(twice)}.")
        sparse = [n for n, a in zip(names, arrays) if isinstance(a, SparseRecord)]
        if sparse:
            raise FileError(f"{source}: {', '.join(sparse[:5])}: sparse arrays, which a safetensors file cannot hold.")
        pieces: Iterable[bytes | memoryview] = write_tensors(names, arrays, dropped)
        dropped = {}
    else:
        for name, a in zip(names, arrays):
            if not isinstance(a, SparseRecord) and a.dtype.name in ("uint16", "uint32", "uint64", "int16"):
                raise FileError(f"{source}: {name}: {describe(a)}: a .params file has no such dtype.")
        pieces = write_arrays(names, arrays)
    with Progress(len(data), target.name, "B") as progress:
        write_atomic(target, _counted(pieces, progress))
    text = f"{len(arrays):,} arrays, {target.stat().st_size:,} bytes"
    if dropped:
        text += f". Left out, as the format has no place for it: metadata {', '.join(dropped)}"
    return {"targets": [str(target)], "arrays": len(arrays), "bytes": target.stat().st_size, "metadata_left_out": dropped,
            "summary": text}


def _counted(pieces: Iterable[bytes | memoryview], progress: Progress) -> Iterator[bytes | memoryview]:
    for piece in pieces:
        yield piece
        progress.advance(len(piece))


def _convert_symbol(source: Path, target: Path, *, force: bool, **unused: Any) -> dict[str, Any]:
    """Write a symbol as MXNet 1.x does."""
    _refuse_existing(force, target)
    symbol = load_symbol(str(source))
    symbol.save(str(target))
    nodes = len(symbol.get_internals().list_outputs())
    return {"targets": [str(target)], "nodes": nodes, "summary": f"{nodes:,} outputs of nodes, in the format of MXNet 1.x"}


def _to_onnx(source: Path, target: Path, *, params: Path | None, shapes: dict[str, tuple[int, ...]], dtype: str, force: bool
             ) -> dict[str, Any]:
    if params is None or not shapes:
        raise click.UsageError("an ONNX file needs --params X-0000.params and --shape data=1,3,224,224.")
    _refuse_existing(force, target)
    symbol = load_symbol(str(source))
    order = [n for n in symbol.list_arguments() if n in shapes]
    unknown = [n for n in shapes if n not in order]
    if unknown:
        raise ParameterError(f"convert: {source} has no input {unknown[0]!r}. Its arguments: "
                             f"{', '.join(symbol.list_arguments()[:12])}.")
    _onnx().export_model(symbol, str(params), [shapes[n] for n in order], dtype, str(target))
    return {"targets": [str(target)], "bytes": target.stat().st_size, "summary": f"{target.stat().st_size:,} bytes, opset 13"}


def _from_onnx(source: Path, target: Path, *, force: bool, **unused: Any) -> dict[str, Any]:
    prefix = str(target).removesuffix(".json").removesuffix("-symbol")
    symbol_file, weights = Path(f"{prefix}-symbol.json"), Path(params_file(prefix, 0))
    _refuse_existing(force, symbol_file, weights)
    symbol, arguments, states = _onnx().import_model(source)
    symbol.save(str(symbol_file))
    save_params(str(weights), arguments, states)
    return {"targets": [str(symbol_file), str(weights)], "arrays": len(arguments) + len(states),
            "summary": f"{len(arguments) + len(states):,} arrays. Load them with mx.model.load_checkpoint({prefix!r}, 0)"}
