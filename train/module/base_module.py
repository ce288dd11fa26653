"""BaseModule: fit, score and predict, for anything that can run a batch forward and backward."""

from __future__ import annotations

import logging
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from typing import Any

import numpy as np

from ... import engine
from ... import ndarray as nd
from ...context import Context, cpu
from ...errors import MXNetError, ParameterError, ShapeError
from ...io import DataBatch
from ...io.iterator import as_batch
from ...ndarray import NDArray, array
from ...show import Shown
from .. import metric as metrics
from ..callback import ProgressBar
from ..checkpoint import BatchEndParam, save_params, split_params
from ..initializer import Uniform

SGD_DEFAULTS = (("learning_rate", 0.01),)
MAX_BATCHES_IN_FLIGHT = 2  # batches that fit has pushed and whose forward pass is not complete; their arrays are alive


class BaseModule(Shown):
    """Base of modules. Lifecycle: bind, init_params, init_optimizer, then forward, backward and update for every batch.

    Subclasses implement these methods. This class implements fit, score and predict on top of them.
    """

    def __init__(self, logger: Any = logging):
        self.logger = logger
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None
        self._data_names: list[str] = []
        self._label_names: list[str] = []
        self._output_names: list[str] = []
        self._data_shapes: list[Any] = []
        self._label_shapes: list[Any] = []

    # ---- implemented by subclasses ---------------------------------------------------------------------------------
    def _bind(self, data_shapes: Any, label_shapes: Any, for_training: bool, inputs_need_grad: bool, force_rebind: bool,
              shared_module: Any, grad_req: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}.bind")

    def init_params(self, initializer: Any = None, arg_params: Any = None, aux_params: Any = None,
                    allow_missing: bool = False, force_init: bool = False, allow_extra: bool = False) -> None:
        """Initialize the parameters, after `bind`.

        initializer:             of parameters that are not given.
        arg_params, aux_params:  {name: array} of values to take; None for none.
        allow_missing:           parameters that are not in arg_params are initialized; otherwise they are an error.
        force_init:              also parameters that have values already.
        allow_extra:             names that the module does not have are no error.
        """
        raise NotImplementedError(f"{type(self).__name__}.init_params")

    def _init_optimizer(self, kvstore: Any, optimizer: Any, optimizer_params: Any, force_init: bool) -> None:
        raise NotImplementedError(f"{type(self).__name__}.init_optimizer")

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run the module on a DataBatch, and return before it is computed. is_train: None for that of `bind`."""
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def backward(self, out_grads: Any = None) -> None:
        """Compute the derivatives of the last forward.

        out_grads: the derivatives by the outputs, one array or a list; None where the outputs are losses.
        """
        raise NotImplementedError(f"{type(self).__name__}.backward")

    def update(self) -> None:
        """Change the parameters by the optimizer and the derivatives of the last backward."""
        raise NotImplementedError(f"{type(self).__name__}.update")

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the last forward: arrays [batch, ...], or lists of one array per context if not merged."""
        raise NotImplementedError(f"{type(self).__name__}.get_outputs")

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the derivatives by the data, in the form of `get_outputs`. Needs bind(inputs_need_grad=True)."""
        raise NotImplementedError(f"{type(self).__name__}.get_input_grads")

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the arrays of its states; a module without states has none."""
        self._require("get_states", params=True)
        return []

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Fill the arrays of its states. Raises MXNetError if states are given to a module without states."""
        self._require("set_states", params=True)
        if states or value:
            raise MXNetError(f"{type(self).__name__}.set_states: it has no states.")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return ({name: argument}, {name: auxiliary state}), arrays on the CPU with the current values."""
        raise NotImplementedError(f"{type(self).__name__}.get_params")

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Add the outputs of the last forward to a metric.

        labels:      arrays [batch, ...].
        pre_sliced:  labels is a list of such lists, one for each context.
        """
        raise NotImplementedError(f"{type(self).__name__}.update_metric")

    def install_monitor(self, mon: Any) -> None:
        """Have a Monitor observe the arrays of the module's executors."""
        raise NotImplementedError(f"{type(self).__name__}.install_monitor")

    @property
    def symbol(self) -> Any:
        """The network."""
        return self._symbol

    @property
    def data_names(self) -> list[str]:
        """The names of the inputs."""
        return self._data_names

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs."""
        return self._output_names

    @property
    def data_shapes(self) -> list[Any]:
        """The inputs as DataDesc."""
        self._require("data_shapes")
        return self._data_shapes

    @property
    def label_shapes(self) -> list[Any] | None:
        """The labels as DataDesc, or None for a module without labels."""
        self._require("label_shapes")
        return self._label_shapes or None

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of each output, for the whole batch."""
        raise NotImplementedError(f"{type(self).__name__}.output_shapes")

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Begin what can be done for a batch that comes later, such as its way to a GPU. Does nothing here."""

    # ---- implemented here ------------------------------------------------------------------------------------------
    def forward_backward(self, data_batch: Any) -> None:
        """Call forward in training mode, then backward."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def bind(self, data_shapes: Any, label_shapes: Any = None, for_training: bool = True, inputs_need_grad: bool = False,
             force_rebind: bool = False, shared_module: Any = None, grad_req: Any = "write") -> None:
        """Allocate arrays for batches of these shapes.

        data_shapes, label_shapes:  lists of DataDesc or (name, shape), as a DataIter provides them.
        inputs_need_grad:           also compute the derivative by the data (get_input_grads).
        shared_module:              a module whose parameters, gradients and memory this module uses too.
        grad_req:                   "write" or "add", or a dictionary by name.
        A module that is already bound does not change (and logs a warning), unless force_rebind.
        """
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        self._bind(data_shapes, label_shapes, for_training, inputs_need_grad, force_rebind, shared_module, grad_req)

    def init_optimizer(self, kvstore: Any = "local", optimizer: Any = "sgd", optimizer_params: Any = SGD_DEFAULTS,
                       force_init: bool = False) -> None:
        """Create the optimizer and the key-value store that sums gradients over contexts.

        kvstore:           a KVStore, the name of a type, or None. With one context, the name of a local type means None.
        optimizer:         an Optimizer, or a name with its settings in optimizer_params (rescale_grad is 1 / batch size).
        force_init:        False lets a module that has an optimizer keep it (and log a warning).
        """
        self._require("init_optimizer", params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        self._init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        self.optimizer_initialized = True

    def set_params(self, arg_params: Any, aux_params: Any, allow_missing: bool = False, force_init: bool = True,
                   allow_extra: bool = False) -> None:
        """Set parameters by name. Raises ParameterError for a missing one, unless allow_missing."""
        self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)

    def save_params(self, fname: str) -> None:
        """Write all parameters to a file, in the form of a checkpoint's .params."""
        save_params(fname, *self.get_params())

    def load_params(self, fname: str) -> None:
        """Set the parameters from a file. Raises FileError."""
        self.set_params(*split_params(fname))

    def score(self, eval_data: Any, eval_metric: Any, num_batch: int | None = None, batch_end_callback: Any = None,
              score_end_callback: Any = None, reset: bool = True, epoch: int = 0, sparse_row_id_fn: Any = None
              ) -> list[tuple[str, float]]:
        """Return [(name, value)] of a metric over eval_data (or its first num_batch batches), in inference mode.

        The padding of the last batch is not counted (MXNet counts those samples twice).
        """
        self._require("score", params=True)
        if reset:
            eval_data.reset()
        eval_metric = metrics.create(eval_metric)
        eval_metric.reset()
        nbatch, done, batches = 0, 0, iter(eval_data)
        following = next(batches, None)
        while following is not None and done != num_batch:
            nbatch, eval_batch = done, following
            self.forward(eval_batch, is_train=False)
            self._update_metric_without_padding(eval_metric, eval_batch)
            following = next(batches, None)
            if following is not None and done + 1 != num_batch:
                self.prepare(following)  # before the callbacks, which may wait for the metric
            _call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
            done += 1
        _call(score_end_callback, BatchEndParam(epoch, done, eval_metric, locals()))
        return eval_metric.get_name_value()

    def _update_metric_without_padding(self, eval_metric: Any, batch: Any) -> None:
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
        """Yield (outputs, batch number, batch) for each batch; the outputs do not include its padding."""
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
        """Return the outputs over eval_data: a DataIter, or one batch as an array.

        Returns: a list with an array [n, ...] for each output; with a single output that array itself, unless
            always_output_list. With merge_batches=False: a list over batches of lists over outputs.
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
            raise ShapeError("predict: the batches have different numbers of outputs. Use merge_batches=False.")
        joined = [parts[0] if len(parts) == 1 else nd.concat(*parts, dim=0) for parts in zip(*batches)]
        return joined[0] if len(joined) == 1 and not always_output_list else joined

    def fit(self, train_data: Any, eval_data: Any = None, eval_metric: Any = "acc", epoch_end_callback: Any = None,
            batch_end_callback: Any = None, kvstore: Any = "local", optimizer: Any = "sgd",
            optimizer_params: Any = SGD_DEFAULTS, eval_end_callback: Any = None, eval_batch_end_callback: Any = None,
            initializer: Any = None, arg_params: Any = None, aux_params: Any = None, allow_missing: bool = False,
            force_rebind: bool = False, force_init: bool = False, begin_epoch: int = 0, num_epoch: int | None = None,
            validation_metric: Any = None, monitor: Any = None, sparse_row_id_fn: Any = None,
            progress: bool = False) -> None:
        """Train from epoch begin_epoch up to num_epoch.

        train_data, eval_data:   DataIters.
        eval_metric:             the metric on train_data, and on eval_data unless there is a validation_metric.
        epoch_end_callback:      a function or a list of them, called with (epoch, symbol, arg_params, aux_params).
        batch_end_callback:      a function or a list of them, called with a BatchEndParam.
        initializer:             Uniform(0.01) if None.
        progress:                show a bar of each epoch's batches, and print a line at its end (callback.ProgressBar).
        Warns once (RuntimeWarning, with epoch and batch number) when an output that the metric reads holds a NaN.
        """
        if num_epoch is None:
            raise ParameterError("fit: num_epoch is missing. Give the epoch at which to stop.")
        self.bind(train_data.provide_data, train_data.provide_label, for_training=True, force_rebind=force_rebind)
        if monitor is not None:
            self.install_monitor(monitor)
        self.init_params(Uniform(0.01) if initializer is None else initializer, arg_params, aux_params, allow_missing,
                         force_init)
        self.init_optimizer(kvstore, optimizer, optimizer_params)
        validation_metric = eval_metric if validation_metric is None else validation_metric
        eval_metric = metrics.create(eval_metric)
        may_warn = True
        bar = ProgressBar(len(train_data) if hasattr(train_data, "__len__") else None) if progress else None
        batch_end_callbacks = [*_listed(batch_end_callback), *_listed(bar)]
        with nullcontext() if bar is None else closing(bar):
            for epoch in range(begin_epoch, num_epoch):
                tic = time.perf_counter()
                if bar is not None:
                    bar.begin(epoch)
                eval_metric.reset()
                self._begin_epoch(epoch, train_data)
                nbatch, in_flight, train_values = -1, deque(), []
                batches = _batches(train_data)
                following = next(batches, None)
                while following is not None:
                    nbatch, data_batch = nbatch + 1, following
                    if monitor is not None:
                        monitor.tic()
                    self.forward_backward(data_batch)
                    in_flight.append(self._fences())
                    if len(in_flight) > MAX_BATCHES_IN_FLIGHT:
                        for fence in in_flight.popleft():
                            engine.current().wait_for_var(fence)
                    self.update()
                    self.update_metric(eval_metric, as_batch(data_batch).label)
                    may_warn = may_warn and not self._warn_of_nan(eval_metric, epoch)
                    following = next(batches, None)
                    if following is not None:
                        self.prepare(following)  # before the callbacks, which may wait for the metric
                    if monitor is not None:
                        monitor.toc_print()
                    if following is None:  # before the callbacks, which may reset the metric
                        train_values = eval_metric.get_global_name_value()
                    _call(batch_end_callbacks, BatchEndParam(epoch, nbatch, eval_metric, locals()))
                if nbatch < 0:
                    raise MXNetError(f"fit: train_data has no batches in epoch {epoch}.")
                may_warn = may_warn and not self._warn_of_nan(eval_metric, epoch)
                for name, value in train_values:
                    self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
                self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.perf_counter() - tic)
                self._end_epoch(epoch, epoch_end_callback)
                values = list(train_values)
                if eval_data is not None:
                    result = self.score(eval_data, validation_metric, score_end_callback=eval_end_callback,
                                        batch_end_callback=eval_batch_end_callback, epoch=epoch)
                    for name, value in result:
                        self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
                    values += [(f"validation {name}", value) for name, value in result]
                if bar is not None:
                    bar.end(nbatch + 1, values)
                train_data.reset()

    def _begin_epoch(self, epoch: int, train_data: Any) -> None:
        """Do nothing; fit calls it before the first batch of each epoch."""

    def _fences(self) -> list[engine.Var]:
        """Return variables that are written when this batch's forward pass completes. Errors of the pass poison them.

        Each GPU has one of its own, so that no worker of the host waits for it.
        """
        outputs = self.get_outputs(merge_multi_context=False)
        read: defaultdict[Context, dict[engine.Var, None]] = defaultdict(dict)
        for group in outputs:
            for a in group if isinstance(group, (list, tuple)) else (group,):
                read[a.ctx if a.ctx.is_gpu else cpu()][a.chunk.var] = None
        fences = {ctx: engine.current().new_variable() for ctx in read}
        for ctx, fence in fences.items():
            engine.current().push_sync(lambda run: None, ctx, list(read[ctx]), [fence], name="batch done")
        return list(fences.values())

    def _warn_of_nan(self, eval_metric: Any, epoch: int) -> bool:
        """Warn if the metric saw a NaN. Metrics are computed asynchronously, so the batch may be an earlier one."""
        if not getattr(eval_metric, "saw_nan", False) or eval_metric.nan_update < 0:  # another thread is still counting
            return False
        batch = eval_metric.nan_update // max(1, len(getattr(self, "_context", ())))
        warnings.warn(f"fit: the loss became NaN: epoch {epoch}, batch {batch}: an output that the metric "
                      f"reads holds a NaN. Lower the learning rate, or search the data for NaN.",
                      RuntimeWarning, stacklevel=3)
        return True

    def _end_epoch(self, epoch: int, callbacks: Any) -> None:
        """Give several devices the mean of their parameters, then call the callbacks."""
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
            raise MXNetError(f"{name}: the module has no optimizer yet. Call init_optimizer first.")


def _batches(data: Any) -> Iterator[Any]:
    """Yield the remaining batches of data. At the end of the data, reset it and yield all batches."""
    empty = True
    for batch in data:
        empty = False
        yield batch
    if empty:
        data.reset()
        yield from data


def _call(callbacks: Callable | Sequence[Callable] | None, *args: Any) -> None:
    for callback in _listed(callbacks):
        callback(*args)


def _listed(callbacks: Callable | Sequence[Callable] | None) -> Sequence[Callable]:
    return [callbacks] if callable(callbacks) else callbacks or ()
