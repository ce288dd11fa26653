"""Optimizer: the base class, its registry, and Updater, which keeps the states of the parameters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import environment
from ...context import Context
from ...dtype import is_half
from ...errors import MXNetError, ParameterError, ScheduledRateError, ShapeError, UnknownSettingError
from ...ndarray import BaseSparseNDArray, NDArray, RowSparseNDArray, array, zeros_like
from ...show import Shown, settings
from ..registry import Registry
from . import states as states_file
from .lr_scheduler import LRScheduler
from .mxnet_states import is_pickle, read_mxnet_states
from .states import leaves, map_tree
from .update import ParamUpdate, apply

registry = Registry("optimizer")
_PLAIN = (int, float, bool, type(None))  # types of the settings in a file
Index = int | str  # of a parameter; a name in a KVStore whose keys are names


#: Settings of every optimizer that are not shown, or not under these names.
_COMMON = frozenset(("rescale_grad", "param_idx2name", "wd", "learning_rate", "lr_scheduler", "sym", "begin_num_update",
                     "param_dict"))


class Optimizer(Shown):
    """Base of optimizers: learning rate and weight decay of each parameter, and counts of updates.

    rescale_grad:       factor of every gradient; Module sets 1 / batch size.
    clip_gradient:      clip the rescaled gradient to [-clip_gradient, clip_gradient]; None does not clip.
    learning_rate:      replaces the scheduler's base_lr if both are given; 0.01 if neither is.
    wd:                 weight decay; by default only of parameters whose names end in _weight or _gamma.
    param_idx2name:     {index: name} of the parameters.
    sym:                the Symbol whose variables have attributes `__lr_mult__` and `__wd_mult__`.
    begin_num_update:   the number of updates made earlier, for the scheduler.
    multi_precision:    keep a float32 copy of every 16-bit weight, and update the copy.
    param_dict:         {index: Parameter}, for multipliers that are attributes of the parameters.
    """

    opt_registry = registry.classes
    aggregate_num = environment.OPTIMIZER_AGGREGATION_SIZE.get()  # parameters per update; 0: all
    elementwise = True  # the update of an element does not depend on other elements (such as a norm of the weight)
    lazy_update = False  # a row-sparse gradient only changes its rows of weight and states
    master_first = True  # a state under multi_precision is (float32 copy, state); False: (state, float32 copy)
    num_states = 0  # arrays of zeros in a new state
    has_step = False  # `step` alone defines the updates, so that they can run together

    def __init__(self, rescale_grad: float = 1.0, param_idx2name: Mapping[int, str] | None = None, wd: float = 0.0,
                 clip_gradient: float | None = None, learning_rate: float | None = None,
                 lr_scheduler: LRScheduler | None = None, sym: Any = None, begin_num_update: int = 0,
                 multi_precision: bool = False, param_dict: Mapping[int, Any] | None = None):
        self.rescale_grad, self.wd, self.clip_gradient = rescale_grad, wd, clip_gradient
        self.lr_scheduler, self.multi_precision = lr_scheduler, multi_precision
        if isinstance(learning_rate, str):  # from a configuration file
            learning_rate = float(learning_rate)
        self.lr = 0.01 if learning_rate is None else learning_rate
        if lr_scheduler is not None and learning_rate is not None:
            lr_scheduler.base_lr = learning_rate
        if param_idx2name is not None and not isinstance(param_idx2name, Mapping):
            raise ParameterError(f"{type(self).__name__}: param_idx2name must map indices to names, not {param_idx2name!r}.")
        self.idx2name: dict[Any, str] = dict(param_idx2name or {})
        self.sym_info = (sym.attr_dict(), sym.list_arguments()) if sym is not None else ()
        self.param_dict: dict[Any, Any] = dict(param_dict or {})
        self.begin_num_update = self.num_update = begin_num_update
        self._index_update_count: dict[Any, int] = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    def _facts(self) -> Mapping[str, Any]:
        own = {k: v for k, v in settings(self).items() if k not in _COMMON}
        return {"learning_rate": self.learning_rate, **own, "wd": self.wd, "updates": self.num_update}

    @staticmethod
    def register(klass: type) -> type:
        """Register an optimizer class under its name in lower case, for `create`."""
        return registry.register(klass)

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """Return a new optimizer of the class called name. Raises ParameterError for an unknown name or setting."""
        cls = registry.find(name)
        try:
            return cls(**kwargs)
        except TypeError as e:
            raise UnknownSettingError(f"optimizer.create: {name!r} does not take these settings: {e}.") from e

    # ---- implemented by subclasses ---------------------------------------------------------------------------------
    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return the state of a parameter, kept between its updates: None, an array, or a tuple of these.

        By default num_states arrays of zeros: None for 0, an array for 1, else a tuple.
        """
        state = tuple(zeros_like(weight) for _ in range(self.num_states))
        return state if len(state) > 1 else state[0] if state else None

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate | None:
        """Return the update of weight and state as one declared operator, or None for no update.

        A subclass implements this, or `update` if it takes more than one operator. The updates that `step` returns for many
        parameters run together.
        """
        raise NotImplementedError(f"{type(self).__name__}.step")

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change weight and state by grad, in place. Each may be sparse."""
        if _any_sparse(weight, grad):
            self._update_sparse(self.update, index, weight, grad, state)
        else:
            apply([self.step(index, weight, grad, state)])

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        cls.has_step = (cls.step is not Optimizer.step and cls.update is Optimizer.update
                        and cls.update_multi_precision is Optimizer.update_multi_precision)

    # ---- 16-bit weights --------------------------------------------------------------------------------------------
    def has_master_weight(self, weight: NDArray) -> bool:
        """True if a float32 copy of weight is kept and updated."""
        return self.multi_precision and is_half(np.dtype(weight.dtype))

    def create_state_multi_precision(self, index: Index, weight: NDArray) -> Any:
        """Return create_state, with a float32 copy of a 16-bit weight under multi_precision (see master_first)."""
        if not self.has_master_weight(weight):
            return self.create_state(index, weight)
        master = weight.astype("float32")
        inner = self.create_state(index, master)
        return (master, inner) if self.master_first else (inner, master)

    def step_multi_precision(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate | None:
        """Return `step` of the weight, or of its float32 copy under multi_precision."""
        if not self.multi_precision or not self.has_master_weight(weight):
            return self.step(index, weight, grad, state)
        master, inner = state if self.master_first else reversed(state)
        step = self.step(index, master, grad, inner)
        return None if step is None else step.with_master_weight(weight)

    def update_multi_precision(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update the weight, or its float32 copy under multi_precision and the weight from that."""
        if _any_sparse(weight, grad):
            self._update_sparse(self.update_multi_precision, index, weight, grad, state)
        elif self.has_step:
            apply([self.step_multi_precision(index, weight, grad, state)])
        elif not self.has_master_weight(weight):
            self.update(index, weight, grad, state)
        else:
            master, inner = state if self.master_first else reversed(state)
            self.update(index, master, grad.astype("float32"), inner)
            weight[:] = master.astype(weight.dtype)

    # ---- sparse arrays ---------------------------------------------------------------------------------------------
    def _update_sparse(self, update: Callable[..., None], index: Index, weight: Any, grad: Any, state: Any) -> None:
        """Run an update of dense arrays where the weight, its states or the gradient are sparse.

        By a row-sparse gradient: under lazy_update only its rows of weight and states, else all rows.
        """
        arrays = (weight, *leaves(state))
        if _any_sparse(*arrays):
            dense, dense_state = weight.tostype("default"), map_tree(lambda a: a.tostype("default"), state)
            self._update_sparse(update, index, dense, grad, dense_state)
            for target, values in zip(arrays, (dense, *leaves(dense_state))):
                if target is not values:
                    target[:] = values
            return
        same_shape = all(a.shape == weight.shape for a in arrays)
        if not isinstance(grad, RowSparseNDArray) or not self.lazy_update or not self.elementwise or not same_shape:
            update(index, weight, grad.tostype("default"), state)
            return
        if not len(grad.rows):
            self._update_count(index)
            return
        rows, state_rows = weight[grad.rows], map_tree(lambda a: a[grad.rows], state)
        update(index, rows, grad.data, state_rows)
        for target, values in zip(arrays, (rows, *leaves(state_rows))):
            target[grad.rows] = values

    # ---- rates -----------------------------------------------------------------------------------------------------
    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update, before multipliers."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate. Raises ScheduledRateError if a scheduler sets it."""
        if self.lr_scheduler is not None:
            raise ScheduledRateError(f"{type(self).__name__}.set_learning_rate: the learning rate is set by "
                                     f"{type(self.lr_scheduler).__name__}. Change its base_lr instead.")
        self.lr = lr

    def set_lr_scale(self, args_lrscale: Mapping[Index, float]) -> None:
        """Raise DeprecationWarning, as MXNet does."""
        raise DeprecationWarning("set_lr_scale is deprecated. Use set_lr_mult instead.")

    def set_lr_mult(self, args_lr_mult: Mapping[Index, float]) -> None:
        """Set factors of the learning rate by name or index; they override `__lr_mult__` of the symbol."""
        self.lr_mult = {**self._symbol_attributes("__lr_mult__"), **args_lr_mult}

    def set_wd_mult(self, args_wd_mult: Mapping[Index, float]) -> None:
        """Set factors of the weight decay by name or index. The default is 0 unless the name ends in _weight or _gamma."""
        default = {n: 0.0 for n in self.idx2name.values() if not n.endswith(("_weight", "_gamma"))}
        self.wd_mult = {**default, **self._symbol_attributes("__wd_mult__"), **args_wd_mult}

    def _symbol_attributes(self, key: str) -> dict[Any, float]:
        if not self.sym_info:
            return {}
        attrs, names = self.sym_info
        return {n: float(attrs[n][key]) for n in names if key in attrs.get(n, {})}

    def _mult(self, index: Index, factors: Mapping[Any, float]) -> float:
        if not factors:
            return 1.0
        return factors[index] if index in factors else factors.get(self.idx2name.get(index), 1.0)

    def _get_lr(self, index: Index) -> float:
        param = self.param_dict.get(index)
        return self.learning_rate * (param.lr_mult if param is not None else self._mult(index, self.lr_mult))

    def _get_wd(self, index: Index) -> float:
        param = self.param_dict.get(index)
        return self.wd * (param.wd_mult if param is not None else self._mult(index, self.wd_mult))

    def _get_lrs(self, indices: Sequence[Index]) -> list[float]:
        return [self._get_lr(i) for i in indices]

    def _get_wds(self, indices: Sequence[Index]) -> list[float]:
        return [self._get_wd(i) for i in indices]

    def _update_count(self, index: Index | Sequence[Index]) -> int:
        """Count an update of a parameter, or of each in a list. Returns the number of the (last) parameter's updates, from 1."""
        if isinstance(index, (list, tuple)):
            return [self._update_count(i) for i in index][-1]
        counts = self._index_update_count
        counts[index] = count = counts.get(index, self.begin_num_update) + 1
        if count > self.num_update:
            self.num_update = count
        return count

    def _common(self, index: Index) -> dict[str, Any]:
        """Count the update, and return the settings that every update operator has. clip_gradient -1 does not clip."""
        self._update_count(index)
        return {"lr": self._get_lr(index), "wd": self._get_wd(index), "rescale_grad": self.rescale_grad,
                "clip_gradient": -1.0 if self.clip_gradient is None else self.clip_gradient}

    def create_updater(self) -> Updater:
        """Return an Updater of this optimizer. `KVStore.set_optimizer` calls this."""
        return Updater(self)


