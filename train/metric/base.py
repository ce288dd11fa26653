"""Metrics: what training prints. The base class, and the metrics made of several; `create` finds any by name.

A metric adds up `sum_metric` over `num_inst`; their quotient is its value. It does so twice: since the last
`reset_local` (what Speedometer shows), and since the last `reset` (`global_*`, what an epoch shows).
All arithmetic is on the host, in an engine function of its own: `update` returns at once, and only reading the value
waits for what was counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import engine
from ...context import cpu
from ...engine import Var
from ...errors import ParameterError, ShapeError
from ...ndarray import NDArray
from ...ndarray.dispatch.copy import host
from ..registry import Registry

registry = Registry("metric")
register = registry.register


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """labels and preds, if there are as many of one as of the other (`shape`: if their shapes agree); else ShapeError.

    wrap:  put a lone array into a list.
    """
    have, want = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if have != want:
        raise ShapeError(f"metric: labels and predictions differ in {'shape' if shape else 'length'}: "
                         f"labels {have}, predictions {want}. Give one label for every prediction.")
    if wrap:
        labels = labels if isinstance(labels, (list, tuple)) else [labels]
        preds = preds if isinstance(preds, (list, tuple)) else [preds]
    return labels, preds


class EvalMetric:
    """Base of metrics. Subclasses write `update`, which changes sum_metric and num_inst and may wait for the arrays; or
    `count`, which gets the values on the host, calls `add`, and is queued. An `update` of one's own keeps no second sums:
    the epoch shows what is there since the last reset_local, unless has_global_stats=True says that it keeps them.

    name:                        what is printed.
    output_names, label_names:   which outputs and labels `update_dict` picks; all of them if None.
    saw_nan:                     whether a prediction that was looked at held a NaN, since the last reset.
    nan_update:                  in which update that was first, from 0.
    """

    def __init__(self, name: str, output_names: Sequence[str] | None = None,
                 label_names: Sequence[str] | None = None, **kwargs: Any):
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = kwargs.pop("has_global_stats", type(self).update is EvalMetric.update)
        self._kwargs = kwargs
        self._sums, self._global = [0.0, 0], [0.0, 0]  # before a subclass's reset, which may set its own
        self.reset()

    # ---- counting ---------------------------------------------------------------------------------------------
    _resetting = False
    _queued = False  # whether updates were queued since the last wait
    _var: Any = None
    _failure: BaseException | None = None

    def reset(self) -> None:
        """Forget everything."""
        self.settle()
        self._global = [0.0, 0]
        self.saw_nan = False
        self.nan_update = -1
        self._updates = 0
        self._resetting = True
        try:
            self.reset_local()
        finally:
            self._resetting = False

    def reset_local(self) -> None:
        """Forget what was counted since the last reset_local; the epoch's sums stay."""
        self.settle()
        self._sums = [0.0, 0]
        if not self._has_global_stats and not self._resetting:
            self.reset()

    def add(self, total: float, count: int) -> None:
        """Count `total` over `count` instances, locally and for the epoch."""
        for sums in (self._sums, self._global):
            sums[0] += total
            sums[1] += count

    def as_host(self, pred: Any) -> np.ndarray:
        """The host copy of a prediction (waits for it), noting whether it holds a NaN."""
        host = _host(pred)
        # one pass without a temporary: a minimum carries any NaN
        if host.dtype.kind not in "iub" and host.size and math.isnan(float(host.min())):
            self.saw_nan = True
        return host

    # ---- updating -----------------------------------------------------------------------------------------------
    def check(self, labels: Any, preds: Any) -> tuple[Any, Any]:
        """labels and preds as lists; ShapeError at once for what shows without the values."""
        return check_label_shapes(labels, preds, wrap=True)

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        """Count one batch of host arrays. Runs on any thread: it must push no work and wait for nothing."""
        raise NotImplementedError(f"{type(self).__name__}.update")

    def update(self, labels: Any, preds: Any) -> None:
        """Count one batch. labels, preds: lists of arrays, one per output. NDArrays are counted once they are there."""
        labels, preds = self.check(labels, preds)
        labels, preds = list(labels or ()), list(preds)
        number, self._updates = self._updates, self._updates + 1
        given = [a for a in (*labels, *preds) if isinstance(a, NDArray)]
        if not given:
            self._count(labels, preds, number)
            return
        if self._var is None:
            self._var = Var()

        def run(_: Any) -> None:
            if self._failure is None:
                try:
                    self._count(_there(labels), _there(preds), number)
                except Exception as e:  # kept for whoever reads the value; the next batches are not counted
                    self._failure = e

        reads = list(dict.fromkeys(a.chunk.var for a in given))
        engine.current().push_sync(run, cpu(0), reads, [self._var], name=f"metric {self.name}")
        self._queued = True

    def _count(self, labels: list[Any], preds: list[Any], number: int) -> None:
        seen = self.saw_nan
        self.count(labels, preds)
        if self.saw_nan and not seen:
            self.nan_update = number

    def settle(self) -> None:
        """Wait until everything queued is counted. Raises what went wrong, once."""
        if self._queued:
            self._queued = False
            try:
                engine.current().wait_for_var(self._var)
            except BaseException:
                self._var = None
                raise
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        return {k: v for k, v in vars(self).items() if k != "_var"}

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        """Count one batch given by name."""
        preds = list(pred.values()) if self.output_names is None else _pick(self, "output", self.output_names, pred)
        labels = list(label.values()) if self.label_names is None else _pick(self, "label", self.label_names, label)
        self.update(labels, preds)

    # ---- reading ------------------------------------------------------------------------------------------------
    def _read(part: str, index: int) -> Any:  # type: ignore[misc]
        def get(self: EvalMetric) -> Any:
            self.settle()
            return getattr(self, part)[index]

        def put(self: EvalMetric, value: Any) -> None:
            getattr(self, part)[index] = value

        return property(get, put)

    #: What `update` adds up, for subclasses that write it: the sum and the number of instances, local and of the epoch.
    sum_metric = _read("_sums", 0)
    num_inst = _read("_sums", 1)
    global_sum_metric = _read("_global", 0)
    global_num_inst = _read("_global", 1)
    del _read

    def value(self, total: float, count: int) -> float:
        """The metric's value from its sums."""
        return total / count

    def get(self) -> tuple[Any, Any]:
        """(name, value since reset_local); nan before the first update."""
        return self.name, self.value(self.sum_metric, self.num_inst) if self.num_inst else math.nan

    def get_global(self) -> tuple[Any, Any]:
        """(name, value since reset)."""
        if not self._has_global_stats:
            return self.get()
        return self.name, self.value(self.global_sum_metric, self.global_num_inst) if self.global_num_inst else math.nan

    def get_name_value(self) -> list[tuple[str, float]]:
        """[(name, value)], a pair for each part of a composite."""
        return _pairs(self.get())

    def get_global_name_value(self) -> list[tuple[str, float]]:
        """As get_name_value, for the epoch."""
        return _pairs(self.get_global())

    def get_config(self) -> dict[str, Any]:
        """What `create` needs to make this metric again."""
        return {**self._kwargs, "metric": type(self).__name__, "name": self.name,
                "output_names": self.output_names, "label_names": self.label_names}

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"


