"""Op, the interface of an operator to all other packages, and the registry of operators.

Three kinds of declaration become an Op: a traced body (`declare/simple_op.py`), an `OperatorProperty`
(`declare/operator_property.py`), and the derivative of either. The graph, the tape and the executors treat all of them alike,
through this class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..cache import Cache
from ..errors import DTypeError, OperatorError, ShapeError, nearest
from .configs import active as active_configs
from .configs import float32_matmul
from .kernel import NOTHING, Kernel, KernelFunction
from .params import Param, Params, parse_params
from .show_op import operator_html

if TYPE_CHECKING:
    from .configs.key import Config, Key
    from .ir.body import Body
    from .ir.combine import Combine
    from .ir.draws import Draw
    from .ir.expr import Expr

Shape = tuple[int, ...]  # in inference, None is a shape of unknown rank and -1 an unknown size (0 is a real size)
Product = tuple[int, int, int, int]  # batch, m, n, k of [batch, m, k] @ [batch, k, n]
ShapeLike = int | Sequence[int]  # a shape or axes in a user's spelling; n means (n,)
Shapes = Sequence[Shape | None]
Dtypes = Sequence[np.dtype | None]
Need = tuple[str, int]  # an array of one use of an operator: ("x", i) input i | ("y", i) output i | ("dy", i) its derivative
#: A function of two NumPy arrays, and its operands: the number of an input, or None for the scalar of the operator.
NumpyFunction = tuple[Callable[..., np.ndarray], tuple[int | None, ...]]


class Shaped(Protocol):
    """An array, or a value that stands for one while a graph or a composite is built."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> Any: ...


class Req(IntEnum):
    """The write request: how a kernel stores its result. INPLACE is WRITE to memory that an input also has."""

    NULL = 0
    WRITE = 1
    INPLACE = 2
    ADD = 3
    __hash__ = int.__hash__  # which is equal where the numbers are; that of enumerations takes ten times as long


def only(reqs: Reqs, i: int) -> tuple[Req, ...]:
    """Return the requests with all but the i-th NULL."""
    return tuple(r if j == i else Req.NULL for j, r in enumerate(reqs))


@dataclass(frozen=True, slots=True)
class Spec:
    """An array without its bytes. Arrays are always dense and row-major."""

    shape: Shape
    dtype: np.dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        """The length in bytes."""
        return self.size * self.dtype.itemsize


Specs = Sequence[Spec]
Reqs = Sequence[Req]


@dataclass(frozen=True, eq=False)
class Expression:
    """A traced body: one Expr per output. Load i reads input i.

    The inputs broadcast against each other to the full shape. An output whose shape has 1 where the full shape has
    more is folded over those axes with `combine` (the gradient of broadcasting, and reductions).

    outputs:  one root per output of the op.
    kind:     "elementwise", or "row" if there are "reduce" or "row_index" nodes.
    axis:     the axis of the full shape that rows go along: -1 or -2.
    combine:  how outputs smaller than the full shape are folded: "add", "maximum", "minimum", "mul", or a user's function.
    states:   pairs (output, input): that root is stored into that input instead of an output array.
    scalars:  names of the run-time scalars, in the order in which `scalars=` hands their values to the kernel.
    draws:    the draws of random numbers, in the order of their sites; the kernel takes `random=` if there are any.
    """

    outputs: tuple[Expr, ...]
    kind: str = "elementwise"
    combine: str | Combine = "add"
    states: tuple[tuple[int, int], ...] = ()
    scalars: tuple[str, ...] = ()
    draws: tuple[Draw, ...] = ()
    axis: int = -1


@dataclass(frozen=True, slots=True)
class Formula:
    """The computation of one use of an operator as a part of a larger kernel, where `expression` alone does not define it.

    roots:      one per output, as expressions of the inputs' loads; sums and maxima in them go over the last axis.
    ins, outs:  the shape under which each array broadcasts to the full shape. An output with size 1 in the
                last axis alone has one value per row; an output that lacks other axes is summed over them.
    """

    roots: tuple[Expr, ...]
    ins: tuple[Shape, ...]
    outs: tuple[Shape, ...]


