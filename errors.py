"""Named errors, and the description of an array in messages.

Messages read `public name: what was given, with the values. What is wanted. The next step.`
A user's mistake is an MXNetError that is also a ValueError or TypeError. A mistake in this package is an `assert`.
"""

from __future__ import annotations

import difflib
import errno
import multiprocessing
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any


class MXNetError(RuntimeError):
    """Base of all named errors (MXNet's `mx.base.MXNetError`)."""


class ShapeError(MXNetError, ValueError):
    """Shapes that disagree, or cannot be inferred."""


class DTypeError(MXNetError, TypeError):
    """A dtype that is unknown or does not fit."""


class ParameterError(MXNetError, ValueError):
    """An operator parameter that is unknown, missing, or out of range."""


class UnknownSettingError(ParameterError, TypeError):
    """A keyword that an optimizer does not take. MXNet raises TypeError."""


class DistributionError(ParameterError):
    """Parameters with which no random numbers can be drawn, such as a negative standard deviation."""


class OperatorError(MXNetError, ValueError):
    """An operator that does not exist, or a declaration that cannot work."""


class TraceError(MXNetError, TypeError):
    """A body that cannot be traced: it branches on a traced value, or calls NumPy on one."""


class ContextError(MXNetError, ValueError):
    """A device that does not exist on this machine."""


class EngineError(MXNetError):
    """A misuse of the dependency engine."""


class OutOfMemoryError(MXNetError, MemoryError):
    """A context cannot supply the requested bytes."""


class FileError(MXNetError, ValueError):
    """A file that is damaged, truncated, or of another format. The message has the file and the offset."""


class MissingFileError(FileError, FileNotFoundError):
    """A file that does not exist."""

    def __init__(self, message: str):
        super().__init__(message)
        self.errno, self.strerror = errno.ENOENT, os.strerror(errno.ENOENT)

    def __str__(self) -> str:
        return self.args[0]


class UnreachableError(FileError):
    """A file whose bytes cannot be read now, because a server does not answer. Readers do not count it as a damaged record."""


class MissingLibraryError(MXNetError, ImportError):
    """An optional library is needed and not installed. Readers do not skip it as a damaged file."""


class LoaderTimeoutError(MXNetError, multiprocessing.TimeoutError):
    """A batch of a DataLoader was not ready in time."""


class InternalError(MXNetError):
    """A mistake in this package, not in the program that uses it."""


class NotAvailableError(MXNetError, NotImplementedError):
    """A part of MXNet that does not exist here. The message has the reason and another way."""


class NoSuchNameError(NotAvailableError, AttributeError):
    """A name of a module that does not exist here. Also an AttributeError, so that hasattr is False for it."""


class NoSuchModuleError(NotAvailableError, ModuleNotFoundError):
    """A module of MXNet that does not exist here. Also an ImportError, so that programs can do without it."""


class GraphError(MXNetError, ValueError):
    """A malformed symbol or graph."""


class BlockError(MXNetError, AssertionError, ValueError):
    """A misuse of a gluon Block, Parameter or Trainer. MXNet raises AssertionError for some of them, ValueError for others."""


class StaleGradientError(BlockError, UserWarning):
    """Trainer.step with a gradient that no backward has written. MXNet raises UserWarning."""


class BatchSizeError(BlockError, UserWarning):
    """Trainer.step with another batch size than a distributed store has. MXNet raises UserWarning."""


class ScheduledRateError(ParameterError, UserWarning):
    """A learning rate was set that a scheduler sets. MXNet raises UserWarning."""


class DeferredInitializationError(MXNetError):
    """A gluon Parameter was used whose shape is unknown until the first forward pass."""


class GraphTypeError(GraphError, TypeError):
    """A value in a graph that is of another class than a Symbol or a name."""


class KVStoreError(MXNetError):
    """A store over several processes that cannot be reached, or rejects a request.

    made:  of a push: True if its round is complete all the same, so that the next push is for the next round.
    """

    made = False


class DeadWorkerError(KVStoreError):
    """A round that cannot be completed, because workers have died or left. The message names them, the key and the round."""


class RoundMadeError(KVStoreError):
    """A push to a round that is complete already, with an earlier push of the same worker that it had abandoned."""

    made = True


class FrameError(MXNetError, ValueError):
    """Bytes from a network that are not a valid frame of a store: damaged, of another format, or out of bounds."""


class NotImplementedForSymbol(MXNetError):
    """A function of NDArray was called on a Symbol, which does not have it."""

    def __init__(self, function: Any, alias: Any = None, *args: Any):
        name = getattr(function, "__name__", function)
        super().__init__(f"Symbol.{name}: a symbol has no values before it is bound. Bind it, or use an NDArray."
                         f"{f' Or use {alias}.' if alias else ''}")


def describe(array: Any) -> str:
    """Return `float32[64,784]@gpu(0)`, the name of an array in every message, without its contents.

    array: has `shape` and `dtype`, and perhaps `context`.
    """
    dtype = getattr(array, "dtype", None)
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    shape = getattr(array, "shape", None)
    text = f"{name}[{','.join(map(str, shape))}]" if shape is not None else name
    ctx = getattr(array, "context", None)
    return f"{text}@{ctx}" if ctx is not None else text


def check_choice(name: str, parameter: str, value: Any, choices: Iterable[Any]) -> None:
    """Raise ParameterError, under the caller's name, unless the value of a parameter is one of choices."""
    choices = list(choices)
    if value not in choices:
        raise ParameterError(f"{name}: {parameter}={value!r} is not one of {', '.join(map(repr, choices))}.")


def warn_ignored(name: str, ignored: Sequence[str], known: Iterable[str], stacklevel: int = 3) -> None:
    """Warn that keywords of a call are no parameters and are ignored, which MXNet does silently. known: the parameters."""
    known = list(known)
    warnings.warn(f"{name}: {', '.join(map(repr, ignored))} {'is' if len(ignored) == 1 else 'are'} ignored: no such parameter."
                  f"{nearest(ignored[0], known)} Parameters: {', '.join(known) or 'none'}.", stacklevel=stacklevel)


def nearest(word: str, known: Any) -> str:
    """Return ` Did you mean 'a' or 'b'?` with the known names nearest to word; the empty string if none is near."""
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
