"""PairOp: a product or convolution with its epilogue, and another that reads its result, in one pass on a CPU.

The first result is kept in cache, some rows at a time, and is stored nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..kernel import Kernel, Prepared
from ..op import Op, Req, Reqs, Spec, Specs, compiled
from ..params import Params
from .epilogue import EpilogueOp, Scaled

_NONE = Params({})


class PairOp(Op):
    """Two `EpilogueOp`, of which the second reads the first's output as its head's first input, and nothing else does.

    n:       inputs of the first; those of the second follow, without that output.
    between: the spec of that output. hidden: those of the heads' results.
    """

    def __init__(self, first: EpilogueOp, second: EpilogueOp, n: int, between: Spec, hidden: tuple[Spec, Spec]):
        self.name = f"{first.name}+{second.name}"
        self.first, self.second, self.n, self.between, self.hidden = first, second, n, between, hidden
        self.input_names = tuple(f"x{i}" for i in range(n + len(second.input_names) - 1))
        self.output_names = ("output",)
        self.capturable = first.capturable and second.capturable

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        at, n = self.second.wiring.head[0], self.n
        own, others = tuple(ins[:n]), list(ins[n:])
        others.insert(at, self.between)
        made = both(self.first, self.second, own, tuple(others), self.between, outs[0], self.hidden)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            y = run.workspace(self.between.shape, self.between.dtype)
            then = list(inputs[n:])
            then.insert(at, y)
            compiled(self.first, _NONE, own, (self.hidden[0], self.between), (Req.NULL, Req.WRITE), target)(
                run, inputs[:n], [None, y])
            compiled(self.second, _NONE, tuple(others), (self.hidden[1], outs[0]), (Req.NULL, reqs[0]), target)(
                run, then, [None, outputs[0]])

        if made is None or reqs[0] == Req.ADD:
            return Kernel(kernel)
        first, second = made

        def keep(inputs: Sequence[Any], outputs: Sequence[Any]) -> Prepared:
            then = list(inputs[n:])
            then.insert(at, None)
            return first.head.keep_pair([inputs[i] for i in self.first.wiring.head], *first.of(inputs), second.head,
                                        [then[i] for i in self.second.wiring.head], *second.of(then), outputs[0])

        kept = [*first.keeps(self.first.wiring), *(n + i - (i > at) for i in second.keeps(self.second.wiring))]
        return Kernel(kernel, keep=keep, keeps=kept)


def both(first: EpilogueOp, second: EpilogueOp, ins: Specs, then: Specs, between: Spec, out: Spec, hidden: tuple[Spec, Spec]
         ) -> tuple[Scaled, Scaled] | None:
    """Return the two as they are computed in one pass; None where that cannot be."""
    reqs, wiring = (Req.NULL, Req.WRITE), second.wiring
    if wiring.head.count(wiring.head[0]) > 1 or wiring.head[0] in wiring.epilogue:
        return None
    a, b = first.scaled(ins, (hidden[0], between), reqs), second.scaled(then, (hidden[1], out), reqs)
    return (a, b) if a is not None and b is not None and a.head.pairs_with(b.head) else None
