"""EvalMetric, the base class of metrics; CompositeEvalMetric, CustomMetric; and `create`, which makes any from its name.

The value of a metric is `sum_metric` / `num_inst`. There are two such pairs: since the last `reset_local` (Speedometer shows
this value), and since the last `reset` (`global_*`, the value of an epoch). Metrics are computed on the host, in tasks of
their own: `update` returns at once, and reading the value waits for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import engine
from ...context import cpu
from ...engine import Var
from ...errors import ParameterError, ShapeError, check_choice
from ...ndarray import NDArray
from ...ndarray.dispatch.copy import host
from ...show import Shown
from ..registry import Registry

registry = Registry("metric")
Names = Sequence[str] | None
alias = registry.alias


def register(klass: type, name: str | None = None) -> type:
    """Register a metric under its own name, and under `name` if that is given. Returns it, so that this is a decorator."""
    return registry.register(klass, *([] if name is None else [name]))



def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Return labels and preds. Raises ShapeError if their numbers differ (with `shape`: their shapes).

    wrap:  put a single array into a list.
    """
    have, want = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if have != want:
        raise ShapeError(f"metric: labels and predictions differ in {'shape' if shape else 'length'}: "
                         f"labels {have}, predictions {want}. Give one label for every prediction.")
    if wrap:
        labels = labels if isinstance(labels, (list, tuple)) else [labels]
        preds = preds if isinstance(preds, (list, tuple)) else [preds]
    return labels, preds


def _read(part: str, index: int, meaning: str) -> Any:
    """Return a property: an element of the list that is the attribute `part`, read after all updates are counted."""

    def get(self: EvalMetric) -> Any:
        self.wait()
        return getattr(self, part)[index]

    def put(self: EvalMetric, value: Any) -> None:
        getattr(self, part)[index] = value

    return property(get, put, doc=meaning)


