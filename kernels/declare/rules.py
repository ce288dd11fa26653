"""Shape and dtype rules: functions of a declaration that check the inputs and answer what follows from them.

    @simple_op(shape=lambda data, label: (1,))         # every element's loss, added up
    def absolute_loss(data, label):
        return abs(data - label)

A shape rule gets the inputs' shapes (None where one is unknown) and, by name, those parameters that it names or takes as `**p`.
If it names `outputs`, it gets the known shapes of the outputs, too. It answers the shape of every output, a list with a shape
for each, or a pair of lists: the inputs' shapes, then the outputs'. None is an answer that is not known yet. A dtype rule does
the same with dtypes, for which names ("uint8") do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ...errors import DTypeError, MXNetError, OperatorError, ShapeError
from ..op import Shape, is_known, merge_shapes
from ..params import Params


class Rule:
    """A shape or dtype rule, with the parameters that it asks for.

    op:      the operator's name; kind: "shape" or "dtype".
    arrays:  the names of the operator's inputs; params: of those of its parameters that are fixed when a kernel is built.
    """

    def __init__(self, op: str, kind: str, function: Callable[..., Any], arrays: Sequence[str], params: Sequence[str],
                 scalars: Sequence[str]):
        if not callable(function):
            raise OperatorError(f"{op}: {kind}={function!r} is not a function. Give a function of the inputs' {kind}s and of "
                                f"parameters by name.")
        self.op, self.kind, self.function, self.arrays = op, kind, function, tuple(arrays)
        ps = list(inspect.signature(function).parameters.values())
        places = [p for p in ps if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "outputs"]
        many = any(p.kind == p.VAR_POSITIONAL for p in ps)
        named = {p.name for p in ps if p.kind == p.KEYWORD_ONLY or (p.kind == p.POSITIONAL_OR_KEYWORD and p.name in params)}
        self.takes_outputs = any(p.name == "outputs" for p in ps)
        self.named = tuple(params) if any(p.kind == p.VAR_KEYWORD for p in ps) else tuple(n for n in params if n in named)
        places = [p for p in places if p.name not in self.named or p.name in arrays]
        if not many and len(places) != len(self.arrays):
            raise OperatorError(f"{op}: the {kind} rule takes {len(places)} {kind}s ({', '.join(p.name for p in places)}), and "
                                f"the operator has {len(self.arrays)} inputs ({', '.join(self.arrays)}).")
        for n in sorted(named - set(params) - {"outputs"}):
            why = "is handed to the kernel at run time" if n in scalars else "does not exist"
            raise OperatorError(f"{op}: the {kind} rule asks for the parameter {n!r}, which {why}. It can ask for "
                                f"{', '.join(params) or 'none'}.")

    def ask(self, p: Params, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Return the rule's answer; None if it fails because an input is unknown."""
        more = {n: p[n] for n in self.named} | ({"outputs": list(outputs)} if self.takes_outputs else {})
        try:
            return self.function(*inputs, **more)
        except MXNetError:
            raise
        except ValueError as e:
            raise (ShapeError if self.kind == "shape" else DTypeError)(f"{self.op}: {e}") from e
        except (TypeError, IndexError, AttributeError):
            if any(x is None for x in inputs):
                return None
            raise

    def parts(self, answer: Any, outputs: Sequence[str], parse: Callable[[Any], Any], wanted: str) -> tuple[list[Any], list[Any]]:
        """Return an answer as the list of inputs and the list of outputs. parse raises ValueError for what is nonsense."""
        n, m = len(self.arrays), len(outputs)
        error = ShapeError if self.kind == "shape" else DTypeError
        ins: list[Any] = [None] * n
        if answer is None:
            return ins, [None] * m
        if isinstance(answer, tuple) and len(answer) == 2 and all(isinstance(a, list) for a in answer):
            ins, outs = answer
            if len(ins) != n:
                raise error(f"{self.op}: the {self.kind} rule answered {len(ins)} {self.kind}s of inputs, {ins!r}, and the "
                            f"operator has {n} inputs ({', '.join(self.arrays)}).")
        else:
            try:
                outs = [parse(answer)] * m  # one for all
            except ValueError:
                outs = answer
        if not isinstance(outs, (list, tuple)):
            raise error(self._nonsense(answer, outputs, wanted))
        try:
            found = [None if a is None else parse(a) for a in ins], [None if a is None else parse(a) for a in outs]
        except ValueError:
            raise error(self._nonsense(answer, outputs, wanted)) from None
        if len(found[1]) != m:
            raise error(f"{self.op}: the {self.kind} rule answered {len(found[1])} {self.kind}s, {answer!r}, and the operator "
                        f"has {m} output{'s' * (m > 1)} ({', '.join(outputs)}).")
        return found

    def _nonsense(self, answer: Any, outputs: Sequence[str], wanted: str) -> str:
        return (f"{self.op}: the {self.kind} rule answered {answer!r}. Return {wanted} for each output ({', '.join(outputs)}), "
                f"or ([{self.kind}s of inputs], [{self.kind}s of outputs]).")


def _shape(value: Any) -> Shape:
    if isinstance(value, (str, bytes)) or not isinstance(value, (tuple, list)):
        raise ValueError
    if any(isinstance(n, (bool, np.bool_)) or not isinstance(n, (int, np.integer)) or n < 0 for n in value):
        raise ValueError
    return tuple(int(n) for n in value)


def _dtype(value: Any) -> np.dtype:
    try:
        return as_dtype(value)
    except (MXNetError, TypeError, ValueError):
        raise ValueError from None


def answered_shapes(rule: Rule, p: Params, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None], names: Sequence[str]
                    ) -> tuple[list[Shape | None], list[Shape | None]]:
    """Return the shapes of inputs and outputs that follow from the rule and from what is known."""
    known_in = [s if is_known(s) else None for s in inputs]
    answer = rule.ask(p, known_in, [s if is_known(s) else None for s in outputs])
    ins, outs = rule.parts(answer, names, _shape, "a tuple of integers")
    return ([merge_shapes(rule.op, n, a, b) for n, a, b in zip(rule.arrays, inputs, ins)],
            [merge_shapes(rule.op, n, a, b) for n, a, b in zip(names, outputs, outs)])


def answered_dtypes(rule: Rule, p: Params, inputs: Sequence[np.dtype | None], outputs: Sequence[np.dtype | None],
                    names: Sequence[str]) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
    """Return the dtypes of inputs and outputs that follow from the rule and from what is known."""
    ins, outs = rule.parts(rule.ask(p, inputs, outputs), names, _dtype, "a dtype")
    for n, a, b in (*zip(rule.arrays, inputs, ins), *zip(names, outputs, outs)):
        if a is not None and b is not None and a != b:
            raise DTypeError(f"{rule.op}: {n} is {a}, and its dtype rule says {b}. Convert it with astype.")
    return [a or b for a, b in zip(inputs, ins)], [a or b for a, b in zip(outputs, outs)]
