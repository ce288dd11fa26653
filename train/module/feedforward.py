"""FeedForward: a network with fit, predict and score on plain arrays. The interface that was there before Module."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...context import Context, cpu
from ...errors import MXNetError, ParameterError, ShapeError
from ...io import DataIter, NDArrayIter, ResizeIter
from ...io.iterator import as_batch
from ...ndarray import NDArray
from .. import metric as metrics
from ..callback import LogValidationMetricsCallback
from ..checkpoint import BatchEndParam, load_checkpoint, save_checkpoint
from ..initializer import Uniform
from .module import Module


class FeedForward:
    """A network that is trained by fit and asked by predict.

    symbol:              the network, or a function from an input iterator to it.
    ctx:                 one context or a list of them.
    num_epoch:           after which epoch fit stops. epoch_size: batches in an epoch; None: all there are.
    numpy_batch_size:    the batch size for arrays that are not a DataIter.
    arg_params, aux_params:  parameters, by name. allow_extra_params: leave out those that the network lacks.
    begin_epoch:         the number of the first epoch.
    Other keywords are settings of the optimizer (learning_rate, momentum, wd, ...).
    It can be pickled: the network and its parameters travel, what they are bound to does not.
    """

    def __init__(self, symbol: Any, ctx: Context | Sequence[Context] | None = None, num_epoch: int | None = None,
                 epoch_size: int | None = None, optimizer: Any = "sgd", initializer: Any = None, numpy_batch_size: int = 128,
                 arg_params: Mapping[str, NDArray] | None = None, aux_params: Mapping[str, NDArray] | None = None,
                 allow_extra_params: bool = False, begin_epoch: int = 0, **kwargs: Any):
        self.sym_gen = symbol if callable(symbol) and not hasattr(symbol, "list_arguments") else None
        self.symbol: Any = None if self.sym_gen else symbol
        self.ctx = [cpu()] if ctx is None else [ctx] if isinstance(ctx, Context) else list(ctx)
        self.num_epoch, self.epoch_size, self.begin_epoch = num_epoch, epoch_size, begin_epoch
        self.optimizer = optimizer
        self.initializer = Uniform(0.01) if initializer is None else initializer
        self.numpy_batch_size = numpy_batch_size
        self.arg_params, self.aux_params = arg_params, aux_params
        self.allow_extra_params = allow_extra_params
        self.kwargs = dict(kwargs)
        self._module: Module | None = None
        self._bound: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_module": None, "_bound": None}

    # ---- files ------------------------------------------------------------------------------------------------------
    @staticmethod
    def load(prefix: str, epoch: int, ctx: Any = None, **kwargs: Any) -> FeedForward:
        """The model of PREFIX-symbol.json and PREFIX-0000.params. Raises FileError."""
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        return FeedForward(symbol, ctx=ctx, arg_params=arg_params, aux_params=aux_params, begin_epoch=epoch, **kwargs)

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Write PREFIX-symbol.json and PREFIX-0000.params; 0000 is the epoch, num_epoch if it is None."""
        epoch = self.num_epoch if epoch is None else epoch
        if epoch is None:
            raise ParameterError("FeedForward.save: epoch is missing: it becomes part of the file's name.")
        save_checkpoint(prefix, epoch, self.symbol, self.arg_params or {}, self.aux_params or {})

    # ---- data -------------------------------------------------------------------------------------------------------
    def _iter(self, X: Any, y: Any, train: bool) -> Any:
        if isinstance(X, DataIter) or hasattr(X, "provide_data"):
            return X
        if not isinstance(X, (np.ndarray, NDArray, list)):
            raise ParameterError(f"FeedForward: X is a {type(X).__name__}, neither an array nor a DataIter.")
        X = np.asarray(X) if isinstance(X, list) else X
        if y is None:
            if train:
                raise ParameterError("FeedForward.fit: y is missing. Give the labels of X, or a DataIter.")
            y = np.zeros(X.shape[0], np.float32)
        y = y.asnumpy() if isinstance(y, NDArray) else np.asarray(y)
        if len(y) != X.shape[0]:
            raise ShapeError(f"FeedForward: X has {X.shape[0]} samples, y {len(y)}.")
        y = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
        size = min(X.shape[0], self.numpy_batch_size)
        return NDArrayIter(X, y, size, shuffle=train, last_batch_handle="roll_over" if train else "pad")

    def _eval_iter(self, data: Any) -> Any:
        if isinstance(data, (tuple, list)) and len(data) == 2:
            return self._iter(data[0], data[1], False)
        return data

    def _names(self, data: Any) -> tuple[list[str], list[str]]:
        assert self.symbol is not None
        arguments = self.symbol.list_arguments()
        fed = [d[0] for d in data.provide_data]
        labels = [d[0] for d in data.provide_label or () if d[0] in arguments]
        return fed, labels or [n for n in arguments if n.endswith("label")]

    def _params_in(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """The parameters that the network has. Raises ParameterError for others, unless allow_extra_params."""
        assert self.symbol is not None
        found = []
        names = self.symbol.list_arguments(), self.symbol.list_auxiliary_states()
        for given, own in zip((self.arg_params, self.aux_params), names):
            extra = [n for n in given or () if n not in own]
            if extra and not self.allow_extra_params:
                raise ParameterError(f"FeedForward: the network has no parameter {extra[0]!r}. "
                                     f"Pass allow_extra_params=True to leave it out.")
            found.append({n: v for n, v in (given or {}).items() if n in own})
        return found[0], found[1]

    # ---- training ---------------------------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any = None, eval_data: Any = None, eval_metric: Any = "acc", epoch_end_callback: Any = None,
            batch_end_callback: Any = None, kvstore: Any = "local", logger: Any = None, work_load_list: Any = None,
            monitor: Any = None, eval_end_callback: Any = None, eval_batch_end_callback: Any = None) -> None:
        """Train on X, y: arrays, or a DataIter. eval_data: a DataIter or a pair of arrays.

        batch_end_callback: as for Module, but batches count from 1, as they did before there were modules.
        """
        if self.num_epoch is None:
            raise ParameterError("FeedForward.fit: num_epoch is missing: say after which epoch to stop.")
        data = self._iter(X, y, True)
        if self.sym_gen is not None:
            self.symbol = self.sym_gen(getattr(data, "default_bucket_key", None))
        fed, labels = self._names(data)
        module = Module(self.symbol, fed, labels, logger or logging, self.ctx, work_load_list)
        arg, aux = self._params_in()
        module.fit(data if self.epoch_size is None else ResizeIter(data, self.epoch_size, False), self._eval_iter(eval_data),
                   eval_metric, epoch_end_callback, _from_one(batch_end_callback), kvstore, self.optimizer, self.kwargs,
                   eval_end_callback or LogValidationMetricsCallback(), eval_batch_end_callback, self.initializer,
                   arg, aux, allow_missing=True, begin_epoch=self.begin_epoch, num_epoch=self.num_epoch, monitor=monitor)
        self.arg_params, self.aux_params = module.get_params()
        self._bound = None

    @staticmethod
    def create(symbol: Any, X: Any, y: Any = None, ctx: Any = None, num_epoch: int | None = None,
               epoch_size: int | None = None, optimizer: Any = "sgd", initializer: Any = None, eval_data: Any = None,
               eval_metric: Any = "acc", epoch_end_callback: Any = None, batch_end_callback: Any = None,
               kvstore: Any = "local", logger: Any = None, work_load_list: Any = None, eval_end_callback: Any = None,
               eval_batch_end_callback: Any = None, **kwargs: Any) -> FeedForward:
        """A new model, trained."""
        model = FeedForward(symbol, ctx, num_epoch, epoch_size, optimizer, initializer, **kwargs)
        model.fit(X, y, eval_data, eval_metric, epoch_end_callback, batch_end_callback, kvstore, logger, work_load_list,
                  None, eval_end_callback, eval_batch_end_callback)
        return model

    # ---- asking -----------------------------------------------------------------------------------------------------
    def _ready(self, data: Any, what: str) -> Module:
        """A module bound for data's shapes, with the parameters; kept for the next call."""
        if self.symbol is None or self.arg_params is None:
            raise MXNetError(f"FeedForward.{what}: there are no parameters yet. Call fit, or load a model.")
        fed, labels = self._names(data)
        shapes = [tuple(d[:2]) for d in data.provide_data]
        label_shapes = [d for d in data.provide_label or () if d[0] in labels]
        key = (shapes, [tuple(d[:2]) for d in label_shapes], id(self.arg_params))
        if self._module is None or self._bound != key:
            arg, aux = self._params_in()
            self._module = Module(self.symbol, fed, labels, context=self.ctx)
            self._module.bind(data.provide_data, label_shapes or None, for_training=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a label that nobody feeds
                self._module.set_params(arg, aux, allow_extra=True)
            self._bound = key
        return self._module

    def predict(self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True) -> Any:
        """The outputs for X as NumPy arrays: one array, or a list for several outputs.

        return_data: return (outputs, data, labels) instead, the data and labels of X in the order they came.
        """
        data = self._iter(X, None, False)
        if reset:
            data.reset()
        module = self._ready(data, "predict")
        outputs: list[list[np.ndarray]] = []
        seen: list[list[np.ndarray]] = []
        truth: list[list[np.ndarray]] = []
        for got, _, batch in module.iter_predict(data, num_batch, reset=False):
            outputs.append([o.asnumpy() for o in got])
            if return_data:
                batch = as_batch(batch)
                arrays = list(batch.data or ())
                keep = slice(0, arrays[0].shape[0] - (batch.pad or 0))
                seen.append([d[keep].asnumpy() for d in arrays])
                truth.append([d[keep].asnumpy() for d in batch.label or ()])
        if not outputs:
            raise ParameterError("FeedForward.predict: X gave no batch.")
        found = _joined(outputs)
        return (found, _joined(seen), _joined(truth)) if return_data else found

    def score(self, X: Any, eval_metric: Any = "acc", num_batch: int | None = None, batch_end_callback: Any = None,
              reset: bool = True) -> float:
        """The value of a metric over X: a DataIter with labels."""
        data = self._iter(X, None, False)
        result = self._ready(data, "score").score(data, metrics.create(eval_metric), num_batch, batch_end_callback, reset=reset)
        return result[0][1]


def _from_one(callbacks: Any) -> list[Callable[[BatchEndParam], None]]:
    """Callbacks, one or a list, as those that are told one batch more."""
    def told(call: Callable[..., Any]) -> Callable[[BatchEndParam], None]:
        return lambda param: call(param._replace(nbatch=param.nbatch + 1))

    return [told(c) for c in ([callbacks] if callable(callbacks) else list(callbacks or ()))]


def _joined(parts: list[list[np.ndarray]]) -> Any:
    joined = [np.concatenate(p) for p in zip(*parts)]
    return joined[0] if len(joined) == 1 else joined
