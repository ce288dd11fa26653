"""Named errors, and the one way an array is described in a message.

Messages read `public name: what is wrong, in the caller's words: the values. The next step.`
A user's mistake is an MXNetError that is also a ValueError or TypeError; a mistake of ours is an `assert`.
"""

from __future__ import annotations

from typing import Any


class MXNetError(RuntimeError):
    """Base of every error Tritium raises on purpose (MXNet's `mx.base.MXNetError`)."""


class ShapeError(MXNetError, ValueError):
    """Shapes that disagree, or cannot be worked out."""


class DTypeError(MXNetError, TypeError):
    """A dtype that is unknown or does not fit."""


class ParameterError(MXNetError, ValueError):
    """An operator parameter that is unknown, missing, or out of range."""


class OperatorError(MXNetError, ValueError):
    """An operator that does not exist, or a declaration that cannot work."""


class TraceError(MXNetError, TypeError):
    """A body that cannot be traced: it branches on a traced value, or calls NumPy on one."""


class ContextError(MXNetError, ValueError):
    """A device that does not exist here."""


class EngineError(MXNetError):
    """A misuse of the dependency engine."""


class OutOfMemoryError(MXNetError, MemoryError):
    """A context could not supply the bytes that were asked for."""


class FileError(MXNetError, ValueError):
    """A file that is damaged, cut short, or of another format. Says the file and the offset."""


class UnreachableError(FileError):
    """A file is there, or may be, and its bytes cannot be had: a server that stays away. Not the fault of a record."""


class MissingLibraryError(MXNetError, ImportError):
    """A library that is optional, and wanted here, is not installed. Not the fault of a file, so no reader passes over it."""


class GraphError(MXNetError, ValueError):
    """A symbol or graph that is not well formed."""


class KVStoreError(MXNetError):
    """A store over several processes that cannot be reached, or refuses what it was asked.

    made:  of a push: its round is made all the same, of this push or of an earlier one; the next push is for the next round.
    """

    made = False


class DeadWorkerError(KVStoreError):
    """A round that cannot be completed, because workers it needs have died or left. Says which, and of which key and round."""


class RoundMadeError(KVStoreError):
    """A push to a round that was made already: its worker had given up an earlier push, which counted after all."""

    made = True


class FrameError(MXNetError, ValueError):
    """Bytes from a network that are no frame of a store's: damaged, of another format, or beyond a bound."""


def describe(array: Any) -> str:
    """`float32[64,784]@gpu(0)`: how every message names an array. Never its contents.

    array: anything with `shape` and `dtype`, and `context` if it has one.
    """
    dtype = getattr(array, "dtype", None)
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    shape = getattr(array, "shape", None)
    text = f"{name}[{','.join(map(str, shape))}]" if shape is not None else name
    ctx = getattr(array, "context", None)
    return f"{text}@{ctx}" if ctx is not None else text


def nearest(word: str, known: Any, *, limit: int = 3) -> str:
    """` Did you mean 'a' or 'b'?` from the known names nearest to word, or the empty string."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=limit, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
