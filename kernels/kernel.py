"""Kernel: the compiled function of an operator for given layouts, what it gets to run, and what binding it to arrays gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from numpy.typing import DTypeLike


class DeviceArray(Protocol):
    """Dense, row-major memory of one device: a NumPy array on the CPU, a torch tensor on a GPU."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def reshape(self, shape: tuple[int, ...], /) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...


class Run(Protocol):
    """The engine's run context, as kernels use it. stream: the GPU stream to launch on; None on the CPU."""

    @property
    def stream(self) -> Any: ...
    def parallel(self, fn: Callable[[int], Any], n: int) -> None: ...
    def workspace(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any: ...


#: function(ctx, inputs, outputs) computes the outputs. It takes `scalars=` if its operator has run-time scalars, and
#: `random=(seed, offset)` if it draws random numbers. A Kernel is one too.
KernelFunction = Callable[..., None]
#: bound(ctx) computes, and bound(ctx, scalars) where the kernel has run-time scalars. Runs of one must not overlap.
BoundKernel = Callable[..., None]
Bind = Callable[[Sequence[Any], Sequence[Any]], BoundKernel]


class Kernel:
    """A kernel that can be run on arrays, or bound to arrays that stay where they are, as those of a bound graph do.

    run:  the function, called with arrays each time.
    """

    __slots__ = ("_bind", "run")

    def __init__(self, run: KernelFunction | None = None, bind: Bind | None = None):
        """run or bind may be left out. bind looks at the arrays once, so that each run of what it returns is short."""
        if run is None:
            assert bind is not None
            run = partial(_bind_and_run, bind)
        self.run: KernelFunction = run
        self._bind = bind

    @staticmethod
    def of(function: KernelFunction) -> Kernel:
        """Return function as a Kernel."""
        return function if isinstance(function, Kernel) else Kernel(function)

    def __call__(self, ctx: Any, inputs: Sequence[Any], outputs: Sequence[Any], **more: Any) -> None:
        self.run(ctx, inputs, outputs, **more)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        """Return the function that runs the kernel on these arrays."""
        if self._bind is not None:
            return self._bind(inputs, outputs)
        run = self.run

        def bound(ctx: Any, scalars: Sequence[float] = ()) -> None:
            if scalars:
                run(ctx, inputs, outputs, scalars=scalars)
            else:
                run(ctx, inputs, outputs)

        return bound

    def with_scalars(self, scalars: Sequence[float]) -> Kernel:
        """Return the kernel with these values of its run-time scalars."""

        def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
            bound = self.bind(inputs, outputs)
            return lambda ctx: bound(ctx, scalars)

        return Kernel(partial(self.run, scalars=scalars), bind)


def _bind_and_run(bind: Bind, ctx: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    bind(inputs, outputs)(ctx)


def _compute_nothing(ctx: Any, inputs: Any, outputs: Any, **more: Any) -> None:
    """Leave the outputs as they are."""


#: The kernel of results without elements.
NOTHING = Kernel(_compute_nothing)
