"""DispatchOp: one operator whose parameters select one of several (LeakyReLU's act_type, norm's ord)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import numpy as np

from ..ir.body import Body
from ..kernel import KernelFunction
from ..op import Dtypes, Expression, Gradient, Op, Refusal, Reqs, Shapes, Specs
from ..params import Param, Params


class DispatchOp(Op):
    """Delegate every method to the operator that `choose(p)` names, which reads its own parameters from p."""

    def __init__(self, name: str, doc: str, params: Sequence[Param], choose: Callable[[Params], Op], aliases: Sequence[str] = ()):
        self.name, self.aliases, self.doc = name, tuple(aliases), inspect.cleandoc(doc)
        self.params, self.choose = tuple(params), choose

    def arguments(self, p: Params) -> tuple[str, ...]:
        return self.choose(p).arguments(p)

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        return self.choose(p).auxiliaries(p)

    def outputs(self, p: Params) -> tuple[str, ...]:
        return self.choose(p).outputs(p)

    def visible_outputs(self, p: Params) -> int:
        return self.choose(p).visible_outputs(p)

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        return self.choose(p).infer_shape(p, inputs, outputs)

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        return self.choose(p).infer_dtype(p, inputs, outputs)

    def gradient_of(self, p: Params) -> Gradient | None:
        return self.choose(p).gradient_of(p)

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return self.choose(p).inplace(p)

    def is_linear(self, p: Params) -> bool:
        return self.choose(p).is_linear(p)

    def num_random(self, p: Params, outs: Specs) -> int:
        return self.choose(p).num_random(p, outs)

    def capturable(self, p: Params) -> bool:
        return self.choose(p).capturable(p)

    def expression(self, p: Params, dtypes: Sequence[np.dtype]) -> Expression | None:
        return self.choose(p).expression(p, dtypes)

    def fusible_body(self, p: Params, ins: Specs, outs: Specs) -> Body | Refusal:
        return self.choose(p).fusible_body(p, ins, outs)

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        return self.choose(p).kernel(p, ins, outs, reqs, target, train)
