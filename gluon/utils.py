"""Batches over several contexts, the norm of gradients, and checksums: MXNet's `mx.gluon.utils`."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import environment, ndarray
from ..context import Context
from ..errors import BlockError, FileError
from ..ndarray import NDArray
from .core.hooks import HookHandle as HookHandle
from .core.nested import _brief_print_list as _brief_print_list
from .core.nested import _indent as _indent
from .core.nested import shape_is_known as shape_is_known


def split_data(data: NDArray, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[NDArray]:
    """Return data cut into num_slice parts along batch_axis.

    even_split: False allows the first parts to be longer by one.
    Raises: BlockError if parts would differ and even_split is True.
    """
    size = data.shape[batch_axis]
    if even_split and size % num_slice:
        raise BlockError(f"data with shape {data.shape} cannot be evenly split into {num_slice} slices along axis {batch_axis}. "
                         f"Use a batch size that {num_slice} divides, or even_split=False.")
    if num_slice == 1:
        return [data]
    each, extra = divmod(size, num_slice)
    ends = [each * (k + 1) + min(k + 1, extra) for k in range(num_slice)]
    starts = [0, *ends[:-1]]
    if batch_axis == 0:
        return [data[start:end] for start, end in zip(starts, ends)]
    return [ndarray.slice_axis(data, batch_axis, start, end) for start, end in zip(starts, ends)]


def split_and_load(data: Any, ctx_list: Sequence[Context], batch_axis: int = 0, even_split: bool = True) -> list[NDArray]:
    """Return parts of data, one on each context; data may be anything that mx.nd.array takes. See split_data."""
    if not isinstance(data, NDArray):
        data = ndarray.array(data, ctx=ctx_list[0])
    if len(ctx_list) == 1:
        return [data.as_in_context(ctx_list[0])]
    slices = split_data(data, len(ctx_list), batch_axis, even_split)
    return [part.as_in_context(ctx) for part, ctx in zip(slices, ctx_list)]


def clip_global_norm(arrays: Sequence[NDArray], max_norm: float, check_isfinite: bool = True) -> float | NDArray:
    """Scale arrays in place so that the 2-norm of all of them together is at most max_norm. Return the norm before.

    check_isfinite: wait for the norm, warn if it is not finite, and return a number; else an array [1].
    """
    if not arrays:
        raise BlockError("clip_global_norm: no arrays were given.")
    ctx = arrays[0].context

    def square(a: Any) -> NDArray:
        flat = (a if isinstance(a, NDArray) else a.data).reshape((-1,))
        return ndarray.dot(flat, flat).reshape((1,)).astype("float32").as_in_context(ctx)

    norm = ndarray.sqrt(ndarray.add_n(*[square(a) for a in arrays]))
    value = norm.asscalar() if check_isfinite else None
    if value is not None and not math.isfinite(value):
        warnings.warn(f"nan or inf is detected: the norm is {value}, and the clipped arrays are not finite either.", stacklevel=2)
    scale = ndarray.minimum(max_norm / (norm + 1e-8), 1.0)
    for a in arrays:
        dense = a if isinstance(a, NDArray) else a.data
        dense *= scale.as_in_context(dense.context).astype(dense.dtype)
    return norm if value is None else value


def check_sha1(filename: str | os.PathLike, sha1_hash: str) -> bool:
    """Return True if the SHA-1 of a file is sha1_hash, in hexadecimal digits."""
    with open(filename, "rb") as file:
        return hashlib.file_digest(file, "sha1").hexdigest() == sha1_hash


def download(url: str, path: str | None = None, overwrite: bool = False, sha1_hash: str | None = None, retries: int = 5,
             verify_ssl: bool = True) -> str:
    """Return the path of a file that is there already: Tritium fetches nothing from the network.

    path: the file or its folder; None: the current folder, and the name at the end of url.
    Raises: FileError that says which file to put where, also if it has another SHA-1 than sha1_hash.
    """
    name = url.split("/")[-1]
    path = name if path is None else os.path.expanduser(path)
    if os.path.isdir(path):
        path = os.path.join(path, name)
    if not os.path.exists(path):
        raise FileError(f"download: {path} does not exist, and nothing is fetched from the network. Get {url} and save it there.")
    if sha1_hash and not check_sha1(path, sha1_hash):
        raise FileError(f"download: {path} has another SHA-1 than {sha1_hash}. Replace it by {url}.")
    return path


def replace_file(src: str | os.PathLike, dst: str | os.PathLike) -> None:
    """Move a file to the place of another, atomically."""
    os.replace(src, dst)


def _get_repo_url() -> str:
    """Return the address of MXNet's files, MXNET_GLUON_REPO or its default."""
    repo = environment.GLUON_REPO.get()
    return repo if repo.endswith("/") else f"{repo}/"


def _get_repo_file_url(namespace: str, filename: str) -> str:
    """Return the address of one of MXNet's files."""
    return f"{_get_repo_url()}{namespace}/{filename}"


def _check_same_symbol_type(symbols: Any) -> type:  # MXNet's name
    """Return the class of the symbols."""
    return type(symbols[0])


def _check_all_np_ndarrays(out: Any) -> None:  # MXNet's name
    """Raise TypeError: blocks return NDArrays here, not arrays of mx.np."""
    for a in out if isinstance(out, (list, tuple)) else [out]:
        if not isinstance(a, np.ndarray):
            raise TypeError(f"Block's output must be arrays of mx.np, but got {type(a).__name__}.")
