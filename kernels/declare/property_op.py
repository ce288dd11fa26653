"""PropertyOp: a class that declares a layer (`operator_property.py`) as an operator that graphs, tapes and users can call."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import index
from typing import Any, ClassVar

from ...cache import Cache
from ...dtype import as_dtype
from ...errors import ShapeError
from ..configs.key import Config, Key
from ..cpu.c_template import Template
from ..ir.body import Body, formula_body
from ..kernel import NOTHING, KernelFunction
from ..op import (
    ChannelsLast,
    Dtypes,
    Gradient,
    NumpyFunction,
    Op,
    Product,
    Refusal,
    Req,
    Reqs,
    Shape,
    Shapes,
    Spec,
    Specs,
    infer_backward,
    merge_shapes,
    register,
)
from ..params import REQUIRED, Param, Params, declared_param
from .operator_property import RANDOM, OperatorProperty, backward_needs, entry_numbers


@functools.cache
def _fields(cls: type) -> dict[str, Any]:
    """The annotations of a class itself that declare parameters. Each class is read once, not with every one below it."""
    return {f: hint for f, hint in inspect.get_annotations(cls, eval_str=True).items()
            if typing.get_origin(hint) is not ClassVar and not f.startswith("_")}


def _declared_params(name: str, cls: type) -> tuple[Param, ...]:
    hints = {f: hint for c in reversed(cls.__mro__) for f, hint in _fields(c).items()}
    own_first = dict.fromkeys(f for c in cls.__mro__ for f in _fields(c))
    return tuple(declared_param(name, f, hints[f], getattr(cls, f, REQUIRED)) for f in own_first)


class PropertyOp(Op):
    """The Op made from an OperatorProperty class."""

    def __init__(self, name: str, cls: type[OperatorProperty], aliases: Sequence[str] = ()):
        self.name, self.aliases, self.cls = name, tuple(aliases), cls
        self.is_reshape, self.drops_hidden_at_inference = cls.is_reshape, cls.drops_hidden_at_inference
        self.nonblocking = cls.forward_kernel is not OperatorProperty.forward_kernel  # a user's forward may do anything
        self.capturable = self.nonblocking and not cls.on_host and not cls.waits
        self.costly, self.final_part = cls.costly, cls.final_part
        self.multiplies = cls.multiplies and not cls.is_reshape
        self.state_formulas, self.epilogue_block = cls.state_formulas, cls.epilogue_block
        self.has_tail = cls.tail is not OperatorProperty.tail
        self.doc, self.optional_names = inspect.cleandoc(cls.__doc__ or ""), cls.optional_names
        self.params = _declared_params(name, cls)
        self._properties: Cache[Params, OperatorProperty] = Cache()
        self._gradients: Cache[Params, Gradient | None] = Cache()
        self._backward = BackwardOp(self)

    def property(self, p: Params) -> OperatorProperty:
        """Return the property of one set of parameters."""
        return self._properties.get_or_make(p, lambda: self.cls(**p))

    def parse(self, given: Mapping[str, object]) -> Params:
        p = super().parse(given)
        if p not in self._properties:
            prop = self.cls(**p)
            prop.validate()
            self._properties[p] = prop
        return p

    def arguments(self, p: Params) -> tuple[str, ...]:
        return tuple(self.property(p).list_arguments())

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        return tuple(self.property(p).list_auxiliary_states())

    def changes_states(self, p: Params, train: bool) -> bool:
        return self.property(p).changes_states(train)

    def numpy_function(self, p: Params, ins: Specs, out: Spec) -> NumpyFunction | None:
        return self.property(p).numpy_function(ins, out)

    def outputs(self, p: Params) -> tuple[str, ...]:
        return tuple(self.property(p).list_outputs())

    def visible_outputs(self, p: Params) -> int:
        return self.property(p).num_visible_outputs()

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        prop = self.property(p)
        names, results = (*prop.list_arguments(), *prop.list_auxiliary_states()), prop.list_outputs()
        if len(names) != len(inputs):
            raise ShapeError(f"{self.name}: takes {len(names)} inputs ({', '.join(names)}), {len(inputs)} were given.")
        known = _filled(outputs, len(results))
        given = list(inputs[:len(prop.list_arguments())])
        ins, outs, aux = self._answer("infer_shape", prop, prop.infer_shape(given, known), _as_shape)
        return ([merge_shapes(self.name, name, a, b) for name, a, b in zip(names, inputs, (*ins, *aux))],
                [merge_shapes(self.name, name, a, b) for name, a, b in zip(results, known, outs)])

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        prop = self.property(p)
        found = prop.infer_type(list(inputs[:len(prop.list_arguments())]), _filled(outputs, len(prop.list_outputs())))
        if found is None:
            return super().infer_dtype(p, inputs, outputs)
        ins, outs, aux = self._answer("infer_type", prop, found, as_dtype)
        return [*ins, *aux], outs

    def _answer(self, method: str, prop: OperatorProperty, found: Any, convert: Callable[[Any], Any]) -> Any:
        """Return the three lists of an inference: those of a user's layer after a check."""
        if not self.is_users:
            return found
        wanted = [len(prop.list_arguments()), len(prop.list_outputs()), len(prop.list_auxiliary_states())]
        try:
            ins, outs, aux = ([None if a is None else convert(a) for a in part] for part in found)
        except (TypeError, ValueError):
            raise ShapeError(f"{self.name}: {method} returned {found!r}. Return three lists: of {wanted[0]} arguments, "
                             f"{wanted[1]} outputs and {wanted[2]} auxiliary states.") from None
        aux = aux or [None] * wanted[2]
        if [len(ins), len(outs), len(aux)] != wanted:
            raise ShapeError(f"{self.name}: {method} returned lists of {len(ins)}, {len(outs)} and {len(aux)} entries. It has "
                             f"{wanted[0]} arguments, {wanted[1]} outputs and {wanted[2]} auxiliary states.")
        return ins, outs, aux

    def gradient_of(self, p: Params) -> Gradient | None:
        return self._gradients.get_or_make(p, lambda: self._make_gradient(self.property(p)))

    def _make_gradient(self, prop: OperatorProperty) -> Gradient | None:
        gives, n = tuple(prop.list_gradients()), len(prop.list_arguments())
        states = range(n, n + len(prop.list_auxiliary_states())) if prop.backward_needs_aux else ()
        return Gradient(self._backward, (*backward_needs(prop), *(("x", i) for i in states)), gives) if gives else None

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        prop = self.property(p)
        n, m = len(prop.list_arguments()), len(prop.list_outputs())
        return tuple(prop.forward_inplace_option(list(range(n)), list(range(m))))

    def is_identity_at_inference(self, p: Params) -> bool:
        return self.property(p).is_identity_at_inference()

    def is_linear(self, p: Params) -> bool:
        return self.property(p).linear

    def num_random(self, p: Params, outs: Specs) -> int:
        return self.property(p).num_random(outs)

    def c_files(self, p: Params, ins: Specs, train: bool) -> Sequence[Template]:
        return self.property(p).c_files(ins, train)

    def prefers_channels_last(self, p: Params, ins: Specs, target: str) -> bool:
        return self.property(p).prefers_channels_last(ins, target)

    def channels_last(self, p: Params, target: str) -> ChannelsLast | None:
        prop = self.property(p)
        changes, others = prop.with_channels_last(), prop.with_data_last() if target == "cpu" else None
        if changes is None:
            return None
        if others is None:
            return ChannelsLast(self, self.parse({**p, **changes}))
        return ChannelsLast(others[0], others[0].parse(p), (0,), others[1])

    def tail(self, p: Params, data: Spec, target: str, *, plus: bool, backward: bool) -> Op | None:
        return self.property(p).tail(data, target, plus=plus, backward=backward)

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        prop = self.property(p)
        return NOTHING if _is_idle(prop, outs, reqs) else prop.forward_kernel(ins, outs, reqs, target, train)

    def products(self, p: Params, ins: Specs) -> tuple[Product, ...]:
        return self.property(p).products([s.shape for s in ins])[:1]

    def tuning_keys(self, p: Params, ins: Specs, outs: Specs, reqs: tuple[Req, ...], train: bool
                    ) -> list[tuple[Key, Config, tuple[Req, ...]]]:
        own = self.property(p).tuning_keys(self.products(p, ins), ins, reqs, backward=False)
        return own or super().tuning_keys(p, ins, outs, reqs, train)

    def fusible_body(self, p: Params, ins: Specs, outs: Specs) -> Body | Refusal:
        formula = self.property(p).formula(ins, outs)
        return super().fusible_body(p, ins, outs) if formula is None else formula_body(self.name, p, formula)


