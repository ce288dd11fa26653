"""BucketingModule: one set of parameters for many networks, such as one for each length of input."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...context import Context
from ...errors import MXNetError, ParameterError
from ...graph.symbol import symbol as sym
from ...io import DataBatch, DataDesc
from ...io.iterator import as_batch
from ..checkpoint import load_params, save_checkpoint
from .base_module import BaseModule
from .module import Module


def _of_current_bucket(name: str) -> Any:
    """Return a property of BucketingModule that is an attribute or a method of its current bucket."""
    of_module = getattr(getattr(Module, name, None), "__doc__", None) or ""
    return property(lambda self: getattr(self._current, name), doc=f"Of the module of the current bucket. {of_module}".rstrip())


class BucketingModule(BaseModule):
    """A module with a network for each bucket key. All networks train the same parameters.

    sym_gen:             a function from a bucket key (any hashable: a length, a pair of lengths) to
                         (symbol, data_names, label_names).
    default_bucket_key:  the bucket that `bind` allocates: the largest, because the others use its memory.
    The other arguments are those of Module.
    """

    def __init__(self, sym_gen: Callable[[Any], tuple[Any, Sequence[str], Sequence[str]]], default_bucket_key: Any = None,
                 logger: Any = logging, context: Context | Sequence[Context] | None = None,
                 work_load_list: Sequence[float] | None = None, fixed_param_names: Sequence[str] | None = None,
                 state_names: Sequence[str] | None = None, group2ctxs: Any = None, compression_params: Any = None):
        super().__init__(logger)
        if default_bucket_key is None:
            raise ParameterError("BucketingModule: default_bucket_key is missing. Give the key of the largest bucket.")
        self._sym_gen = sym_gen
        self._default_bucket_key = default_bucket_key
        self._settings: dict[str, Any] = {
            "logger": logger, "context": context, "work_load_list": work_load_list, "fixed_param_names": fixed_param_names,
            "state_names": state_names, "group2ctxs": group2ctxs, "compression_params": compression_params}
        self._buckets: dict[Any, Module] = {}
        self._curr_module: Module | None = None
        self._curr_bucket_key: Any = None
        self._grad_req: Any = "write"
        self._monitor: Any = None
        self._pending_params: tuple[Any, Any] | None = None  # of a loaded module, until bind

    def _facts(self) -> Mapping[str, Any]:
        return {"default_bucket_key": self._default_bucket_key, "buckets": list(self._buckets), "current": self._curr_bucket_key}

    def _module_for(self, bucket_key: Any) -> Module:
        symbol, data_names, label_names = self._sym_gen(bucket_key)
        return Module(symbol, data_names, label_names, **self._settings)

    @property
    def _current(self) -> Module:
        if self._curr_module is None:
            raise MXNetError("BucketingModule: the module has no arrays yet. Call bind(data_shapes, label_shapes) first.")
        return self._curr_module

    # ---- of the current bucket, or of the default one before bind --------------------------------------------------
    @property
    def data_names(self) -> list[str]:
        return self._curr_module.data_names if self._curr_module else list(self._sym_gen(self._default_bucket_key)[1])

    @property
    def output_names(self) -> list[str]:
        if self._curr_module is None:
            return self._sym_gen(self._default_bucket_key)[0].list_outputs()
        return self._curr_module.output_names

    data_shapes = _of_current_bucket("data_shapes")
    label_shapes = _of_current_bucket("label_shapes")
    output_shapes = _of_current_bucket("output_shapes")
    symbol = _of_current_bucket("symbol")
    _context = _of_current_bucket("_context")
    backward = _of_current_bucket("backward")
    get_outputs = _of_current_bucket("get_outputs")
    get_input_grads = _of_current_bucket("get_input_grads")
    update_metric = _of_current_bucket("update_metric")
    get_states = _of_current_bucket("get_states")
    set_states = _of_current_bucket("set_states")

    # ---- binding --------------------------------------------------------------------------------------------------
    def _bind(self, data_shapes: Any, label_shapes: Any, for_training: bool, inputs_need_grad: bool, force_rebind: bool,
              shared_module: Any, grad_req: Any) -> None:
        if shared_module is not None:
            raise ParameterError("BucketingModule.bind: a BucketingModule takes no shared_module. Its buckets share arrays.")
        params = self.get_params() if self.params_initialized else self._pending_params
        self._pending_params, self._buckets = None, {}
        self.for_training, self.inputs_need_grad, self._grad_req = for_training, inputs_need_grad, grad_req
        module = self._module_for(self._default_bucket_key)
        module.bind(data_shapes, label_shapes, for_training, inputs_need_grad, grad_req=grad_req)
        self._buckets[self._default_bucket_key] = self._curr_module = module
        self._curr_bucket_key = self._default_bucket_key
        self.binded = True
        if params is not None:
            self.set_params(*params)

    def switch_bucket(self, bucket_key: Any, data_shapes: Any, label_shapes: Any = None) -> None:
        """Make another bucket the current one. Its network is built and bound at the first switch."""
        self._require("switch_bucket")
        first = self._buckets[self._default_bucket_key]
        module = self._buckets.get(bucket_key)
        if module is None:
            module = self._module_for(bucket_key)
            module.bind(data_shapes, label_shapes, self.for_training, self.inputs_need_grad, shared_module=first,
                        grad_req=self._grad_req)
            if self._monitor is not None:
                module.install_monitor(self._monitor)
            self._buckets[bucket_key] = module
        if self.optimizer_initialized and not module.optimizer_initialized:
            module.borrow_optimizer(first)
        self._curr_module, self._curr_bucket_key = module, bucket_key

    def _for_batch(self, data_batch: Any) -> Module:
        batch = as_batch(data_batch)
        key = self._default_bucket_key if batch.bucket_key is None else batch.bucket_key
        if key != self._curr_bucket_key:
            self.switch_bucket(key, *((None, None) if key in self._buckets else self._shapes_of(batch, key)))
        return self._current

    def _shapes_of(self, batch: DataBatch, key: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the data and label shapes of a new bucket: from its first batch, or inferred by the network."""
        symbol, data_names, label_names = self._sym_gen(key)
        first = self._buckets[self._default_bucket_key]
        data = batch.provide_data or _described(_shapes(data_names, batch.data), first.data_shapes)
        label = batch.provide_label or _described(_shapes(label_names, batch.label), first.label_shapes)
        if not label and first.label_shapes:  # later batches of this bucket may have labels
            inferred = dict(zip(symbol.list_arguments(), symbol.infer_shape(**{d[0]: tuple(d[1]) for d in data})[0] or ()))
            label = _described({n: inferred[n] for n in label_names or () if inferred.get(n)}, first.label_shapes)
        return data, label

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Build and bind the network of a batch's bucket, and prepare the batch there, without switching to it."""
        self._require("prepare")
        key = self._curr_bucket_key
        module = self._for_batch(data_batch)
        if module.params_initialized:
            module.prepare(data_batch)
        self._curr_module, self._curr_bucket_key = self._buckets[key], key

    # ---- parameters -----------------------------------------------------------------------------------------------
    def _params_owner(self) -> Module:
        """Return the default bucket's module, which owns the parameters; it is dirty if any bucket changed them."""
        first = self._buckets[self._default_bucket_key]
        dirty = any(m._params_dirty for m in self._buckets.values())
        for m in self._buckets.values():
            m._params_dirty = dirty and m is first
        return first

    def init_params(self, initializer: Any = None, arg_params: Any = None, aux_params: Any = None,
                    allow_missing: bool = False, force_init: bool = False, allow_extra: bool = False) -> None:
        """Call Module.init_params for the parameters that all buckets share."""
        if self.params_initialized and not force_init:
            return
        self._require("init_params")
        self._params_owner().init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)
        self.params_initialized = True
        self._share()

    def set_params(self, arg_params: Any, aux_params: Any, allow_missing: bool = False, force_init: bool = True,
                   allow_extra: bool = False) -> None:
        """Call Module.set_params for the parameters that all buckets share."""
        self._require("set_params")
        self._params_owner().set_params(arg_params, aux_params, allow_missing, force_init, allow_extra)
        self.params_initialized = True
        self._share()

    def _share(self) -> None:
        first = self._buckets[self._default_bucket_key]
        for m in self._buckets.values():
            m._arg_params, m._aux_params, m.params_initialized = first._arg_params, first._aux_params, True

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (arg_params, aux_params) by name, on the host."""
        self._require("get_params", params=True)
        return self._params_owner().get_params()

    # ---- optimizer and steps ----------------------------------------------------------------------------------------
    def _init_optimizer(self, kvstore: Any, optimizer: Any, optimizer_params: Any, force_init: bool) -> None:
        first = self._params_owner()
        first.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        for m in self._buckets.values():
            if m is not first:
                m.borrow_optimizer(first)

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run a batch in the bucket of its bucket_key."""
        self._require("forward", params=True)
        self._for_batch(data_batch).forward(data_batch, is_train)

    def update(self) -> None:
        self._require("update", params=True, optimizer=True)
        self._current.update()

    def install_monitor(self, mon: Any) -> None:
        self._require("install_monitor")
        self._monitor = mon
        for m in self._buckets.values():
            m.install_monitor(mon)

    # ---- checkpoints ----------------------------------------------------------------------------------------------
    def save_checkpoint(self, prefix: str, epoch: int, remove_amp_cast: bool = False) -> None:
        """Write every bucket's network to PREFIX-KEY-symbol.json, and the shared parameters to PREFIX-0000.params."""
        self._require("save_checkpoint", params=True)
        for key, m in self._buckets.items():
            m.symbol.save(f"{prefix}-{key}-symbol.json", remove_amp_cast)
        save_checkpoint(prefix, epoch, None, *self.get_params())

    @staticmethod
    def load(prefix: str, epoch: int, sym_gen: Any = None, default_bucket_key: Any = None, **kwargs: Any) -> BucketingModule:
        """Return the module of a checkpoint; `bind` sets its parameters.

        sym_gen: None reads each bucket's network from PREFIX-KEY-symbol.json.
        """
        module = BucketingModule(sym_gen or _from_files(prefix), default_bucket_key, **kwargs)
        module._pending_params = load_params(prefix, epoch)
        return module

    @staticmethod
    def load_dict(sym_dict: Any = None, sym_gen: Any = None, default_bucket_key: Any = None, arg_params: Any = None,
                  aux_params: Any = None, **kwargs: Any) -> BucketingModule:
        """Return a module with these parameters and the networks of sym_gen or of
        sym_dict {key: (symbol, data_names, label_names)}; `bind` sets the parameters."""
        if (sym_dict is None) == (sym_gen is None):
            raise ParameterError("BucketingModule.load_dict: give either sym_dict or sym_gen.")
        module = BucketingModule(sym_gen or sym_dict.__getitem__, default_bucket_key, **kwargs)
        module._pending_params = arg_params or {}, aux_params or {}
        return module


def _described(shapes: Mapping[str, Sequence[int]], like: Sequence[DataDesc] | None) -> list[DataDesc]:
    """Return a DataDesc for each named shape, with the dtype and layout of the entry of the same name in `like`."""
    known = {d.name: (d.dtype, d.layout) for d in like or ()}
    return [DataDesc(n, shape, *known.get(n, ())) for n, shape in shapes.items()]


def _shapes(names: Sequence[str] | None, arrays: Sequence[Any] | None) -> dict[str, Sequence[int]]:
    """Return the shapes of arrays by name."""
    return {n: a.shape if hasattr(a, "shape") else np.shape(a) for n, a in zip(names or (), arrays or ())}


def _from_files(prefix: str) -> Callable[[Any], tuple[Any, list[str], list[str]]]:
    def sym_gen(key: Any) -> tuple[Any, list[str], list[str]]:
        symbol = sym.load(f"{prefix}-{key}-symbol.json")
        labels = [n for n in symbol.list_arguments() if n.endswith("_label")]
        return symbol, ["data"], labels

    return sym_gen
