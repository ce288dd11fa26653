"""Module: a Symbol, its parameters, and an executor on each of its contexts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...context import Context, cpu
from ...errors import MXNetError, ParameterError, nearest
from ...io.iterator import as_batch
from ...ndarray import NDArray, array, zeros
from .. import optimizer as opt
from ..checkpoint import load_checkpoint, save_checkpoint
from ..initializer import InitDesc, Uniform
from ..kvstore_sync import choose_sync, create_kvstore
from .base_module import BaseModule
from .executor_group import ExecutorGroup, batch_axis, copy_into, descriptions, placements, resized

__all__ = ["BaseModule", "Module"]


class Module(BaseModule):
    """A network that can be trained, scored and used for predictions.

    data_names, label_names:  the arguments that batches fill; the other arguments are parameters.
    context:                  one context, or a list: each gets a slice of every batch.
    work_load_list:           the share of each context in a batch, relative to the others.
    fixed_param_names:        parameters that are not learned.
    state_names:              arguments that are neither data nor parameters; `set_states` fills them.
    group2ctxs:               the context of each ctx_group of the symbol: {group: context}, {group: [one for each context]},
                              or a list of {group: context}. Nodes without a group run on `context`. For a ctx_group
                              missing here, bind raises ContextError.
    """

    def __init__(self, symbol: Any, data_names: Sequence[str] | None = ("data",),
                 label_names: Sequence[str] | None = ("softmax_label",), logger: Any = logging,
                 context: Context | Sequence[Context] | None = None, work_load_list: Sequence[float] | None = None,
                 fixed_param_names: Sequence[str] | None = None, state_names: Sequence[str] | None = None,
                 group2ctxs: Any = None, compression_params: Any = None):
        super().__init__(logger)
        if compression_params is not None:
            raise ParameterError("Module: compression_params is not supported. Leave it out.")
        self._context = [context or cpu()] if context is None or isinstance(context, Context) else list(context)
        self._work = list(work_load_list or [1] * len(self._context))
        if len(self._work) != len(self._context):
            raise ParameterError(f"Module: work_load_list has {len(self._work)} entries for {len(self._context)} contexts.")
        self._group2ctxs = placements(group2ctxs, len(self._context))
        self._symbol = symbol
        self._data_names = list(data_names or ())
        self._label_names = list(label_names or ())
        self._state_names = list(state_names or ())
        self._fixed_param_names = list(fixed_param_names or ())
        arguments = symbol.list_arguments()
        for kind, names in (("data_names", self._data_names), ("state_names", self._state_names),
                            ("fixed_param_names", self._fixed_param_names)):
            for n in names:
                if n not in arguments:
                    raise ParameterError(f"Module: {kind}: the symbol has no argument {n!r}.{nearest(n, arguments)} "
                                         f"Inputs may be: {', '.join(map(repr, _likely_inputs(arguments)))}.")
        for n in self._label_names:
            if n not in arguments and tuple(self._label_names) != ("softmax_label",):
                warnings.warn(f"Module: label_names: the symbol has no argument {n!r}."
                              f"{nearest(n, arguments)} It is ignored.", stacklevel=2)
        fed = {*self._data_names, *self._label_names, *self._state_names}
        # the label of a loss layer is not a parameter, even if no batch fills it (inference)
        self._param_names = [n for n in arguments if n not in fed and not n.endswith("_label")]
        self._aux_names = symbol.list_auxiliary_states()
        self._output_names = symbol.list_outputs()
        self._arg_params: dict[str, NDArray] = {}
        self._aux_params: dict[str, NDArray] = {}
        self._params_dirty = False
        self._group: ExecutorGroup | None = None
        self._optimizer: Any = None
        self._param_sync: Any = None  # a ParamSync, once init_optimizer has chosen one
        self._preload_opt_states: str | None = None

    def _facts(self) -> Mapping[str, Any]:
        bound = {d.name: tuple(d.shape) for d in self._group.data_shapes} if self._group is not None else None
        optimizer = getattr(self, "_optimizer", None)
        return {"outputs": self._output_names, "context": self._context, "data": bound or self._data_names,
                "labels": self._label_names, "parameters": len(self._param_names),
                "optimizer": optimizer and type(optimizer).__name__}

    # ---- checkpoints ----------------------------------------------------------------------------------------------
    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """Return the module of a checkpoint, with its parameters. Bind it before use. kwargs: arguments of Module.

        load_optimizer_states: init_optimizer also reads PREFIX-0000.states.
        Raises FileError.
        """
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        module = Module(symbol, **kwargs)
        module._arg_params, module._aux_params = arg_params, aux_params
        module.params_initialized = True
        if load_optimizer_states:
            module._preload_opt_states = f"{prefix}-{epoch:04d}.states"
        return module

    def save_checkpoint(self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True) -> None:
        """Write PREFIX-symbol.json, PREFIX-0000.params and optionally PREFIX-0000.states, where 0000 is the epoch."""
        save_checkpoint(prefix, epoch, self._symbol, *self.get_params())
        if save_optimizer_states:
            self.save_optimizer_states(f"{prefix}-{epoch:04d}.states")
            self.logger.info('Saved optimizer state to "%s-%04d.states"', prefix, epoch)

    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer's states and update counts to a file of data (not a pickle)."""
        self._require("save_optimizer_states", optimizer=True)
        self._param_sync.save_optimizer_states(fname)

    def load_optimizer_states(self, fname: str) -> None:
        """Read a file of save_optimizer_states. If it cannot be read, raise FileError and change nothing."""
        self._require("load_optimizer_states", optimizer=True)
        self._param_sync.load_optimizer_states(fname)

    @property
    def label_names(self) -> list[str]:
        """The names of the labels."""
        return self._label_names

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of each output, for the whole batch."""
        self._require("output_shapes")
        shapes = {d.name: d.shape for d in (*self._data_shapes, *self._label_shapes)}
        return list(zip(self._output_names, self._symbol.infer_shape(**shapes)[1]))

    @property
    def _exec_group(self) -> ExecutorGroup:
        assert self._group is not None, "bind was not called"
        return self._group

    # MXNet's names, which training loops of users read
    @property
    def _kvstore(self) -> Any:
        return getattr(self._param_sync, "kvstore", None)

    @property
    def _updater(self) -> Any:
        return getattr(self._param_sync, "updater", None)

    @property
    def _update_on_kvstore(self) -> bool | None:
        return None if self._param_sync is None else not hasattr(self._param_sync, "updater")

    @property
    def _work_load_list(self) -> list[float]:
        return self._work

    # ---- binding --------------------------------------------------------------------------------------------------
    def _bind(self, data_shapes: Any, label_shapes: Any, for_training: bool, inputs_need_grad: bool, force_rebind: bool,
              shared_module: Any, grad_req: Any) -> None:
        if inputs_need_grad and not for_training:
            raise ParameterError("Module.bind: inputs_need_grad needs for_training=True.")
        data, labels = descriptions(data_shapes), descriptions(label_shapes)
        self._check_names(data, labels)
        labels = [d for d in labels if d.name in self._symbol.list_arguments()]
        if self.binded:
            self._sync_params_from_devices()
        if shared_module is not None and not (shared_module.binded and shared_module.params_initialized):
            raise MXNetError("Module.bind: shared_module must be bound and have parameters.")
        self._group = ExecutorGroup(self._symbol, self._context, self._work, data, labels, self._param_names,
                                    for_training, inputs_need_grad, self._fixed_param_names, grad_req,
                                    shared_module and shared_module._exec_group, self._group2ctxs)
        self._data_shapes, self._label_shapes = data, labels
        self.for_training, self.inputs_need_grad, self.binded = for_training, inputs_need_grad, True
        if shared_module is not None:
            self._arg_params, self._aux_params = shared_module._arg_params, shared_module._aux_params
            self._check_complete(self._arg_params, self._aux_params)
            self.params_initialized = True
            if shared_module.optimizer_initialized:
                self.borrow_optimizer(shared_module)
        elif self.params_initialized:
            self._check_complete(self._arg_params, self._aux_params)
            self._arg_params = {n: self._arg_params[n] for n in self._param_names}
            self._aux_params = {n: self._aux_params[n] for n in self._aux_names}
            self._group.set_params(self._arg_params, self._aux_params)

    def _check_names(self, data: list[Any], labels: list[Any]) -> None:
        if sorted(d.name for d in data) != sorted(self._data_names):
            raise ParameterError(f"Module.bind: the data shapes are of {[d.name for d in data]}, "
                                 f"data_names are {self._data_names}.")
        if labels and sorted(d.name for d in labels) != sorted(self._label_names):
            warnings.warn(f"Module.bind: the label shapes are of {[d.name for d in labels]}, "
                          f"label_names are {self._label_names}.", stacklevel=3)

    def _check_complete(self, arg_params: Mapping[str, Any], aux_params: Mapping[str, Any]) -> None:
        for kind, names, params in (("parameter", self._param_names, arg_params),
                                    ("auxiliary state", self._aux_names, aux_params)):
            for n in names:
                if n not in params:
                    raise ParameterError(f"Module: {kind} {n!r} is missing.{nearest(n, params)} Given: "
                                         f"{', '.join(params) or 'none'}. Pass allow_missing=True to initialize it.")

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Switch to batches of other shapes; the parameters stay."""
        self._require("reshape")
        data, labels = descriptions(data_shapes), descriptions(label_shapes)
        self._check_names(data, labels)
        self._exec_group.bind(data, labels)
        self._data_shapes, self._label_shapes = data, labels

    # ---- parameters -----------------------------------------------------------------------------------------------
    def init_params(self, initializer: Any = None, arg_params: Any = None, aux_params: Any = None,
                    allow_missing: bool = False, force_init: bool = False, allow_extra: bool = False) -> None:
        """Set every parameter from arg_params or aux_params, or by the initializer.

        initializer:    Uniform(0.01) if it is None and no parameters are given.
        allow_missing:  use the initializer for parameters missing in arg_params and aux_params; otherwise an error.
        Parameters that have values keep them, unless force_init. Names that the network does not have are ignored.
        """
        if self.params_initialized and not force_init:
            if arg_params is not None or aux_params is not None:
                warnings.warn("Module.init_params: the parameters already have values, the given ones are ignored. "
                              "Pass force_init=True to replace them.", stacklevel=2)
            return
        self._require("init_params")
        if initializer is None and arg_params is None and aux_params is None:
            initializer = Uniform(0.01)
        if not allow_missing and arg_params is not None:
            self._check_complete(arg_params, aux_params if aux_params is not None else dict.fromkeys(self._aux_names))
        self._sync_params_from_devices()
        attrs, first = self._symbol.attr_dict(), self._exec_group.execs[0]

        def initial(names: Sequence[str], params: Mapping[str, NDArray] | None, bound: Mapping[str, NDArray]
                    ) -> dict[str, NDArray]:
            values = {n: zeros(bound[n].shape, ctx=cpu(), dtype=bound[n].dtype) for n in names}
            for name in sorted(names):  # a seed then gives the same values, for every order of building the network
                if params is not None and name in params:
                    copy_into(params[name], values[name], name)
                elif initializer is not None:
                    initializer(InitDesc(name, attrs.get(name)), values[name])
                else:
                    copy_into(bound[name], values[name], name)
            return values

        self._arg_params = initial(self._param_names, arg_params, first.arg_dict)
        self._aux_params = initial(self._aux_names, aux_params, first.aux_dict)
        self.params_initialized = True
        self._params_dirty = False
        self._exec_group.set_params(self._arg_params, self._aux_params)

    def set_params(self, arg_params: Any, aux_params: Any, allow_missing: bool = False, force_init: bool = True,
                   allow_extra: bool = False) -> None:
        """Set parameters by name. A missing one keeps its value if allow_missing, and is an error otherwise.

        Raises ParameterError for unknown names if allow_missing and not allow_extra (as MXNet does).
        """
        if allow_missing and not allow_extra:
            for params, own in ((arg_params, self._param_names), (aux_params, self._aux_names)):
                for name in params or ():
                    if name not in own:
                        raise ParameterError(f"Module.set_params: the network has no parameter {name!r}."
                                             f"{nearest(name, own)} Pass allow_extra=True to ignore it.")
        self.init_params(None, arg_params or {}, aux_params or {}, allow_missing, force_init, allow_extra)

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return (arg_params, aux_params) by name, on the host: the mean over contexts."""
        self._require("get_params", params=True)
        self._sync_params_from_devices()
        return self._arg_params, self._aux_params

    def _sync_params_from_devices(self) -> None:
        if self._params_dirty and self._group is not None:
            # into new arrays: results of earlier get_params calls must not change
            for params in (self._arg_params, self._aux_params):
                for n, v in params.items():
                    params[n] = zeros(v.shape, ctx=cpu(), dtype=v.dtype)
            self._group.get_params(self._arg_params, self._aux_params)
            self._params_dirty = False

    # ---- optimizer ------------------------------------------------------------------------------------------------
    def _init_optimizer(self, kvstore: Any, optimizer: Any, optimizer_params: Any, force_init: bool) -> None:
        self._sync_params_from_devices()
        group, n = self._exec_group, len(self._context)
        store, update_on_kvstore = create_kvstore(kvstore, n, self._arg_params)
        samples = group.batch_size * (store.num_workers if store is not None else 1)
        rescale = 1.0 / samples if samples else 1.0
        keys = dict(enumerate(group.param_names)) if update_on_kvstore else {
            i * n + k: name for i, name in enumerate(group.param_names) for k in range(n)}
        if isinstance(optimizer, str):
            settings = dict(optimizer_params)
            settings.setdefault("rescale_grad", rescale)
            optimizer = opt.create(optimizer, sym=self._symbol, param_idx2name=keys, **settings)
        elif not isinstance(optimizer, opt.Optimizer):
            raise ParameterError(f"Module.init_optimizer: {optimizer!r} is neither a name nor an Optimizer.")
        else:
            if optimizer.rescale_grad != rescale:
                warnings.warn(f"Module.init_optimizer: the optimizer has rescale_grad={optimizer.rescale_grad}, but "
                              f"1 / batch size is {rescale}. Is this intended?", stacklevel=2)
            if not optimizer.idx2name:
                optimizer.idx2name = keys
        self._optimizer = optimizer
        self._param_sync = choose_sync(store, update_on_kvstore, optimizer, group.param_names, group.param_arrays,
                                       self._arg_params)
        if self._preload_opt_states is not None:
            self._param_sync.load_optimizer_states(self._preload_opt_states)
            self._preload_opt_states = None

    def borrow_optimizer(self, shared_module: Module) -> None:
        """Use another module's optimizer, states and store."""
        if not shared_module.optimizer_initialized:
            raise MXNetError("Module.borrow_optimizer: the other module has no optimizer. Call its init_optimizer first.")
        self._optimizer, self._param_sync = shared_module._optimizer, shared_module._param_sync
        self.optimizer_initialized = True

    # ---- one step -------------------------------------------------------------------------------------------------
    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Load a batch and run the network. is_train=None means as bound. A batch of another shape calls reshape first."""
        self._require("forward", params=True)
        batch = as_batch(data_batch)
        data = [a if isinstance(a, NDArray) or hasattr(a, "shape") else np.asarray(a) for a in batch.data or ()]
        label, described = batch.label or None, batch.provide_data
        if not self._fits(data):
            new_data = descriptions(described) if described else self._like(self._data_shapes, data)
            new_label = (self._like(self._label_shapes, label) if label and self._label_shapes else self._rebatched(new_data))
            self.reshape(new_data, new_label)
        is_train = self.for_training if is_train is None else is_train
        self._params_dirty |= is_train  # moving statistics change
        self._exec_group.forward(data, label, is_train)

    def _fits(self, data: Sequence[Any]) -> bool:
        """Return whether arrays have the shapes that the module is bound for."""
        if len(data) != len(self._data_shapes):
            return False
        for a, d in zip(data, self._data_shapes):  # noqa: SIM110  # a generator takes longer
            if tuple(a.shape) != tuple(d.shape):
                return False
        return True

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Begin to upload a batch that comes later to GPUs, while they compute. `forward` of the batch finds it there.

        A batch on another shape than the current one is left to `forward`. sparse_row_id_fn is ignored.
        """
        self._require("prepare", params=True)
        batch = as_batch(data_batch)
        self._exec_group.prepare(batch.data or (), batch.label)

    def _like(self, old: list[Any], arrays: Sequence[Any]) -> list[Any]:
        if len(old) != len(arrays):
            raise ParameterError(f"Module.forward: the batch has {len(arrays)} arrays for {len(old)} inputs: "
                                 f"{', '.join(d.name for d in old) or 'none'}.")
        return descriptions([(d.name, tuple(a.shape), d.dtype, d.layout) for d, a in zip(old, arrays)])

    def _rebatched(self, data: list[Any]) -> list[Any]:
        """Return the label shapes for a batch without labels: the old ones, with the batch size of the data."""
        size = next((d.shape[batch_axis(d)] for d in data if batch_axis(d) >= 0), 0)
        return descriptions([(d.name, resized(d, size), d.dtype, d.layout) for d in self._label_shapes])

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients. out_grads: the head gradients, for networks that do not end in a loss."""
        self._require("backward", params=True)
        if not self.for_training:
            raise MXNetError("Module.backward: the module was bound with for_training=False. Bind it for training.")
        self._exec_group.backward(out_grads)

    def update(self) -> None:
        """Update the parameters by the gradients of the last backward."""
        self._require("update", params=True, optimizer=True)
        self._params_dirty = True
        self._param_sync.push_pull(self._exec_group.grad_arrays, self._exec_group.param_arrays)

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the last forward, per context if not merged. The next forward overwrites them."""
        self._require("get_outputs", params=True)
        return self._exec_group.get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the derivatives by the data, after backward. Needs bind(inputs_need_grad=True)."""
        self._require("get_input_grads", params=True)
        if not self.inputs_need_grad:
            raise MXNetError("Module.get_input_grads: the module was bound with inputs_need_grad=False. Bind it with True.")
        return self._exec_group.get_input_grads(merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the arrays of state_names."""
        self._require("get_states", params=True)
        return [[e.arg_dict[n] for e in self._exec_group.execs] if not merge_multi_context
                else self._exec_group.execs[0].arg_dict[n] for n in self._state_names]

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Fill the arrays of state_names with one number, or from a list of arrays."""
        self._require("set_states", params=True)
        for i, n in enumerate(self._state_names):
            for k, e in enumerate(self._exec_group.execs):
                if states is not None:
                    value = states[i][k] if isinstance(states[i], (list, tuple)) else states[i]
                e.arg_dict[n][:] = value

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update the metric with the outputs of the last forward and labels."""
        labels = [a if isinstance(a, (NDArray, list)) else array(a) for a in labels or ()]
        self._exec_group.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Let a Monitor watch the executor of every context."""
        self._require("install_monitor")
        for e in self._exec_group.execs:
            mon.install(e)


def _likely_inputs(arguments: Sequence[str]) -> list[str]:
    return [a for a in arguments if not a.endswith(("_weight", "_bias", "_gamma", "_beta"))]