class ChannelsLast(NamedTuple):
    """An operator and its parameters for arrays with channels last.

    inputs:   the numbers of those that change; None: all.
    turning:  an operator with the same parameters that reads the first input with channels first, in a graph without backward.
    """

    op: Op
    params: Params
    inputs: tuple[int, ...] | None = None
    turning: Op | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why something cannot be done, a phrase for `executor.explain()`."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class Gradient:
    """The derivative of one use of an operator: run `op` on `needs`, in order; its outputs are the derivatives of `gives`.

    needs:  ("dy", i) the derivative by output i | ("x", i) input i | ("y", i) output i. Other arrays are not kept.
    gives:  the input index that each output of `op` is the derivative of. The derivative of any other input is zero.
    """

    op: Op
    needs: tuple[Need, ...]
    gives: tuple[int, ...]


class Op:
    """One declared operator. Subclasses override what differs; the defaults suit elementwise operators with one output.

    In every method `p` is a result of `parse`: typed, checked, hashable.
    "Inputs" are the arguments followed by the auxiliary states.
    """

    name: str = ""
    aliases: tuple[str, ...] = ()
    doc: str = ""
    params: tuple[Param, ...] = ()
    input_names: tuple[str, ...] = ()
    optional_names: tuple[str, ...] = ()  # inputs that some parameters ask for: by position, None may stand for one
    output_names: tuple[str, ...] = ("output",)
    nonblocking = False  # True if kernels only compute (neither push nor wait nor call a user): small ones may run at once
    is_reshape = False  # True if the one output is the first input's bytes under another shape
    drops_hidden_at_inference = False  # True if outside training the hidden outputs may be left out (request NULL)
    costly = False  # True if mirroring keeps its result instead of computing it again
    #: The elementwise operator that computes the first output from inputs and other outputs, with the same parameters, and
    #: its needs, ("x", i) or ("y", i) as in Gradient; None without such an operator.
    final_part: tuple[Op, tuple[Need, ...]] | None = None
    #: {target: operators}: the last, elementwise, computes the first output outside training from the data and the results of the
    #: one before it; or, if it is alone, from arguments and states. {} without such operators.
    state_formulas: Mapping[str, tuple[Op, ...]] = {}
    has_tail = False  # True if `tail` may return an operator
    #: The fewest samples of a block if elementwise work may follow each block of the first output (fusion/epilogue.py); 0 if not.
    epilogue_block = 0
    batched: tuple[int, ...] = (0,)  # the inputs with a sample per row, where epilogue_block is not 0
    linear = False  # True if it is linear in the inputs that have a derivative: then its derivative is its transpose
    capturable = False  # True if each run only computes or launches the same; user code may do anything
    multiplies = True  # False if no kernel of it multiplies matrices: how a GPU multiplies float32 does not concern it
    is_users = False  # True for a user's operator: its name says nothing about what it computes

    @property
    def role(self) -> str:
        """The name of the framework's operator, for rules about what it computes; "" for a user's."""
        return "" if self.is_users else self.name

    # ---- parameters -------------------------------------------------------------------------------------------
    def parse(self, given: Mapping[str, object]) -> Params:
        """Parse a user's values or the strings of a symbol JSON. Raises ParameterError."""
        return parse_params(self.name, self.params, given)

    # ---- inputs and outputs -------------------------------------------------------------------------------------
    def arguments(self, p: Params) -> tuple[str, ...]:
        """Return the names of the inputs that are learned or fed."""
        return self.input_names

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        """Return the names of the states that forward changes; they are the last inputs."""
        return ()

    def changes_states(self, p: Params, train: bool) -> bool:
        """Return whether forward changes its auxiliary states, if any, instead of only reading them."""
        return True

    def outputs(self, p: Params) -> tuple[str, ...]:
        """Return the names of the outputs, hidden ones included."""
        return self.output_names

    def visible_outputs(self, p: Params) -> int:
        """Return how many of the outputs a user sees; the rest are kept for backward."""
        return len(self.outputs(p))

    # ---- inference ----------------------------------------------------------------------------------------------
    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        """Return the shapes of inputs and outputs as far as they follow from the known ones (unknown: None, or -1 for a size).

        outputs: the known shapes of outputs, for inference backwards.
        Raises ShapeError that states the shapes and the rule.
        """
        raise NotImplementedError(self.name)

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        """Return the dtypes of inputs and outputs as far as they follow. Default: all are the same."""
        d = self.common_dtype(p, inputs, outputs)
        return [d] * len(inputs), [d] * len(self.outputs(p))

    def common_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> np.dtype | None:
        """Return the one dtype of inputs and outputs; None if none is known. Raises DTypeError where inputs disagree."""
        known = [d for d in (*inputs, *(outputs or ())) if d is not None]
        d = known[0] if known else None
        for i, other in enumerate(inputs):
            if other is not None and other != d:
                names = (*self.arguments(p), *self.auxiliaries(p))
                raise DTypeError(f"{self.name}: inputs disagree: {names[0]} is {d}, {names[i]} is {other}. "
                                 f"Convert one with astype.")
        return d

    # ---- gradient, memory, randomness ---------------------------------------------------------------------------
    def gradient_of(self, p: Params) -> Gradient | None:
        """Return the derivative, or None where it is zero."""
        return None

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        """Return the (input, output) pairs that may share memory."""
        return ()

    def is_linear(self, p: Params) -> bool:
        """Return `linear`, where it depends on parameters."""
        return self.linear

    def is_identity_at_inference(self, p: Params) -> bool:
        """Return whether the first output equals the first input outside training."""
        return False

    def num_random(self, p: Params, outs: Specs) -> int:
        """Return how many random numbers one run takes. If it is more than 0, kernels get `random=(seed, offset)`."""
        return 0

    def random_count(self, p: Params, ins: Specs, outs: Specs) -> int:
        """Return `num_random`, where it depends on the inputs' shapes too."""
        return self.num_random(p, outs)

    def can_be_captured(self, p: Params, ins: Specs) -> bool:
        """Return `capturable`, where it depends on the use: of what calls operators, as theirs."""
        return self.capturable

    # ---- rewriting ----------------------------------------------------------------------------------------------
    def c_files(self, p: Params, ins: Specs, train: bool) -> Sequence[Any]:
        """Return the `Template`s (cpu/c_template.py) from which its kernels on a CPU will be made, as far as that is known: they
        are compiled while the graph is. train: the derivative's too."""
        return ()

    def prefers_channels_last(self, p: Params, ins: Specs, target: str) -> bool:
        """Return whether its first input is worth transposing to channels last."""
        return False

    def channels_last(self, p: Params, target: str) -> ChannelsLast | None:
        """Return what computes the same on arrays [n, h, w, channels] instead of [n, channels, h, w]; None: it cannot."""
        return None

    def tail(self, p: Params, data: Spec, target: str, *, plus: bool, backward: bool) -> Op | None:
        """Return this operator and a rectifier of its first output as one, after the sum with another array if plus.

        data: the first argument. backward: return the derivative of that. None where there is no such operator.
        """
        return None

    # ---- code ---------------------------------------------------------------------------------------------------
    def expression(self, p: Params, dtypes: Sequence[np.dtype]) -> Expression | None:
        """Return the traced body for inputs of these dtypes, for fusion; None if the operator cannot be fused."""
        return None

    def fusible_body(self, p: Params, ins: Specs, outs: Specs) -> Body | Refusal:
        """Return this use of the operator as a part of a fused kernel, or the reason why it cannot be fused."""
        return Refusal(f"{self.name} has no elementwise formula" if ins and outs else f"{self.name} has no inputs")

    def numpy_function(self, p: Params, ins: Specs, out: Spec) -> NumpyFunction | None:
        """Return one NumPy function that computes a tiny output from two operands; None if no single function does."""
        return None

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        """Return the compiled kernel.

        target: "cpu" or "gpu".
        Returns: kernel(run, inputs, outputs[, random=(seed, offset)][, scalars=p.scalars]), where inputs and outputs
            are device arrays (numpy arrays on the CPU, torch tensors on the GPU; shapes as in ins and outs), auxiliary inputs are
            changed in place, and `run` is the engine's RunContext (`run.stream`, `run.parallel(fn, n)`,
            `run.workspace(shape, dtype)`). Callers go through `compiled`, which caches.
        """
        raise NotImplementedError(self.name)

    # ---- tuning -------------------------------------------------------------------------------------------------
    def products(self, p: Params, ins: Specs) -> tuple[Product, ...]:
        """Return the matrix product behind each of the first outputs; () where outputs are not products."""
        return ()

    def tuning_keys(self, p: Params, ins: Specs, outs: Specs, reqs: tuple[Req, ...], train: bool
                    ) -> list[tuple[Key, Config, tuple[Req, ...]]]:
        """Return (key, default configuration, requests that run it alone) of each CPU kernel with blocks to tune.

        Default: what its generated kernels ask for while they are made.
        """
        if not (self.nonblocking or self.capturable) or not ins or any(s.size == 0 for s in (*ins, *outs)):
            return []
        asked: dict[Key, Config] = {}
        with active_configs.observed(asked.setdefault):
            self.kernel(p, ins, outs, reqs, "cpu", train)
        return [(key, default, reqs) for key, default in asked.items() if key.template == "cpu tile"]

    def tune(self, *shapes: Shape, **options: Any) -> Any:
        """Find and store the best block sizes for this operator: `op.tune((512, 512))`. See `tritium.tuning.tune`.

        shapes: the shape of all inputs, or one for each. options: those of `tritium.tuning.tune`.
        """
        return _tuner(self, list(shapes), **options)

    # ---- calling ------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Let the first argument that can do so make the call: trace it, compose a graph, or push it."""
        for a in (*args, *kwargs.values()):
            candidates = a if isinstance(a, (list, tuple)) else (a,)
            for c in candidates:
                call = getattr(type(c), "_tritium_call_", None)
                if call is not None:
                    return call(c, self, args, kwargs)
        raise OperatorError(f"{self.name}: no argument is an NDArray, a Symbol or a traced value: "
                            f"{', '.join(type(a).__name__ for a in args) or 'nothing was given'}. "
                            f"Wrap the data in mx.nd.array(...).")

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def _repr_html_(self) -> str:
        return operator_html(self)


