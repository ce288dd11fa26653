"""`mx.contrib.autograd`: MXNet's first interface to autograd, in terms of `mx.autograd`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..errors import DTypeError
from ..ndarray import NDArray, autograd
from ..ndarray.autograd import mark_variables as mark_variables

__all__ = ["backward", "compute_gradient", "grad", "grad_and_loss", "mark_variables", "set_is_training", "test_section",
           "train_section"]


def set_is_training(is_train: bool) -> bool:
    """Set whether operators run in training mode and are recorded. Returns the previous value."""
    before = autograd.set_training(is_train)
    autograd.set_recording(is_train)
    return before


def train_section() -> AbstractContextManager[Any]:
    """Return a scope that records operators and runs them in training mode."""
    return autograd.record(train_mode=True)


def test_section() -> AbstractContextManager[Any]:
    """Return a scope that does not record operators and runs them in inference mode."""
    return autograd.pause(train_mode=False)


test_section.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever its name


def backward(outputs: NDArray | Sequence[NDArray], out_grads: Sequence[NDArray | None] | None = None, retain_graph: bool = False
             ) -> None:
    """Compute the derivatives of outputs into the gradients of all marked variables."""
    heads = [outputs] if isinstance(outputs, NDArray) else list(outputs)
    autograd.backward(heads, out_grads, retain_graph=retain_graph)


def compute_gradient(outputs: Sequence[NDArray]) -> None:
    """Do the same as `backward` (MXNet's older name)."""
    backward(outputs)


def grad_and_loss(func: Callable[..., Any], argnum: int | Sequence[int] | None = None
                  ) -> Callable[..., tuple[list[NDArray], Any]]:
    """Return a function that returns the derivatives of func by its arguments, and the result of func.

    argnum: the position of the argument, or positions; None: all arguments.
    """

    @functools.wraps(func)
    def with_gradients(*args: Any) -> tuple[list[NDArray], Any]:
        positions = range(len(args)) if argnum is None else [argnum] if isinstance(argnum, int) else argnum
        variables = [args[i] for i in positions]
        for v in variables:
            if not isinstance(v, NDArray):
                raise DTypeError(f"grad_and_loss: an argument is a {type(v).__name__}, not an NDArray.")
        gradients = [v.zeros_like() for v in variables]
        mark_variables(variables, gradients)
        with train_section():
            outputs = func(*args)
        backward(outputs)
        return gradients, outputs

    return with_gradients


def grad(func: Callable[..., Any], argnum: int | Sequence[int] | None = None) -> Callable[..., list[NDArray]]:
    """Return a function that returns the derivatives of func by its arguments. argnum: see grad_and_loss."""
    with_loss = grad_and_loss(func, argnum)

    @functools.wraps(with_loss)
    def gradients(*args: Any) -> list[NDArray]:
        return with_loss(*args)[0]

    return gradients
