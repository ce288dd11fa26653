"""sample_multinomial: class indices drawn by probability. shuffle: the rows of an array in random order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dtype import float32
from ....errors import ShapeError
from ...cpu.c_shuffle import shuffled, shuffles
from ...declare.operator_property import RANDOM, Dtypes, OperatorProperty, Shapes, assign, gpu_module
from ...declare.property_op import register_operator
from ...declare.random_fill import fill
from ...declare.row_kernel import row_kernel
from ...ir.lang import row_sum, where
from ...kernel import KernelFunction
from ...op import Req, Reqs, Spec, Specs, builtin, compiled
from ...philox import FEW, words
from ..tensor.arange import indices
from .uniform import fill_uniform

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)


@register_operator("_sample_multinomial", aliases=("sample_multinomial",))
class SampleMultinomial(OperatorProperty):
    """Class indices drawn with the probabilities in data.

    data:      [..., k], probabilities along the last axis; weights with another sum are normalized.
    shape:     of the samples per distribution; (): one sample.
    get_prob:  also returns the logarithm of each drawn class's probability, whose derivative by data is passed on.
    dtype:     of the class indices.
    Returns:   data.shape[:-1] + shape.
    """

    shape: tuple = ()
    get_prob: bool = False
    dtype: np.dtype = INT32
    resources = (RANDOM,)

    @property
    def output_names(self) -> tuple[str, ...]:
        return ("output0", "output1") if self.get_prob else ("output",)

    @property
    def gradient_arguments(self) -> tuple[int, ...]:
        return (0,) if self.get_prob else ()

    def num_random(self, outs: Specs) -> int:
        return outs[0].size

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        n = len(self.output_names)
        if x is None:
            return [x], [None] * n, []
        if not x or x[-1] == 0:
            raise ShapeError(f"{self.name}: data {x} has no classes. It must be [..., classes] with at least one class.")
        return [x], [(*x[:-1], *self.shape) or (1,)] * n, []

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        x = in_type[0] or (out_type[1] if self.get_prob else None)
        return [x], [self.dtype, x][:len(self.output_names)], []

    @property
    def backward_reads(self) -> tuple[str, ...]:
        return ("dy1", "x0", "y0") if self.get_prob else ()

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        k = ins[0].shape[-1]
        m = ins[0].size // k
        s = outs[0].size // max(1, m)
        if not outs[0].size:
            return lambda run, inputs, outputs, random: None
        gpu = gpu_module("random.triton_multinomial") if target == "gpu" else None

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int]) -> None:
            drawn = run.workspace((m, s), float32)
            fill_uniform(run, target, drawn, random)
            logs = outputs[1] if self.get_prob else None
            if gpu is not None:
                gpu.multinomial(run, (m, s, k), inputs[0], drawn, outputs[0], logs, reqs)
                return
            weights = inputs[0].reshape(m, k)
            sums = np.cumsum(weights, axis=1, dtype=float32)
            found = np.empty((m, s), np.int64)
            for i in range(m):
                found[i] = np.searchsorted(sums[i], drawn[i] * sums[i, -1], side="right")
            np.minimum(found, k - 1, out=found)
            assign(outputs[0], reqs[0], found.reshape(outs[0].shape))
            if logs is not None:
                with np.errstate(divide="ignore"):
                    assign(logs, reqs[1], np.log(np.take_along_axis(weights, found, 1)).reshape(outs[0].shape))

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        k = outs[0].shape[-1]
        m = outs[0].size // k
        s, column = ins[0].size // max(1, m), Spec((k,), INT32)
        numbers = indices(k, target)

        def body(dy: Any, x: Any, drawn: Any, number: Any) -> Any:
            return row_sum(where(drawn == number, dy / x, 0 * dy))

        inner = row_kernel(body, [(m, s, 1), (m, 1, k), (m, s, 1), (k,)], [(m, 1, k)], (m, 1, k), [*ins, column], outs, reqs,
                           target, f"{self.name}_backward")
        return lambda run, inputs, outputs: inner(run, [*inputs, numbers(run)], outputs)


@register_operator("_shuffle", aliases=("shuffle",))
class Shuffle(OperatorProperty):
    """The slices of data along axis 0 in a random order, each order equally likely. Not differentiable."""

    gradient_arguments = ()
    resources = (RANDOM,)

    def num_random(self, outs: Specs) -> int:
        return outs[0].shape[0] if outs[0].shape else 1

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        shape, req = ins[0].shape, reqs[0]
        n, inner = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
        if target == "gpu":
            gpu = gpu_module("random.triton_multinomial")
            return lambda run, inputs, outputs, random: gpu.shuffle(run, (n, inner), *random, inputs[0], outputs[0],
                                                                    add=req == Req.ADD)
        if req == Req.WRITE and shuffles(n, inner, ins[0].dtype):
            return shuffled(n, inner, ins[0].dtype)
        matrix, take = Spec((n, inner), ins[0].dtype), builtin("take")
        rows = compiled(take, take.parse({}), (matrix, Spec((n,), INT64)), (matrix,), tuple(reqs), target)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int]) -> None:
            if n > FEW:
                drawn = run.workspace((n,), INT64)
                fill(run, target, drawn, random, "integers", 0, 2**32)
            else:
                drawn = words(*random, n)
            order = np.argsort(drawn, kind="stable")
            rows(run, [inputs[0].reshape(n, inner), order], [outputs[0].reshape(n, inner)])

        return kernel
