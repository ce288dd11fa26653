"""SequentialModule: a chain of modules; the outputs of each are the data of the next."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ...errors import MXNetError, ParameterError
from ...io import DataBatch, DataDesc
from ...io.iterator import as_batch
from ..initializer import Uniform
from .base_module import BaseModule
from .executor_group import descriptions


class SequentialModule(BaseModule):
    """A chain of modules, in the order of `add`.

    add(module, take_labels=True):   pass the labels of the batch to this module.
    add(module, auto_wiring=True):   match the outputs of the previous module to this one's data names by position.
    """

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Any = logging):
        super().__init__(logger)
        self._modules: list[BaseModule] = []
        self._metas: list[dict[str, Any]] = []

    def _facts(self) -> Mapping[str, Any]:
        return {"modules": [type(m).__name__ for m in self._modules], "bound": self.binded}

    def add(self, module: Any, **kwargs: Any) -> SequentialModule:
        """Append a module. Returns self, so that calls can be chained."""
        for key in kwargs:
            if key not in (self.META_TAKE_LABELS, self.META_AUTO_WIRING):
                raise ParameterError(f"SequentialModule.add: unknown setting {key!r}. Known: take_labels, auto_wiring.")
        self._modules.append(module)
        self._metas.append(kwargs)
        self.binded = self.params_initialized = self.optimizer_initialized = False
        return self

    # ---- of the first or last module -------------------------------------------------------------------------------
    @property
    def data_names(self) -> list[str]:
        return self._modules[0].data_names if self._modules else []

    @property
    def output_names(self) -> list[str]:
        return self._modules[-1].output_names if self._modules else []

    @property
    def data_shapes(self) -> list[Any]:
        self._require("data_shapes")
        return self._modules[0].data_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        self._require("output_shapes")
        return self._modules[-1].output_shapes

    @property
    def _context(self) -> list[Any]:
        return getattr(self._modules[0], "_context", [None])

    # ---- binding and parameters -----------------------------------------------------------------------------------
    def _bind(self, data_shapes: Any, label_shapes: Any, for_training: bool, inputs_need_grad: bool, force_rebind: bool,
              shared_module: Any, grad_req: Any) -> None:
        if shared_module is not None:
            raise ParameterError("SequentialModule.bind: a SequentialModule takes no shared_module.")
        if not self._modules:
            raise MXNetError("SequentialModule.bind: the chain is empty. Call add(module) first.")
        self.binded, self.for_training, self.inputs_need_grad = True, for_training, inputs_need_grad
        self._label_shapes = descriptions(label_shapes) if any(m.get(self.META_TAKE_LABELS) for m in self._metas) else []
        shapes = list(data_shapes)
        for i, (module, meta) in enumerate(zip(self._modules, self._metas)):
            if meta.get(self.META_AUTO_WIRING):
                names = module.data_names
                if len(names) != len(shapes):
                    raise ParameterError(f"SequentialModule.bind: module {i} has the inputs {names}, but the previous module "
                                         f"has {len(shapes)} outputs.")
                shapes = [DataDesc(n, d[1]) for n, d in zip(names, shapes)]
            module.bind(shapes, label_shapes if meta.get(self.META_TAKE_LABELS) else None, for_training,
                        for_training and (inputs_need_grad or i > 0), force_rebind, None, grad_req)
            shapes = list(module.output_shapes)

    def init_params(self, initializer: Any = None, arg_params: Any = None, aux_params: Any = None,
                    allow_missing: bool = False, force_init: bool = False, allow_extra: bool = False) -> None:
        """Initialize the parameters of every module. Raises MXNetError when two modules have one of the same name."""
        if self.params_initialized and not force_init:
            return
        self._require("init_params")
        for module in self._modules:
            module.init_params(initializer or Uniform(0.01), arg_params, aux_params, True if arg_params else allow_missing,
                               force_init, allow_extra)
        seen: dict[str, int] = {}
        for i, module in enumerate(self._modules):
            for name in (*module.get_params()[0], *module.get_params()[1]):
                if name in seen:
                    raise MXNetError(f"SequentialModule: modules {seen[name]} and {i} both have a parameter {name!r}. "
                                     f"Rename one.")
                seen[name] = i
        self.params_initialized = True

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (arg_params, aux_params) of all modules by name."""
        self._require("get_params", params=True)
        args, auxs = zip(*(module.get_params() for module in self._modules))
        return {n: v for arg in args for n, v in arg.items()}, {n: v for aux in auxs for n, v in aux.items()}

    def _init_optimizer(self, kvstore: Any, optimizer: Any, optimizer_params: Any, force_init: bool) -> None:
        for module in self._modules:
            module.init_optimizer(kvstore, optimizer, optimizer_params, force_init)

    # ---- one step -------------------------------------------------------------------------------------------------
    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run a batch through all modules."""
        self._require("forward", params=True)
        batch = as_batch(data_batch)
        data, provided = batch.data, batch.provide_data
        for module, meta in zip(self._modules, self._metas):
            module.forward(self._for_module(meta, batch, data, provided), is_train)
            data, provided = module.get_outputs(), None  # the next module names its own inputs

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Prepare the data in the first module."""
        self._require("prepare", params=True)
        batch = as_batch(data_batch)
        self._modules[0].prepare(self._for_module(self._metas[0], batch, batch.data, batch.provide_data))

    def _for_module(self, meta: Mapping[str, Any], batch: DataBatch, data: Any, provided: Any) -> DataBatch:
        labels = (batch.label, batch.provide_label) if meta.get(self.META_TAKE_LABELS) else (None, None)
        return DataBatch(data, labels[0], batch.pad, batch.index, batch.bucket_key, provided, labels[1])

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients, from the last module to the first."""
        self._require("backward", params=True)
        for i, module in reversed(list(enumerate(self._modules))):
            module.backward(out_grads)
            if i:
                out_grads = module.get_input_grads()

    def update(self) -> None:
        self._require("update", params=True, optimizer=True)
        for module in self._modules:
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        self._require("get_outputs", params=True)
        return self._modules[-1].get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the derivatives by the data of the first module."""
        self._require("get_input_grads", params=True)
        if not self.inputs_need_grad:
            raise MXNetError("SequentialModule.get_input_grads: bound with inputs_need_grad=False. Bind it with True.")
        return self._modules[0].get_input_grads(merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        self._require("update_metric", params=True)
        for module, meta in zip(self._modules, self._metas):
            if meta.get(self.META_TAKE_LABELS):
                module.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        self._require("install_monitor")
        for module in self._modules:
            module.install_monitor(mon)