def _any_sparse(*arrays: Any) -> bool:
    for a in arrays:  # noqa: SIM110 - called for every parameter of a step: any() takes four times as long
        if isinstance(a, BaseSparseNDArray):
            return True
    return False


class MomentumOptimizer(Optimizer):
    """Base of optimizers whose state is a momentum. momentum=0 keeps no state."""

    master_first = False
    operators = ("sgd_update", "sgd_mom_update")  # without and with momentum

    def __init__(self, momentum: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum

    @property
    def num_states(self) -> int:
        return 1 if self.momentum else 0

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate | None:
        return self.momentum_step(weight, grad, state, self.momentum, self._common(index))

    def momentum_step(self, weight: NDArray, grad: NDArray, state: Any, momentum: float, settings: dict[str, Any]) -> ParamUpdate:
        """Return the update by one of `operators`. state: the momentum, or None."""
        if state is None:
            return ParamUpdate(self.operators[0], weight, grad, **settings)
        return ParamUpdate(self.operators[1], weight, grad, (state,), momentum=momentum, **settings)


class Updater(Shown):
    """`updater(key, grad, weight)` updates a weight in place. The state of each key is created at its first update.

    With lists of keys, gradients and weights, the updates run together.
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        self._loaded: dict[Any, Any] = {}  # host arrays of a file, copied to the weight's context at the first update

    def _facts(self) -> Mapping[str, Any]:
        return {"optimizer": type(self.optimizer).__name__, "states": len(self.states)}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        opt, states = self.optimizer, self.states
        if not isinstance(index, (list, tuple)):
            index, grad, weight = (index,), (grad,), (weight,)
        has_step, updates = opt.has_step, []
        for i, g, w in zip(index, grad, weight):
            state = states[i] if i in states else self._create_state(i, w)
            if has_step and (type(w) is type(g) is NDArray or not _any_sparse(w, g)):
                updates.append(opt.step_multi_precision(i, w, g, state))
            else:
                opt.update_multi_precision(i, w, g, state)
        size = opt.aggregate_num if 0 < opt.aggregate_num < math.inf else len(updates)
        for start in range(0, len(updates), size or 1):
            apply(updates[start:start + size])

    def _create_state(self, index: Any, weight: NDArray) -> Any:
        opt, dtype = self.optimizer, np.dtype(weight.dtype)
        if is_half(dtype) and not opt.multi_precision:
            warnings.warn(f"{type(opt).__name__}: small updates of {dtype} weights are lost in rounding. multi_precision=True "
                          f"keeps a float32 copy.", stacklevel=3)
        state = opt.create_state_multi_precision(index, weight)
        if index in self._loaded:
            state = _on_device(self._loaded.pop(index), state, weight, index)
        self.states[index] = state
        return state

    @property
    def states_synced(self) -> dict[Any, bool]:
        """{key: True if its state is on the context of its weight}; those of a file are moved at the first update."""
        return {**dict.fromkeys(self.states, True), **dict.fromkeys(self._loaded, False)}

    def sync_state_context(self, state: Any, context: Context) -> Any:
        """Return a state with all its arrays on context."""
        return map_tree(lambda a: a.as_in_context(context), state)

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """Return all states and update counts as bytes; with dump_optimizer also numeric settings, the scheduler's too."""
        opt = self.optimizer
        extra: dict[str, Any] = {"optimizer": type(opt).__name__.lower(), "num_update": opt.num_update,
                                 "counts": list(opt._index_update_count.items())}
        if dump_optimizer:
            extra["settings"] = _plain(opt)
            if opt.lr_scheduler is not None:
                extra["scheduler"] = type(opt.lr_scheduler).__name__
                extra["scheduler_settings"] = _plain(opt.lr_scheduler)
        trees = {k: map_tree(NDArray.asnumpy, s) for k, s in self.states.items()} | self._loaded
        return states_file.dump(trees, extra)

    def set_states(self, states: bytes, source: str = "optimizer states") -> None:
        """Set the states from bytes of get_states or from a file of MXNet's Updater.

        Raises MXNetError, and changes nothing, for damaged states or those of another optimizer. MXNet's files without the
        optimizer do not name it: states that do not fit raise ShapeError at the first update.
        """
        trees, extra = (read_mxnet_states if is_pickle(states) else states_file.load)(states, source)
        if is_pickle(states) and not extra:
            self._loaded, self.states = trees, {}
            return
        opt = self.optimizer
        name = type(opt).__name__.lower()
        if extra.get("optimizer") != name:
            raise MXNetError(f"{source}: the states are of optimizer {extra.get('optimizer')!r}, this is {name!r}. "
                             f"Create the optimizer that saved them.")
        try:
            counts = {k if type(k) is str else int(k): int(n) for k, n in extra["counts"]}
            num_update = int(extra["num_update"])
            settings, schedule = dict(extra.get("settings", {})), dict(extra.get("scheduler_settings", {}))
        except (KeyError, TypeError, ValueError) as e:
            raise MXNetError(f"{source}: the update counts are damaged: {e}.") from e
        _set_plain(opt, settings)
        if opt.lr_scheduler is not None and type(opt.lr_scheduler).__name__ == extra.get("scheduler"):
            _set_plain(opt.lr_scheduler, schedule)
        opt._index_update_count = counts
        opt.num_update = num_update
        self.states = {}
        self._loaded = trees


def _plain(owner: Any) -> dict[str, Any]:
    """Return the attributes of owner that are numbers or None."""
    return {k: v for k, v in vars(owner).items() if type(v) in _PLAIN}


def _set_plain(owner: Any, settings: Mapping[str, Any]) -> None:
    """Set those attributes of owner that are numbers or None, and not private, to the values in settings."""
    own = {k for k in _plain(owner) if not k.startswith("_")}
    vars(owner).update({k: v for k, v in settings.items() if k in own and type(v) in _PLAIN})


def get_updater(optimizer: Optimizer) -> Updater:
    """Return a new Updater of optimizer."""
    return optimizer.create_updater()


def create(name: Any, **kwargs: Any) -> Optimizer:
    """Return a new optimizer of the class called name ("sgd", "adam", ...), or name itself if it is an Optimizer."""
    return name if isinstance(name, Optimizer) else Optimizer.create_optimizer(name, **kwargs)


register = Optimizer.register


def _on_device(saved: Any, state: Any, weight: NDArray, index: Index) -> Any:
    """Copy a saved tree of NumPy arrays to the device. Raises ShapeError unless it has the form of a new state."""
    if saved is None and state is None:
        return None
    if isinstance(saved, tuple) and isinstance(state, tuple) and len(saved) == len(state):
        return tuple(_on_device(s, f, weight, index) for s, f in zip(saved, state))
    if isinstance(state, NDArray) and isinstance(saved, np.ndarray) and tuple(saved.shape) == tuple(state.shape):
        return array(saved, ctx=state.context, dtype=saved.dtype)
    raise ShapeError(f"Updater: the saved state of {index!r} does not fit its weight {weight.shape}. "
                     f"It belongs to another network or optimizer.")
