"""Metrics: what training prints. The base class, and the metrics made of several; `create` finds any by name.

A metric adds up `sum_metric` over `num_inst`; their quotient is its value. It does so twice: since the last
`reset_local` (what Speedometer shows), and since the last `reset` (`global_*`, what an epoch shows).
All arithmetic is on the host: `as_host` is the one place where a metric waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from .registry import Registry

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
    """Base of metrics. Subclasses write `update`, which calls `add`.

    name:                        what is printed.
    output_names, label_names:   which outputs and labels `update_dict` picks; all of them if None.
    saw_nan:                     whether a prediction that this metric looked at held a NaN, since the last reset.
    """

    def __init__(self, name: str, output_names: Sequence[str] | None = None,
                 label_names: Sequence[str] | None = None, **kwargs: Any):
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._kwargs = kwargs
        self.reset()

    # ---- counting ---------------------------------------------------------------------------------------------
    def reset(self) -> None:
        """Forget everything."""
        self.global_sum_metric: float = 0.0
        self.global_num_inst: int = 0
        self.saw_nan = False
        self.reset_local()

    def reset_local(self) -> None:
        """Forget what was counted since the last reset_local; the epoch's sums stay."""
        self.sum_metric: float = 0.0
        self.num_inst: int = 0

    def add(self, total: float, count: int) -> None:
        """Count `total` over `count` instances, locally and for the epoch."""
        self.sum_metric += total
        self.num_inst += count
        self.global_sum_metric += total
        self.global_num_inst += count

    def as_host(self, pred: Any) -> np.ndarray:
        """The host copy of a prediction (waits for it), noting whether it holds a NaN."""
        host = _host(pred)
        # one pass without a temporary: a minimum carries any NaN
        if host.dtype.kind not in "iub" and host.size and math.isnan(float(host.min())):
            self.saw_nan = True
        return host

    # ---- updating -----------------------------------------------------------------------------------------------
    def update(self, labels: Any, preds: Any) -> None:
        """Count one batch. labels, preds: lists of arrays, one per output."""
        raise NotImplementedError(f"{type(self).__name__}.update")

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        """Count one batch given by name."""
        preds = list(pred.values()) if self.output_names is None else _pick(self, "output", self.output_names, pred)
        labels = list(label.values()) if self.label_names is None else _pick(self, "label", self.label_names, label)
        self.update(labels, preds)

    # ---- reading ------------------------------------------------------------------------------------------------
    def value(self, total: float, count: int) -> float:
        """The metric's value from its sums."""
        return total / count

    def get(self) -> tuple[Any, Any]:
        """(name, value since reset_local); nan before the first update."""
        return self.name, self.value(self.sum_metric, self.num_inst) if self.num_inst else math.nan

    def get_global(self) -> tuple[Any, Any]:
        """(name, value since reset)."""
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
        super().__init__(str(name), output_names, label_names)
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


def _pairs(got: tuple[Any, Any]) -> list[tuple[str, float]]:
    names, values = got
    return list(zip(names, values)) if isinstance(names, list) else [(names, values)]


def _pick(metric: EvalMetric, kind: str, names: Sequence[str], given: dict[str, Any]) -> list[Any]:
    missing = [n for n in names if n not in given]
    if missing:
        raise ParameterError(f"{metric.name}: no {kind} is called {missing[0]!r}. Known: {', '.join(given) or 'none'}.")
    return [given[n] for n in names]
