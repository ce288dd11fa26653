"""BaseModule: training, scoring and predicting, for anything that can run a batch forward and backward."""

from __future__ import annotations

import logging
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ... import engine
from ... import ndarray as nd
from ...context import cpu
from ...errors import MXNetError, ParameterError, ShapeError
from ...io import DataBatch
from ...io.iterator import as_batch
from ...ndarray import NDArray, array, save
from .. import metric as metrics
from ..checkpoint import BatchEndParam, split_params
from ..initializer import Uniform

SGD_DEFAULTS = (("learning_rate", 0.01),)
MAX_BATCHES_IN_FLIGHT = 2  # batches that fit may have given to the engine and not yet gone forward: their arrays are alive


class BaseModule:
    """Base of modules. The road is bind, init_params, init_optimizer, then forward, backward, update; fit walks it.

    Subclasses give the steps; this class gives what is made of them.
    """

    def __init__(self, logger: Any = logging):
        self.logger = logger
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None

    # ---- the steps, which subclasses give --------------------------------------------------------------------------
    def bind(self, data_shapes: Any, label_shapes: Any = None, for_training: bool = True, inputs_need_grad: bool = False,
             force_rebind: bool = False, shared_module: Any = None, grad_req: Any = "write") -> None:
        raise NotImplementedError(f"{type(self).__name__}.bind")

    def init_params(self, initializer: Any = None, arg_params: Any = None, aux_params: Any = None,
                    allow_missing: bool = False, force_init: bool = False, allow_extra: bool = False) -> None:
        raise NotImplementedError(f"{type(self).__name__}.init_params")

    def init_optimizer(self, kvstore: Any = "local", optimizer: Any = "sgd", optimizer_params: Any = SGD_DEFAULTS,
                       force_init: bool = False) -> None:
        raise NotImplementedError(f"{type(self).__name__}.init_optimizer")

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def backward(self, out_grads: Any = None) -> None:
        raise NotImplementedError(f"{type(self).__name__}.backward")

    def update(self) -> None:
        raise NotImplementedError(f"{type(self).__name__}.update")

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__}.get_outputs")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        raise NotImplementedError(f"{type(self).__name__}.get_params")

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        raise NotImplementedError(f"{type(self).__name__}.update_metric")

    def install_monitor(self, mon: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}.install_monitor")

    @property
    def symbol(self) -> Any:
        """The network."""
        return self._symbol

    @property
    def label_shapes(self) -> Any:
        """What labels a batch must bring."""
        raise NotImplementedError(f"{type(self).__name__}.label_shapes")

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs."""
        raise NotImplementedError(f"{type(self).__name__}.output_names")

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Get ready for a batch; here there is nothing to do."""

    # ---- what is made of them --------------------------------------------------------------------------------------
    def forward_backward(self, data_batch: Any) -> None:
        """forward in training mode, then backward."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def set_params(self, arg_params: Any, aux_params: Any, allow_missing: bool = False, force_init: bool = True,
                   allow_extra: bool = False) -> None:
        """Take over parameters by name. Raises ParameterError for a missing one, unless allow_missing."""
        self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)

    def save_params(self, fname: str) -> None:
        """Write all parameters to a file, as a checkpoint's .params."""
        arg, aux = self.get_params()
        save(fname, {f"arg:{k}": v for k, v in arg.items()} | {f"aux:{k}": v for k, v in aux.items()})

    def load_params(self, fname: str) -> None:
        """Take over the parameters of a file. Raises FileError."""
        self.set_params(*split_params(fname))

    def score(self, eval_data: Any, eval_metric: Any, num_batch: int | None = None, batch_end_callback: Any = None,
              score_end_callback: Any = None, reset: bool = True, epoch: int = 0, sparse_row_id_fn: Any = None
              ) -> list[tuple[str, float]]:
        """[(name, value)] of a metric over eval_data (num_batch batches of it), in inference mode.

        Samples that only fill up the last batch are not counted (MXNet counts them twice).
        """
        self._require("score", params=True)
        if reset:
            eval_data.reset()
        eval_metric = metrics.create(eval_metric)
        eval_metric.reset()
        done = 0
        for nbatch, eval_batch in enumerate(eval_data):
            if nbatch == num_batch:
                break
            self.forward(eval_batch, is_train=False)
            self._count(eval_metric, eval_batch)
            _call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
            done += 1
        _call(score_end_callback, BatchEndParam(epoch, done, eval_metric, locals()))
        return eval_metric.get_name_value()

    def _count(self, eval_metric: Any, batch: Any) -> None:
        batch = as_batch(batch)
        if not batch.pad:
            self.update_metric(eval_metric, batch.label)
            return
        keep = slice(0, batch.data[0].shape[0] - batch.pad)
        names = [d.name for d in self.label_shapes or ()]
        eval_metric.update_dict({n: label[keep] for n, label in zip(names, batch.label or ())},
                                {n: out[keep] for n, out in zip(self.output_names, self.get_outputs())})

    def iter_predict(self, eval_data: Any, num_batch: int | None = None, reset: bool = True, sparse_row_id_fn: Any = None
                     ) -> Iterator[tuple[list[NDArray], int, Any]]:
        """(outputs, batch number, batch) for each batch, without the samples that only fill it up."""
        self._require("iter_predict", params=True)
        if reset:
            eval_data.reset()
        for nbatch, batch in enumerate(eval_data):
            if nbatch == num_batch:
                break
            self.forward(batch, is_train=False)
            pad = as_batch(batch).pad or 0
            yield [out[0 : out.shape[0] - pad] for out in self.get_outputs()], nbatch, batch

    def predict(self, eval_data: Any, num_batch: int | None = None, merge_batches: bool = True, reset: bool = True,
                always_output_list: bool = False, sparse_row_id_fn: Any = None) -> Any:
        """The outputs over eval_data: a DataIter, or one batch as an array.

        Returns: per output the batches joined, [n, ...]; the array itself where there is one output, unless
            always_output_list. Without merge_batches: a list over batches of lists over outputs.
        """
        self._require("predict", params=True)
        if isinstance(eval_data, (NDArray, np.ndarray)):
            data = eval_data if isinstance(eval_data, NDArray) else array(eval_data, dtype=eval_data.dtype)
            self.forward(DataBatch([data]), is_train=False)
            return self.get_outputs()[0]
        if not hasattr(eval_data, "__iter__"):
            raise ParameterError(f"predict: {type(eval_data).__name__} is neither an array nor a DataIter.")
        # copied, because the next batch overwrites the outputs
        batches = [[o.copy() for o in outs] for outs, _, _ in self.iter_predict(eval_data, num_batch, reset)]
        if not batches or not merge_batches:
            return batches
        if len({len(outs) for outs in batches}) > 1:
            raise ShapeError("predict: batches gave different numbers of outputs. Use merge_batches=False.")
        joined = [parts[0] if len(parts) == 1 else nd.concat(*parts, dim=0) for parts in zip(*batches)]
        return joined[0] if len(joined) == 1 and not always_output_list else joined

    def fit(self, train_data: Any, eval_data: Any = None, eval_metric: Any = "acc", epoch_end_callback: Any = None,
            batch_end_callback: Any = None, kvstore: Any = "local", optimizer: Any = "sgd",
            optimizer_params: Any = SGD_DEFAULTS, eval_end_callback: Any = None, eval_batch_end_callback: Any = None,
            initializer: Any = None, arg_params: Any = None, aux_params: Any = None, allow_missing: bool = False,
            force_rebind: bool = False, force_init: bool = False, begin_epoch: int = 0, num_epoch: int | None = None,
            validation_metric: Any = None, monitor: Any = None, sparse_row_id_fn: Any = None) -> None:
        """Train from epoch begin_epoch up to num_epoch.

        train_data, eval_data:   DataIters.
        eval_metric:             what is measured while training; validation_metric, if it is to differ, on eval_data.
        epoch_end_callback:      called with (epoch, symbol, arg_params, aux_params), one or a list.
        batch_end_callback:      called with a BatchEndParam.
        initializer:             Uniform(0.01) if None.
        Warns once (RuntimeWarning, with epoch and batch number) when an output that the metric looks at holds a NaN.
        """
        if num_epoch is None:
            raise ParameterError("fit: num_epoch is missing: say after which epoch to stop.")
        self.bind(train_data.provide_data, train_data.provide_label, for_training=True, force_rebind=force_rebind)
        if monitor is not None:
            self.install_monitor(monitor)
        self.init_params(Uniform(0.01) if initializer is None else initializer, arg_params, aux_params, allow_missing,
                         force_init)
        self.init_optimizer(kvstore, optimizer, optimizer_params)
        validation_metric = eval_metric if validation_metric is None else validation_metric
        eval_metric = metrics.create(eval_metric)
        may_warn = True
        for epoch in range(begin_epoch, num_epoch):
            tic = time.perf_counter()
            eval_metric.reset()
            nbatch, ahead = -1, deque()
            for nbatch, data_batch in enumerate(_batches(train_data)):
                if monitor is not None:
                    monitor.tic()
                self.forward_backward(data_batch)
                ahead.append(self._fence())
                if len(ahead) > MAX_BATCHES_IN_FLIGHT:
                    engine.current().wait_for_var(ahead.popleft())
                self.update()
                self.update_metric(eval_metric, as_batch(data_batch).label)
                may_warn = may_warn and not self._warn_of_nan(eval_metric, epoch)
                if monitor is not None:
                    monitor.toc_print()
                _call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
            if nbatch < 0:
                raise MXNetError(f"fit: train_data gave no batch in epoch {epoch}.")
            train_values = eval_metric.get_global_name_value()
            may_warn = may_warn and not self._warn_of_nan(eval_metric, epoch)
            for name, value in train_values:
                self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
            self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.perf_counter() - tic)
            self._end_epoch(epoch, epoch_end_callback)
            if eval_data is not None:
                result = self.score(eval_data, validation_metric, score_end_callback=eval_end_callback,
                                    batch_end_callback=eval_batch_end_callback, epoch=epoch)
                for name, value in result:
                    self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
            train_data.reset()

    def _fence(self) -> engine.Var:
        """A variable that is written once this batch has gone forward; its errors travel there too."""
        outputs = self.get_outputs(merge_multi_context=False)
        flat = [a for group in outputs for a in (group if isinstance(group, (list, tuple)) else (group,))]
        mark = engine.current().new_variable()
        read = list({id(a.chunk.var): a.chunk.var for a in flat}.values())
        engine.current().push_sync(lambda run: None, cpu(), read, [mark], name="batch done")
        return mark

    def _warn_of_nan(self, eval_metric: Any, epoch: int) -> bool:
        """Warn if the metric saw a NaN. It counts while training goes on, so the batch it names may lie some back."""
        if not getattr(eval_metric, "saw_nan", False) or eval_metric.nan_update < 0:  # being counted on another thread
            return False
        batch = eval_metric.nan_update // max(1, len(getattr(self, "_context", ())))
        warnings.warn(f"fit: the loss became NaN: epoch {epoch}, batch {batch}: an output that the metric "
                      f"reads holds a NaN. Lower the learning rate, or look for a NaN in the data.",
                      RuntimeWarning, stacklevel=3)
        return True

    def _end_epoch(self, epoch: int, callbacks: Any) -> None:
        """Bring several devices together: each goes on from their mean. Then the callbacks."""
        arg, aux = self.get_params()
        if len(getattr(self, "_context", ())) != 1:
            self.set_params(arg, aux)
        _call(callbacks, epoch, self.symbol, arg, aux)

    def _require(self, what: str, *, params: bool = False, optimizer: bool = False) -> None:
        name = f"{type(self).__name__}.{what}"
        if not self.binded:
            raise MXNetError(f"{name}: the module has no arrays yet. Call bind(data_shapes, label_shapes) first.")
        if params and not self.params_initialized:
            raise MXNetError(f"{name}: the parameters have no values yet. Call init_params or set_params first.")
        if optimizer and not self.optimizer_initialized:
            raise MXNetError(f"{name}: there is no optimizer yet. Call init_optimizer first.")


def _batches(data: Any) -> Iterator[Any]:
    """The batches from where data stands; from the beginning if it stands at its end."""
    batches = iter(data)  # one iterator: for some sources, such as generators, another would begin anew
    first = next(batches, None)
    if first is None:
        data.reset()
        batches = iter(data)
        first = next(batches, None)
    if first is not None:
        yield first
        yield from batches


def _call(callbacks: Callable | Sequence[Callable] | None, *args: Any) -> None:
    if callable(callbacks):
        callbacks(*args)
        return
    for c in callbacks or ():
        c(*args)