@registry.alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics at once, printed one after another."""

    def __init__(self, metrics: Sequence[Any] | None = None, name: str = "composite",
                 output_names: Sequence[str] | None = None, label_names: Sequence[str] | None = None):
        self.metrics: list[EvalMetric] = [create(m) for m in metrics or ()]
        super().__init__(name, output_names, label_names)

    def add(self, metric: Any) -> None:  # type: ignore[override]  # MXNet's name for it
        """Append a metric: an EvalMetric, or anything `create` takes."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """The metric at index. Raises ParameterError when there is none."""
        if not 0 <= index < len(self.metrics):
            raise ParameterError(f"CompositeEvalMetric.get_metric: index {index} is out of range: "
                                 f"{len(self.metrics)} metrics.")
        return self.metrics[index]

    def reset(self) -> None:
        for m in self.metrics:
            m.reset()

    def reset_local(self) -> None:
        for m in self.metrics:
            m.reset_local()

    @property
    def saw_nan(self) -> bool:  # type: ignore[override]
        return any(m.saw_nan for m in self.metrics)

    @property
    def nan_update(self) -> int:  # type: ignore[override]
        return min((m.nan_update for m in self.metrics if m.saw_nan), default=-1)

    def settle(self) -> None:
        for m in self.metrics:
            m.settle()

    def update(self, labels: Any, preds: Any) -> None:
        for m in self.metrics:
            m.update(labels, preds)

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        if self.label_names is not None:
            label = {k: v for k, v in label.items() if k in self.label_names}
        if self.output_names is not None:
            pred = {k: v for k, v in pred.items() if k in self.output_names}
        for m in self.metrics:
            m.update_dict(label, pred)

    def _gather(self, values: list[list[tuple[str, float]]]) -> tuple[list[str], list[float]]:
        flat = [pair for pairs in values for pair in pairs]
        return [n for n, _ in flat], [v for _, v in flat]

    def get(self) -> tuple[list[str], list[float]]:
        return self._gather([m.get_name_value() for m in self.metrics])

    def get_global(self) -> tuple[list[str], list[float]]:
        return self._gather([m.get_global_name_value() for m in self.metrics])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metrics": [m.get_config() for m in self.metrics]}


@register
class CustomMetric(EvalMetric):
    """A metric from a function feval(label, pred) -> value, or (sum, count), on NumPy arrays."""

    def __init__(self, feval: Callable[[np.ndarray, np.ndarray], Any], name: str | None = None,
                 allow_extra_outputs: bool = False, output_names: Sequence[str] | None = None,
                 label_names: Sequence[str] | None = None):
        if name is None:
            called = getattr(feval, "__name__", type(feval).__name__)
            name = f"custom({called})" if "<" in called else called
        super().__init__(str(name), output_names, label_names, has_global_stats=True)
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds):
            got = self._feval(_host(label), self.as_host(pred))
            self.add(*(got if isinstance(got, tuple) else (got, 1)))

    def get_config(self) -> dict[str, Any]:
        raise ParameterError(f"{self.name}.get_config: a metric made of a function cannot be written down.")


def from_function(numpy_feval: Callable, name: str | None = None, allow_extra_outputs: bool = False) -> CustomMetric:
    """A CustomMetric that is named after the function. MXNet calls this `mx.metric.np`."""
    return CustomMetric(numpy_feval, name or numpy_feval.__name__, allow_extra_outputs)


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from its name ("acc", "ce", ...), a function, a list of any of these, a config, or a metric itself.

    Raises ParameterError for an unknown name.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, (list, tuple)):
        return CompositeEvalMetric([create(m, *args, **kwargs) for m in metric])
    if isinstance(metric, dict):
        given = {k: v for k, v in metric.items() if k != "metric"}
        return registry.create(metric["metric"], **given)
    if isinstance(metric, str):
        return registry.create(metric, *args, **kwargs)
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    raise ParameterError(f"metric.create: {metric!r} is neither a name, a function, a list nor a metric.")


def _host(x: Any) -> np.ndarray:
    return x.asnumpy() if hasattr(x, "asnumpy") else np.asarray(x)


def _there(arrays: Sequence[Any]) -> list[Any]:
    """Host values of arrays, inside an engine function that reads them."""
    return [host(a) if isinstance(a, NDArray) else a for a in arrays]


def _pairs(got: tuple[Any, Any]) -> list[tuple[str, float]]:
    names, values = got
    return list(zip(names, values)) if isinstance(names, list) else [(names, values)]


def _pick(metric: EvalMetric, kind: str, names: Sequence[str], given: dict[str, Any]) -> list[Any]:
    missing = [n for n in names if n not in given]
    if missing:
        raise ParameterError(f"{metric.name}: no {kind} is called {missing[0]!r}. Known: {', '.join(given) or 'none'}.")
    return [given[n] for n in names]
