"""Updates of many arrays on a GPU in one launch, through tables of their addresses in device memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cache import Cache
from ...engine.gpu import transfer
from ...engine.memory import storage
from ...kernels.declare.traced import TracedOp
from ...kernels.op import Expression, Op
from ...kernels.params import Params

if TYPE_CHECKING:
    from ...kernels.ops.optimizer.triton_multi import ManyUpdate

_cache: Cache[tuple, DeviceTables] = Cache(64)


class DeviceTables:
    """The addresses, sizes and run-time scalars of the arrays of one update, in device memory.

    update: the update. addresses: [rows of its table][arrays]. sizes: elements of each array.
    """

    def __init__(self, update: ManyUpdate, addresses: Sequence[Sequence[int]], sizes: Sequence[int], ctx: Any):
        from ...kernels.ops.optimizer.triton_multi import tables  # optional dependency

        self.update = update
        table, lengths, chunks = tables(addresses, sizes, update.block)
        self._tables = _on_device(table, ctx), _on_device(lengths, ctx), _on_device(chunks, ctx)
        self._scalars = storage.array((len(sizes), max(1, len(update.columns))), np.float64, ctx)
        self._last: Any = None

    def set_scalars(self, scalars: Sequence[Sequence[float]]) -> None:
        """Copy the run-time scalars of each array to the device, if they changed."""
        if scalars != self._last:
            self._last = scalars
            transfer.from_host(self._scalars, self.update.numbers(scalars).reshape(self._scalars.shape))

    def launch(self, stream: Any) -> None:
        """Update all arrays in one launch. A replay of a captured launch uses the scalars set last."""
        self.update.launch(stream, *self._tables, self._scalars)


def _on_device(values: np.ndarray, ctx: Any) -> Any:
    array = storage.array(values.shape, values.dtype, ctx)
    transfer.from_host(array, values)
    return array


def multi_tensor_update(op: Op, p: Params, ins: Sequence[Any], out: Any, inplace: bool) -> ManyUpdate | None:
    """Return the update of many arrays by op, or None if op is not elementwise.

    ins, out: specs of one array. inplace: the output is the first input.
    """
    shape = ins[0].shape
    if not isinstance(op, TracedOp) or any(s.shape != shape for s in (*ins, out)):
        return None
    e: Expression = op.expression(p, [s.dtype for s in ins])
    if e.kind != "elementwise" or e.combine != "add" or len(e.outputs) != 1 + len(e.states):
        return None
    from ...kernels.ops.optimizer.triton_multi import many_update  # optional dependency

    return many_update(op.name, e, [s.dtype for s in ins], None if inplace else out.dtype)


def launch_together(run: Any, calls: Sequence[tuple[Any, Any, tuple[float, ...]]]) -> list[tuple]:
    """Launch each multi-tensor update once for all its arrays. Returns the calls that must be launched alone.

    calls: (compiled update, ParamUpdate, run-time scalars). None may read or write an array that another one writes.
    """
    groups: dict[ManyUpdate, list[tuple[list[Any], tuple]]] = {}
    alone = []
    for call in calls:
        compiled, update, _ = call
        many = compiled.multi_tensor
        devices = [] if many is None else [a.device_array() for a in (*update.inputs(), update.weight)[:many.rows]]
        if many is None or any(a.data_ptr() % many.align for a in devices):
            alone.append(call)
        else:
            groups.setdefault(many, []).append((devices, call))
    for many, group in groups.items():
        if len(group) > 1:
            tables = _tables(run.ctx, many, [devices for devices, _ in group])
            tables.set_scalars([scalars for _, (_, _, scalars) in group])
            tables.launch(run.stream)
        else:
            alone.append(group[0][1])
    return alone


def _tables(ctx: Any, update: ManyUpdate, arrays: Sequence[Sequence[Any]]) -> DeviceTables:
    """Return the tables for arrays, cached. arrays: for each weight, by the rows of the table."""
    addresses = tuple(tuple(a.data_ptr() for a in row) for row in zip(*arrays))
    sizes = tuple(a[0].numel() for a in arrays)
    return _cache.get_or_make((update, ctx, addresses, sizes), lambda: DeviceTables(update, addresses, sizes, ctx))
