"""Block: a part of a network, with parameters and child blocks. Its forward is ordinary Python on arrays."""

from __future__ import annotations

import os
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, Self

from numpy.typing import DTypeLike

from ... import ndarray
from ...engine.profiler import objects
from ...engine.profiler.recorder import layer
from ...errors import BlockError
from ...ndarray import NDArray
from ...show import Html, frame, table, title
from .hooks import HookHandle
from .model_file import read_model, write_model
from .nested import _brief_print_list, _indent
from .parameter import Contexts, Parameter
from .parameter_dict import ParameterDict, _named
from .scope import _BlockScope
from .summary import summarize


class Block:
    """Base of all layers and networks. Subclass it, make children and parameters in `__init__`, and write `forward`.

        class Net(gluon.Block):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                with self.name_scope():
                    self.dense = gluon.nn.Dense(10)
            def forward(self, x):
                return self.dense(x)

    A Block or Parameter that is assigned to an attribute becomes a child or a parameter.

    prefix:  the beginning of the names of its parameters and children; None: the class's name and a number.
    params:  the parameters of another block, to share them.
    """

    _in_summary = True  # False: only its children have lines in a summary

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None):
        self._empty_prefix = prefix == ""
        self._prefix, self._params = _BlockScope.create(prefix, params, self._alias())
        self._name = self._prefix.removesuffix("_")
        self._scope = _BlockScope(self)
        self._children: OrderedDict[str, Block] = OrderedDict()
        self._reg_params: dict[str, Parameter] = {}
        self._forward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._forward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()

    def __repr__(self) -> str:
        children = [f"  ({key}): {_indent(repr(block), 2)}" for key, block in self.__dict__.items() if isinstance(block, Block)]
        return f"{type(self).__name__}(\n" + "\n".join(children) + "\n)"

    def __setattr__(self, name: str, value: Any) -> None:
        present = getattr(self, name, None)
        if isinstance(present, (Parameter, Block)) and not isinstance(value, type(present)):
            raise TypeError(f"Changing attribute type for {name} from {type(present)} to {type(value)} is not allowed.")
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            if name in self._reg_params:
                raise BlockError(f"Overriding Parameter attribute {name} is not allowed. To share parameters between blocks, "
                                 f"pass params= when they are made.")
            self._reg_params[name] = value
        super().__setattr__(name, value)

    def _alias(self) -> str:
        """Return the name of blocks of this class without a prefix, before the number."""
        return type(self).__name__.lower()

    # ---- description ------------------------------------------------------------------------------------------------
    @property
    def prefix(self) -> str:
        """The beginning of its parameters' names, `net0_dense0_`."""
        return self._prefix

    @property
    def name(self) -> str:
        """The prefix without its last underscore."""
        return self._name

    def name_scope(self) -> _BlockScope:
        """Return a scope; blocks and parameters made in `with self.name_scope():` get names that begin with the prefix."""
        return self._scope

    @property
    def params(self) -> ParameterDict:
        """Its own parameters, without those of children; `self.params.get("weight", ...)` makes one."""
        return self._params

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """Return its parameters and those of all children.

        select: a regular expression; only parameters whose names begin with a match are returned.
        """
        self._check_container_with_block()
        found = ParameterDict(self._params.prefix)
        pattern = re.compile(select) if select else None
        found.update({n: p for n, p in self.params.items() if pattern is None or pattern.match(n)})
        for child in self._children.values():
            found.update(child.collect_params(select=select))
        return found

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """Return all parameters by the path of attributes that leads to them: `features.0.weight`."""
        prefix = f"{prefix}." if prefix else ""
        found = {prefix + name: param for name, param in self._reg_params.items()}
        for name, child in self._children.items():
            found.update(child._collect_params_with_prefix(prefix + name))
        return found

    def _check_container_with_block(self) -> None:
        """Warn of a list or dictionary of blocks that are not children, so that their parameters would be lost."""
        children = {id(c) for c in self._children.values()}

        def lost(value: Any) -> bool:
            if isinstance(value, (list, tuple)):
                return any(map(lost, value))
            if isinstance(value, dict):
                return any(map(lost, value.values()))
            return isinstance(value, Block) and id(value) not in children

        for name, value in self.__dict__.items():
            if isinstance(value, (list, tuple, dict)) and not name.startswith("_") and lost(value):
                warnings.warn(f'"{type(self).__name__}.{name}" is an unregistered container with Blocks, whose parameters are '
                              f"not found. Call register_child for each, or use nn.Sequential.", stacklevel=3)

    def _repr_html_(self) -> str:
        """Return a table of its blocks and their parameters, for notebooks."""
        return frame(title(type(self).__name__, self.name), table(("block", "layer", "parameters"), list(_rows(self, "", 0))))

    def summary(self, *inputs: Any) -> None:
        """Print a table of the output shapes and numbers of parameters of all blocks, for the given inputs."""
        summarize(self, inputs)

    # ---- files ----------------------------------------------------------------------------------------------------------
    def save_parameters(self, filename: str | os.PathLike, deduplicate: bool = False) -> None:
        """Write all parameters under their structural names, such as `features.0.weight`, to a file that MXNet can read too.

        deduplicate: write a shared parameter once, under the last of its names.
        """
        params = self._collect_params_with_prefix()
        if deduplicate:
            last = {param: name for name, param in params.items()}
            params = {name: param for param, name in last.items()}
        ndarray.save(filename, {name: param._reduce() for name, param in params.items()})

    def save_params(self, filename: str | os.PathLike) -> None:
        """Write all parameters under their full names without this block's prefix. Use save_parameters instead."""
        warnings.warn("save_params is deprecated. Please use save_parameters.", stacklevel=2)
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_parameters(self, filename: str | os.PathLike, ctx: Contexts = None, allow_missing: bool = False,
                        ignore_extra: bool = False, cast_dtype: bool = False, dtype_source: str = "current") -> None:
        """Read parameters that save_parameters, save_params or export wrote.

        ctx:                          contexts for parameters that are not initialized.
        allow_missing, ignore_extra:  accept parameters without a value, and values without a parameter.
        cast_dtype:                   convert values to the parameters' dtypes, or the parameters if dtype_source is "saved".
        Raises: BlockError for a missing or extra name, or another shape or dtype.
        """
        loaded = _named(ndarray.load(filename), filename)
        if not loaded and not self._collect_params_with_prefix():
            return
        if not any("." in name for name in loaded):  # full names, as save_params and export write them
            self.collect_params().load(filename, ctx, allow_missing, ignore_extra, self.prefix, cast_dtype=cast_dtype,
                                       dtype_source=dtype_source)
            return
        self._load(loaded, f"file '{filename}'", ctx, allow_missing, ignore_extra, cast_dtype, dtype_source)

    def load_params(self, filename: str | os.PathLike, ctx: Contexts = None, allow_missing: bool = False,
                    ignore_extra: bool = False) -> None:
        """Read parameters. Use load_parameters instead."""
        warnings.warn("load_params is deprecated. Please use load_parameters.", stacklevel=2)
        self.load_parameters(filename, ctx, allow_missing, ignore_extra)

    def save(self, prefix: str) -> None:
        """Write the tree of blocks to `PREFIX-model.json` and all parameters to `PREFIX-model.params`."""
        write_model(self, prefix)

    def load(self, prefix: str) -> None:
        """Read what `save` of a model built in the same way wrote."""
        read_model(self, prefix)

    def _load(self, loaded: Mapping[str, NDArray], source: str, ctx: Contexts, allow_missing: bool, ignore_extra: bool,
              cast_dtype: bool, dtype_source: str) -> None:
        params = self._collect_params_with_prefix()
        shared: dict[int, list[str]] = {}
        for name, param in params.items():
            shared.setdefault(id(param), []).append(name)
        for name, param in () if allow_missing else params.items():
            if not any(n in loaded for n in shared[id(param)]):
                raise BlockError(f"Parameter '{name}' is missing in {source}, which contains parameters: "
                                 f"{_brief_print_list(list(loaded))}. Set allow_missing=True to ignore missing parameters.")
        for name, value in loaded.items():
            if name in params:
                params[name]._load_init(value, ctx, cast_dtype=cast_dtype, dtype_source=dtype_source)
            elif not ignore_extra:
                raise BlockError(f"Parameter '{name}' loaded from {source} is not present in this Block, which contains "
                                 f"parameters {_brief_print_list(list(params))}. Set ignore_extra=True to ignore.")

    # ---- children and hooks ---------------------------------------------------------------------------------------------
    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make block a child, under a name or its number."""
        self._children[str(len(self._children)) if name is None else name] = block

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call hook(block, inputs) before each forward."""
        handle = HookHandle()
        handle.attach(self._forward_pre_hooks, hook)
        return handle

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call hook(block, inputs, outputs) after each forward."""
        handle = HookHandle()
        handle.attach(self._forward_hooks, hook)
        return handle

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Call callback(name, operator, array) for the outputs of each operator of hybridized children; see HybridBlock."""
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def apply(self, fn: Callable[[Block], Any]) -> Self:
        """Call fn on all children and then on this block, and return the block."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    # ---- all parameters -----------------------------------------------------------------------------------------------
    def initialize(self, init: Any = None, ctx: Contexts = None, verbose: bool = False, force_reinit: bool = False) -> None:
        """Initialize all parameters, children's too. See ParameterDict.initialize."""
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Let all HybridBlocks among the children run as compiled graphs; see HybridBlock.hybridize."""
        for child in self._children.values():
            child.hybridize(active, **kwargs)

    def cast(self, dtype: DTypeLike) -> None:
        """Convert all parameters to another element type."""
        for child in self._children.values():
            child.cast(dtype)
        for param in self.params.values():
            param.cast(dtype)

    def reset_ctx(self, ctx: Contexts) -> None:
        """Move all parameters to other contexts."""
        self.collect_params().reset_ctx(ctx)

    # ---- running ----------------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any) -> Any:
        """Run forward, and the hooks before and after it. The innermost block is the layer of an operator in a profile."""
        if objects.active_recorder is None:
            return self._called(*args)
        token = layer.set(self.name)
        try:
            return self._called(*args)
        finally:
            layer.reset(token)

    def _called(self, *args: Any) -> Any:
        for hook in list(self._forward_pre_hooks.values()):
            hook(self, args)
        out = self.forward(*args)
        for hook in list(self._forward_hooks.values()):
            hook(self, args, out)
        return out

    def forward(self, *args: Any) -> Any:
        """Return the outputs for the given inputs. A subclass writes this."""
        raise NotImplementedError(f"{type(self).__name__}: forward is not written.")


def _rows(block: Block, name: str, depth: int) -> Iterator[tuple[str, str, str]]:
    """Yield name, layer and the shapes of the parameters of a block and the blocks in it, in order."""
    own = "; ".join(f"{p.name.removeprefix(block.prefix)} {'x'.join(map(str, p.shape)) if p.shape else '?'}"
                    for p in block._reg_params.values())
    if depth:
        indent = Html("&nbsp;" * 3 * (depth - 1))
        layer = repr(block).partition("\n")[0].rstrip("(") if block._children else " ".join(repr(block).split())
        yield Html(f"{indent}{escape(name)}"), layer, own
    elif own:
        yield "", type(block).__name__, own
    for child, inner in block._children.items():
        yield from _rows(inner, child, depth + 1)