def _tuner(op: Op, shapes: list[Shape], **options: Any) -> Any:
    """The function behind `op.tune`, once the root has connected it."""
    raise NotImplementedError


class _SignatureOf:
    """`inspect.signature(op)`: that of `mx.nd.NAME`, by the function that a higher floor hands to `use_signature`."""

    function: Callable[[Op], Any] | None = None

    def __get__(self, op: Op | None, owner: type) -> Any:
        return None if op is None or self.function is None else self.function(op)


_signature_of = _SignatureOf()
Op.__signature__ = _signature_of  # type: ignore[attr-defined]  # where `inspect` looks


def use_signature(function: Callable[[Op], Any]) -> None:
    """Let `inspect.signature(op)` be function(op)."""
    _signature_of.function = function


def use_tuner(tuner: Callable[..., Any]) -> None:
    """Let `op.tune` call tuner(op, shapes, **options), which a higher floor has."""
    global _tuner
    _tuner = tuner


_registry: dict[str, Op] = {}
_builtin: dict[str, Op] = {}  # the framework's own; a user's declaration does not change them
_declared_in: dict[str, str] = {}  # a user's operator -> the module it was declared in

#: Called after each registration, by those who keep what they found by name.
after_register: list[Callable[[], None]] = []


def register(op: Op, *, replace: bool = False, module: str = "") -> Op:
    """Make op known by its name and aliases.

    module:   the module that declares it; "" or a module of the framework for the framework's own.
    replace:  take the names even from other operators. Without it, a user's operator replaces only one that was declared in
              the same module (a notebook cell run again).
    Raises:   OperatorError for a name that is taken; nothing is registered then.
    """
    names = (op.name, *op.aliases)
    own = _is_ours(module)
    for name in names:
        if replace or _registry.get(name, op) is op or (not own and _declared_in.get(name) == module):
            continue
        if own:
            raise OperatorError(f"register: operator {name!r} exists already.")
        taken = "is one of the framework's operators" if name in _builtin else f"is declared in {_declared_in.get(name)}"
        raise OperatorError(f"{name}: {taken}. Give yours another name, or declare it with replace=True: what you call by that "
                            f"name is then yours, and the framework keeps its own.")
    op.is_users = not own
    for name in names:
        _registry[name] = op
        if own:
            _builtin[name] = op
        else:
            _declared_in[name] = module
    for call in after_register:
        call()
    return op