class EvalMetric(Shown):
    """Base of metrics. A subclass implements one of three methods:

    `count_pair` gets the values of one output on the host, calls `add`, and runs asynchronously. `count` gets those of all.
    `update` changes sum_metric and num_inst, and may wait for the arrays. Such a class has no global sums, and the value of
    the epoch is that since the last reset_local, unless it changes global_* too and passes has_global_stats=True.

    name:                        printed with the value; default_name of the class if None.
    output_names, label_names:   the outputs and labels that `update_dict` selects; all of them if None.
    saw_nan:                     a prediction since the last reset held a NaN.
    nan_update:                  the number of the first such update, from 0; -1 before.
    """

    default_name = "metric"

    def __init__(self, name: str | None = None, output_names: Names = None, label_names: Names = None, **kwargs: Any):
        self.name = str(self.default_name if name is None else name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = kwargs.pop("has_global_stats", type(self).update is EvalMetric.update)
        self._kwargs = kwargs
        self._sums, self._global = [0.0, 0], [0.0, 0]  # before reset, which a subclass may override
        self.reset()

    # ---- counting ---------------------------------------------------------------------------------------------
    _resetting = False
    _pending = False  # updates were pushed since the last wait
    _var: Any = None
    _failure: BaseException | None = None

    def reset(self) -> None:
        """Set all sums to 0."""
        self.wait()
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
        """Set the local sums to 0; the sums of the epoch stay."""
        self.wait()
        self._sums = [0.0, 0]
        if not self._has_global_stats and not self._resetting:
            self.reset()

    def add(self, total: float, count: int) -> None:
        """Add a sum over `count` instances, locally and for the epoch."""
        for sums in (self._sums, self._global):
            sums[0] += total
            sums[1] += count

    def as_host(self, pred: Any) -> np.ndarray:
        """Return a prediction as a NumPy array (waits for it), and set saw_nan if it holds a NaN."""
        host = _host(pred)
        # the minimum is NaN if any element is; it needs no temporary array
        if host.dtype.kind not in "iub" and host.size and math.isnan(float(host.min())):
            self.saw_nan = True
        return host

    # ---- updating -----------------------------------------------------------------------------------------------
    def check(self, labels: Any, preds: Any) -> tuple[Any, Any]:
        """Return labels and preds as lists. Raises ShapeError for errors that do not depend on the values."""
        return check_label_shapes(labels, preds, wrap=True)

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        """Count a batch of host arrays. Runs on any thread, so it must not push or wait."""
        for label, pred in zip(labels, preds):
            self.count_pair(_host(label), self.as_host(pred))

    def count_pair(self, label: np.ndarray, pred: np.ndarray) -> None:
        """Count a batch of one output."""
        raise NotImplementedError(f"{type(self).__name__}.update")

    def update(self, labels: Any, preds: Any) -> None:
        """Count a batch: labels and preds are lists of arrays, one per output. Returns before NDArrays are computed."""
        labels, preds = self.check(labels, preds)
        labels, preds = list(labels or ()), list(preds)
        number, self._updates = self._updates, self._updates + 1
        ndarrays = [a for a in (*labels, *preds) if isinstance(a, NDArray)]
        if not ndarrays:
            self._count(labels, preds, number)
            return
        if self._var is None:
            self._var = Var()

        def run(_: Any) -> None:
            if self._failure is None:
                try:
                    self._count(_computed(labels), _computed(preds), number)
                except Exception as e:  # raised when the value is read; later batches are not counted
                    self._failure = e

        reads = list(dict.fromkeys(a.chunk.var for a in ndarrays))
        engine.current().push_sync(run, cpu(0), reads, [self._var], name=f"metric {self.name}")
        self._pending = True

    def _count(self, labels: list[Any], preds: list[Any], number: int) -> None:
        had_nan = self.saw_nan
        self.count(labels, preds)
        if self.saw_nan and not had_nan:
            self.nan_update = number

    def wait(self) -> None:
        """Wait until all updates are counted. Raises the error of a failed one, once."""
        if self._pending:
            self._pending = False
            try:
                engine.current().wait_for_var(self._var)
            except BaseException:
                self._var = None
                raise
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __getstate__(self) -> dict[str, Any]:
        self.wait()
        return {k: v for k, v in vars(self).items() if k != "_var"}

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        """Count a batch, given by name."""
        self.update(_select(self, "label", self.label_names, label), _select(self, "output", self.output_names, pred))

    # ---- reading ------------------------------------------------------------------------------------------------
    #: The sum and the number of instances, local and of the epoch. A subclass with its own `update` changes them.
    sum_metric = _read("_sums", 0, "The sum over samples since the last reset_local.")
    num_inst = _read("_sums", 1, "The number of samples since the last reset_local.")
    global_sum_metric = _read("_global", 0, "The sum over samples since the last reset.")
    global_num_inst = _read("_global", 1, "The number of samples since the last reset.")

    def value(self, total: float, count: int) -> float:
        """Return the value of the metric from its sums."""
        return total / count

    def get(self) -> tuple[Any, Any]:
        """Return (name, value since reset_local); the value is nan before the first update."""
        return self.name, self.value(self.sum_metric, self.num_inst) if self.num_inst else math.nan

    def get_global(self) -> tuple[Any, Any]:
        """Return (name, value since reset)."""
        if not self._has_global_stats:
            return self.get()
        return self.name, self.value(self.global_sum_metric, self.global_num_inst) if self.global_num_inst else math.nan

    def get_name_value(self) -> list[tuple[str, float]]:
        """Return [(name, value)], with a pair for each metric of a composite."""
        return _pairs(self.get())

    def get_global_name_value(self) -> list[tuple[str, float]]:
        """Return get_name_value of the epoch."""
        return _pairs(self.get_global()) if self._has_global_stats else self.get_name_value()

    def get_config(self) -> dict[str, Any]:
        """Return a dictionary from which `create` makes this metric."""
        return {**self._kwargs, "metric": type(self).__name__, "name": self.name,
                "output_names": self.output_names, "label_names": self.label_names}

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"


class PooledMetric(EvalMetric):
    """Base of metrics that are computed from statistics of all samples, if `pooled`, and not as a mean over updates.

    `count` adds to `_local` and `_all`, the statistics since reset_local and since reset.
    """

    pooled = True

    def empty(self) -> Any:
        """Return the statistics of no samples."""
        raise NotImplementedError

    def score(self, statistics: Any) -> float:
        """Return the value of the metric for statistics."""
        raise NotImplementedError

    def reset(self) -> None:
        self._all = self.empty()
        super().reset()

    def reset_local(self) -> None:
        self._local = self.empty()
        super().reset_local()

    def get(self) -> tuple[str, float]:
        return (self.name, self.score(self._local)) if self.pooled and self.num_inst else super().get()

    def get_global(self) -> tuple[str, float]:
        return (self.name, self.score(self._all)) if self.pooled and self.global_num_inst else super().get_global()


class AveragedMetric(PooledMetric):
    """Base of metrics with a choice.

    average:  "macro" is the mean of the scores of the updates, "micro" the score of all samples.
    """

    def __init__(self, name: str | None = None, output_names: Names = None, label_names: Names = None, average: str = "macro"):
        check_choice(name or self.default_name, "average", average, ("macro", "micro"))
        self.average, self.pooled = average, average == "micro"
        super().__init__(name, output_names, label_names, **({} if average == "macro" else {"average": average}))


@registry.alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics of the same outputs and labels."""

    def __init__(self, metrics: Sequence[Any] | None = None, name: str = "composite",
                 output_names: Sequence[str] | None = None, label_names: Sequence[str] | None = None):
        self.metrics: list[EvalMetric] = [create(m) for m in metrics or ()]
        super().__init__(name, output_names, label_names)

    def add(self, metric: Any) -> None:  # MXNet's name for it
        """Append a metric: an EvalMetric, or any argument of `create`."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """Return the metric at index. Raises ParameterError if the index is out of range."""
        if not 0 <= index < len(self.metrics):
            raise ParameterError(f"CompositeEvalMetric.get_metric: index {index} is out of range: {len(self.metrics)} metrics.")
        return self.metrics[index]

    def reset(self) -> None:
        for m in self.metrics:
            m.reset()

    def reset_local(self) -> None:
        for m in self.metrics:
            m.reset_local()

    @property
    def saw_nan(self) -> bool:
        """True if an update of one of the metrics was not a number."""
        return any(m.saw_nan for m in self.metrics)

    @property
    def nan_update(self) -> int:
        """The number of the first update that was not a number; -1 if there was none."""
        return min((m.nan_update for m in self.metrics if m.saw_nan), default=-1)

    def wait(self) -> None:
        for m in self.metrics:
            m.wait()

    def update(self, labels: Any, preds: Any) -> None:
        for m in self.metrics:
            m.update(labels, preds)

    def update_dict(self, labels: dict[str, Any], preds: dict[str, Any]) -> None:
        if self.label_names is not None:
            labels = {k: v for k, v in labels.items() if k in self.label_names}
        if self.output_names is not None:
            preds = {k: v for k, v in preds.items() if k in self.output_names}
        for m in self.metrics:
            m.update_dict(labels, preds)

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
    """A metric computed by a function of NumPy arrays: feval(label, pred) returns a value, or (sum, count)."""

    def __init__(self, feval: Callable[[np.ndarray, np.ndarray], Any], name: str | None = None,
                 allow_extra_outputs: bool = False, output_names: Names = None, label_names: Names = None):
        if name is None:
            function = str(getattr(feval, "__name__", type(feval).__name__))
            name = f"custom({function})" if "<" in function else function
        super().__init__(name, output_names, label_names, has_global_stats=True)
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds):
            result = self._feval(_host(label), self.as_host(pred))
            self.add(*(result if isinstance(result, tuple) else (result, 1)))

    def get_config(self) -> dict[str, Any]:
        raise ParameterError(f"{self.name}.get_config: a function cannot be part of a config.")


def from_function(numpy_feval: Callable, name: str | None = None, allow_extra_outputs: bool = False) -> CustomMetric:
    """Return a CustomMetric with the name of the function. MXNet calls this `mx.metric.np`."""
    return CustomMetric(numpy_feval, name, allow_extra_outputs)


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """Return a metric from its name ("acc", "ce", ...), a function, a config, its JSON, a metric, or a list of these.

    Raises ParameterError for an unknown name.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, (list, tuple)):
        return CompositeEvalMetric([create(m, *args, **kwargs) for m in metric])
    if isinstance(metric, dict):
        return registry.create(metric["metric"], **{k: v for k, v in metric.items() if k != "metric"})
    if isinstance(metric, str) and metric[:1] in ("[", "{"):  # MXNet's JSON: ["accuracy", {"axis": 1}]
        return _from_json(metric)
    if isinstance(metric, str):
        return registry.create(metric, *args, **kwargs)
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    raise ParameterError(f"metric.create: {metric!r} is neither a name, a function, a list nor a metric.")


