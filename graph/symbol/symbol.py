"""Symbol: a graph as a value. Compose it from variables and operators, infer its shapes, save it, bind it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from ...atomic_file import read_file, write_atomic
from ...context import Context
from ...dtype import DTYPE_TO_FLAG, as_dtype
from ...errors import DTypeError, GraphError, GraphTypeError, NotImplementedForSymbol, ShapeError, nearest
from ...kernels import op as ops
from ...kernels.op import Op, Shape, ShapeLike, is_known
from ...ndarray import NDArray
from ...ndarray.dispatch.arguments import is_variadic
from ..executor import bind as binding
from ..executor.bind import Arrays, ContextLike, GradReq
from ..executor.executor import Executor
from ..passes.infer import from_user, infer_dtypes, infer_shapes, to_user
from ..passes.mixed_precision import remove_casts
from ..show.svg import describe, draw_graph, is_weight
from . import json as symbol_json
from .compose import HINTS, Dumps, clean_attrs, make_node, split_arguments, variable_attrs
from .node import HIDDEN_KEYS, Entry, Node, copy_graph, split_variables, topological

Number = (int, float, np.number, np.bool_)
_ARRAY_ONLY = frozenset(("asnumpy", "asscalar", "wait_to_read", "backward", "copy", "detach", "as_in_context", "attach_grad"))


class _OperatorsOfClass(type):
    """Gives the class Symbol the operators that its objects have as methods: `Symbol.sum(net)`."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") or name not in ops.registered():
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")

        def method(self: Symbol, *args: Any, **kwargs: Any) -> Any:
            return self.__getattr__(name)(*args, **kwargs)

        method.__name__ = method.__qualname__ = name
        return method


