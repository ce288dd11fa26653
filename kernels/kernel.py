"""Kernel: the compiled function of an operator for given layouts, what it gets to run, and what binding it to arrays gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from ..errors import OperatorError
from .configs.float32_matmul import bind_under, made_under


class DeviceArray(Protocol):
    """Dense, row-major memory of one device: a NumPy array on the CPU, a torch tensor on a GPU."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def reshape(self, shape: tuple[int, ...], /) -> DeviceArray: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __iadd__(self, value: Any, /) -> Any: ...


class Stream(Protocol):
    """The engine's stream of a GPU."""

    @property
    def device_index(self) -> int: ...
    @property
    def cuda_stream(self) -> int: ...


class Run(Protocol):
    """The engine's run context, as kernels use it. stream: the GPU stream to launch on; None on the CPU.

    It may have `threads`, the number of threads that C functions share; without that, `parallel` gets their pieces.
    """

    @property
    def stream(self) -> Stream | None: ...
    def parallel(self, fn: Callable[[int], Any], n: int) -> None: ...
    def workspace(self, shape: tuple[int, ...], dtype: DTypeLike) -> DeviceArray: ...
    def to_host(self, array: Any) -> np.ndarray: ...
    def from_host(self, array: Any, values: np.ndarray) -> None: ...
    def constant(self, values: np.ndarray) -> DeviceArray: ...
    def refuse(self, failed: DeviceArray, message: str) -> None: ...


