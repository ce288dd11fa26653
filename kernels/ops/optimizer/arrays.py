"""Operators on several arrays: multi_sum_sq, all_finite, multi_all_finite, reset_arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....dtype import float32
from ....errors import ParameterError
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...declare.traced import printed
from ...ir.expr import Expr, load
from ...ir.lang import minimum, where
from ...kernel import Kernel, KernelFunction
from ...op import Expression, Req, Reqs, Spec, Specs
from ..tensor.data_movement import fill


def _folded(spec: Spec, target: str, body: Callable[[Expr], Any], combine: str, name: str, req: Req = Req.WRITE) -> Kernel:
    """Return the kernel that reduces body of a flattened array to one float32 number."""
    e = Expression((body(load(0, spec.dtype)),), combine=combine)
    return printed(e, [Spec((spec.size,), spec.dtype)], [Spec((1,), float32)], [req], target, name)


class OfArrays(OperatorProperty):
    """Base class: arrays of any shapes to a few float32 numbers; not differentiable."""

    gradient_arguments = ()

    def validate(self) -> None:
        n, given = getattr(self, "num_arrays", 1), getattr(self, "num_args", None)
        if n < 1 or given not in (None, n):
            raise ParameterError(f"{self.name}: num_arrays={n}, but {given} arrays were given.")

    @property
    def argument_names(self) -> tuple[str, ...]:
        return tuple(f"array_{i}" for i in range(self.num_arrays))  # type: ignore[attr-defined]

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        return list(in_shape), [(1,)], []

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        return list(in_type), [float32], []


@register_operator("multi_sum_sq")
class MultiSumSq(OfArrays):
    """Σ x² of each of num_arrays arrays. Returns: float32 [num_arrays]."""

    num_arrays: int
    num_args: int | None = None

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        return list(in_shape), [(self.num_arrays,)], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        folds = [_folded(s, target, lambda x: x * x, "add", self.name, reqs[0]) for s in ins]

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            for i, fold in enumerate(folds):
                fold(run, [inputs[i].reshape(-1)], [outputs[0][i:i + 1]])

        return kernel


class Finite(OfArrays):
    """Base class: 1 if every element of every array is finite, else 0."""

    init_output: bool = True

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        finite = [_folded(s, target, lambda x: where(abs(x) < float("inf"), 1.0, 0.0), "minimum", self.name) for s in ins]
        n, one, spec = len(ins), Spec((1,), float32), Spec((len(ins),), float32)
        whole = _folded(spec, target, lambda x: minimum(x, 1.0), "minimum", self.name)  # an empty array gives infinity
        store = row_kernel(lambda a, b: a if self.init_output else minimum(a, b), [(1,)] * 2, [(1,)], (1,), [one, one], outs,
                           [Req.INPLACE if r == Req.WRITE else r for r in reqs], target, f"{self.name}_store")

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            parts, found = run.workspace((n,), float32), run.workspace((1,), float32)
            for i, fold in enumerate(finite):
                fold(run, [inputs[i].reshape(-1)], [parts[i:i + 1]])
            whole(run, [parts], [found])
            store(run, [found, outputs[0]], outputs)

        return kernel


@register_operator("all_finite")
class AllFinite(Finite):
    """1 if data holds no infinity and no NaN, else 0. Returns: float32 [1].

    init_output: False: the result is also 0 if out held 0 before.
    """

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data",)


@register_operator("multi_all_finite")
class MultiAllFinite(Finite):
    """1 if none of num_arrays arrays holds an infinity or NaN, else 0. Returns: float32 [1].

    init_output: False: the result is also 0 if out held 0 before.
    """

    num_arrays: int = 1
    num_args: int | None = None


@register_operator("reset_arrays")
class ResetArrays(OfArrays):
    """Fill num_arrays arrays with zeros, in place. Returns: a placeholder, float32 [1]."""

    num_arrays: int
    num_args: int | None = None

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ()

    @property
    def state_names(self) -> tuple[str, ...]:
        return tuple(f"array_{i}" for i in range(self.num_arrays))

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        return [], [(1,)], [None] * self.num_arrays

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        return [], [float32], [None] * self.num_arrays

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            for a in (*inputs, *(outputs if reqs[0] in (Req.WRITE, Req.INPLACE) else ())):
                fill(run, a, 0)

        return kernel
