"""Bodies for one device: a NumPy function (`@op.cpu`) or a Triton kernel (`@op.gpu`), beside or instead of the formula.

    @op.cpu
    def _(x, *, k):                 # arrays in, the result out, or a tuple of results; halves arrive as float32
        return np.sort(x)[..., :k]

    @op.gpu
    def _(x, y, *, k):              # the memory of inputs and outputs on the GPU: launch kernels that write all of each output
        mx.operator.launch(kernel, (x.shape[0],), x, y, k, BLOCK=1024)

`@op.cpu_gradient` and `@op.gpu_gradient` declare the derivative in the same way: their first arguments name what backward reads
(dy, y, inputs; those of several outputs as in `gradient`), and the results are the derivatives by all inputs, None for zero.

A kernel itself may stand for the function that launches it, for a result of one element per element: then it runs over blocks of
its parameter BLOCK, and gets by name the inputs, the outputs, `n` (the elements of the first output) and parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import DTypeError, OperatorError, ShapeError
from ...integers import cdiv
from ..ir.expr import load
from ..kernel import Kernel
from ..op import Expression, Need, Op, Req, Reqs, Shapes, Specs
from ..params import Params
from .operator_property import assign, upcast
from .traced import printed

BLOCK = 1024


class DeviceGradOp(Op):
    """The derivative of an operator by bodies for one device.

    needs: what they read, in order. bodies: by device.
    """

    def __init__(self, forward: Op, needs: tuple[Need, ...], names: Sequence[str], bodies: Mapping[str, Any]):
        self.name, self.is_users = f"_backward_{forward.name}", forward.is_users
        self.forward, self.needs, self.bodies, self.params = forward, needs, bodies, forward.params
        self.input_names = tuple(names)

    def outputs(self, p: Params) -> tuple[str, ...]:
        return tuple(f"d{n}" for n in self.forward.arguments(p))

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        return list(inputs), list(outputs or [None] * len(self.outputs(p)))

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        body = self.bodies.get(target)
        if body is None:
            raise OperatorError(f"{self.forward.name}: has no derivative for the {target.upper()}. Declare it with "
                                f"@{self.forward.name}.{target}_gradient.")
        return device_kernel(self.name, body, p, [*self.input_names, *self.outputs(p)], ins, outs, reqs, target)


def device_kernel(name: str, body: Any, p: Params, names: Sequence[str], ins: Specs, outs: Specs, reqs: Reqs, target: str
                  ) -> Kernel:
    """Return the kernel that runs a body for one device.

    body: as above. names: of the inputs and outputs.
    """
    fixed = dict(p)
    late = [n for n, _ in zip(p.scalar_names, p.scalars)]
    run_body = _on_cpu(name, body, outs, reqs) if target == "cpu" else _on_gpu(name, body, names, outs, reqs)
    wanted = _wanted(body, fixed)

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = ()) -> None:
        given = {**fixed, **dict(zip(late, scalars))}
        run_body(run, inputs, outputs, {k: given[k] for k in wanted})

    return Kernel(kernel)


def _wanted(body: Any, params: dict[str, Any]) -> list[str]:
    """Return the parameters that a body takes."""
    ps = inspect.signature(getattr(body, "fn", None) or body).parameters.values()
    return list(params) if any(p.kind == p.VAR_KEYWORD for p in ps) else [p.name for p in ps if p.name in params]


def _on_cpu(name: str, body: Callable[..., Any], outs: Specs, reqs: Reqs) -> Callable[..., None]:
    def run_body(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], params: dict[str, Any]) -> None:
        given = [upcast(a).view() for a in inputs]
        for a in given:
            a.flags.writeable = False  # an input may be read by others
        with np.errstate(all="ignore"):
            made = body(*given, **params)
        made = made if isinstance(made, tuple) else (made,)
        if len(made) != len(outs):
            raise OperatorError(f"{name}: the body for the CPU returned {len(made)} arrays, not one for each of the "
                                f"{len(outs)} outputs.")
        for array, spec, req, value in zip(outputs, outs, reqs, made):
            value = np.asarray(np.zeros(spec.shape, spec.dtype) if value is None else value)
            if value.dtype.kind not in "fiubV":
                raise DTypeError(f"{name}: the body for the CPU returned {value.dtype}. Return numbers.")
            if value.shape != spec.shape:
                raise ShapeError(f"{name}: the body for the CPU returned the shape {value.shape}, and the output has "
                                 f"{spec.shape}. Declare another shape with shape=.")
            if req != Req.NULL:
                assign(array, req, value)

    return run_body


def _on_gpu(name: str, body: Any, names: Sequence[str], outs: Specs, reqs: Reqs) -> Callable[..., None]:
    from ..gpu.user_kernel import launch, launching  # optional dependency

    is_kernel = not inspect.isfunction(body)
    adds = {i: printed(Expression((load(0, s.dtype),)), [s], [s], [Req.ADD], "gpu", f"{name}_add")
            for i, s in enumerate(outs) if reqs[i] == Req.ADD}

    def run_body(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], params: dict[str, Any]) -> None:
        written = [run.workspace(s.shape, s.dtype) if i in adds or a is None else a
                   for i, (s, a) in enumerate(zip(outs, outputs))]
        with launching(run):
            if is_kernel:
                parameters = inspect.signature(body.fn).parameters
                n = outs[0].size
                given = {**dict(zip(names, (*inputs, *written))), "n": n, "BLOCK": BLOCK, **params}
                launch(body, (cdiv(n, BLOCK),), **{k: v for k, v in given.items() if k in parameters})
            else:
                body(*inputs, *written, **params)
        for i, kernel in adds.items():
            kernel(run, [written[i]], [outputs[i]])

    return run_body