class Symbol(metaclass=_OperatorsOfClass):
    """One or several outputs of a graph. Operators, called with symbols, give symbols; nothing is computed before binding."""

    __slots__ = ("__weakref__", "_outputs")
    __array_priority__ = 1000.0
    __array_ufunc__ = None

    def __init__(self, outputs: Sequence[Entry]):
        self._outputs: tuple[Entry, ...] = tuple(outputs)

    # ---- description ---------------------------------------------------------------------------------------------
    @property
    def name(self) -> str | None:
        """The node's name; None for a group."""
        nodes = {id(n) for n, _ in self._outputs}
        return self._outputs[0][0].name if len(nodes) == 1 else None

    def grad(self, wrt: Sequence[str]) -> Symbol:
        """Raise GraphError, as in MXNet: gradients are added when a symbol is bound."""
        raise GraphError(f"Symbol.grad: gradients of {', '.join(wrt)} are not a symbol: binding adds them. Use "
                         f"simple_bind(..., grad_req='write') and Executor.backward.")

    gradient = grad

    def astype(self, dtype: DTypeLike, **kwargs: Any) -> Symbol:
        """A node that converts to dtype."""
        return create(ops.builtin("Cast"), (self,), {"dtype": as_dtype(dtype).name, **kwargs}, hint="cast")

    def split_v2(self, indices_or_sections: ShapeLike, axis: int = 0, squeeze_axis: bool = False, **kwargs: Any) -> Symbol:
        """Split along axis: into a number of equal parts, or at ascending positions."""
        whole = isinstance(indices_or_sections, int)
        given = {"indices": str([] if whole else [0, *indices_or_sections]), "axis": axis, "squeeze_axis": squeeze_axis,
                 "sections": indices_or_sections if whole else 0, **kwargs}
        return create(ops.builtin("_split_v2"), (self,), given)

    def expand_dims(self, axis: int, inplace: bool = False, **kwargs: Any) -> Symbol:
        """Insert an axis of size 1."""
        return create(ops.builtin("expand_dims"), (self,), {"axis": axis, **kwargs})

    def flatten(self, inplace: bool = False, **kwargs: Any) -> Symbol:
        """Reshape to a matrix that keeps the first axis."""
        return create(ops.builtin("Flatten"), (self,), kwargs, hint="flatten")

    def squeeze(self, axis: ShapeLike | None = None, inplace: bool = False, **kwargs: Any) -> Symbol:
        """Remove all axes of size 1, or the given ones."""
        return create(ops.builtin("squeeze"), (self,), {"axis": axis, **kwargs})

    def diag(self, k: int = 0, **kwargs: Any) -> Symbol:
        """Return diagonal k of a matrix, or a matrix with a vector as its diagonal k."""
        return create(ops.builtin("diag"), (self,), {"k": k, **kwargs})

    def as_nd_ndarray(self) -> Symbol:
        """Return the symbol itself: there is one kind of symbols."""
        return self

    def optimize_for(self, backend: str, *args: object, **kwargs: Any) -> Symbol:
        """Return the symbol itself, as MXNet does for an unknown backend: Tritium's passes run when a symbol is bound."""
        return self

    def get_backend_symbol(self, backend: str) -> Symbol:
        """Raise GraphError: Tritium has no subgraph backends."""
        raise GraphError(f"Symbol.get_backend_symbol: unknown backend {backend!r}. Graphs are fused and planned when they "
                         f"are bound; see Executor.explain().")

    def debug_str(self) -> str:
        """Return the graph as text, node by node as in MXNet: variables first."""
        order = self._order()
        lines = ["Symbol Outputs:", *(f"\toutput[{k}]={n.name}({i})" for k, (n, i) in enumerate(self._outputs))]
        lines += [f"Variable:{n.name}" for n in order if n.op is None]
        for node in order:
            if node.op is None:
                continue
            lines += ["-" * 20, f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
            lines += [f"\targ[{k}]={n.name}({i}){' version=0' if n.op is None else ''}" for k, (n, i) in enumerate(node.inputs)]
            if node.attrs:
                lines += ["Attrs:", *(f"\t{k}={v}" for k, v in sorted(node.attrs.items()))]
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        if self.name is not None:
            return f"<Symbol {self.name}>"
        return f"<Symbol group [{', '.join(n.name for n, _ in self._outputs)}]>"

    def _order(self) -> list[Node]:
        return topological(n for n, _ in self._outputs)

    def list_arguments(self) -> list[str]:
        """Names of the inputs fed or learned, in depth-first order."""
        return [n.name for n in split_variables(self._order())[0]]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the states that forward changes."""
        return [n.name for n in split_variables(self._order())[1]]

    def list_inputs(self) -> list[str]:
        """Arguments and auxiliary states together, in depth-first order."""
        return [n.name for n in self._order() if n.op is None]

    def list_outputs(self) -> list[str]:
        """`fc1_output` and the like, one name per output; a variable's is its own name."""
        return [n.output_names()[i] for n, i in self._outputs]

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        return len(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol([entry]) for entry in self._outputs)

    def __getitem__(self, key: int | str | slice) -> Symbol:
        """Return one output, by number or by name (`fc1_output`, or the node's name); for a slice a group."""
        if isinstance(key, str):
            names = self.list_outputs()
            found = [i for i, n in enumerate(names) if n == key]
            found = found or [i for i, (n, _) in enumerate(self._outputs) if n.name == key]
            if len(found) > 1:
                raise GraphError(f"Symbol: {len(found)} outputs are called {key!r}: numbers {found}. Index by number.")
            if not found:
                raise GraphError(f"Symbol: no output is called {key!r}.{nearest(key, names)}")
            return Symbol([self._outputs[found[0]]])
        if isinstance(key, slice):
            return Symbol(self._outputs[key])
        try:
            return Symbol([self._outputs[key]])
        except IndexError:
            raise IndexError(f"Symbol: output {key} of {len(self)}.") from None
        except TypeError:
            raise TypeError(f"Symbol: [{key!r}]: an index is the number or name of an output, not a place in an array. Use "
                            f"slice, slice_axis, take or pick.") from None

    def get_internals(self) -> Symbol:
        """A group of every visible output of every node."""
        return Symbol([(n, i) for n in self._order() for i in range(n.n_visible())])

    def get_children(self) -> Symbol | None:
        """A group of the inputs of the nodes whose outputs this is; None for variables."""
        seen = dict.fromkeys((n for n, _ in self._outputs))
        entries = [e for n in seen for e in n.inputs]
        return Symbol(entries) if entries else None

    # ---- attributes -----------------------------------------------------------------------------------------------
    def _node(self) -> Node:
        if self.name is None:
            raise GraphError(f"{self!r}: a group has no attributes of its own. Index one of its outputs first.")
        return self._outputs[0][0]

    def attr(self, key: str) -> str | None:
        """One attribute of the node, as a string; `lr_mult` finds `__lr_mult__`, and `name` the name. None for a group."""
        if self.name is None:
            return None
        node = self._node()
        attrs = {"name": node.name, **node.attrs}
        return attrs.get(key, attrs.get(f"__{key}__") if key in HIDDEN_KEYS else None)

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """The attributes of the node, or of a group's first one."""
        if recursive:
            raise GraphError("Symbol.list_attr: recursive=True is gone. Use attr_dict().")
        return _shown(self._outputs[0][0].attrs)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """{node: its attributes}, for every node that has some."""
        return {n.name: _shown(n.attrs) for n in self._order() if n.attrs}

    def _set_attr(self, **attrs: str) -> None:
        self._node().attrs.update(clean_attrs(str(self.name), attrs))
        binding.forget()

    # ---- composition ------------------------------------------------------------------------------------------------
    @staticmethod
    def _tritium_call_(found: Symbol, op: Op, args: tuple, kwargs: dict) -> Symbol:
        """An operator called with a symbol adds to its graph."""
        return create(op, args, kwargs)

    def __call__(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> Symbol:
        """Return a copy with variables replaced by other symbols, by name, or by position in argument order.

        name: the name of the copy's node.
        """
        given = self._by_name("Symbol", args, kwargs)
        by_name = {n.name: n for n in self._order() if n.op is None}
        replace: dict[int, Entry] = {}
        for key, symbol in given.items():
            if not isinstance(symbol, Symbol):
                raise GraphTypeError(f"Symbol: {key}={symbol!r} is not a Symbol; only symbols can be composed.")
            replace[id(by_name[key])] = symbol._single(key)
        heads, made = copy_graph(self._outputs, replace)
        if name:
            for node in {id(n): n for n, _ in self._outputs}.values():
                if id(node) in made and node.op is not None:
                    made[id(node)].name = name
        return Symbol(heads)

    def _compose(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> None:
        """Replace variables of this symbol itself, as a call does in a copy."""
        self._outputs = self(*args, name=name, **kwargs)._outputs

    def _gen_atomic_symbol(self) -> Symbol:
        """Return the operator of this symbol with its parameters, without name and inputs: call it with inputs."""
        node = self._single("_gen_atomic_symbol")[0]
        if node.op is None:
            raise GraphError(f"_gen_atomic_symbol: {node.name} is a variable and has no operator.")
        return AtomicSymbol(node.op, {d.name: node.attrs[d.name] for d in node.op.params if d.name in node.attrs})

    def _single(self, what: str) -> Entry:
        if len(self._outputs) != 1:
            raise GraphError(f"{what}: a symbol with {len(self._outputs)} outputs ({', '.join(self.list_outputs())}) was given "
                             f"where one is needed. Index it.")
        return self._outputs[0]

    def __copy__(self) -> Symbol:
        return self.__deepcopy__(None)

    def __deepcopy__(self, memo: Any) -> Symbol:
        return Symbol(copy_graph(self._outputs)[0])

    def __reduce__(self) -> tuple[Callable, tuple]:
        return fromjson, (self.tojson(remove_amp_cast=False),)

    # ---- inference ------------------------------------------------------------------------------------------------
    def infer_shape(self, *args: Shape | None, **kwargs: Shape | None) -> tuple[list, list, list] | tuple[None, None, None]:
        """Return (argument, output, auxiliary) shapes as lists of tuples; three Nones and a warning if some stay unknown.

        args, kwargs: known shapes, by position or by name. 0 in a shape, and (), mean unknown.
        """
        return self._inferred("shape", args, kwargs)

    def infer_shape_partial(self, *args: Shape | None, **kwargs: Shape | None) -> tuple[list, list, list]:
        """As infer_shape, but 0 for an unknown size and () for an unknown shape."""
        return self._inferred("shape", args, kwargs, partial=True)

    def infer_type(self, *args: DTypeLike, **kwargs: DTypeLike) -> tuple[list, list, list] | tuple[None, None, None]:
        """Return (argument, output, auxiliary) dtypes as NumPy scalar types; three Nones and a warning if some stay unknown."""
        return self._inferred("type", args, kwargs)

    def infer_type_partial(self, *args: DTypeLike, **kwargs: DTypeLike) -> tuple[list, list, list]:
        """As infer_type, but None for each unknown dtype."""
        return self._inferred("type", args, kwargs, partial=True)

    def _inferred(self, word: str, args: tuple, kwargs: dict, partial: bool = False) -> tuple[Any, Any, Any]:
        """Infer shapes or types and spell them as MXNet does. word: "shape" or "type"."""
        known, order = self._by_name(f"infer_{word}", args, kwargs), self._order()
        if word == "shape":
            found = infer_shapes(order, {k: _as_shape(k, v) for k, v in known.items()})
        else:
            found = infer_dtypes(order, {k: as_dtype(v) for k, v in known.items() if v is not None})
        spell: Callable[[Any], Any] = to_user if word == "shape" else lambda d: None if d is None else d.type
        is_complete: Callable[[Any], bool] = is_known if word == "shape" else lambda d: d is not None
        of = dict[int, list[Any]](zip(map(id, order), found))
        arguments, states = split_variables(order)
        inputs, outputs = {n.name: of[id(n)][0] for n in (*arguments, *states)}, [of[id(n)][i] for n, i in self._outputs]
        unknown = [f"{n} {spell(v)}".removesuffix(" None") for n, v in inputs.items() if not is_complete(v)]
        if not partial and (unknown or not all(map(is_complete, outputs))):
            warnings.warn(f"infer_{word}: cannot decide the {word} of: {', '.join(unknown) or 'an output'}. "
                          f"Give the {word}s of more arguments.", stacklevel=3)
            return None, None, None
        return [spell(of[id(n)][0]) for n in arguments], [spell(v) for v in outputs], [spell(of[id(n)][0]) for n in states]

    def _by_name(self, what: str, args: tuple, kwargs: dict) -> dict[str, Any]:
        """Return the values of a call by argument: those given by keyword, or by position."""
        if args and kwargs:
            raise GraphError(f"{what}: give arguments by position or by keyword, not both.")
        arguments = self.list_arguments()
        if len(args) > len(arguments):
            raise GraphError(f"{what}: {len(args)} values for {len(arguments)} arguments: {', '.join(arguments)}.")
        names = self.list_inputs()
        for key in kwargs:
            if key not in names:
                raise GraphError(f"{what}: no argument is called {key!r}.{nearest(key, names)} Arguments: {', '.join(names)}.")
        return dict(zip(arguments, args)) if args else dict(kwargs)

    # ---- pictures ----------------------------------------------------------------------------------------------------
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the graph as a drawing without its weights, and its name as text, for notebooks."""
        order = [n for n in self._order() if not is_weight(n)]
        svg = draw_graph(order, {id(n): describe(n) for n in order}, title=repr(self))
        return {"text/plain": repr(self), "image/svg+xml": svg}

    # ---- files --------------------------------------------------------------------------------------------------------
    def tojson(self, remove_amp_cast: bool = True) -> str:
        """Return the graph in the JSON of MXNet 1.x. remove_amp_cast: without the casts of mixed precision."""
        return symbol_json.dumps(remove_casts(self._outputs) if remove_amp_cast else self._outputs)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Write tojson() to a file, atomically."""
        write_atomic(fname, self.tojson(remove_amp_cast))

    # ---- running ----------------------------------------------------------------------------------------------------------
    def simple_bind(self, ctx: ContextLike, grad_req: GradReq = "write", type_dict: Mapping[str, DTypeLike] | None = None,
                    stype_dict: Mapping[str, str] | None = None, group2ctx: Mapping[str, Context] | None = None,
                    shared_arg_names: Sequence[str] | None = None, shared_exec: Executor | None = None,
                    shared_buffer: dict[str, NDArray] | None = None, memory_budget: int | None = None, **kwargs: Any) -> Executor:
        """Return an Executor with arrays of its own, all zero. Shapes are given by keyword; the others are inferred.

        grad_req:       "write", "add" or "null" for all arguments, or by argument in a dictionary or a list.
        memory_budget:  bytes that inner values and outputs may take in training; backward computes values again until they
                        fit. Raises GraphError with the missing bytes if they cannot.
        """
        return binding.simple_bind(self, ctx, grad_req, type_dict or {}, shared_arg_names, shared_exec, shared_buffer, kwargs,
                                   memory_budget, group2ctx)

    _simple_bind = simple_bind

    def bind(self, ctx: ContextLike, args: Arrays, args_grad: Arrays | None = None, grad_req: GradReq = "write",
             aux_states: Arrays | None = None, group2ctx: Mapping[str, Context] | None = None, shared_exec: Executor | None = None
             ) -> Executor:
        """Return an Executor over the given arrays: lists in argument order, or dictionaries by name.

        args_grad: the arrays for gradients; other arguments get none. group2ctx: {ctx_group: context} for nodes and variables
        created in an AttrScope(ctx_group=...).
        """
        return binding.bind(self, ctx, args, args_grad, grad_req, aux_states, shared_exec, group2ctx)

    _bind = bind

    def eval(self, ctx: ContextLike = None, **kwargs: NDArray) -> list[NDArray]:
        """Compute the outputs for the given arrays."""
        return binding.bind(self, ctx, kwargs, None, "null", None, None).forward()

    # ---- arithmetic ---------------------------------------------------------------------------------------------------
    def __add__(self, o: Any) -> Symbol: return binary("elemwise_add", "_plus_scalar", self, o)
    def __radd__(self, o: Any) -> Symbol: return binary("elemwise_add", "_plus_scalar", self, o)
    def __sub__(self, o: Any) -> Symbol: return binary("elemwise_sub", "_minus_scalar", self, o)
    def __rsub__(self, o: Any) -> Symbol: return binary(None, "_rminus_scalar", self, o)
    def __mul__(self, o: Any) -> Symbol: return binary("elemwise_mul", "_mul_scalar", self, o)
    def __rmul__(self, o: Any) -> Symbol: return binary("elemwise_mul", "_mul_scalar", self, o)
    def __truediv__(self, o: Any) -> Symbol: return binary("elemwise_div", "_div_scalar", self, o)
    def __rtruediv__(self, o: Any) -> Symbol: return binary(None, "_rdiv_scalar", self, o)
    __div__, __rdiv__ = __truediv__, __rtruediv__  # MXNet's names, from Python 2
    def __mod__(self, o: Any) -> Symbol: return binary("_mod", "_mod_scalar", self, o)
    def __rmod__(self, o: Any) -> Symbol: return binary(None, "_rmod_scalar", self, o)
    def __pow__(self, o: Any) -> Symbol: return binary("_power", "_power_scalar", self, o)
    def __rpow__(self, o: Any) -> Symbol: return binary(None, "_rpower_scalar", self, o)
    def __neg__(self) -> Symbol: return binary(None, "_mul_scalar", self, -1.0)
    def __abs__(self) -> Symbol: return create(ops.builtin("abs"), (self,), {})
    def __eq__(self, o: Any) -> Symbol: return binary("_equal", "_equal_scalar", self, o)  # type: ignore[override]
    def __ne__(self, o: Any) -> Symbol: return binary("_not_equal", "_not_equal_scalar", self, o)  # type: ignore[override]
    def __gt__(self, o: Any) -> Symbol: return binary("_greater", "_greater_scalar", self, o)
    def __ge__(self, o: Any) -> Symbol: return binary("_greater_equal", "_greater_equal_scalar", self, o)
    def __lt__(self, o: Any) -> Symbol: return binary("_lesser", "_lesser_scalar", self, o)
    def __le__(self, o: Any) -> Symbol: return binary("_lesser_equal", "_lesser_equal_scalar", self, o)
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise NotImplementedForSymbol("__bool__", "its name, or `is None`,")

    def __getattr__(self, name: str) -> Any:
        """Operators as methods: `net.reshape(shape=(0, -1))`, `net.sum(axis=1)`."""
        found = None if name.startswith("_") or name not in ops.registered() else ops.builtin(name)
        if name in _ARRAY_ONLY:
            return partial(_refuse, name)
        if found is None:
            raise AttributeError(f"Symbol: no attribute or operator {name!r}.{nearest(name, ops.registered())}")

        def method(*args: Any, **kwargs: Any) -> Symbol:
            if name == "reshape" and len(args) > 1 and all(isinstance(a, int) for a in args):
                args = (args,)
            return create(found, (self, *args), kwargs, hint=name.lower())

        return method


def _refuse(method: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Raise the error of an array's method that is called on a symbol. Asking `hasattr` is none, as in MXNet."""
    raise NotImplementedForSymbol(method)


class AtomicSymbol(Symbol):
    """An operator with parameters and without inputs. A call composes it; until then its inputs are variables without names."""

    def __init__(self, op: Op, params: Mapping[str, str]):
        self._op, self._params = op, dict(params)
        super().__init__([(Node(op, "", op.parse(params), dict(params)), 0)])

    def __call__(self, *args: Any, name: str | None = None, **kwargs: Any) -> Symbol:
        return create(self._op, args, {**self._params, **kwargs, "name": name})


#: Inserts casts before each new node, while mixed precision is on.
cast_inputs: Callable[[Node], None] | None = None


def create(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any], *, hint: str | None = None) -> Symbol:
    """Apply op to symbols and parameters, with `name=` and `attr=`. hint: the name, without its number, of an unnamed node."""
    kwargs = dict(kwargs)
    name, attr = kwargs.pop("name", None), kwargs.pop("attr", None)
    kwargs.pop("out", None)
    given, named, params = split_arguments(op, args, kwargs, Symbol)
    entries: list[Entry | None] = []
    for s in given:
        if s is None:
            entries.append(None)
        elif is_variadic(op):
            entries.extend(s._outputs)
        else:
            entries.append(s._single(op.name))
    node = make_node(op, entries, {k: s._single(f"{op.name}: {k}") for k, s in named.items()}, params, name=name, attrs=attr,
                     hint=hint)
    if cast_inputs is not None:
        cast_inputs(node)
    return Symbol([(node, i) for i in range(node.n_visible())])


def binary(both: str | None, scalar: str, lhs: Symbol, rhs: object) -> Symbol:
    """Combine lhs with a symbol (operator both) or with a number (operator scalar)."""
    if isinstance(rhs, Symbol) and both is not None:
        return create(ops.builtin(both), (lhs, rhs), {}, hint=HINTS.get(both))
    if isinstance(rhs, Number):
        return create(ops.builtin(scalar), (lhs,), {"scalar": rhs}, hint=HINTS.get(scalar))
    return NotImplemented


def _shown(attrs: Mapping[str, str]) -> dict[str, str]:
    """Return attrs with the hidden ones under both spellings."""
    return {**attrs, **{k: attrs[f"__{k}__"] for k in HIDDEN_KEYS if f"__{k}__" in attrs}}


def _as_shape(name: str, value: Any) -> Shape | None:
    try:
        return from_user((value,) if isinstance(value, int) else value)
    except TypeError:
        raise ShapeError(f"infer_shape: {name}={value!r} is not a tuple of integers.") from None


def Variable(name: str, attr: Mapping[str, str] | None = None, shape: ShapeLike | None = None, lr_mult: float | None = None,
             wd_mult: float | None = None, dtype: DTypeLike = None, init: Dumps | str | None = None,
             stype: str | int | None = None, profiler_scope: str | None = None, **kwargs: Any) -> Symbol:
    """Return a symbol for an array that is given at binding.

    shape:             kept as `__shape__`; 0 marks an unknown size.
    lr_mult, wd_mult:  factors an optimizer applies.
    init:              an initializer, or the string its `dumps()` gives.
    """
    if not isinstance(name, str):
        raise GraphTypeError(f"Variable: the name {name!r} is not a string.")
    flag = None
    if dtype is not None:
        as_known = as_dtype(dtype)
        flag = DTYPE_TO_FLAG.get(as_known)
        if flag is None:
            raise DTypeError(f"Variable: {as_known.name} has no number in MXNet's files, so a symbol cannot carry it.")
    attrs = variable_attrs(attr, shape, init, stype, {"lr_mult": lr_mult, "wd_mult": wd_mult, "dtype": flag}, kwargs)
    return Symbol([(Node(None, name, None, attrs), 0)])


var = Variable


def Group(symbols: Sequence[Symbol], create_fn: Callable[..., Symbol] | None = None) -> Symbol:
    """Return one symbol with the outputs of several. create_fn: accepted for MXNet's sake, without effect."""
    symbols = list(symbols)
    for s in symbols:
        if not isinstance(s, Symbol):
            raise GraphError(f"Group: {s!r} is not a Symbol.")
    if not symbols:
        raise GraphError("Group: no symbols were given.")
    return Symbol([entry for s in symbols for entry in s._outputs])


def fromjson(json_str: str) -> Symbol:
    """Read a symbol from the JSON of MXNet 0.8 or later. Raises FileError that names the node."""
    return Symbol(symbol_json.loads(json_str))


load_json = fromjson


def load(fname: str) -> Symbol:
    """Read a symbol from a file `PREFIX-symbol.json`."""
    try:
        text = read_file(fname).decode()
    except UnicodeDecodeError:
        raise symbol_json.not_a_symbol(fname, "it is not text") from None
    return Symbol(symbol_json.loads(text, fname))


__all__ = ["Group", "Symbol", "Variable", "binary", "create", "fromjson", "load", "load_json", "var"]
