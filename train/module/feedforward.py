"""FeedForward: a network with fit, predict and score on plain arrays. It is older than Module."""

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
from ...show import Shown
from .. import metric as metrics
from ..checkpoint import BatchEndParam, load_checkpoint, save_checkpoint
from ..initializer import Uniform
from .module import Module


class FeedForward(Shown):
    """A network with its parameters: fit trains it, predict and score use it.

    symbol:              the network, or a function from a bucket key to it.
    ctx:                 one context or a list of them.
    num_epoch:           the epoch at which fit stops. epoch_size: batches in an epoch; None: all batches of the data.
    numpy_batch_size:    the batch size for data that is an array, not a DataIter.
    arg_params, aux_params:  parameters, by name. allow_extra_params: ignore names that the network does not have.
    begin_epoch:         the number of the first epoch.
    Other keywords are settings of the optimizer (learning_rate, momentum, wd, ...).
    It can be pickled, without its executors.
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
        """Return the model of PREFIX-symbol.json and PREFIX-0000.params. Raises FileError."""
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        return FeedForward(symbol, ctx=ctx, arg_params=arg_params, aux_params=aux_params, begin_epoch=epoch, **kwargs)

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Write PREFIX-symbol.json and PREFIX-0000.params, where 0000 is the epoch (by default num_epoch)."""
        epoch = self.num_epoch if epoch is None else epoch
        if epoch is None:
            raise ParameterError("FeedForward.save: epoch is missing. It is part of the file name.")
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
                raise ParameterError("FeedForward.fit: y is missing. Pass the labels of X, or a DataIter.")
            y = np.zeros(X.shape[0], np.float32)
        y = y.asnumpy() if isinstance(y, NDArray) else np.asarray(y)
        if len(y) != X.shape[0]:
            raise ShapeError(f"FeedForward: X has {X.shape[0]} samples, y has {len(y)}.")
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
        data_names = [d[0] for d in data.provide_data]
        label_names = [d[0] for d in data.provide_label or () if d[0] in arguments]
        return data_names, label_names or [n for n in arguments if n.endswith("label")]

    def _own_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return the arg_params and aux_params of the network. Raises ParameterError for others, unless allow_extra_params."""
        assert self.symbol is not None
        result = []
        names = self.symbol.list_arguments(), self.symbol.list_auxiliary_states()
        for params, own in zip((self.arg_params or {}, self.aux_params or {}), names):
            extra = [n for n in params if n not in own]
            if extra and not self.allow_extra_params:
                raise ParameterError(f"FeedForward: the network has no parameter {extra[0]!r}. "
                                     f"Pass allow_extra_params=True to ignore it.")
            result.append({n: v for n, v in params.items() if n in own})
        return result[0], result[1]

    # ---- training ---------------------------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any = None, eval_data: Any = None, eval_metric: Any = "acc", epoch_end_callback: Any = None,
            batch_end_callback: Any = None, kvstore: Any = "local", logger: Any = None, work_load_list: Any = None,
            monitor: Any = None, eval_end_callback: Any = None, eval_batch_end_callback: Any = None) -> None:
        """Train on X, y: arrays, or a DataIter. eval_data: a DataIter or a pair of arrays.

        batch_end_callback: as for Module, but batches count from 1, as in MXNet's FeedForward.
        """
        if self.num_epoch is None:
            raise ParameterError("FeedForward.fit: num_epoch is missing. Give the epoch at which to stop.")
        data = self._iter(X, y, True)
        if self.sym_gen is not None:
            self.symbol = self.sym_gen(getattr(data, "default_bucket_key", None))
        data_names, label_names = self._names(data)
        module = Module(self.symbol, data_names, label_names, logger or logging, self.ctx, work_load_list)
        arg, aux = self._own_params()
        module.fit(data if self.epoch_size is None else ResizeIter(data, self.epoch_size, False), self._eval_iter(eval_data),
                   eval_metric, epoch_end_callback, _from_one(batch_end_callback), kvstore, self.optimizer, self.kwargs,
                   eval_end_callback, eval_batch_end_callback, self.initializer,
                   arg, aux, allow_missing=True, begin_epoch=self.begin_epoch, num_epoch=self.num_epoch, monitor=monitor)
        self.arg_params, self.aux_params = module.get_params()
        self._bound = None

    @staticmethod
    def create(symbol: Any, X: Any, y: Any = None, ctx: Any = None, num_epoch: int | None = None,
               epoch_size: int | None = None, optimizer: Any = "sgd", initializer: Any = None, eval_data: Any = None,
               eval_metric: Any = "acc", epoch_end_callback: Any = None, batch_end_callback: Any = None,
               kvstore: Any = "local", logger: Any = None, work_load_list: Any = None, eval_end_callback: Any = None,
               eval_batch_end_callback: Any = None, **kwargs: Any) -> FeedForward:
        """Return a new model, trained. The arguments are those of FeedForward and of fit."""
        model = FeedForward(symbol, ctx, num_epoch, epoch_size, optimizer, initializer, **kwargs)
        model.fit(X, y, eval_data, eval_metric, epoch_end_callback, batch_end_callback, kvstore, logger, work_load_list,
                  None, eval_end_callback, eval_batch_end_callback)
        return model

    # ---- inference --------------------------------------------------------------------------------------------------
    def _inference_module(self, data: Any, caller: str) -> Module:
        """Return a module bound for the shapes of data, with the parameters. The next call reuses it."""
        if self.symbol is None or self.arg_params is None:
            raise MXNetError(f"FeedForward.{caller}: the model has no parameters yet. Call fit, or load a model.")
        data_names, label_names = self._names(data)
        label_shapes = [d for d in data.provide_label or () if d[0] in label_names]
        key = ([tuple(d[:2]) for d in data.provide_data], [tuple(d[:2]) for d in label_shapes], id(self.arg_params))
        if self._module is None or self._bound != key:
            self._module = Module(self.symbol, data_names, label_names, context=self.ctx)
            self._module.bind(data.provide_data, label_shapes or None, for_training=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a label that no batch fills
                self._module.set_params(*self._own_params(), allow_extra=True)
            self._bound = key
        return self._module

    def predict(self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True) -> Any:
        """Return the outputs for X as NumPy arrays: one array, or a list for several outputs.

        return_data: return (outputs, data, labels), with the data and labels of X in the order of the batches.
        """
        data = self._iter(X, None, False)
        if reset:
            data.reset()
        module = self._inference_module(data, "predict")
        outputs, inputs, labels = [], [], []
        for batch_outputs, _, batch in module.iter_predict(data, num_batch, reset=False):
            outputs.append([o.asnumpy() for o in batch_outputs])
            if return_data:
                batch = as_batch(batch)
                arrays = list(batch.data or ())
                keep = slice(0, arrays[0].shape[0] - (batch.pad or 0))
                inputs.append([d[keep].asnumpy() for d in arrays])
                labels.append([d[keep].asnumpy() for d in batch.label or ()])
        if not outputs:
            raise ParameterError("FeedForward.predict: X has no batches.")
        return (_joined(outputs), _joined(inputs), _joined(labels)) if return_data else _joined(outputs)

    def score(self, X: Any, eval_metric: Any = "acc", num_batch: int | None = None, batch_end_callback: Any = None,
              reset: bool = True) -> float:
        """Return the value of a metric over X, a DataIter with labels."""
        data = self._iter(X, None, False)
        module = self._inference_module(data, "score")
        return module.score(data, metrics.create(eval_metric), num_batch, batch_end_callback, reset=reset)[0][1]


def _from_one(callbacks: Any) -> list[Callable[[BatchEndParam], None]]:
    """Return batch callbacks (one or a list) that count batches from 1."""

    def count_from_one(callback: Callable[..., Any]) -> Callable[[BatchEndParam], None]:
        return lambda param: callback(param._replace(nbatch=param.nbatch + 1))

    return [count_from_one(c) for c in ([callbacks] if callable(callbacks) else list(callbacks or ()))]


def _joined(parts: list[list[np.ndarray]]) -> Any:
    joined = [np.concatenate(p) for p in zip(*parts)]
    return joined[0] if len(joined) == 1 else joined
