"""ParameterDict: the parameters of a Block by full name."""

from __future__ import annotations

import os
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import numpy as np

from ... import ndarray
from ...context import Context
from ...errors import BlockError, FileError
from ...ndarray import NDArray
from ...train import initializer
from .nested import _brief_print_list, _indent
from .parameter import Constant, Contexts, Parameter


class ParameterDict:
    """Parameters by name, in the order of their creation.

    prefix:  the beginning of the names that `get` makes.
    shared:  another dictionary, in which `get` looks before it makes a parameter.
    """

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None):
        self._prefix, self._shared = prefix, shared
        self._params: dict[str, Parameter] = {}

    def __repr__(self) -> str:
        name = f"{self._prefix} " if self._prefix else ""
        return f"{name}(\n" + "\n".join(_indent(f"  {p}", 2) for p in self.values()) + "\n)"

    def __getitem__(self, key: str) -> Parameter:
        return self._params[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def items(self) -> ItemsView[str, Parameter]:
        """Return (name, parameter) pairs."""
        return self._params.items()

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._params.keys()

    def values(self) -> ValuesView[Parameter]:
        """Return the parameters."""
        return self._params.values()

    @property
    def prefix(self) -> str:
        """The beginning of the names that `get` makes."""
        return self._prefix

    # ---- members ----------------------------------------------------------------------------------------------------
    def _get_impl(self, name: str) -> Parameter | None:
        if name not in self._params and self._shared is not None and name in self._shared._params:
            self._params[name] = self._shared._params[name]
        return self._params.get(name)

    def get(self, name: str, **kwargs: Any) -> Parameter:
        """Return the parameter prefix + name; a new Parameter(**kwargs) if there is none.

        Raises BlockError if an existing one differs in kwargs. Unknown sizes of its shape are completed.
        """
        name = self.prefix + name
        param = self._get_impl(name)
        if param is None:
            param = self._params[name] = Parameter(name, **kwargs)
            return param
        for key, wanted in kwargs.items():
            present = getattr(param, key, None)
            if present is None:
                setattr(param, key, wanted)
            elif wanted is not None and not _agrees(param, key, wanted, present):
                raise BlockError(f"Cannot retrieve Parameter '{name}': its {key} is {present}, not {wanted}. Use another name, "
                                 f"or the same {key}.")
        return param

    def get_constant(self, name: str, value: Any = None) -> Parameter:
        """Return the Constant prefix + name; a new one with the given value if there is none.

        Raises KeyError if it does not exist and no value is given; BlockError if its value is another.
        """
        name = self.prefix + name
        param = self._get_impl(name)
        if param is None:
            if value is None:
                raise KeyError(f"No constant named '{name}'. Give its value to make it.")
            param = self._params[name] = Constant(name, value)
        elif value is not None:
            if not isinstance(param, Constant):
                raise BlockError(f"Parameter '{name}' exists already, and is not a constant.")
            values = value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)
            if param.shape != values.shape or not (param.value.asnumpy() == values).all():
                raise BlockError(f"Constant '{name}' exists already with another value.")
        return param

    def update(self, other: ParameterDict | Mapping[str, Parameter]) -> None:
        """Add the parameters of another dictionary. Raises BlockError if two of the same name are not the same."""
        for name, param in other.items():
            if self._params.setdefault(name, param) is not param:
                raise BlockError(f"ParameterDict.update: both have a parameter '{name}', and they are not the same one.")

    # ---- all parameters -----------------------------------------------------------------------------------------------
    def initialize(self, init: Any = None, ctx: Contexts = None, verbose: bool = False, force_reinit: bool = False) -> None:
        """Initialize all. init: for those without an initializer of their own; None: Uniform()."""
        init = initializer.create(initializer.Uniform() if init is None else init)
        if verbose:
            init.set_verbosity(verbose=verbose)
        for param in self.values():
            param.initialize(None, ctx, init, force_reinit=force_reinit)

    def zero_grad(self) -> None:
        """Set all gradients to 0."""
        for param in self.values():
            param.zero_grad()

    def reset_ctx(self, ctx: Contexts) -> None:
        """Move all to other contexts."""
        for param in self.values():
            param.reset_ctx(ctx)

    def list_ctx(self) -> list[Context]:
        """Return the contexts on which any of them is."""
        return list(dict.fromkeys(c for param in self.values() for c in param.list_ctx()))

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of all, such as `grad_req` or `lr_mult`."""
        for param in self.values():
            setattr(param, name, value)

    # ---- files ----------------------------------------------------------------------------------------------------------
    def save(self, filename: str | os.PathLike, strip_prefix: str = "") -> None:
        """Write all to a file, under their names without strip_prefix. Raises BlockError for a name that lacks it."""
        arrays = {}
        for param in self.values():
            if not param.name.startswith(strip_prefix):
                raise BlockError(f"ParameterDict.save: the name '{param.name}' does not begin with '{strip_prefix}', which is to "
                                 f"be removed. It is shared with another block, or was made outside name_scope(): use "
                                 f"save_parameters.")
            arrays[param.name[len(strip_prefix):]] = param._reduce()
        ndarray.save(filename, arrays)

    def load(self, filename: str | os.PathLike, ctx: Contexts = None, allow_missing: bool = False, ignore_extra: bool = False,
             restore_prefix: str = "", cast_dtype: bool = False, dtype_source: str = "current") -> None:
        """Read values from a file. restore_prefix: put before each name in the file. See `load_dict`."""
        for name in self.keys() if restore_prefix else ():
            if not name.startswith(restore_prefix):
                raise BlockError(f"ParameterDict.load: the name '{name}' does not begin with restore_prefix='{restore_prefix}'.")
        self.load_dict(_named(ndarray.load(filename), filename), ctx, allow_missing, ignore_extra, restore_prefix,
                       os.fspath(filename), cast_dtype, dtype_source)

    def load_dict(self, param_dict: Mapping[str, NDArray], ctx: Contexts = None, allow_missing: bool = False,
                  ignore_extra: bool = False, restore_prefix: str = "", filename: str | None = None, cast_dtype: bool = False,
                  dtype_source: str = "current") -> None:
        """Take values by name; `arg:` and `aux:` before a name are ignored.

        allow_missing, ignore_extra: accept parameters without a value, and values without a parameter.
        Raises: BlockError otherwise, and if a shape or dtype differs.
        """
        source = f"file: {filename}" if filename else "param_dict"
        values = {restore_prefix + k.removeprefix("arg:").removeprefix("aux:"): v for k, v in param_dict.items()}
        for name in () if allow_missing else self.keys():
            if name not in values:
                raise BlockError(f"Parameter '{name}' is missing in {source}, which contains parameters: "
                                 f"{_brief_print_list(list(values))}. The prefixes of the two networks may "
                                 f"differ. Set allow_missing=True to keep what is missing.")
        for name, value in values.items():
            if name in self._params:
                self[name]._load_init(value, ctx, cast_dtype=cast_dtype, dtype_source=dtype_source)
            elif not ignore_extra:
                raise BlockError(f"Parameter '{name}' loaded from {source} is not present in ParameterDict, which contains "
                                 f"parameters {_brief_print_list(list(self._params))}. Set ignore_extra=True to ignore it.")


def _named(loaded: Any, filename: Any) -> dict[str, NDArray]:
    """Return the arrays of a file by name. Raises FileError if it has no names."""
    if isinstance(loaded, dict):
        return loaded
    if not loaded:
        return {}
    raise FileError(f"load: {filename}: the arrays have no names, so they cannot be parameters.")


def _agrees(param: Parameter, key: str, wanted: Any, present: Any) -> bool:
    """Return True if an attribute of param is what is wanted of it."""
    if key == "shape":
        return _complete(param, wanted)
    return np.dtype(wanted) == np.dtype(present) if key == "dtype" else wanted == present


def _complete(param: Parameter, wanted: Any) -> bool:
    """Complete unknown sizes of the parameter's shape from wanted, and return True, if the two agree."""
    present = param.shape or ()
    wanted = (wanted,) if isinstance(wanted, int) else wanted
    if len(wanted) != len(present) or any(a != b and a > 0 and b > 0 for a, b in zip(wanted, present)):
        return False
    param._shape = tuple(b if a in (0, -1) else a for a, b in zip(wanted, present))
    return True
