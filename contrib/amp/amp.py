"""Mixed precision: operators of MXNet's lists are computed in float16 or bfloat16, all others in float32.

`init` casts in every script from then on; `convert_*` return a copy of a network with casts. On a GPU this is faster. On the CPU
the same casts take place, so results are those of a GPU, but products of 16-bit numbers are computed in float32 and rounded once:
it needs less memory and more time.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ... import engine
from ...context import Context
from ...dtype import FLAG_TO_DTYPE, as_dtype, float32
from ...errors import DTypeError, MXNetError, ParameterError
from ...gluon import HybridBlock, SymbolBlock, Trainer
from ...graph.passes.mixed_precision import CastRules, canonical, cast_inputs, insert_casts, is_amp
from ...graph.symbol import symbol as symbols
from ...graph.symbol.symbol import Symbol
from ...kernels.op import Op, registered
from ...ndarray import NDArray
from ...ndarray.core import arithmetic
from ...ndarray.core.array_core import ArrayCore
from ...ndarray.dispatch.arguments import array_names, sample
from ...ndarray.functions import namespace
from ...train.module import BucketingModule
from ...train.optimizer import Optimizer
from . import lists
from .loss_scaler import LossScaler

_amp_initialized = False
_amp_loss_scale_initialized = False
_loss_scaler: LossScaler | None = None

_Conditional = Sequence[tuple[str, str, Sequence[str]]]


# ---- lists -----------------------------------------------------------------------------------------------------------
def _low_dtype(caller: str, target_dtype: Any) -> np.dtype:
    dtype = as_dtype(target_dtype)
    if dtype.name not in ("float16", "bfloat16"):
        raise DTypeError(f"amp.{caller}: target_dtype={dtype.name} is not float16 or bfloat16.")
    return dtype


def _list(name: str, target_dtype: Any) -> Any:
    half = _low_dtype("list", target_dtype).name == "float16"
    return getattr(lists.symbol_fp16 if half else lists.symbol_bf16, name.format("FP16" if half else "BF16"), None)


def list_lp16_ops(target_dtype: Any) -> list[str]:
    """Return the operators that are computed in target_dtype, "float16" or "bfloat16"."""
    return _list("{}_FUNCS", target_dtype)


def list_fp32_ops(target_dtype: Any) -> list[str]:
    """Return the operators that are computed in float32."""
    return _list("FP32_FUNCS", target_dtype)


def list_lp16_fp32_ops(target_dtype: Any) -> list[str]:
    """Return the operators that are computed in the dtype of their inputs."""
    return _list("{}_FP32_FUNCS", target_dtype)


def list_conditional_fp32_ops(target_dtype: Any) -> list[tuple[str, str, list[str]]]:
    """Return (operator, parameter, values) of operators that are computed in float32 for these values."""
    return _list("CONDITIONAL_FP32_FUNCS", target_dtype)


def list_widest_type_cast(target_dtype: Any) -> list[str]:
    """Return the operators whose inputs are cast to the widest dtype among them."""
    return _list("WIDEST_TYPE_CASTS", target_dtype)


def list_loss_output_functions(target_dtype: Any) -> list[str]:
    """Return the losses whose gradient has the factor grad_scale."""
    return _list("LOSS_OUTPUT_FUNCTIONS", target_dtype)


def list_lp16_use_fp32_params(target_dtype: Any) -> dict[str, list[str]] | None:
    """Return the parameters of operators that stay float32; None for float16."""
    return _list("BF16_USE_FP32_PARAMS", target_dtype)


def _rules(caller: str, target_dtype: Any, narrow: Sequence[str] | None, full: Sequence[str] | None,
           conditional: _Conditional | None, excluded: Sequence[str] = ()) -> CastRules:
    dtype = _low_dtype(caller, target_dtype)
    narrow = list_lp16_ops(dtype) if narrow is None else narrow
    full = list_fp32_ops(dtype) if full is None else full
    conditional = list_conditional_fp32_ops(dtype) if conditional is None else conditional
    for what, a, b in (("in target_dtype and in float32", narrow, full),
                       ("in target_dtype and conditionally in float32", narrow, [c[0] for c in conditional]),
                       ("in float32 and conditionally so", full, [c[0] for c in conditional])):
        if set(a) & set(b):
            raise ParameterError(f"amp.{caller}: {', '.join(sorted(set(a) & set(b)))} cannot be computed {what}.")
    unknown = {*narrow, *full, *(c[0] for c in conditional)} - {
        *list_lp16_ops(dtype), *list_fp32_ops(dtype), *list_lp16_fp32_ops(dtype),
        *(c[0] for c in list_conditional_fp32_ops(dtype))}
    if unknown:
        raise ParameterError(f"amp.{caller}: {', '.join(sorted(unknown))} is in none of amp.list_lp16_ops, list_fp32_ops, "
                             f"list_lp16_fp32_ops and list_conditional_fp32_ops.")
    known = registered()
    when: dict[str, list[tuple[str, list[str]]]] = {}
    for op, parameter, values in conditional:
        when.setdefault(known[op].name if op in known else op, []).append((parameter, list(values)))
    listed = {*narrow, *full, *list_lp16_fp32_ops(dtype), *(c[0] for c in conditional), *list_widest_type_cast(dtype)}
    return CastRules(dtype, canonical(narrow, listed), canonical(full, listed), when,
                     canonical(list_widest_type_cast(dtype), listed), frozenset(excluded))


# ---- casts while a program runs ----------------------------------------------------------------------------------------
def _arrays(args: Sequence[Any]) -> list[NDArray]:
    """Return the arrays among args, also in lists."""
    found: list[NDArray] = []
    for a in args:
        found += _arrays(a) if isinstance(a, (list, tuple)) else [a] if isinstance(a, ArrayCore) else []  # type: ignore[list-item]
    return found


def _cast(a: Any, to: np.dtype) -> Any:
    if isinstance(a, (list, tuple)):
        return type(a)(_cast(e, to) for e in a) if _arrays(a) else a
    return a.astype(to) if isinstance(a, NDArray) and is_amp(a.layout.dtype) and a.layout.dtype != to else a


def _widest(arrays: Sequence[NDArray]) -> np.dtype | None:
    """Return float32 if some arrays are float32 and others are 16-bit floats, else None."""
    dtypes = {a.layout.dtype for a in arrays if is_amp(a.layout.dtype)}
    return float32 if len(dtypes) > 1 and float32 in dtypes else None


def _unify(a: Any, b: Any) -> tuple[Any, Any]:
    to = _widest((a, b))
    if to is None:
        raise DTypeError(f"arrays of {a.layout.dtype.name} and {b.layout.dtype.name} have no common dtype. Use astype.")
    return _cast(a, to), _cast(b, to)


_Function = Callable[..., Any]


def _mixed(rules: CastRules, scaled: frozenset[str], scaler: LossScaler) -> Callable[[Op, _Function], _Function]:
    """Return the function that replaces the functions of operators by ones that cast their arrays."""
    made: dict[_Function, _Function] = {}

    def replace(op: Op, call: _Function) -> _Function:
        known = made.get(call)
        if known is None:
            known = made[call] = casting(op, call)
        return known

    def casting(op: Op, call: _Function) -> _Function:
        scales, widest = op.name in scaled, op.name in rules.widest
        if not (scales or widest or op.name in rules.narrow | rules.full | frozenset(rules.conditional)):
            return call
        names = array_names(op)
        defaults = sample(op)
        states = 0 if defaults is None else len(op.auxiliaries(defaults))  # they are changed in place, and never cast

        @wraps(call)
        def mixed(*args: Any, **kwargs: Any) -> Any:
            to = rules.dtype_of(op, {**dict(zip([p.name for p in op.params], [a for a in args if isinstance(a, str)])), **kwargs})
            if to is None and widest:
                to = _widest(_arrays((*args, *kwargs.values())))
            if to is not None:
                last = len(names) - states if states else len(args)
                args = (*(_cast(a, to) for a in args[:last]), *args[last:])
                kwargs = {k: v if k == "out" else _cast(v, to) for k, v in kwargs.items()}
            if scales:
                kwargs["grad_scale"] = kwargs.get("grad_scale", 1.0) * scaler.loss_scale
            return call(*args, **kwargs)

        return mixed

    return replace


def init(target_dtype: Any = "float16", target_precision_ops: Sequence[str] | None = None,
         conditional_fp32_ops: _Conditional | None = None, fp32_ops: Sequence[str] | None = None) -> None:
    """Cast the inputs of operators from now on, in functions of mx.nd and mx.sym and in Gluon blocks. Call it first, once.

    target_dtype:           "float16" or "bfloat16".
    target_precision_ops:   operators computed in it, instead of list_lp16_ops.
    conditional_fp32_ops:   [(operator, parameter, values)] computed in float32, instead of list_conditional_fp32_ops.
    fp32_ops:               operators computed in float32, instead of list_fp32_ops.
    Raises: DTypeError for another dtype, ParameterError for an operator in several lists or in none.
    """
    global _amp_initialized, _loss_scaler
    if _amp_initialized:
        return
    rules = _rules("init", target_dtype, target_precision_ops, fp32_ops, conditional_fp32_ops)
    logging.info("Using AMP")
    if not (engine.num_gpus() and engine.cuda.is_real()):
        logging.warning("AMP: there is no GPU here. On the CPU, %s is computed in float32 and rounded: results are those of a "
                        "GPU, with less memory, but not faster.", rules.low.name)
    _loss_scaler = LossScaler()
    losses = canonical(list_loss_output_functions(rules.low))
    namespace.intercept(_mixed(rules, losses, _loss_scaler))
    arithmetic.unify = _unify
    symbols.cast_inputs = lambda node: cast_inputs(node, rules)
    _amp_initialized = True


def _uninit() -> None:
    """Undo init, for tests."""
    global _amp_initialized, _amp_loss_scale_initialized, _loss_scaler
    namespace.intercept(None)
    arithmetic.unify = symbols.cast_inputs = None
    _amp_initialized, _amp_loss_scale_initialized, _loss_scaler = False, False, None


# ---- scaling of the loss ---------------------------------------------------------------------------------------------
def _trainer(caller: str, trainer: Any) -> Trainer:
    if isinstance(trainer, Optimizer):
        raise DTypeError(f"amp.{caller}: an Optimizer cannot scale the loss. Give a gluon.Trainer.")
    if not isinstance(trainer, Trainer):
        raise DTypeError(f"amp.{caller}: a {type(trainer).__name__} is not a gluon.Trainer.")
    return trainer


def init_trainer(optimizer_or_trainer: Trainer) -> None:
    """Let a Trainer scale the loss, and skip steps whose gradients overflow. Raises MXNetError before init()."""
    global _amp_loss_scale_initialized
    trainer: Any = _trainer("init_trainer", optimizer_or_trainer)
    if not _amp_initialized:
        raise MXNetError("amp.init_trainer: mixed precision is not on. Call amp.init() first.")
    trainer._amp_loss_scaler = LossScaler() if _amp_loss_scale_initialized else _loss_scaler
    trainer._amp_original_scale = trainer._scale
    _amp_loss_scale_initialized = True


@contextlib.contextmanager
def scale_loss(loss: Any, optimizer_or_trainer: Trainer) -> Iterator[Any]:
    """Give the loss, or a list of losses, times the scale of a Trainer, whose next step divides by it.

    `with amp.scale_loss(loss, trainer) as scaled: autograd.backward(scaled)`. Raises MXNetError before init_trainer().
    """
    trainer: Any = _trainer("scale_loss", optimizer_or_trainer)
    scaler = getattr(trainer, "_amp_loss_scaler", None)
    if scaler is None:
        raise MXNetError("amp.scale_loss: the trainer does not scale losses. Call amp.init_trainer(trainer) first.")
    trainer._scale = trainer._amp_original_scale / scaler.loss_scale
    yield [part * scaler.loss_scale for part in loss] if isinstance(loss, (list, tuple)) else loss * scaler.loss_scale


def unscale(optimizer_or_trainer: Trainer) -> None:
    """Divide the gradients of a Trainer by the scale, for example to clip them before the step."""
    trainer: Any = _trainer("unscale", optimizer_or_trainer)
    for parameter in trainer._params:
        for grad in parameter.list_grad() if parameter.grad_req != "null" else ():
            grad[:] = grad * trainer._scale
    trainer._scale = 1.0


# ---- conversion of networks --------------------------------------------------------------------------------------------
def convert_symbol(sym: Symbol, target_dtype: Any = "float16", target_dtype_ops: Sequence[str] | None = None,
                   fp32_ops: Sequence[str] | None = None, conditional_fp32_ops: _Conditional | None = None,
                   excluded_sym_names: Sequence[str] | None = None, data_names: Sequence[str] | None = None,
                   cast_optional_params: bool = False) -> Symbol:
    """Return a copy of a float32 network with casts.

    target_dtype:          "float16" or "bfloat16".
    target_dtype_ops, fp32_ops, conditional_fp32_ops:  as in init.
    excluded_sym_names:    nodes that stay float32.
    data_names:            variables that are inputs; by default those without `__dtype__`.
    cast_optional_params:  mark parameters that are cast anyway as being of target_dtype.
    """
    if not isinstance(sym, Symbol):
        raise DTypeError(f"amp.convert_symbol: a {type(sym).__name__} is not a Symbol.")
    rules = _rules("convert_symbol", target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names or ())
    attrs = sym.attr_dict()
    if data_names is None:
        data_names = [n for n in sym.list_inputs() if "__dtype__" not in attrs.get(n, {})]
    return Symbol(insert_casts(sym._outputs, rules, frozenset(data_names), cast_optional_params))


def convert_model(sym: Symbol, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray],
                  target_dtype: Any = "float16", target_dtype_ops: Sequence[str] | None = None,
                  fp32_ops: Sequence[str] | None = None,
                  conditional_fp32_ops: _Conditional | None = None, excluded_sym_names: Sequence[str] | None = None,
                  cast_optional_params: bool = False) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """Return a network with casts, and its parameters in the dtypes it needs. Arguments: see convert_symbol."""
    if not isinstance(sym, Symbol):
        raise DTypeError(f"amp.convert_model: a {type(sym).__name__} is not a Symbol.")
    inputs = [n for n in sym.list_inputs() if n not in arg_params and n not in aux_params]
    converted = convert_symbol(sym, target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names, inputs,
                               cast_optional_params)
    dtypes = _declared(converted)
    args, auxes = ({k: v.astype(dtypes.get(k, v.dtype), copy=False) for k, v in params.items()}
                   for params in (arg_params, aux_params))
    return converted, args, auxes


def _declared(sym: Symbol) -> dict[str, np.dtype]:
    """Return the dtypes that are attributes of variables."""
    given = {k: int(v["__dtype__"]) for k, v in sym.attr_dict().items() if "__dtype__" in v}
    return {k: FLAG_TO_DTYPE[flag] for k, flag in given.items() if flag >= 0}


def convert_hybrid_block(block: HybridBlock, target_dtype: Any = "float16", target_dtype_ops: Sequence[str] | None = None,
                         fp32_ops: Sequence[str] | None = None, conditional_fp32_ops: _Conditional | None = None,
                         excluded_sym_names: Sequence[str] | None = None, ctx: Context | Sequence[Context] | None = None,
                         cast_optional_params: bool = False) -> SymbolBlock:
    """Return a SymbolBlock of a hybridized block that has run at least once, with casts. Arguments: see convert_symbol.

    ctx: where its parameters are; by default where those of the block are.
    """
    if not isinstance(block, HybridBlock):
        raise DTypeError(f"amp.convert_hybrid_block: a {type(block).__name__} is not a HybridBlock.")
    if not block._cached_graph:
        raise MXNetError("amp.convert_hybrid_block: the block has no graph. Call block.hybridize(), and run it once.")
    inputs, sym = block._cached_graph
    converted = convert_symbol(sym, target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names,
                               [i.name for i in inputs], cast_optional_params)
    result, dtypes = SymbolBlock(converted, inputs), _declared(converted)
    values = block.collect_params()
    for name, parameter in result.collect_params().items():
        value = values[name]._reduce()
        parameter.cast(dtypes.get(name, value.dtype))
        parameter._load_init(value.astype(parameter.dtype), values[name].list_ctx() if ctx is None else ctx)
    return result


def convert_bucketing_module(bucketing_mod: BucketingModule, target_dtype: Any = "float16",
                             target_dtype_ops: Sequence[str] | None = None, fp32_ops: Sequence[str] | None = None,
                             conditional_fp32_ops: _Conditional | None = None, excluded_sym_names: Sequence[str] | None = None,
                             cast_optional_params: bool = False) -> BucketingModule:
    """Return a BucketingModule whose networks have casts; `bind` sets its parameters. Arguments: see convert_symbol."""
    if not isinstance(bucketing_mod, BucketingModule):
        raise DTypeError(f"amp.convert_bucketing_module: a {type(bucketing_mod).__name__} is not a BucketingModule.")
    if not bucketing_mod.params_initialized:
        raise MXNetError("amp.convert_bucketing_module: the module has no parameters. Call bind and init_params, or fit, first.")
    settings = (target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names, cast_optional_params)
    args, auxes = bucketing_mod.get_params()
    first = bucketing_mod._default_bucket_key

    def generate(key: Any) -> tuple[Symbol, Any, Any]:
        sym, data_names, label_names = bucketing_mod._sym_gen(key)
        return convert_model(sym, args, auxes, *settings)[0], data_names, label_names

    _, new_args, new_auxes = convert_model(bucketing_mod._sym_gen(first)[0], args, auxes, *settings)
    return BucketingModule.load_dict(sym_gen=generate, default_bucket_key=first, arg_params=new_args, aux_params=new_auxes,
                                     **bucketing_mod._settings)
