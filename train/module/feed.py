"""Feed: the arrays between the host and an executor on a GPU, so that neither waits for the other between two steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ndarray import NDArray
from ...ndarray.core.array_core import allocate
from ...ndarray.dispatch.copy import copy_all


class Feed:
    """Copies into arguments of an executor, and of its outputs, that leave the executor's own arrays to the device.

    A batch of the host is uploaded to arrays beside the arguments and goes from there to the arguments on the device. The upload
    uses nothing that a step uses but for that last copy, with which the step begins; so it may run while the step before does.
    A metric on the host reads copies of the outputs, of which there are two sets, so that the next step does not wait for it.
    Arrays on the host are used as they are.

    executor: whose arguments and outputs they are.
    """

    def __init__(self, executor: Any):
        self._executor = executor
        self._uploaded: dict[str, NDArray] = {}
        self._outputs: list[list[NDArray]] = []  # the two sets, the one written last at the end
        self._versions: list[int] = []  # of the outputs when they were copied

    def takes(self, name: str, source: Any) -> bool:
        """Return True if `upload` is for this array: one of the host that goes to a GPU."""
        target = self._executor.arg_dict.get(name)
        return (target is not None and target.ctx.is_gpu and isinstance(source, NDArray) and not source.ctx.is_gpu)

    def upload(self, name: str, source: NDArray, copy: Callable[[NDArray, NDArray, str], None]) -> None:
        """Queue the way of an array of the host to the device. copy(source, target, name) queues it, or raises."""
        if name not in self._uploaded:
            self._uploaded[name] = allocate(self._executor.arg_dict[name].layout)
        copy(source, self._uploaded[name], name)

    def load(self, names: Sequence[str]) -> None:
        """Queue the way of what was uploaded to the arguments of these names."""
        self._copy("load batch", [(self._uploaded[n], self._executor.arg_dict[n]) for n in names])

    def outputs(self) -> list[NDArray]:
        """Return arrays with the outputs of the last forward pass, for functions on the host.

        They are written again two forward passes later.
        """
        own = self._executor.outputs
        if not any(o.ctx.is_gpu for o in own):
            return own
        versions = [o.chunk.var.version for o in own]
        if versions != self._versions:
            self._versions = versions
            kept = self._outputs.pop(0) if len(self._outputs) == 2 else [allocate(o.layout) if o.ctx.is_gpu else o for o in own]
            self._copy("keep outputs", [(o, k) for o, k in zip(own, kept) if o is not k])
            self._outputs.append(kept)
        return self._outputs[-1]

    @staticmethod
    def _copy(name: str, pairs: Sequence[tuple[NDArray, NDArray]]) -> None:
        """Queue target = source for every (source, target), as one task for each context."""
        for ctx in dict.fromkeys(target.ctx for _, target in pairs):
            copy_all(name, [pair for pair in pairs if pair[1].ctx == ctx])
