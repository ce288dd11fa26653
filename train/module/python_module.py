"""PythonModule: a module without parameters, computed in Python. PythonLossModule: a loss of that kind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import MXNetError, ParameterError
from ...io.iterator import as_batch
from ...ndarray import NDArray, array
from .base_module import SGD_DEFAULTS, BaseModule
from .executor_group import descriptions


class PythonModule(BaseModule):
    """Base of modules without parameters. Subclasses write forward, and backward if they are used in training.

    data_names, label_names, output_names:  names of the arrays of a batch and of the outputs.
    """

    def __init__(self, data_names: Sequence[str], label_names: Sequence[str] | None, output_names: Sequence[str],
                 logger: Any = logging):
        super().__init__(logger)
        self._data_names = list(data_names)
        self._label_names = list(label_names or ())
        self._output_names = list(output_names)
        self._output_shapes: list[Any] = []

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._output_shapes

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return ({}, {})."""
        return {}, {}

    def init_params(self, initializer: Any = None, arg_params: Any = None, aux_params: Any = None,
                    allow_missing: bool = False, force_init: bool = False, allow_extra: bool = False) -> None:
        """Do nothing."""
        self.params_initialized = True

    def init_optimizer(self, kvstore: Any = "local", optimizer: Any = "sgd", optimizer_params: Any = SGD_DEFAULTS,
                       force_init: bool = False) -> None:
        """Do nothing."""
        self.optimizer_initialized = True

    def update(self) -> None:
        """Do nothing."""

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update the metric with the outputs, if this module takes labels."""
        if self._label_shapes:
            if pre_sliced:
                raise ParameterError("PythonModule.update_metric: pre_sliced labels are for modules with several contexts.")
            eval_metric.update_dict(dict(zip(self._label_names, labels or ())), dict(zip(self._output_names, self.get_outputs())))

    def _bind(self, data_shapes: Any, label_shapes: Any, for_training: bool, inputs_need_grad: bool, force_rebind: bool,
              shared_module: Any, grad_req: Any) -> None:
        if grad_req != "write":
            raise ParameterError(f"{type(self).__name__}.bind: grad_req is {grad_req!r}; a Python module only has 'write'.")
        self._data_shapes, self._label_shapes = descriptions(data_shapes), descriptions(label_shapes)
        if [d.name for d in self._data_shapes] != self._data_names:
            raise ParameterError(f"{type(self).__name__}.bind: the data shapes are of "
                                 f"{[d.name for d in self._data_shapes]}, data_names are {self._data_names}.")
        self.for_training, self.inputs_need_grad, self.binded = for_training, inputs_need_grad, True
        self._output_shapes = self._compute_output_shapes()

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return (name, shape) of each output, from the input shapes."""
        raise NotImplementedError(f"{type(self).__name__}._compute_output_shapes")


class PythonLossModule(PythonModule):
    """A loss whose derivative is a Python function. Its output is its data, unchanged.

    grad_func:  a function from (scores, labels), two NDArrays, to the derivative by the scores: an NDArray or a NumPy
                array. None: a subclass writes `_backward_impl`, which sets `self._scores_grad`.
    """

    def __init__(self, name: str = "pyloss", data_names: Sequence[str] = ("data",),
                 label_names: Sequence[str] = ("softmax_label",), logger: Any = logging,
                 grad_func: Callable[[NDArray, NDArray], Any] | None = None):
        super().__init__(data_names, label_names, [f"{name}_output"], logger)
        if len(self._data_names) != 1 or len(self._label_names) != 1:
            raise ParameterError(f"{name}: a PythonLossModule has one input and one label: {self._data_names}, "
                                 f"{self._label_names}.")
        if grad_func is not None and not callable(grad_func):
            raise ParameterError(f"{name}: grad_func is not a function: {grad_func!r}.")
        self._name = name
        self._grad_func = grad_func
        self._scores: Any = None
        self._labels: Any = None
        self._scores_grad: Any = None

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(f"{self._name}_output", tuple(self._data_shapes[0].shape))]

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Keep the scores, and in training the labels."""
        batch = as_batch(data_batch)
        self._scores = batch.data[0] if batch.data else None
        if self.for_training if is_train is None else is_train:
            self._labels = batch.label[0] if batch.label else None

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the scores."""
        return [self._scores] if merge_multi_context else [[self._scores]]

    def backward(self, out_grads: Any = None) -> None:
        """Compute the derivative by the scores. A loss takes no out_grads."""
        if out_grads is not None:
            raise ParameterError(f"{self._name}.backward: a loss takes no out_grads.")
        if not self.for_training:
            raise MXNetError(f"{self._name}.backward: the module was bound with for_training=False. Bind it for training.")
        self._backward_impl()

    def _backward_impl(self) -> None:
        if self._grad_func is None:
            raise NotImplementedError(f"{self._name}: pass grad_func, or write _backward_impl.")
        grad = self._grad_func(self._scores, self._labels)
        self._scores_grad = grad if isinstance(grad, NDArray) else array(np.asarray(grad), ctx=self._scores.context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the derivative by the scores."""
        return [self._scores_grad] if merge_multi_context else [[self._scores_grad]]

    def install_monitor(self, mon: Any) -> None:
        """Do nothing: a Python module has no executor."""
