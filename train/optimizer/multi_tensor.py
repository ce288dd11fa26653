"""Updates of many arrays on a GPU in one launch, by tables in device memory that stay as long as the arrays stay in place."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.gpu import cuda
from ...engine.memory import storage
from ...kernels.declare.traced import TracedOp
from ...kernels.op import Expression, Op
from ...kernels.params import Params

if TYPE_CHECKING:
    from ...kernels.ops.optimizer.triton_multi import ManyUpdate

KEPT = 64  # tables; those of arrays that were not updated for longest go first

_kept: OrderedDict[tuple, Tables] = OrderedDict()
_lock = threading.Lock()


class Tables:
    """Where the arrays of one update are, and the numbers of each, in device memory.

    many: the update. addresses: per row of its table, one for each array. sizes: elements of each.
    """

    def __init__(self, many: ManyUpdate, addresses: Sequence[Sequence[int]], sizes: Sequence[int], ctx: Any):
        from ...kernels.ops.optimizer.triton_multi import tables  # optional dependency

        self.many = many
        table, lengths, chunks = tables(addresses, sizes, many.block)
        self._where = _on_device(table, ctx), _on_device(lengths, ctx), _on_device(chunks, ctx)
        self._numbers = storage.array((len(sizes), max(1, many.columns)), np.float64, ctx)
        self._now: Any = None

    def set(self, numbers: Sequence[Sequence[float]]) -> None:
        """The run-time scalars of each array; they are copied to the device where they changed."""
        if numbers != self._now:
            self._now = numbers
            cuda.from_host(self._numbers, np.array(numbers, np.float64).reshape(self._numbers.shape))

    def launch(self, stream: Any) -> None:
        """Update all arrays: one launch, which may be captured; a replay takes the numbers set last."""
        self.many.launch(stream, *self._where, self._numbers)


def _on_device(values: np.ndarray, ctx: Any) -> Any:
    made = storage.array(values.shape, values.dtype, ctx)
    cuda.from_host(made, values)
    return made


def rule_of(op: Op, p: Params, ins: Sequence[Any], out: Any, inplace: bool) -> ManyUpdate | None:
    """The update of many arrays by op; None where one number of the result depends on a whole array, or there is no formula.

    ins, out: specs of one array. inplace: whether the result goes to the first input.
    """
    shape = ins[0].shape
    if not isinstance(op, TracedOp) or any(s.shape != shape for s in (*ins, out)):
        return None
    e: Expression = op.expression(p, [s.dtype for s in ins])
    if e.kind != "elementwise" or e.combine != "add" or len(e.outputs) != 1 + len(e.states):
        return None
    from ...kernels.ops.optimizer.triton_multi import many_update  # optional dependency

    return many_update(op.name, e, [s.dtype for s in ins], None if inplace else out.dtype)


def made_together(run: Any, calls: Sequence[tuple]) -> list[tuple]:
    """Make all calls whose update is made of other arrays too, in one launch for each update; the calls that are left.

    calls: (rule, input arrays, weight, run-time scalars, flat), of which none reads or writes what another writes. Called by
    engine functions of one context, whose stream keeps order.
    """
    groups: dict[ManyUpdate, list[tuple[list[Any], tuple[float, ...], tuple]]] = {}
    rest = []
    for call in calls:
        rule, arrays, weight, scalars, _ = call
        devices = [] if rule.many is None else [a.device_array() for a in (*arrays, weight)[:rule.many.rows]]
        if rule.many is None or any(a.data_ptr() % rule.many.align for a in devices):
            rest.append(call)
        else:
            groups.setdefault(rule.many, []).append((devices, scalars, call))
    for many, group in groups.items():
        if len(group) > 1:
            _update(run, many, [devices for devices, _, _ in group], [scalars for _, scalars, _ in group])
        else:
            rest.append(group[0][2])
    return rest


def _update(run: Any, many: ManyUpdate, arrays: Sequence[Sequence[Any]], numbers: Sequence[Sequence[float]]) -> None:
    """One launch. arrays: for each weight, by the table's rows; numbers: its run-time scalars."""
    addresses = tuple(tuple(a.data_ptr() for a in row) for row in zip(*arrays))
    key = (many, run.ctx, addresses, tuple(a[0].numel() for a in arrays))
    with _lock:
        tables = _kept.get(key)
        if tables is None:
            tables = _kept[key] = Tables(many, addresses, key[3], run.ctx)
            if len(_kept) > KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
    tables.set(numbers)
    tables.launch(run.stream)
