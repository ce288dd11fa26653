"""Optimizer: turns gradients into new weights. The base class, its registry, and the Updater that keeps the states."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...dtype import is_half
from ...errors import MXNetError, ParameterError, ShapeError
from ...ndarray import NDArray, RowSparseNDArray, array, zeros
from ..registry import Registry
from . import states as states_file
from .lr_scheduler import LRScheduler
from .mxnet_states import is_pickle, read_mxnet_states
from .update import ParamUpdate, apply

registry = Registry("optimizer")
Index = int | str  # a parameter's number, or its name where the kvstore goes by names


class Optimizer:
    """Base of optimizers: per-parameter rates, and how many updates were made.

    rescale_grad:       every gradient is multiplied by this first; Module gives 1 / batch size.
    clip_gradient:      then cut to [-clip_gradient, clip_gradient]; None does not cut.
    learning_rate:      replaces the scheduler's base_lr if both are given; 0.01 if neither is.
    wd:                 weight decay; by default only of parameters that are called *_weight or *_gamma.
    param_idx2name:     {number: name} of the parameters.
    sym:                the Symbol whose variables carry `__lr_mult__` and `__wd_mult__`.
    begin_num_update:   how many updates were made before, for the scheduler.
    multi_precision:    keep a float32 copy of every 16-bit weight, and update that.
    param_dict:         {number: Parameter}, for multipliers that live on the parameters.
    """

    opt_registry = registry
    aggregate_num = int(os.environ.get("MXNET_OPTIMIZER_AGGREGATION_SIZE", "0"))  # parameters in one update; 0: all
    elementwise = True  # an element's update needs nothing of the others: no norms of a whole weight
    lazy_update = False  # a row-sparse gradient changes its rows of weight and states, and nothing else
    master_first = True  # a state under multi_precision is (float32 copy, state); False: (state, float32 copy)

    def __init__(self, rescale_grad: float = 1.0, param_idx2name: Mapping[int, str] | None = None, wd: float = 0.0,
                 clip_gradient: float | None = None, learning_rate: float | None = None,
                 lr_scheduler: LRScheduler | None = None, sym: Any = None, begin_num_update: int = 0,
                 multi_precision: bool = False, param_dict: Mapping[int, Any] | None = None):
        self.rescale_grad = rescale_grad
        self.wd = wd
        self.clip_gradient = clip_gradient
        self.lr_scheduler = lr_scheduler
        self.multi_precision = multi_precision
        self.lr = 0.01 if learning_rate is None else learning_rate
        if lr_scheduler is not None and learning_rate is not None:
            if isinstance(lr_scheduler, LRScheduler):
                lr_scheduler.rebase(learning_rate)
            else:
                lr_scheduler.base_lr = learning_rate
        if param_idx2name is not None and not isinstance(param_idx2name, Mapping):
            raise ParameterError(f"{type(self).__name__}: param_idx2name must map numbers to names: "
                                 f"{param_idx2name!r}.")
        self.idx2name: dict[Any, str] = dict(param_idx2name or {})
        self.sym_info = (sym.attr_dict(), sym.list_arguments()) if sym is not None else ()
        self.param_dict: dict[Any, Any] = dict(param_dict or {})
        self.begin_num_update = begin_num_update
        self.num_update = begin_num_update
        self._index_update_count: dict[Any, int] = {}
        self.lr_mult: dict[Any, float] = {}
        self.wd_mult: dict[Any, float] = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    @staticmethod
    def register(klass: type) -> type:
        """Make an optimizer class known to `create` by its name, in lower case."""
        return registry.register(klass)

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """The optimizer called name. Raises ParameterError for an unknown name or setting."""
        cls = registry.find(name)
        try:
            return cls(**kwargs)
        except TypeError as e:
            raise ParameterError(f"optimizer.create: {name!r} does not take these settings: {e}.") from e

    # ---- what a subclass writes -----------------------------------------------------------------------------------
    def create_state(self, index: Index, weight: NDArray) -> Any:
        """What is kept between updates of one parameter: None, an array, or a tuple of these."""
        return None

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate | None:
        """What is to be done to weight and state, as one declared operator; None for nothing, this time.

        An optimizer writes this, or `update` if no single operator does it. Steps of many parameters run in one go.
        """
        raise NotImplementedError(f"{type(self).__name__}.step")

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change weight (and state) by grad, in place."""
        step = self.step(index, weight, grad, state)
        if step is not None:
            apply([step])

    @property
    def stepwise(self) -> bool:
        """Whether `step` says all that an update does, so that updates may be gathered."""
        cls = type(self)
        return (cls.step is not Optimizer.step and cls.update is Optimizer.update
                and cls.update_multi_precision is Optimizer.update_multi_precision)

    def step_multi_precision(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate | None:
        """step, through the float32 copy if there is one."""
        if not self.keeps_master(weight):
            return self.step(index, weight, grad, state)
        master, inner = state if self.master_first else reversed(state)
        step = self.step(index, master, grad, inner)
        return None if step is None else step.with_master_weight(weight)

    # ---- 16-bit weights --------------------------------------------------------------------------------------------
    def keeps_master(self, weight: NDArray) -> bool:
        """Whether weight is updated through a float32 copy."""
        return self.multi_precision and is_half(np.dtype(weight.dtype))

    def create_state_multi_precision(self, index: Index, weight: NDArray) -> Any:
        """create_state, or with a float32 copy for a 16-bit weight under multi_precision (see master_first)."""
        if not self.keeps_master(weight):
            return self.create_state(index, weight)
        master = weight.astype("float32")
        inner = self.create_state(index, master)
        return (master, inner) if self.master_first else (inner, master)

    def _warn_if_half(self, weight: NDArray) -> None:
        if is_half(np.dtype(weight.dtype)) and not self.multi_precision:
            warnings.warn(f"{type(self).__name__}: small updates of {np.dtype(weight.dtype)} weights are lost in "
                          f"rounding. multi_precision=True keeps a float32 copy.", stacklevel=4)

    def update_multi_precision(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """update, through the float32 copy if there is one."""
        if not self.keeps_master(weight):
            self.update(index, weight, grad, state)
            return
        if self.stepwise:
            step = self.step_multi_precision(index, weight, grad, state)
            if step is not None:
                apply([step])
            return
        master, inner = state if self.master_first else reversed(state)
        self.update(index, master, grad.astype("float32"), inner)
        weight[:] = master.astype(weight.dtype)

    # ---- rates -----------------------------------------------------------------------------------------------------
    @property
    def learning_rate(self) -> float:
        """The rate of the next update, before multipliers."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Use lr from now on. Raises ParameterError when a scheduler decides the rate."""
        if self.lr_scheduler is not None:
            raise ParameterError(f"{type(self).__name__}.set_learning_rate: the rate is decided by "
                                 f"{type(self.lr_scheduler).__name__}; change that.")
        self.lr = lr

    def set_lr_mult(self, args_lr_mult: Mapping[Index, float]) -> None:
        """Multiply the learning rate of these parameters (names or numbers), over the symbol's `__lr_mult__`."""
        self.lr_mult = self._marked("__lr_mult__")
        self.lr_mult.update(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Index, float]) -> None:
        """Multiply the weight decay of these parameters. All that are not called *_weight or *_gamma begin with 0."""
        self.wd_mult = {n: 0.0 for n in self.idx2name.values() if not n.endswith(("_weight", "_gamma"))}
        self.wd_mult.update(self._marked("__wd_mult__"))
        self.wd_mult.update(args_wd_mult)

    def _marked(self, key: str) -> dict[Any, float]:
        if not self.sym_info:
            return {}
        attrs, names = self.sym_info
        return {n: float(attrs[n][key]) for n in names if key in attrs.get(n, {})}

    def _mult(self, index: Index, given: Mapping[Any, float], field: str) -> float:
        if not given and not self.param_dict:
            return 1.0
        if index in self.param_dict:
            return getattr(self.param_dict[index], field)
        if index in given:
            return given[index]
        return given.get(self.idx2name.get(index), 1.0)

    def _get_lr(self, index: Index) -> float:
        return self.learning_rate * self._mult(index, self.lr_mult, "lr_mult")

    def _get_wd(self, index: Index) -> float:
        return self.wd * self._mult(index, self.wd_mult, "wd_mult")

    def _update_count(self, index: Index) -> int:
        """Count one more update of a parameter; returns which one it is, from 1."""
        counts = self._index_update_count
        counts[index] = count = counts.get(index, self.begin_num_update) + 1
        if count > self.num_update:
            self.num_update = count
        return count

    def _common(self, index: Index) -> dict[str, Any]:
        """What every update operator takes: counts the update, then lr, wd, rescale_grad, clip_gradient (-1: none)."""
        self._update_count(index)
        return {
            "lr": self._get_lr(index),
            "wd": self._get_wd(index),
            "rescale_grad": self.rescale_grad,
            "clip_gradient": -1.0 if self.clip_gradient is None else self.clip_gradient,
        }

    def create_updater(self) -> Updater:
        """An Updater of this optimizer; the hook by which a KVStore takes one (`KVStore.set_optimizer`)."""
        return Updater(self)


class Updater:
    """`updater(key, grad, weight)`: makes a parameter's state when it is first seen, and updates in place."""

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        self._loaded: dict[Any, Any] = {}  # host arrays of a file; each moves to its weight's context when it is used

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        opt = self.optimizer
        if not isinstance(index, (list, tuple)):
            if isinstance(grad, RowSparseNDArray):
                self._update_rows(index, grad, weight)
                return
            opt.update_multi_precision(index, weight, grad, self._state(index, weight))
            return
        if not opt.stepwise:
            for i, g, w in zip(index, grad, weight):
                opt.update_multi_precision(i, w, g, self._state(i, w))
            return
        states = self.states
        made = [opt.step_multi_precision(i, w, g, states[i] if i in states else self._state(i, w))
                for i, g, w in zip(index, grad, weight)]
        steps = [s for s in made if s is not None]
        size = opt.aggregate_num if 0 < opt.aggregate_num < math.inf else len(steps)
        for at in range(0, len(steps), max(size, 1)):
            apply(steps[at:at + size])

    def _update_rows(self, index: Any, grad: RowSparseNDArray, weight: NDArray) -> None:
        """Update by a row-sparse gradient: with lazy_update only its rows of weight and states, else all of them."""
        opt, state = self.optimizer, self._state(index, weight)
        alike = all(s.shape == weight.shape for s in _leaves(state))
        if not opt.lazy_update or not opt.elementwise or not alike:
            opt.update_multi_precision(index, weight, grad.tostype("default"), state)
            return
        if not len(grad.rows):
            opt._update_count(index)
            return
        some = weight[grad.rows]
        some_state = _map(state, lambda a: a[grad.rows])
        opt.update_multi_precision(index, some, grad.data, some_state)
        for whole, part in zip((weight, *_leaves(state)), (some, *_leaves(some_state))):
            whole[grad.rows] = part

    def _state(self, index: Any, weight: NDArray) -> Any:
        """The state of a parameter, made when it is first asked for."""
        if index in self.states:
            return self.states[index]
        self.optimizer._warn_if_half(weight)
        fresh = self.optimizer.create_state_multi_precision(index, weight)
        if index in self._loaded:
            fresh = _settle(self._loaded.pop(index), fresh, weight, index)
        self.states[index] = fresh
        return fresh

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """All states and update counts as bytes; with dump_optimizer also the optimizer's own numbers."""
        opt = self.optimizer
        extra: dict[str, Any] = {
            "optimizer": type(opt).__name__.lower(),
            "num_update": opt.num_update,
            "counts": list(opt._index_update_count.items()),
        }
        if dump_optimizer:
            extra["settings"] = {k: v for k, v in vars(opt).items() if v is None or type(v) in (int, float, bool)}
        trees = {k: _map(s, lambda a: a.asnumpy()) for k, s in self.states.items()} | self._loaded
        return states_file.dump(trees, extra)

    def set_states(self, states: bytes, source: str = "optimizer states") -> None:
        """Take over what get_states gave, or what MXNet's Updater wrote. A damaged file, or one of another optimizer, is an
        error, and nothing changed. MXNet's files do not say whose they are: their form shows when a state is first used.
        """
        if is_pickle(states):
            self._loaded, self.states = read_mxnet_states(states, source), {}
            return
        trees, extra = states_file.load(states, source)
        opt = self.optimizer
        name = type(opt).__name__.lower()
        if extra.get("optimizer") != name:
            raise MXNetError(f"{source}: the states are of optimizer {extra.get('optimizer')!r}, this is {name!r}. "
                             f"Create the optimizer they were saved from.")
        try:
            counts = {k if type(k) is str else int(k): int(n) for k, n in extra["counts"]}
            num_update = int(extra["num_update"])
            settings = dict(extra.get("settings", {}))
        except (KeyError, TypeError, ValueError) as e:
            raise MXNetError(f"{source}: the update counts are damaged: {e}.") from e
        own = vars(opt)
        for key, value in settings.items():
            if key in own and (value is None or type(value) in (int, float, bool)) and not key.startswith("_"):
                if own[key] is None or type(own[key]) in (int, float, bool):
                    own[key] = value
        opt._index_update_count = counts
        opt.num_update = num_update
        self.states = {}
        self._loaded = trees


def get_updater(optimizer: Optimizer) -> Updater:
    """An Updater of optimizer."""
    return optimizer.create_updater()


def create(name: Any, **kwargs: Any) -> Optimizer:
    """The optimizer called name ("sgd", "adam", ...); an Optimizer is returned as it is."""
    return name if isinstance(name, Optimizer) else Optimizer.create_optimizer(name, **kwargs)


register = Optimizer.register


def like(weight: NDArray) -> NDArray:
    """Zeros like weight."""
    return zeros(weight.shape, ctx=weight.context, dtype=weight.dtype)


def _map(tree: Any, fn: Any) -> Any:
    if tree is None:
        return None
    return tuple(_map(t, fn) for t in tree) if isinstance(tree, (tuple, list)) else fn(tree)


def _leaves(tree: Any) -> list[NDArray]:
    """The arrays of a state, from left to right."""
    if tree is None:
        return []
    return [a for t in tree for a in _leaves(t)] if isinstance(tree, (tuple, list)) else [tree]


def _settle(saved: Any, fresh: Any, weight: NDArray, index: Index) -> Any:
    """The saved tree on the device, if it has the form of the state that the optimizer makes for this weight."""
    if saved is None and fresh is None:
        return None
    if isinstance(saved, tuple) and isinstance(fresh, tuple) and len(saved) == len(fresh):
        return tuple(_settle(s, f, weight, index) for s, f in zip(saved, fresh))
    if isinstance(fresh, NDArray) and isinstance(saved, np.ndarray) and tuple(saved.shape) == tuple(fresh.shape):
        return array(saved, ctx=fresh.context, dtype=saved.dtype)
    raise ShapeError(f"Updater: the saved state of {index!r} does not fit its weight {weight.shape}. "
                     f"It belongs to another network or optimizer.")
