"""BucketingModule: one set of parameters, and a network for every length of input that comes."""

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
from .base_module import SGD_DEFAULTS, BaseModule
from .module import Module


class BucketingModule(BaseModule):
    """A module that makes a network per bucket key and trains the same parameters through all of them.

    sym_gen:             from a bucket key (any hashable: a length, a pair of lengths) to (symbol, data_names, label_names).
    default_bucket_key:  the bucket that `bind` makes: the largest, whose memory the others then use.
    Other settings as for Module.
    """

    def __init__(self, sym_gen: Callable[[Any], tuple[Any, Sequence[str], Sequence[str]]], default_bucket_key: Any = None,
                 logger: Any = logging, context: Context | Sequence[Context] | None = None,
                 work_load_list: Sequence[float] | None = None, fixed_param_names: Sequence[str] | None = None,
                 state_names: Sequence[str] | None = None, group2ctxs: Any = None, compression_params: Any = None):
        super().__init__(logger)
        if default_bucket_key is None:
            raise ParameterError("BucketingModule: default_bucket_key is missing: say which bucket is bound first.")
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

    def _make(self, bucket_key: Any) -> Module:
        symbol, data_names, label_names = self._sym_gen(bucket_key)
        return Module(symbol, data_names, label_names, **self._settings)

    @property
    def _current(self) -> Module:
        if self._curr_module is None:
            raise MXNetError("BucketingModule: there are no arrays yet. Call bind(data_shapes, label_shapes) first.")
        return self._curr_module

    # ---- what goes in and out -------------------------------------------------------------------------------------
    @property
    def data_names(self) -> list[str]:
        """The inputs' names, in the bucket of the moment."""
        return self._curr_module.data_names if self._curr_module else list(self._sym_gen(self._default_bucket_key)[1])

    @property
    def output_names(self) -> list[str]:
        """The outputs' names."""
        if self._curr_module is None:
            return self._sym_gen(self._default_bucket_key)[0].list_outputs()
        return self._curr_module.output_names

    @property
    def data_shapes(self) -> list[Any]:
        """The inputs as DataDesc."""
        return self._current.data_shapes

    @property
    def label_shapes(self) -> list[Any] | None:
        """The labels as DataDesc; None if there are none."""
        return self._current.label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of each output."""
        return self._current.output_shapes

    @property
    def symbol(self) -> Any:
        """The network of the bucket of the moment."""
        return self._current.symbol

    @property
    def _context(self) -> list[Context]:
        return self._current._context

    # ---- binding --------------------------------------------------------------------------------------------------
    def bind(self, data_shapes: Any, label_shapes: Any = None, for_training: bool = True, inputs_need_grad: bool = False,
             force_rebind: bool = False, shared_module: Any = None, grad_req: Any = "write") -> None:
        """Make the default bucket's network for batches of these shapes; as Module.bind."""
        if shared_module is not None:
            raise ParameterError("BucketingModule.bind: shared_module is not for a BucketingModule. Share its buckets instead.")
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        params = self.get_params() if self.params_initialized else None
        self._buckets = {}
        self.for_training, self.inputs_need_grad, self._grad_req = for_training, inputs_need_grad, grad_req
        module = self._make(self._default_bucket_key)
        module.bind(data_shapes, label_shapes, for_training, inputs_need_grad, grad_req=grad_req)
        self._buckets[self._default_bucket_key] = self._curr_module = module
        self._curr_bucket_key = self._default_bucket_key
        self.binded = True
        if params is not None:
            self.set_params(*params)

    def switch_bucket(self, bucket_key: Any, data_shapes: Any, label_shapes: Any = None) -> None:
        """Go on with another bucket; its network is made when it first comes, on the same parameters."""
        self._require("switch_bucket")
        first = self._buckets[self._default_bucket_key]
        module = self._buckets.get(bucket_key)
        if module is None:
            module = self._make(bucket_key)
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
        """What to bind the bucket `key` for: what its first batch says, else what its arrays and the network tell."""
        symbol, data_names, label_names = self._sym_gen(key)
        first = self._buckets[self._default_bucket_key]
        data = batch.provide_data or _described(_named(data_names, batch.data), first.data_shapes)
        label = batch.provide_label or _described(_named(label_names, batch.label), first.label_shapes)
        if not label and first.label_shapes:  # later batches of this bucket may bring labels
            found = dict(zip(symbol.list_arguments(), symbol.infer_shape(**{d[0]: tuple(d[1]) for d in data})[0] or ()))
            label = _described({n: found[n] for n in label_names or () if found.get(n)}, first.label_shapes)
        return data, label

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Make the network of a batch's bucket, and stay in the bucket of the moment."""
        self._require("prepare")
        key = self._curr_bucket_key
        self._for_batch(data_batch)
        self._curr_module, self._curr_bucket_key = self._buckets[key], key

    # ---- parameters -----------------------------------------------------------------------------------------------
    def _told(self) -> Module:
        """The default bucket's module, which keeps the parameters, knowing whether any bucket changed them."""
        first = self._buckets[self._default_bucket_key]
        first._params_dirty |= any(m._params_dirty for m in self._buckets.values())
        for m in self._buckets.values():
            m._params_dirty = False if m is not first else m._params_dirty
        return first

    def init_params(self, initializer: Any = None, arg_params: Any = None, aux_params: Any = None,
                    allow_missing: bool = False, force_init: bool = False, allow_extra: bool = False) -> None:
        """As Module.init_params, for the parameters that all buckets share."""
        if self.params_initialized and not force_init:
            return
        self._require("init_params")
        self._told().init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)
        self.params_initialized = True
        self._share()

    def set_params(self, arg_params: Any, aux_params: Any, allow_missing: bool = False, force_init: bool = True,
                   allow_extra: bool = False) -> None:
        """Take over parameters by name; as Module.set_params."""
        self._require("set_params")
        self._told().set_params(arg_params, aux_params, allow_missing, force_init, allow_extra)
        self.params_initialized = True
        self._share()

    def _share(self) -> None:
        first = self._buckets[self._default_bucket_key]
        for m in self._buckets.values():
            m._arg_params, m._aux_params, m.params_initialized = first._arg_params, first._aux_params, True

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arg_params, aux_params) by name, on the host."""
        self._require("get_params", params=True)
        return self._told().get_params()

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The arrays of state_names, in the bucket of the moment."""
        return self._current.get_states(merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Fill the arrays of state_names."""
        self._current.set_states(states, value)

    # ---- optimizer and steps ----------------------------------------------------------------------------------------
    def init_optimizer(self, kvstore: Any = "local", optimizer: Any = "sgd", optimizer_params: Any = SGD_DEFAULTS,
                       force_init: bool = False) -> None:
        """As Module.init_optimizer; all buckets use the one optimizer."""
        self._require("init_optimizer", params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        first = self._told()
        first.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        for m in self._buckets.values():
            if m is not first:
                m.borrow_optimizer(first)
        self.optimizer_initialized = True

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run a batch in the bucket that its bucket_key names."""
        self._require("forward", params=True)
        self._for_batch(data_batch).forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        self._current.backward(out_grads)

    def update(self) -> None:
        self._require("update", params=True, optimizer=True)
        self._current.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        return self._current.get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The derivatives by the data."""
        return self._current.get_input_grads(merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        self._current.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        self._require("install_monitor")
        self._monitor = mon
        for m in self._buckets.values():
            m.install_monitor(mon)

    # ---- checkpoints ----------------------------------------------------------------------------------------------
    def save_checkpoint(self, prefix: str, epoch: int, remove_amp_cast: bool = True) -> None:
        """Write every bucket's network to PREFIX-KEY-symbol.json, and the shared parameters to PREFIX-0000.params."""
        self._require("save_checkpoint", params=True)
        for key, m in self._buckets.items():
            m.symbol.save(f"{prefix}-{key}-symbol.json")
        save_checkpoint(prefix, epoch, None, *self.get_params())

    @staticmethod
    def load(prefix: str, epoch: int, sym_gen: Any = None, default_bucket_key: Any = None, **kwargs: Any) -> BucketingModule:
        """The module of a checkpoint; it takes the parameters when it is bound.

        sym_gen: None reads each bucket's network from PREFIX-KEY-symbol.json.
        """
        made = BucketingModule(sym_gen or _from_files(prefix), default_bucket_key, **kwargs)
        return _holding(made, *load_params(prefix, epoch))

    @staticmethod
    def load_dict(sym_dict: Any = None, sym_gen: Any = None, default_bucket_key: Any = None, arg_params: Any = None,
                  aux_params: Any = None, **kwargs: Any) -> BucketingModule:
        """A module of given parameters, with the networks of sym_dict {key: (symbol, data_names, label_names)} or sym_gen."""
        if (sym_dict is None) == (sym_gen is None):
            raise ParameterError("BucketingModule.load_dict: give either sym_dict or sym_gen.")
        made = BucketingModule(sym_gen or sym_dict.__getitem__, default_bucket_key, **kwargs)
        return _holding(made, arg_params, aux_params)


def _described(shapes: Mapping[str, Sequence[int]], like: Sequence[DataDesc] | None) -> list[DataDesc]:
    """Shapes by name, with the dtype and layout of those in `like` that have the same name."""
    known = {d.name: (d.dtype, d.layout) for d in like or ()}
    return [DataDesc(n, shape, *known.get(n, ())) for n, shape in shapes.items()]


def _named(names: Sequence[str] | None, arrays: Sequence[Any] | None) -> dict[str, Sequence[int]]:
    """The shapes of arrays that come in the order of names."""
    return {n: np.shape(a) if not hasattr(a, "shape") else a.shape for n, a in zip(names or (), arrays or ())}


class _Loaded(BucketingModule):
    """A BucketingModule that brings parameters along until it is bound."""

    given: tuple[Any, Any]

    def bind(self, *args: Any, **kwargs: Any) -> None:
        super().bind(*args, **kwargs)
        self.__class__ = BucketingModule  # type: ignore[assignment]
        self.set_params(*self.given)


def _holding(module: BucketingModule, arg_params: Any, aux_params: Any) -> BucketingModule:
    module.__class__ = _Loaded
    assert isinstance(module, _Loaded)
    module.given = arg_params or {}, aux_params or {}
    return module


def _from_files(prefix: str) -> Callable[[Any], tuple[Any, list[str], list[str]]]:
    def sym_gen(key: Any) -> tuple[Any, list[str], list[str]]:
        symbol = sym.load(f"{prefix}-{key}-symbol.json")
        labels = [n for n in symbol.list_arguments() if n.endswith("_label")]
        return symbol, ["data"], labels

    return sym_gen
