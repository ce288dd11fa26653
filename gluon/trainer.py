"""Trainer: applies an optimizer to parameters, with their gradients summed over contexts and processes by a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..atomic_file import read_file, write_atomic
from ..context import Context
from ..errors import BatchSizeError, BlockError, FileError, MXNetError, ParameterError, StaleGradientError
from ..kvstore import KVStore, create
from ..kvstore.base import REGISTERED
from ..show import Shown
from ..train import optimizer as opt
from ..train.kvstore_sync import create_kvstore as _create_kvstore  # MXNet's name
from .parameter import Parameter, ParameterDict


class Trainer(Shown):
    """One optimizer for a set of parameters.

    params:              a ParameterDict, a dictionary or a list. Of dictionaries, the order is that of sorted names.
    optimizer:           an Optimizer or its name; optimizer_params are its settings.
    kvstore:             a store or the name of a type. A single context without other processes needs none.
    compression_params:  settings of gradient compression, for a store over a network.
    update_on_kvstore:   True if the store runs the optimizer; None lets the store decide.
    """

    _kvstore: Any

    def __init__(self, params: Any, optimizer: Any, optimizer_params: Mapping[str, Any] | None = None,
                 kvstore: Any = "device", compression_params: Mapping[str, Any] | None = None,
                 update_on_kvstore: bool | None = None):
        if isinstance(params, (dict, ParameterDict)):
            params = [params[name] for name in sorted(params.keys())]
        if not isinstance(params, (list, tuple)):
            raise BlockError(f"First argument must be a list or dict of Parameters, got {type(params)}.")
        self._params: list[Parameter] = []
        self._param2idx: dict[str, int] = {}
        for i, param in enumerate(params):
            if not isinstance(param, Parameter):
                raise BlockError(f"First argument must be a list or dict of Parameters, got list of {type(param)}.")
            self._param2idx[param.name] = i
            self._params.append(param)
            param._set_trainer(self)
        self._contains_sparse_weight = any(p._stype != "default" for p in self._params)
        self._contains_sparse_grad = any(p._grad_stype != "default" for p in self._params)
        self._compression_params = compression_params
        settings = dict(optimizer_params or {})
        self._contexts = self._check_contexts()
        self._init_optimizer(optimizer, settings)
        self._scale = self._optimizer.rescale_grad
        self._kvstore_params = {"kvstore": kvstore, "update_on_kvstore": update_on_kvstore}
        self._kvstore = None
        self._reset_kvstore()

    def _facts(self) -> Mapping[str, Any]:
        return {"optimizer": type(self._optimizer).__name__, "parameters": len(self._params),
                "learning_rate": self._optimizer.learning_rate}

    # ---- set-up -----------------------------------------------------------------------------------------------------
    def _check_contexts(self) -> list[Context]:
        contexts: list[Context] | None = None
        for param in self._params:
            own = param.list_ctx()
            if contexts is not None and contexts != own:
                raise BlockError(f"All Parameters must be initialized on the same set of contexts: {param.name} is on {own}, "
                                 f"earlier ones are on {contexts}.")
            contexts = own
        return contexts or []

    def _init_optimizer(self, optimizer: Any, optimizer_params: Mapping[str, Any]) -> None:
        by_index = dict(enumerate(self._params))
        if isinstance(optimizer, opt.Optimizer):
            if optimizer_params:
                raise BlockError("optimizer_params must be None if optimizer is an instance of Optimizer instead of str.")
            self._optimizer = optimizer
            self._optimizer.param_dict = by_index
        else:
            self._optimizer = opt.create(optimizer, param_dict=by_index, **optimizer_params)
        self._updaters = [opt.get_updater(self._optimizer) for _ in self._contexts]

    def _reset_kvstore(self) -> None:
        """Forget the store, so that the next step makes a new one of the parameters' present values."""
        if self._kvstore is not None and "dist" in self._kvstore.type:
            raise MXNetError("Cannot reset distributed KVStore.")
        self._kv_initialized = False
        self._kvstore = None
        self._update_on_kvstore: bool | None = None
        self._distributed: bool | None = None
        self._params_to_init = list(self._params)

    def _init_kvstore(self) -> None:
        """Make the store, and decide where the optimizer runs."""
        kind, wanted = self._kvstore_params["kvstore"], self._kvstore_params["update_on_kvstore"]
        if self._contains_sparse_weight:
            if kind is None:
                raise ParameterError("Trainer: row-sparse parameters are kept in a store. Pass kvstore='local'.")
            store: Any = kind if isinstance(kind, KVStore) else create(kind)
            on_store = True
            if wanted is False:
                raise BlockError("Cannot set update_on_kvstore=False when sparse weights are present.")
        else:
            arrays = {p.name: p._check_and_get(p._data, self._contexts[0]) for p in self._params if p._data is not None}
            made = _create_kvstore(kind, len(self._contexts), arrays)
            store, on_store = made
            distributed = store is not None and "dist" in store.type
            if self._contains_sparse_grad:
                on_store = distributed
            if store is not None and distributed and "async" in store.type and wanted is False:
                raise BlockError("Please set update_on_kvstore=True when training in async mode.")
            if wanted is not None:
                on_store = wanted
        if store is not None:
            if self._compression_params:
                store.set_gradient_compression(self._compression_params)
            if on_store:
                store.set_optimizer(self._optimizer)
        self._kvstore, self._update_on_kvstore = store, None if store is None else on_store
        self._distributed = store is not None and "dist" in store.type
        self._kv_initialized = True

    def _init_params(self) -> None:
        """Give the store its keys, for parameters whose shape is known."""
        if not self._kv_initialized:
            raise BlockError("Cannot initialize parameters in KVStore when KVStore is not initialized.")
        waiting = []
        store = self._kvstore
        for param in () if store is None else self._params_to_init:
            assert store is not None
            if param._deferred_init:
                waiting.append(param)
                continue
            arrays, key = param._check_and_get(param._data, list), self._param2idx[param.name]
            if param._stype == "default":
                store.broadcast(key, arrays[0], arrays)
            else:
                store.init(key, arrays[0])
        self._params_to_init = waiting

    def _prepare(self) -> None:
        if not self._kv_initialized:
            self._init_kvstore()
        if self._params_to_init:
            self._init_params()

    # ---- rates -----------------------------------------------------------------------------------------------------
    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        return self._optimizer.learning_rate

    @property
    def optimizer(self) -> opt.Optimizer:
        """The optimizer."""
        return self._optimizer

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate. Raises ScheduledRateError if a scheduler sets it."""
        self._optimizer.set_learning_rate(lr)

    # ---- steps -----------------------------------------------------------------------------------------------------
    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients, and update the parameters by them, divided by batch_size. Call it after backward.

        ignore_stale_grad: leave parameters alone whose gradients no backward has written since the last step; else they
        raise StaleGradientError.
        """
        self._check_and_rescale_grad(self._scale / batch_size)
        self._prepare()
        self._allreduce_grads()
        self._update(ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Sum the gradients over contexts and processes, without an update: for what is to be done between the two."""
        self._prepare()
        self._needs_local("allreduce_grads")
        self._allreduce_grads()

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update the parameters, after allreduce_grads."""
        self._prepare()
        self._needs_local("update")
        self._check_and_rescale_grad(self._scale / batch_size)
        self._update(ignore_stale_grad)

    def _needs_local(self, method: str) -> None:
        if self._kvstore is not None and self._update_on_kvstore:
            raise BlockError(f"{method}() when parameters are updated on kvstore is not supported. Pass "
                             f"update_on_kvstore=False to Trainer.")

    def _check_and_rescale_grad(self, scale: float) -> None:
        if self._update_on_kvstore and self._distributed and self._kv_initialized and self._optimizer.rescale_grad != scale:
            raise BatchSizeError("Possible change in the `batch_size` from previous `step` detected: a distributed store that "
                                 "runs the optimizer keeps the first one. Pass update_on_kvstore=False.")
        self._optimizer.rescale_grad = scale

    def _learned(self) -> list[Parameter]:
        return [p for p in self._params if p.grad_req != "null"]

    def _allreduce_grads(self) -> None:
        store = self._kvstore
        if store is None:
            return
        dense = [p for p in self._learned() if p._grad_stype == "default"]
        keys = [self._param2idx[p.name] for p in dense]
        grads = [p.list_grad() for p in dense]
        outs = [p.list_data_dense() for p in dense] if self._update_on_kvstore else grads
        if type(store) in REGISTERED.values():  # a user's store, which may take one key at a time
            for key, grad, out in zip(keys, grads, outs):
                store.pushpull(key, grad, out=out, priority=-key)
        elif keys:
            store.pushpull(keys, grads, out=outs)
        for param in self._learned():
            if param._grad_stype != "default":
                self._push_rows(store, param)

    def _push_rows(self, store: KVStore, param: Parameter) -> None:
        """Push the rows of a row-sparse gradient, and pull the weight, or the sum of the gradients."""
        key = self._param2idx[param.name]
        store.push(key, param.list_grad(), priority=-key)
        if param._stype == "default":
            target = param.list_data() if self._update_on_kvstore else param._check_and_get(param._grad, list)
            store.pull(key, target, priority=-key, ignore_sparse=False)

    def _update(self, ignore_stale_grad: bool = False) -> None:
        scaler = getattr(self, "_amp_loss_scaler", None)
        if scaler is not None and scaler.has_overflow(self._params):
            return
        updates: list[list[tuple[int, Any, Any]]] = [[] for _ in self._updaters]
        on_store = self._kvstore is not None and self._update_on_kvstore
        for i, param in enumerate(self._params):
            if param.grad_req == "null":
                continue
            arrays = param._check_and_get(param._data, list)  # dense, also of rows
            if len(arrays) != len(self._updaters):
                raise BlockError(f"Trainer: Parameter `{param.name}` is on {param.list_ctx()} now, and the Trainer was made for "
                                 f"{self._contexts}. Make a new Trainer after moving parameters to another number of contexts.")
            fresh = [a._fresh_grad for a in arrays]
            if not ignore_stale_grad and not all(fresh):
                raise StaleGradientError(
                    f"Gradient of Parameter `{param.name}` on context {arrays[fresh.index(False)].context} has not been updated "
                    f"by backward since last `step`. If only a part of the network is to learn, pass ignore_stale_grad=True: it "
                    f"leaves such parameters alone.")
            if on_store:
                continue
            grads = param.list_grad() if param._grad is None or param._grad_stype != "default" else param._grad
            for update, a, grad, is_fresh in zip(updates, arrays, grads, fresh):
                if is_fresh:
                    update.append((i, grad, a))
        for updater, update in zip(self._updaters, updates):
            if update:
                keys, grads, weights = zip(*update)
                updater(keys, grads, weights)
                for a in weights:
                    a._fresh_grad = False

    def _row_sparse_pull(self, parameter: Parameter, out: Any, row_id: Any, full_idx: bool = False) -> None:
        """Copy rows of a parameter from the store to out."""
        self._prepare()
        key = self._param2idx[parameter.name]
        if full_idx and not self._distributed:
            self._kvstore.pull(key, out=out, priority=-key, ignore_sparse=False)
        else:
            self._kvstore.row_sparse_pull(key, out=out, row_ids=row_id, priority=-key)

    # ---- files -----------------------------------------------------------------------------------------------------
    def save_states(self, fname: str | os.PathLike) -> None:
        """Write the optimizer's states to a file."""
        self._prepare()
        if self._update_on_kvstore:
            if self._params_to_init:
                raise BlockError("Cannot save trainer states when some parameters are not yet initialized in kvstore.")
            self._kvstore.save_optimizer_states(fname, dump_optimizer=True)
        else:
            write_atomic(fname, self._updaters[0].get_states(dump_optimizer=True))

    def load_states(self, fname: str | os.PathLike) -> None:
        """Read states that save_states, or MXNet's, wrote. Raises FileError if the file cannot be read."""
        self._prepare()
        if self._update_on_kvstore:
            store = self._kvstore
            store.load_optimizer_states(fname)
            self._optimizer = getattr(getattr(store, "_updater", None), "optimizer", self._optimizer)
        else:
            try:
                states = read_file(fname)
            except OSError as e:
                raise FileError(f"Trainer.load_states: {fname}: cannot be read: {e.strerror}.") from e
            for updater in self._updaters:
                updater.set_states(states, os.fspath(fname))
                updater.optimizer = self._updaters[0].optimizer
            self._optimizer = self._updaters[0].optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))