class BackwardOp(Op):
    """The derivative of a PropertyOp, with the same parameters. Only graphs and tapes contain it."""

    batched = (0, 1)  # dy and x

    def __init__(self, forward: PropertyOp):
        self.name, self.forward, self.is_reshape = f"_backward_{forward.name}", forward, forward.is_reshape
        self.doc = f"Derivative of {forward.name}."
        self.has_tail, self.epilogue_block = forward.has_tail, forward.epilogue_block
        self.params = forward.params
        self.capturable = (not forward.cls.on_host and not forward.cls.waits
                           and forward.cls.backward_kernel is not OperatorProperty.backward_kernel)

    @property
    def is_users(self) -> bool:  # type: ignore[override]
        return self.forward.is_users

    def parse(self, given: Mapping[str, object]) -> Params:
        return self.forward.parse(given)

    def property(self, p: Params) -> OperatorProperty:
        return self.forward.property(p)

    def arguments(self, p: Params) -> tuple[str, ...]:
        prop = self.property(p)
        spoken = {"dy": [f"{n}_grad" for n in prop.list_outputs()], "x": prop.list_arguments(),
                  "y": prop.list_outputs()}
        return tuple(spoken[kind][i] for kind, i in backward_needs(prop))

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        prop = self.property(p)
        return tuple(prop.list_auxiliary_states()) if prop.backward_needs_aux else ()

    def outputs(self, p: Params) -> tuple[str, ...]:
        prop = self.property(p)
        return tuple(f"{prop.list_arguments()[i]}_grad" for i in prop.list_gradients())

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        def merge(a: Any, b: Any) -> Any:
            return merge_shapes(self.name, "an array and its derivative", a, b)

        return self._infer(p, self.forward.infer_shape, merge, inputs, outputs)

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        return self._infer(p, self.forward.infer_dtype, lambda a, b: a or b, inputs, outputs)

    def _infer(self, p: Params, infer: Callable[..., Any], merge: Callable[[Any, Any], Any], inputs: Sequence[Any],
               outputs: Sequence[Any] | None) -> tuple[list[Any], list[Any]]:
        prop = self.property(p)
        n = len(prop.list_arguments())
        sizes = n + len(prop.list_auxiliary_states()), len(prop.list_outputs())
        read, given, ins = infer_backward(backward_needs(prop), prop.list_gradients(), sizes, partial(infer, p), merge, inputs,
                                          outputs)
        return [*read, *(ins[n:] if prop.backward_needs_aux else ())], given

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        prop = self.property(p)
        dy, x, y = entry_numbers(prop)
        first = len(dy) + len(x) + len(y)
        in_grad = list(range(first, first + len(prop.list_gradients())))
        asked = list(dict.fromkeys(prop.declare_backward_dependency(dy, x, y)))
        return tuple((asked.index(a), b - first) for a, b in prop.backward_inplace_option(dy, x, y, in_grad)
                     if a in asked)

    def num_random(self, p: Params, outs: Specs) -> int:
        return sum(s.size for s in outs) if RANDOM in self.property(p).backward_resource() else 0

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        prop = self.property(p)
        return NOTHING if _is_idle(prop, outs, reqs) else prop.backward_kernel(ins, outs, reqs, target, train)

    def tail(self, p: Params, data: Spec, target: str, *, plus: bool, backward: bool) -> Op | None:
        return self.forward.tail(p, data, target, plus=plus, backward=backward)

    def products(self, p: Params, ins: Specs) -> tuple[Product, ...]:
        return self.property(p).products([s.shape for s in ins[1:]])[1:]

    def tuning_keys(self, p: Params, ins: Specs, outs: Specs, reqs: tuple[Req, ...], train: bool
                    ) -> list[tuple[Key, Config, tuple[Req, ...]]]:
        own = self.property(p).tuning_keys(self.products(p, ins), ins, reqs, backward=True)
        return own or super().tuning_keys(p, ins, outs, reqs, train)

    def fusible_body(self, p: Params, ins: Specs, outs: Specs) -> Body | Refusal:
        formula = self.property(p).backward_formula(ins, outs)
        return super().fusible_body(p, ins, outs) if formula is None else formula_body(self.name, p, formula)


