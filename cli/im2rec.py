"""`tritium im2rec`: image lists and record files, with the flags of MXNet's im2rec.py."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from ..io.image.im2rec import EXTENSIONS, PackOptions, find_images, pack_list, write_lists
from ..progress import Progress
from .group import Command


@click.command(cls=Command, name="im2rec", context_settings={"show_default": True},
               examples=["im2rec --list --recursive --train-ratio 0.9 pets photos",
                         "im2rec --resize 256 --num-thread 8 pets photos"])
@click.argument("prefix")
@click.argument("root", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option("--list", "as_list", is_flag=True, help="Write PREFIX.lst instead of records.")
@click.option("--exts", multiple=True, default=EXTENSIONS, help="Extension of image files; may be repeated.")
@click.option("--chunks", type=click.IntRange(1), default=1, help="Number of lists to split into.")
@click.option("--train-ratio", type=click.FloatRange(0, 1, min_open=True), default=1.0,
              help="Fraction of the images in PREFIX_train.lst.")
@click.option("--test-ratio", type=click.FloatRange(0, 1), default=0.0,
              help="Fraction in PREFIX_test.lst; the rest goes to _val.lst.")
@click.option("--recursive", is_flag=True, help="Include subfolders; each is a label.")
@click.option("--no-shuffle", is_flag=True, help="List the images in the order of their names.")
@click.option("--pass-through", is_flag=True, help="Pack the files unchanged.")
@click.option("--resize", type=click.IntRange(0), default=0, help="Shorter edge in pixels; 0 keeps the size.")
@click.option("--center-crop", is_flag=True, help="Crop the central square.")
@click.option("--quality", type=click.IntRange(0, 100), default=95, help="JPEG quality 1 to 100, or PNG compression 0 to 9.")
@click.option("--num-thread", type=click.IntRange(1), default=None, show_default="one per core", help="Threads that encode.")
@click.option("--color", type=click.Choice(["-1", "0", "1"]), default="1", help="1 colour, 0 grey, -1 as stored.")
@click.option("--encoding", type=click.Choice([".jpg", ".png"]), default=".jpg", help="Format of the packed images.")
@click.option("--pack-label", is_flag=True, help="Pack all labels of a line instead of the first only.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each file, and nothing else.")
def im2rec(prefix: str, root: Path, as_list: bool, exts: tuple[str, ...], chunks: int, train_ratio: float, test_ratio: float,
           recursive: bool, no_shuffle: bool, pass_through: bool, resize: int, center_crop: bool, quality: int,
           num_thread: int | None, color: str, encoding: str, pack_label: bool, as_json: bool) -> None:
    """List the images below ROOT (--list), or pack the images of every PREFIX*.lst into PREFIX*.rec and .idx.

    Every image is decoded as a check. Damaged images are left out and reported, and the exit code is 1; the record files
    are complete without them.
    """
    if as_list:
        for path in write_lists(prefix, list(find_images(root, recursive, exts)), shuffle=not no_shuffle, chunks=chunks,
                                train_ratio=train_ratio, test_ratio=test_ratio):
            _say(as_json, {"list": str(path), "images": len(path.read_text().splitlines())}, "{list}: {images:,} images")
        return
    where = Path(prefix).absolute()
    lists = sorted(p for p in where.parent.glob("*.lst") if p.name.startswith(where.name) and p.is_file())
    if not lists:
        raise click.ClickException(f"{prefix}: no list {prefix}*.lst exists. Write one with --list.")
    options = PackOptions(pass_through, resize, center_crop, quality, int(color), encoding, pack_label)
    if sum([_pack(path, root, options, num_thread or os.cpu_count() or 1, as_json) for path in lists]):
        sys.exit(1)


def _pack(path: Path, root: Path, options: PackOptions, threads: int, as_json: bool) -> int:
    """Pack one list, and show the progress. Returns the number of bad images."""
    total = sum(1 for line in path.read_bytes().splitlines() if line.strip())
    with Progress(total, path.stem, "image") as progress:
        packed = pack_list(path, root, options, threads, progress.reach)
    _say(as_json, {"file": str(packed.path), "records": packed.records, "bytes": packed.path.stat().st_size,
                   "left_out": [{"image": name, "error": str(error)} for name, error in packed.bad]},
         "{file}: {records:,} records, {bytes:,} bytes")
    for name, error in packed.bad:
        click.echo(f"left out {name}: {error}", err=True)
    if packed.bad:
        click.echo(f"{len(packed.bad):,} of {total:,} images of {path.name} are damaged and were left out.", err=True)
    return len(packed.bad)


def _say(as_json: bool, facts: dict[str, Any], text: str) -> None:
    click.echo(json.dumps(facts) if as_json else text.format(**facts))