def _from_json(text: str) -> EvalMetric:
    """Return the metric of a JSON text, `["NAME", {PARAMETERS}]` or `{"metric": "NAME", ...}`. Raises ParameterError."""
    try:
        config = json.loads(text)
        name, options = config if isinstance(config, list) else (config.pop("metric"), config)
        return registry.create(name, **options)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ParameterError(f"metric.create: {text!r} is not the JSON of a metric, such as "
                             '["accuracy", {"axis": 1}].') from None


def _host(x: Any) -> np.ndarray:
    return x.asnumpy() if hasattr(x, "asnumpy") else np.asarray(x)


def _computed(arrays: Sequence[Any]) -> list[Any]:
    """Return the host values of arrays, in a task that reads them."""
    return [host(a) if isinstance(a, NDArray) else a for a in arrays]


def _pairs(name_value: tuple[Any, Any]) -> list[tuple[str, float]]:
    names, values = name_value
    return list(zip(names, values)) if isinstance(names, list) else [(names, values)]


def _select(metric: EvalMetric, kind: str, names: Names, arrays: dict[str, Any]) -> list[Any]:
    names = list(arrays) if names is None else names
    missing = [n for n in names if n not in arrays]
    if missing:
        raise ParameterError(f"{metric.name}: no {kind} is called {missing[0]!r}. Known: {', '.join(arrays) or 'none'}.")
    return [arrays[n] for n in names]