def _as_shape(sizes: Any) -> Shape:
    """Return a user's shape as a tuple. Raises TypeError for anything else."""
    return tuple(index(n) for n in sizes)


def _filled(known: Sequence[Any] | None, n: int) -> list[Any]:
    """Return n entries: what is known of the first, and None."""
    return [*(known or ()), *[None] * n][:n]


def _is_idle(prop: OperatorProperty, outs: Specs, reqs: Reqs) -> bool:
    """Return True if no output is requested and has elements. Layers with states, on the host or of users run all the same."""
    return (all(r == Req.NULL or not s.size for r, s in zip(reqs, outs)) and not prop.on_host and not prop.list_auxiliary_states()
            and type(prop).forward_kernel is not OperatorProperty.forward_kernel)


def register_operator(name: str, *, aliases: Sequence[str] = (), replace: bool = False
                      ) -> Callable[[type[OperatorProperty]], type[OperatorProperty]]:
    """Register the layer under name and aliases: a class decorator. Returns the class.

    replace: take a name even from one of the framework's operators, or one declared in another module.
    Raises:  OperatorError for a name that is taken.
    """

    def made(cls: type[OperatorProperty]) -> type[OperatorProperty]:
        cls.name = name
        register(PropertyOp(name, cls, aliases), replace=replace, module=cls.__module__)
        return cls

    return made