def _is_ours(module: str) -> bool:
    """Return whether a declaration in module is the framework's. Its examples count as a user's modules."""
    root = __name__.partition(".")[0]
    return not module or (module.startswith(f"{root}.") and not module.startswith(f"{root}.examples."))


def builtin(name: str) -> Op:
    """Return the framework's own operator called name, even if a user declared one; a user's if the framework has none.

    Raises OperatorError that proposes the nearest names.
    """
    found = _builtin.get(name)
    return get(name) if found is None else found


def get(name: str) -> Op:
    """Return the operator called name. Raises OperatorError that proposes the nearest names."""
    try:
        return _registry[name]
    except KeyError:
        raise OperatorError(f"{name}: no such operator.{nearest(name, _registry)}") from None


def find(name: str) -> Op | None:
    """Return the operator called name, or None: at once, where `get` looks for the nearest names."""
    return _registry.get(name)


def registered() -> dict[str, Op]:
    """Return all operators by name, aliases included."""
    return dict(_registry)


def merge_shapes(op: str, what: str, a: Shape | None, b: Shape | None) -> Shape | None:
    """Return the shape that agrees with both a and b (None and -1 are unknown). Raises ShapeError that states both."""
    if a is None:
        return b
    if b is None:
        return a
    if len(a) != len(b) or any(m >= 0 and n >= 0 and m != n for m, n in zip(a, b)):
        raise ShapeError(f"{op}: {what} would have to be both {a} and {b}.")
    return tuple(max(m, n) for m, n in zip(a, b))


