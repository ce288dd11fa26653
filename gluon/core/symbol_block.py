"""SymbolBlock: a Block made of a Symbol, such as one that was exported or that Module trained."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...dtype import FLAG_TO_DTYPE
from ...errors import BlockError
from ...graph.symbol.symbol import Group, Symbol, Variable, load
from ...ndarray import NDArray
from .hybrid_block import HybridBlock
from .nested import _flatten, _regroup
from .parameter import Contexts
from .parameter_dict import ParameterDict


class SymbolBlock(HybridBlock):
    """A Block that computes symbols. Their variables other than the inputs are its parameters, under their own names.

    outputs:  a symbol, or a list of them.
    inputs:   the variables that are inputs: a symbol, or a list of them.
    params:   parameters to use where names agree.
    """

    @staticmethod
    def imports(symbol_file: str | os.PathLike, input_names: str | Sequence[str], param_file: str | os.PathLike | None = None,
                ctx: Contexts = None, allow_missing: bool = False, ignore_extra: bool = False) -> SymbolBlock:
        """Return the block of files that `export` or `Module.save_checkpoint` wrote.

        input_names: the names of the inputs, such as "data".
        param_file: the file of parameters; None: they are to be initialized.
        """
        names = [input_names] if isinstance(input_names, str) else list(input_names)
        inputs = [Variable(n, dtype=np.float32 if param_file is None else None) for n in names]
        block = SymbolBlock(load(os.fspath(symbol_file)), inputs)
        if param_file is not None:
            block.collect_params().load(param_file, ctx, allow_missing, ignore_extra, cast_dtype=True, dtype_source="saved")
        return block

    def __init__(self, outputs: Symbol | Sequence[Symbol], inputs: Symbol | Sequence[Symbol],
                 params: ParameterDict | None = None):
        super().__init__(prefix="")
        self._prefix, self._params = "", ParameterDict("", params)
        if isinstance(inputs, Symbol) and len(inputs) == 1:
            inputs = [inputs]
        if isinstance(outputs, (list, tuple)) and len(outputs) == 1:
            outputs = outputs[0]
        variables, self._in_format = _flatten(inputs, "input")
        flat, self._out_format = _flatten(outputs, "output")
        for v in variables:
            if len(v.get_internals()) != 1:
                raise BlockError(f"Input symbols must be variable, but {v.name} is an output of operators.")
        out = flat[0] if len(flat) == 1 else Group(flat)
        given = {str(v.name): v for v in variables}
        types = _dtypes(out, given)
        for names, options in ((out.list_arguments(), {}), (out.list_auxiliary_states(), {"grad_req": "null"})):
            for name in names:
                if name not in given:
                    self.params.get(name, allow_deferred_init=True, dtype=types.get(name, np.float32), **options)
        self._cached_graph = variables, out
        common = _common_prefix(list(self.params.keys()))
        self._reg_params = {name.removeprefix(common): param for name, param in self.params.items()}

    def __repr__(self) -> str:
        inputs, out = self._cached_graph
        return f"{type(self).__name__}(\n{out!r} : {len(inputs)} -> {len(out)}\n)"

    def forward(self, x: Any, *args: Any) -> Any:
        """Compute the outputs of arrays; of symbols, compose them."""
        if isinstance(x, Symbol):
            flat, form = _flatten([x, *args], "input")
            if form != self._in_format:
                raise BlockError(f"SymbolBlock: the inputs have the form {form}, not {self._in_format}.")
            variables, out = self._cached_graph
            assert self._out_format is not None
            composed = out(**{str(v.name): s for v, s in zip(variables, flat)})
            return _regroup([composed] if isinstance(self._out_format, int) else list(composed), self._out_format)
        with (x if isinstance(x, NDArray) else _flatten(x, "input")[0][0]).context:
            return self._call_cached_op(x, *args)

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Never called: the graph is given."""
        raise NotImplementedError("SymbolBlock.hybrid_forward")

    def _clear_cached_op(self) -> None:
        graph = self._cached_graph
        super()._clear_cached_op()
        self._cached_graph = graph

    def __getstate__(self) -> dict[str, Any]:
        """The graph is not traced but given, so it is kept."""
        return {**super().__getstate__(), "_cached_graph": self._cached_graph}

    def cast(self, dtype: DTypeLike) -> None:
        """Convert all parameters to another element type; BatchNorm's stay float32 for float16."""
        super().cast(dtype)
        if np.dtype(dtype) == np.float16:
            for name in list(self.params.keys()):
                for ending in ("running_var", "moving_var"):
                    stem = name.removesuffix(ending)
                    norm = [stem + part for part in (ending, ending.replace("var", "mean"), "gamma", "beta")]
                    if stem != name and all(n in self.params for n in norm):
                        for n in norm:
                            self.params.get(n).cast("float32")


def _common_prefix(names: Sequence[str]) -> str:
    """Return the longest beginning that all names have."""
    first, last = (min(names), max(names)) if names else ("", "")
    return first[:next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))]


def _dtypes(out: Symbol, inputs: dict[str, Symbol]) -> dict[str, Any]:
    """Return the dtypes of the variables of out, as far as they follow from those of the inputs; else float32."""
    known = {name: int(v.attr("__dtype__") or 0) for name, v in inputs.items()}
    known = {name: FLAG_TO_DTYPE[flag] for name, flag in known.items() if name in out.list_inputs()}
    try:
        arguments, _, states = out.infer_type_partial(**known)
    except ValueError:
        return {}
    found = {**dict(zip(out.list_arguments(), arguments)), **dict(zip(out.list_auxiliary_states(), states))}
    return {name: dtype for name, dtype in found.items() if dtype is not None}
