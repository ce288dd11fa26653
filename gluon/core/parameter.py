"""Parameter: the arrays of one learned weight, a copy on each context, with their gradients."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from ... import ndarray
from ...context import Context, cpu, current_context
from ...dtype import as_dtype
from ...errors import BlockError, DeferredInitializationError, MXNetError, check_choice
from ...graph.symbol.symbol import Symbol, Variable
from ...ndarray import NDArray, RowSparseNDArray, autograd
from ...ndarray.autograd.tape import state
from ...np_shape import state as np_shape
from ...train import initializer
from .nested import shape_is_known

if TYPE_CHECKING:
    from ..trainer import Trainer

Contexts = Context | Sequence[Context] | None

_STYPES = ("default", "row_sparse", "csr")
tensor_types = (Symbol, NDArray)


class Parameter:
    """One weight of a Block.

    grad_req:             "write", "add" or "null" (no gradient).
    shape:                0 for an unknown size; None if nothing is known.
    lr_mult, wd_mult:     factors of the learning rate and the weight decay.
    init:                 an initializer, or its name; None: the one given to `initialize`.
    allow_deferred_init:  True if the first forward pass may complete the shape.
    differentiable:       False for states such as BatchNorm's, which have no gradient.
    stype, grad_stype:    "default", or "row_sparse": then Trainer reads and writes rows with a gradient only.
    """

    def __init__(self, name: str, grad_req: str = "write", shape: int | Sequence[int] | None = None,
                 dtype: DTypeLike = np.float32, lr_mult: float = 1.0, wd_mult: float = 1.0, init: Any = None,
                 allow_deferred_init: bool = False, differentiable: bool = True, stype: str = "default",
                 grad_stype: str = "default"):
        for what, given in (("stype", stype), ("grad_stype", grad_stype)):
            check_choice(f"Parameter {name}", what, given, _STYPES)
        self.name = name
        self._var: Symbol | None = None
        self._data: list[NDArray] | None = None
        self._grad: list[NDArray] | None = None
        self._ctx_list: list[Context] | None = None
        self._trainer: Trainer | None = None
        self._deferred_init: tuple[Any, ...] = ()
        self._differentiable, self._allow_deferred_init = differentiable, allow_deferred_init
        self._shape = (shape,) if isinstance(shape, int) else None if shape is None else tuple(shape)
        self._dtype = dtype
        self._stype, self._grad_stype = stype, grad_stype
        self.lr_mult, self.wd_mult, self.init = lr_mult, wd_mult, init
        self._grad_req: str | None = None
        self.grad_req = grad_req

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.name} (shape={self.shape}, dtype={self.dtype})"

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is made again in a copy: the variable, the gradients, the trainer."""
        return {**self.__dict__, "_var": None, "_grad": None, "_trainer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._init_grad()

    # ---- properties -----------------------------------------------------------------------------------------------
    @property
    def grad_req(self) -> str:
        """The request of backward: "write", "add" or "null"."""
        return self._grad_req or "null"

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req not in ("write", "add", "null"):
            raise BlockError(f"Parameter {self.name}: grad_req must be one of 'write', 'add', or 'null', but got {req!r}.")
        if not self._differentiable:
            req = "null"
        if self._grad_req == req:
            return
        self._grad_req = req
        if req == "null" and self._grad is not None:
            self._grad = None
            self._data = [a.detach() for a in self._data or ()]
        elif self._data is not None:
            self._init_grad()

    @property
    def dtype(self) -> Any:
        """The element type; setting it converts the arrays."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: DTypeLike) -> None:
        self.cast(dtype)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape, with 0 for unknown sizes (-1 under np_shape); None if nothing is known. Unknown sizes can be set once."""
        if self._shape is not None and np_shape.active:
            return tuple(-1 if n == 0 else n for n in self._shape)
        return self._shape

    @shape.setter
    def shape(self, new: Sequence[int] | None) -> None:
        old = self._shape
        if old is not None and new is not None:
            if len(old) != len(new) or any(o not in (-1, 0, n) for o, n in zip(old, new)):
                raise BlockError(f"Parameter {self.name}: expected shape {new} is incompatible with given shape {old}.")
        self._shape = None if new is None else tuple(new)

    @property
    def stype(self) -> str:
        """The storage type, "default" or "row_sparse"."""
        return self._stype

    @property
    def _ctx_map(self) -> list[list[int | None]]:
        """MXNet's table of places: `_ctx_map[ctx.device_typeid & 1][ctx.device_id]` is the index of an array in `_data`."""
        table: list[list[int | None]] = [[], []]
        for i, ctx in enumerate(self._ctx_list or ()):
            row = table[ctx.device_typeid & 1]
            row += [None] * (ctx.device_id + 1 - len(row))
            row[ctx.device_id] = i
        return table

    def _set_trainer(self, trainer: Trainer | None) -> None:
        if self._stype != "default" and self._trainer and trainer and self._trainer is not trainer:
            raise MXNetError(f"Failed to set the trainer for Parameter '{self.name}' because it was already set. A row-sparse "
                             f"parameter cannot have several trainers.")
        self._trainer = trainer

    # ---- initialization ---------------------------------------------------------------------------------------------
    def initialize(self, init: Any = None, ctx: Contexts = None, default_init: Any = None, force_reinit: bool = False) -> None:
        """Allocate and fill the arrays; later, in the first forward pass, if the shape is not complete.

        init:          an initializer for this parameter; None: its own, else default_init.
        ctx:           one context, or several for a copy on each; None: the current one.
        default_init:  an initializer that chooses by the parameter's name; None: Uniform().
        force_reinit:  fill again what is initialized already.
        """
        default_init = initializer.Uniform() if default_init is None else default_init
        if self._data is not None and not force_reinit:
            warnings.warn(f"Parameter '{self.name}' is already initialized, ignoring. Set force_reinit=True to re-initialize.",
                          stacklevel=2)
            return
        self._data = self._grad = None
        contexts = _listed(ctx) or [current_context()]
        if init is None:
            init = default_init if self.init is None else self.init
        self._deferred_init = (init, contexts, default_init, None)
        if shape_is_known(self.shape) and 0 not in (self.shape or ()):
            self._finish_deferred_init()
        elif not self._allow_deferred_init:
            self._deferred_init = ()
            raise BlockError(f"Cannot initialize Parameter '{self.name}' because it has invalid shape: {self.shape}. "
                             f"Give the whole shape, or allow_deferred_init=True.")

    def _finish_deferred_init(self) -> None:
        """Fill the arrays, if that waited for the shape."""
        if not self._deferred_init:
            return
        init, contexts, default_init, data = self._deferred_init
        try:
            if self.shape is None or not shape_is_known(self.shape):
                raise BlockError(f"Cannot initialize Parameter '{self.name}' because it has invalid shape: {self.shape}. "
                                 f"Give in_units, in_channels and the like, or use it in the forward pass.")
            with autograd.pause():
                if data is None:
                    data = ndarray.zeros(self.shape, ctx=cpu(), dtype=self.dtype)
                    initializer.create(default_init)(initializer.InitDesc(self.name, {"__init__": init}), data)
                self._init_impl(data, contexts)
        finally:
            self._deferred_init = ()  # last: another thread that finds neither would call the parameter uninitialized

    def _init_impl(self, data: NDArray, contexts: Sequence[Context]) -> None:
        """Make a copy of data on each context, and the gradients."""
        self._ctx_list = list(contexts)
        self._data = [data.copyto(c) for c in self._ctx_list]
        self._init_grad()

    def _init_grad(self) -> None:
        if self.grad_req == "null" or self._data is None:
            self._grad = None
            return
        self._grad = [ndarray.zeros(a.shape, ctx=a.context, dtype=a.dtype) for a in self._data]
        autograd.mark_variables(self._data, self._grad, self.grad_req)

    def _load_init(self, data: Any, ctx: Contexts, cast_dtype: bool = False, dtype_source: str = "current") -> None:
        """Take values that were read from a file, and initialize where that has not happened.

        cast_dtype: convert if dtypes differ, to the parameter's ("current") or to the file's ("saved") as dtype_source says.
        """
        if cast_dtype and dtype_source not in ("current", "saved"):
            raise BlockError(f"load: dtype_source must be 'current' or 'saved', not {dtype_source!r}.")
        failed = f"Failed loading Parameter '{self.name}' from saved params"
        if self.shape:
            if len(self.shape) != len(data.shape) or any(own not in (-1, 0, d) for own, d in zip(self.shape, data.shape)):
                raise BlockError(f"{failed}: shape incompatible expected {self.shape} vs saved {tuple(data.shape)}.")
        self.shape = tuple(data.shape)
        if self.dtype is not None:
            own, saved = as_dtype(self.dtype), as_dtype(data.dtype)
            if own != saved and cast_dtype and dtype_source == "current":
                data = data.astype(own)
            elif own != saved and cast_dtype:
                self.dtype = saved.type
            elif own != saved:
                raise BlockError(f"{failed}: dtype incompatible expected {own.name} vs saved {saved.name}. Set cast_dtype=True "
                                 f"to cast the dtype of saved params.")
        if isinstance(data, RowSparseNDArray):
            data = data.tostype("default")
        contexts = _listed(ctx)
        if self._data is None:
            if self._deferred_init:
                self._same_contexts(contexts, self._deferred_init[1])
                contexts = self._deferred_init[1]
            self._init_impl(data, contexts or [cpu()])
        else:
            self._same_contexts(contexts, self.list_ctx())
            self.set_data(data)
        self._deferred_init = ()

    def _same_contexts(self, given: Sequence[Context] | None, own: Sequence[Context]) -> None:
        if given is not None and set(given) != set(own):
            raise BlockError(f"Failed to load Parameter '{self.name}' on {list(given)} because it was previously initialized on "
                             f"{list(own)}.")

    def _reduce(self) -> NDArray:
        """Return the mean of the copies on all contexts, on cpu(0)."""
        if self._stype != "default" and self._trainer is not None:
            return self.row_sparse_data(ndarray.arange(0, (self.shape or (0,))[0], dtype="int64")).copyto(cpu())
        copies = [a.copyto(cpu()) for a in self.list_data_dense()]
        return copies[0] if len(copies) == 1 else ndarray.add_n(*copies) / len(copies)

    # ---- arrays ---------------------------------------------------------------------------------------------------
    def _check_and_get(self, arrays: list[Any] | None, ctx: Any) -> Any:
        """Return the one of arrays that is on ctx; all of them if ctx is the type `list`.

        Raises DeferredInitializationError before the shape is known, MXNetError before `initialize` and for another context.
        """
        if arrays is not None:
            if ctx is list:
                return arrays
            if len(arrays) == 1 and (ctx is None or arrays[0].layout.ctx is ctx):
                return arrays[0]
            if ctx is None:
                ctx = current_context()
            for own, array in zip(self._ctx_list or (), arrays):
                if own.device_id == ctx.device_id and own.is_gpu == ctx.is_gpu:
                    return array
            raise MXNetError(f"Parameter '{self.name}' was not initialized on context {ctx}. It was only initialized on "
                             f"{self._ctx_list}.")
        if self._deferred_init:
            raise DeferredInitializationError(
                f"Parameter '{self.name}' has not been initialized yet because initialization was deferred: its shape "
                f"{self.shape} is not complete. Run the network on a batch first, or give in_units, in_channels and the like.")
        raise MXNetError(f"Parameter '{self.name}' has not been initialized. Call initialize() of the whole network; "
                         f"collect_params() has the parameters of all its blocks, params only its own.")

    def data(self, ctx: Context | None = None) -> NDArray:
        """Return the array on a context; None: the current one, or the only one."""
        self._check_dense("data")
        return self._check_and_get(self._data, ctx)

    def list_data(self) -> list[NDArray]:
        """Return the arrays on all contexts."""
        self._check_dense("list_data")
        return self._check_and_get(self._data, list)

    def list_data_dense(self) -> list[NDArray]:
        """Return the arrays on all contexts, whatever the storage type: rows are kept in dense arrays."""
        return self._check_and_get(self._data, list)

    def _check_dense(self, method: str) -> None:
        if self._stype != "default":
            raise MXNetError(f"Cannot return a copy of Parameter '{self.name}' via {method}() because its storage type is "
                             f"{self._stype}. Use row_sparse_data().")

    def row_sparse_data(self, row_id: NDArray) -> NDArray:
        """Return the array on the context of row_id, in which these rows are up to date."""
        return self._rows("row_sparse_data", self._check_and_get(self._data, row_id.context), row_id)

    def list_row_sparse_data(self, row_id: NDArray) -> list[NDArray]:
        """Return the arrays on all contexts, in which these rows are up to date."""
        return [self._rows("list_row_sparse_data", a, row_id) for a in self._check_and_get(self._data, list)]

    def _rows(self, method: str, array: NDArray, row_id: NDArray) -> NDArray:
        if self._stype != "row_sparse":
            raise MXNetError(f"Cannot return a copy of Parameter {self.name} via {method}() because its storage type is "
                             f"{self._stype}. Use data().")
        return self._get_row_sparse([array], array.context, row_id)

    def _get_row_sparse(self, arrays: list[NDArray], ctx: Any, row_id: NDArray) -> NDArray:
        """Bring rows up to date from the trainer's store, if it holds the weights."""
        if self._trainer is None:
            raise MXNetError(f"Cannot get row_sparse data for Parameter '{self.name}' when no Trainer is created with it.")
        self._trainer._row_sparse_pull(self, arrays, row_id)
        return arrays[0]

    def grad(self, ctx: Context | None = None) -> Any:
        """Return the gradient on a context; row-sparse if grad_stype is."""
        return self._as_stored(self._check_and_get(self._gradients(), ctx))

    def list_grad(self) -> list[Any]:
        """Return the gradients on all contexts."""
        return [self._as_stored(g) for g in self._check_and_get(self._gradients(), list)]

    def _gradients(self) -> list[NDArray] | None:
        if self._data is not None and self._grad is None:
            raise MXNetError(f"Cannot get gradient array for Parameter '{self.name}' because grad_req='null'.")
        return self._grad

    def _as_stored(self, gradient: NDArray) -> Any:
        return gradient if self._grad_stype == "default" else ndarray.sparse.row_sparse_array(gradient)

    def list_ctx(self) -> list[Context]:
        """Return the contexts of the arrays, also before a deferred initialization has happened."""
        if self._data is None:
            if self._deferred_init:
                return self._deferred_init[1]
            raise MXNetError(f"Parameter '{self.name}' has not been initialized.")
        return self._ctx_list or []

    def set_data(self, data: Any) -> None:
        """Write data into the arrays of all contexts; in `autograd.pause()` inside `record()`, put new arrays in their place."""
        self.shape = data.shape
        if self._data is None:
            if not self._deferred_init:
                raise BlockError(f"Parameter '{self.name}' has not been initialized. Call initialize() first.")
            self._deferred_init = (*self._deferred_init[:3], data)
            return
        trainer = self._trainer
        if trainer is not None and trainer._kv_initialized and trainer._update_on_kvstore:
            if self not in trainer._params_to_init:
                trainer._reset_kvstore()
        for i, array in enumerate(self._data):
            if state.paused:  # a recorded operator may need the old values, so that array keeps them
                new = ndarray.empty(array.shape, ctx=array.context, dtype=array.dtype)
                new._grad, new._grad_edge = array._grad, array._grad_edge
                self._data[i] = array = new
            array[:] = data

    def zero_grad(self) -> None:
        """Set the gradients to 0."""
        for g in self._grad or ():
            g[:] = 0

    def reset_ctx(self, ctx: Contexts) -> None:
        """Move to other contexts."""
        contexts = _listed(ctx) or [current_context()]
        if self._data is not None:
            data = self._reduce()
            with autograd.pause():
                self._init_impl(data, contexts)
        elif self._deferred_init:
            init, _, default_init, data = self._deferred_init
            self._deferred_init = (init, contexts, default_init, data)
        else:
            raise BlockError(f"Cannot reset context for Parameter '{self.name}' because it has not been initialized.")

    def cast(self, dtype: DTypeLike) -> None:
        """Convert the arrays and gradients to another element type."""
        self._dtype, self._var = dtype, None
        if self._data is None:
            return
        with autograd.pause():
            self._data = [a.astype(dtype) for a in self._data]
            self._init_grad()

    def var(self) -> Symbol:
        """Return the variable that stands for this parameter in symbols, the same one each time."""
        if self._var is None:
            self._var = Variable(self.name, shape=self.shape, dtype=self.dtype, lr_mult=self.lr_mult, wd_mult=self.wd_mult,
                                 init=self._symbol_init(), stype=0)
        return self._var

    def _symbol_init(self) -> Any:
        return self.init


class Constant(Parameter):
    """A parameter that is not learned, with a fixed value: an array, or what can be made one."""

    def __init__(self, name: str, value: Any):
        self.value = value if isinstance(value, NDArray) else ndarray.array(value)
        super().__init__(name, grad_req="null", shape=self.value.shape, dtype=self.value.dtype, init=_Value(self.value))

    @property
    def grad_req(self) -> str:
        """Always "null"."""
        return "null"

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req != "null":
            warnings.warn(f"Constant parameter '{self.name}' does not support grad_req other than 'null', and new value "
                          f"'{req}' is ignored.", stacklevel=2)

    def _symbol_init(self) -> None:
        """None: the value goes into the file of parameters."""


class _Value(initializer.Initializer):
    """Fills an array with a Constant's value, whatever its name."""

    def __init__(self, value: NDArray):
        super().__init__()
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        self.value.copyto(arr)


def _listed(ctx: Contexts) -> list[Context] | None:
    return None if ctx is None else [ctx] if isinstance(ctx, Context) else list(ctx)