def infer_backward(needs: Sequence[Need], gives: Sequence[int], sizes: tuple[int, int], infer: Callable[..., Any],
                   merge: Callable[[Any, Any], Any], inputs: Sequence[Any], outputs: Sequence[Any] | None
                   ) -> tuple[list[Any], list[Any], list[Any]]:
    """Infer the shapes or dtypes of a derivative with `infer`, forward's inference: each derivative is like its array.

    needs, gives:  as in Gradient. sizes: forward's numbers of inputs and outputs. merge: of two known shapes or dtypes.
    Returns: those of needs, of gives, and of all inputs of forward.
    """
    x: list[Any] = [None] * sizes[0]
    y: list[Any] = [None] * sizes[1]
    for (kind, i), known in (*zip(needs, inputs), *((("x", i), k) for i, k in zip(gives, outputs or ()))):
        group = x if kind == "x" else y
        group[i] = merge(group[i], known)
    ins, outs = infer(x, y)
    return [(ins if kind == "x" else outs)[i] for kind, i in needs], [ins[i] for i in gives], list(ins)


def is_known(shape: Shape | None) -> bool:
    """Return whether every size is known."""
    return shape is not None and -1 not in shape


_compiled: Cache[tuple, Kernel] = Cache()  # a kernel takes some 12 KB


def forget_compiled() -> None:
    """Let every kernel be made anew at its next use."""
    _compiled.clear()


def compiled(op: Op, p: Params, ins: tuple[Spec, ...], outs: tuple[Spec, ...], reqs: tuple[Req, ...], target: str,
             train: bool = False) -> Kernel:
    """Return `op.kernel(...)`, built once per set of arguments; a new value of a run-time scalar needs no new kernel.

    Returns: kernel(run, inputs, outputs[, random=(seed, offset)]), with p's scalars bound. A caller with a cache
    of its own must key it by `p.static` and pass `scalars=p.scalars` itself (`compiled_static`): otherwise its cache
    grows with every learning rate.
    """
    kernel = compiled_static(op, p, ins, outs, reqs, target, train)
    return kernel.with_scalars(p.scalars) if p.scalars else kernel


def compiled_static(op: Op, p: Params, ins: tuple[Spec, ...], outs: tuple[Spec, ...], reqs: tuple[Req, ...],
                    target: str, train: bool = False) -> Kernel:
    """Return the kernel of `compiled` without bound scalars: pass `scalars=p.scalars` at each call where p has any."""
    how = float32_matmul.other() if target == "gpu" and op.multiplies else ""
    key = (op, p.static, ins, outs, reqs, target, train, how)
    found = _compiled.get(key)
    if found is None:
        changes = op.auxiliaries(p) and op.changes_states(p, train)
        empty = outs and not any(o.size for o in outs) and not changes
        made = NOTHING if empty else op.kernel(p, ins, outs, reqs, target, train)
        kernel = made if isinstance(made, Kernel) else Kernel(made)
        found = _compiled[key] = kernel.made_under(how) if how else kernel
    return found
