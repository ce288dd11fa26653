"""DispatchOp: one operator whose parameters select one of several (LeakyReLU's act_type, norm's ord)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..op import Op
from ..params import Param, Params


class DispatchOp(Op):
    """Delegate every question about a use to the operator that `choose(p)` names, which reads its own parameters from p."""

    nonblocking = capturable = True  # as all that are chosen from

    def __init__(self, name: str, doc: str, params: Sequence[Param], choose: Callable[[Params], Op], aliases: Sequence[str] = ()):
        self.name, self.aliases, self.doc = name, tuple(aliases), inspect.cleandoc(doc)
        self.params, self.choose = tuple(params), choose


def _delegated(method: str) -> Callable[..., Any]:
    return lambda self, p, *args, **more: getattr(self.choose(p), method)(p, *args, **more)


for _method in ("arguments", "auxiliaries", "outputs", "visible_outputs", "infer_shape", "infer_dtype", "gradient_of", "inplace",
                "num_random", "random_count", "can_be_captured", "expression", "fusible_body", "kernel", "products",
                "tuning_keys"):
    setattr(DispatchOp, _method, _delegated(_method))
