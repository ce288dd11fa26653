"""SVRGModule: a Module whose gradients have less variance, by a full gradient that is computed every few epochs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ...context import Context
from ...errors import ParameterError
from ...ndarray import NDArray
from ...train.module import Module


class SVRGModule(Module):
    """A Module that updates by g(w, batch) - g(w̃, batch) + μ: w̃ are the weights at the last full pass over the data, and μ is the
    mean gradient of that pass (Johnson and Zhang 2013).

    update_freq:  the number of epochs between full passes. Other arguments are those of Module.
    Raises: ParameterError for an update_freq that is not a positive integer.
    """

    def __init__(self, symbol: Any, data_names: Sequence[str] = ("data",), label_names: Sequence[str] = ("softmax_label",),
                 logger: Any = logging, context: Context | Sequence[Context] | None = None,
                 work_load_list: Sequence[float] | None = None, fixed_param_names: Sequence[str] | None = None,
                 state_names: Sequence[str] | None = None, group2ctxs: Any = None, compression_params: Any = None,
                 update_freq: int | None = None):
        given = (symbol, data_names, label_names, logger, context, work_load_list, fixed_param_names, state_names, group2ctxs)
        super().__init__(*given, compression_params)
        if not isinstance(update_freq, int) or update_freq < 1:
            raise ParameterError(f"SVRGModule: update_freq={update_freq!r} is not a positive integer, the number of epochs "
                                 f"between full passes over the data.")
        self.update_freq = update_freq
        self._mod_aux = Module(*given, compression_params)  # holds w̃
        self._full_grads: list[list[NDArray | None]] | None = None  # μ of each parameter on each context

    def _bind(self, data_shapes: Any, label_shapes: Any, for_training: bool, inputs_need_grad: bool, force_rebind: bool,
              shared_module: Any, grad_req: Any) -> None:
        super()._bind(data_shapes, label_shapes, for_training, inputs_need_grad, force_rebind, shared_module, grad_req)
        if for_training:
            self._mod_aux.bind(data_shapes, label_shapes, for_training, inputs_need_grad, True, None, grad_req)

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        super().reshape(data_shapes, label_shapes)
        self._mod_aux.reshape(data_shapes, label_shapes)

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        super().forward(data_batch, is_train)
        if (self.for_training if is_train is None else is_train) and self._full_grads is not None:
            self._mod_aux.forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        super().backward(out_grads)
        if self._full_grads is not None:
            self._mod_aux.backward(out_grads)

    def update(self) -> None:
        """Correct the gradients, and update the parameters by them. Before the first full pass, update as Module does."""
        if self._full_grads is not None:
            for grads, special, means in zip(_grads(self), _grads(self._mod_aux), self._full_grads):
                for g, s, mean in zip(grads, special, means):
                    if g is not None and s is not None and mean is not None:
                        g[:] = g - s + mean
        super().update()

    def update_full_grads(self, train_data: Any) -> None:
        """Compute the mean gradient of all batches of a DataIter at the present weights. Resets it before and after."""
        self._mod_aux.init_params(arg_params=self.get_params()[0], aux_params=self.get_params()[1], force_init=True)
        totals: list[list[NDArray | None]] | None = None
        batches, padding = 0, 0
        train_data.reset()
        for batch in train_data:
            batches += 1
            self._mod_aux.forward(batch, is_train=True)
            self._mod_aux.backward()
            grads = _grads(self._mod_aux)
            if totals is None:
                totals = [[None if g is None else g.copy() for g in of_one] for of_one in grads]
            else:
                for total, of_one in zip(totals, grads):
                    for t, g in zip(total, of_one):
                        if t is not None and g is not None:
                            t[:] = t + g
            padding = batch.pad or 0
        train_data.reset()
        if totals is None:
            raise ParameterError("SVRGModule.update_full_grads: train_data has no batches.")
        count = batches - padding / train_data.batch_size
        self._full_grads = [[None if t is None else t / count for t in total] for total in totals]

    def _begin_epoch(self, epoch: int, train_data: Any) -> None:
        if epoch % self.update_freq == 0:
            self.update_full_grads(train_data)


def _grads(module: Module) -> list[list[NDArray | None]]:
    """Return the gradients of each parameter on each context."""
    assert module._group is not None
    return module._group.grad_arrays