class HostRun:
    """The run context of a kernel outside the engine, or inside a block of an epilogue: one thread, new scratch memory."""

    stream, threads = None, 1

    def parallel(self, fn: Callable[[int], Any], n: int) -> None:
        for i in range(n):
            fn(i)

    def workspace(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        return np.empty(shape, dtype)

    def to_host(self, array: np.ndarray) -> np.ndarray:
        return array

    def from_host(self, array: np.ndarray, values: np.ndarray) -> None:
        np.copyto(array, values, casting="no")

    def constant(self, values: np.ndarray) -> np.ndarray:
        return values

    def refuse(self, failed: Any, message: str) -> None:
        if failed.any():
            raise OperatorError(message)


#: function(run, inputs, outputs) computes the outputs. It takes `scalars=` if its operator has run-time scalars, and
#: `random=(seed, offset)` if it draws random numbers. Operators and layers return such functions; a Kernel is one that can be
#: bound too, and `compiled` makes each one a Kernel.
KernelFunction = Callable[..., None]
#: bound(run) computes, and bound(run, scalars) where the kernel has run-time scalars. Runs of one must not overlap.
BoundKernel = Callable[..., None]
Bind = Callable[[Sequence[Any], Sequence[Any]], BoundKernel]


class Prepared:
    """A bound kernel that keeps what it made from some of its inputs, as a packed weight: those that `Kernel.keeps` names.

    prepare(run) is called before the first run, and again when these inputs have changed.
    """

    __slots__ = ("prepare", "run")

    def __init__(self, prepare: Callable[..., None], run: BoundKernel):
        self.prepare, self.run = prepare, run

    def __call__(self, run: Run, scalars: Sequence[float] = ()) -> None:
        self.run(run)


class InTurn:
    """Bound kernels that run one after the other."""

    __slots__ = ("calls",)

    def __init__(self, calls: Sequence[BoundKernel]):
        self.calls = calls

    def __call__(self, run: Run, scalars: Sequence[float] = ()) -> None:
        for call in self.calls:
            call(run)


class Kernel:
    """A kernel that can be run on arrays, or bound to arrays that stay where they are, as those of a bound graph do.

    run:    the function, called with arrays each time.
    at:     at(run, addresses, scalars=(), apart=False) does the same on arrays given by their addresses, inputs first: of a
            kernel in C from its first run on, and of one on a GPU (gpu/prepared.py). It returns False if it cannot compute them
            where they lie. apart: they lie at multiples of their items' size, and outputs apart from all others. None of others.
    into:   into(addresses, out) does the same on inputs at addresses, where `out` is a new NumPy array, and the only output. It
            returns the address of `out`; 0 if it cannot. None of others.
    begin:  begin(addresses) lets a helper begin on arrays there while this thread goes on, and returns the function of the run
            that must end it; None if nothing was begun. None of a kernel that cannot.
    keeps:  the numbers of the inputs from which `keep` makes something that stays; () if it is `bind`.
    share:  like bind, for a program in which many kernels read the input of number `shares`: share(inputs, outputs, made). The
            first of them, in each pass, makes what all use, as a packed weight; made, a dict of the program, says where it is.
    ahead:  asks the compiler for what only bind needs, so that a graph's kernels are compiled at once; None: nothing.
    """

    __slots__ = ("_bind", "_keep", "ahead", "at", "begin", "into", "keeps", "run", "share", "shares")

    def __init__(self, run: KernelFunction | None = None, bind: Bind | None = None,
                 keep: Callable[[Sequence[Any], Sequence[Any]], Prepared] | None = None, keeps: Sequence[int] = (),
                 share: Callable[[Sequence[Any], Sequence[Any], dict[Any, Any]], BoundKernel] | None = None, shares: int = -1,
                 ahead: Callable[[], Any] | None = None):
        """run or bind may be left out. bind looks at the arrays once, so that each run of what it returns is short."""
        if run is None:
            assert bind is not None
            run = partial(_bind_and_run, bind)
        self.run: KernelFunction = run
        self.at: Callable[..., bool] | None = None
        self.into: Callable[[Sequence[int], np.ndarray], int] | None = None
        self.begin: Callable[[Sequence[int]], Callable[[Run], None] | None] | None = None
        self._bind, self._keep, self.keeps, self.share, self.shares = bind, keep, tuple(keeps), share, shares
        self.ahead = ahead

    def __call__(self, run: Run, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray | None], **more: Any) -> None:
        self.run(run, inputs, outputs, **more)

    def bind(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray | None]) -> BoundKernel:
        """Return the function that runs the kernel on these arrays."""
        if self._bind is not None:
            return self._bind(inputs, outputs)
        function = self.run

        def bound(run: Run, scalars: Sequence[float] = ()) -> None:
            if scalars:
                function(run, inputs, outputs, scalars=scalars)
            else:
                function(run, inputs, outputs)

        return bound

    def keep(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray | None]) -> BoundKernel:
        """Return what bind does, or a Prepared, for a caller that knows when these inputs change."""
        return self.bind(inputs, outputs) if self._keep is None else self._keep(inputs, outputs)

    def bind_drawing(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Return a `cpu.c_draws.Drawn` of a kernel in C that draws, bound to these arrays; None of others."""
        return None

    def with_scalars(self, scalars: Sequence[float]) -> Kernel:
        """Return the kernel with these values of its run-time scalars."""

        def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
            bound = self.bind(inputs, outputs)
            hold = getattr(bound, "hold", None)  # of a function in C, which keeps them
            if hold is not None and getattr(bound, "numbers", None) is not None:
                hold(scalars)
                return bound
            return lambda run: bound(run, scalars)

        return Kernel(partial(self.run, scalars=scalars), bind, ahead=self.ahead)

    def made_under(self, how: str) -> Kernel:
        """Return the kernel, of a GPU, whose float32 matrices are multiplied as how says (configs/float32_matmul.py)."""
        return Kernel(made_under(how, self.run), self._bind and bind_under(how, self._bind), ahead=self.ahead)


class Reshaped(Kernel):
    """A kernel that runs another one on the arrays as `seen` gives them: in other shapes, at the same addresses.

    draws: the other one takes random numbers.
    """

    __slots__ = ("_draws", "_inner", "_seen")

    def __init__(self, inner: Kernel, seen: Callable[[Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Sequence[Any]]],
                 draws: bool = False):
        bind = None if draws else lambda inputs, outputs: inner.bind(*seen(inputs, outputs))
        super().__init__(self._run, bind, ahead=inner.ahead)
        self._inner, self._seen, self._draws = inner, seen, draws

    def _run(self, run: Run, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = (),
             random: tuple[int, int] | None = None) -> None:
        more: dict[str, Any] = {"scalars": scalars} if scalars else {}
        if self._draws:
            more["random"] = random
        self._inner.run(run, *self._seen(inputs, outputs), **more)
        self.at, self.into = self._inner.at, self._inner.into

    def bind_drawing(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """See Kernel."""
        return self._inner.bind_drawing(*self._seen(inputs, outputs))


def _bind_and_run(bind: Bind, run: Run, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    bind(inputs, outputs)(run)


#: The kernel of results without elements: it leaves the outputs as they are.
NOTHING = Kernel(lambda run, inputs, outputs, *scalars, **more: None)
