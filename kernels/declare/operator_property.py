"""OperatorProperty and Operator: MXNet's two interfaces for a layer with parameters, several inputs, or state.

A property describes a layer: its parameters, names, shapes, and the arrays that backward needs. An operator computes it.
`register_operator` (`property_op.py`) turns a property class into an Op. Users have all of it in mx.operator.

    @mx.operator.register("Scale")
    class Scale(mx.operator.OperatorProperty):
        '''y = factor * x.'''
        factor: float = 1.0
        def create_operator(self, target, in_shapes, in_dtypes):
            return ScaleOperator(self.factor)
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ...dtype import as_dtype, is_half
from ...errors import OperatorError, describe
from ..configs.key import Config, Key
from ..cpu.c_template import Template
from ..cpu.errstate import no_fp_warnings
from ..gpu import copy
from ..gpu.launch import dtype_of
from ..gpu.user_kernel import launching, running
from ..ir.strided import Strided
from ..kernel import DeviceArray, KernelFunction, Run
from ..op import Dtypes, Formula, Need, NumpyFunction, Op, Product, Req, Reqs, Shape, Shaped, Shapes, Spec, Specs, merge_shapes
from ..philox import normal, uniform
from .random_fill import fill

RANDOM, TEMP_SPACE = "random", "temp_space"  # the resources a layer may ask for

KnownShapes = list[Shape]


class TBlob:
    """An array as an Operator sees it: memory of one device, dense, row-major, never a copy. It is valid during one call.

    array:  the memory: a NumPy array on the CPU, a torch tensor on a GPU.
    ctx:    "cpu" or "gpu".
    """

    __slots__ = ("array", "ctx")

    def __init__(self, array: DeviceArray, ctx: str):
        self.array: Any = array
        self.ctx = ctx

    @property
    def shape(self) -> Shape:
        """The sizes."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.array.shape)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.array.shape)

    @property
    def dtype(self) -> np.dtype:
        """The element type, as NumPy's."""
        return as_dtype(str(self.array.dtype).removeprefix("torch."))

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the distance between neighbours of each axis, in elements."""
        if self.ctx == "cpu":
            return tuple(s // self.array.itemsize for s in self.array.strides)
        return tuple(self.array.stride())

    @property
    def pointer(self) -> int:
        """Return the address of the first element, in bytes."""
        return self.array.ctypes.data if self.ctx == "cpu" else self.array.data_ptr()

    def numpy(self) -> np.ndarray:
        """Return a NumPy view, without a copy; of a GPU only where it is interpreted, and its memory the host's.

        Raises OperatorError on a real GPU, whose memory NumPy cannot read.
        """
        if self.ctx == "cpu":
            return self.array
        if str(getattr(self.array, "device", "cpu")) != "cpu":
            raise OperatorError(f"TBlob.numpy: {describe(self)} is in the memory of a GPU, which NumPy cannot read. Give it to "
                                f"launch(kernel, grid, ...), which takes its address.")
        return self.array.numpy()


class RandomNumbers:
    """The random numbers of one run. They are counter-based, so they depend neither on the device nor on time or thread.

    seed, offset:  the place of the next number.
    limit:         numbers that are reserved for this run; None: as many as are drawn.
    """

    def __init__(self, seed: int, offset: int, run: Run | None = None, target: str = "cpu", limit: int | None = None):
        self.seed, self.offset = seed, offset
        self._run, self._target, self._end = run, target, None if limit is None else offset + limit

    def uniform(self, shape: Shape, dtype: DTypeLike = np.float32) -> Any:
        """Return uniform numbers in [0, 1): a NumPy array on the CPU, on a GPU memory for `launch`.

        Each call continues the sequence of the last, by one number per element. Raises OperatorError if that is more than
        num_random said.
        """
        return self._draw("uniform", shape, np.dtype(dtype))

    def normal(self, shape: Shape, dtype: DTypeLike = np.float32) -> Any:
        """Return numbers of the standard normal distribution, as `uniform`; their count is rounded up to an even number."""
        return self._draw("normal", shape, np.dtype(dtype))

    def _draw(self, kind: str, shape: Shape, dtype: np.dtype) -> Any:
        n = math.prod(shape)
        offset, self.offset = self.offset, self.offset + n + (n % 2 if kind == "normal" else 0)
        if self._end is not None and self.offset > self._end:
            raise OperatorError(f"{kind}: {self.offset - self._end} more random numbers are drawn than this run has reserved. "
                                f"Let num_random return how many it needs.")
        if self._run is None or self._target == "cpu":
            return (uniform if kind == "uniform" else normal)(self.seed, offset, n, dtype).reshape(shape)
        made = self._run.workspace(shape, dtype)
        if n:
            fill(self._run, self._target, made, (self.seed, offset), kind)
        return made


class TempSpace:
    """Scratch memory of the device, valid until the run returns."""

    def __init__(self, run: Run):
        self._run = run

    def get_space(self, shape: Shape, dtype: DTypeLike = np.float32) -> Any:
        """Return uninitialised memory: a NumPy array on the CPU, on a GPU memory for `launch`. Raises OutOfMemoryError."""
        return self._run.workspace(shape, np.dtype(dtype))


@dataclass(slots=True)
class OpContext:
    """The context of one run.

    is_train:   whether the operator trains.
    run_ctx:    the engine's run context: its stream, and `parallel(fn, n)`, which calls fn(0) ... fn(n - 1) on idle threads too.
    requested:  the resources that forward_resource or backward_resource named, in that order: RandomNumbers and TempSpace.
    """

    is_train: bool
    run_ctx: Run
    requested: list[RandomNumbers | TempSpace]


def assign(dst: TBlob | np.ndarray, req: Req, value: Any) -> None:
    """Store value in dst by the write request req: NULL leaves dst as it is, WRITE and INPLACE overwrite it, ADD adds to it.

    value: of a shape that broadcasts to that of dst; it is rounded to the dtype of dst. On a GPU it may be of the host.
    """
    value = value.array if isinstance(value, TBlob) else value
    if isinstance(dst, TBlob) and dst.ctx != "cpu":
        if req == Req.NULL:
            return
        run = running("assign")
        if hasattr(value, "data_ptr"):
            seen, target = (Strided(0, dst.shape, tuple(a.stride())) for a in (value.expand(dst.shape), dst.array))
            copy.plan(seen, target, req == Req.ADD)(run, value, dst.array)
        else:
            store(run, dst.array, req, value)
        return
    array = dst.array if isinstance(dst, TBlob) else dst
    if req == Req.ADD:
        np.add(array, value, out=array, casting="unsafe")
    elif req != Req.NULL:
        no_fp_warnings(np.copyto, array, value, "unsafe")  # a float16 may overflow to infinity


def store(run: Run, array: DeviceArray, req: Req, values: ArrayLike) -> None:
    """Store host values in a device array by the write request req: computed on the host, then copied."""
    if isinstance(array, np.ndarray):
        assign(array, req, values)
        return
    if req == Req.NULL:
        return
    result = np.array(run.to_host(array)) if req == Req.ADD else np.empty(array.shape, dtype_of(array))
    assign(result, req, values)
    run.from_host(array, result)


def upcast(array: np.ndarray) -> np.ndarray:
    """array, or a float32 copy of it when its dtype is a half: halves are computed in float32 and rounded once."""
    return array.astype(np.float32) if is_half(array.dtype) else array


def math_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which sums over `dtype` are computed."""
    return np.dtype(np.float32) if is_half(dtype) else dtype


@cache
def gpu_module(name: str) -> ModuleType:
    """Return the module kernels/ops/<name>, a file of Triton kernels such as "nn.triton_conv", importing it at its first use."""
    importlib.import_module("..gpu.target", __package__).check_triton()  # it sets compiled or interpreted, so it precedes triton
    return importlib.import_module(f"..ops.{name}", __package__)


class Operator:
    """Computes one layer, on arrays that are ready. It keeps nothing between calls: what backward needs travels through outputs.

    It runs in a thread of the engine, or enqueues on a stream of a GPU by `launch`. It must not call mx.nd.
    """

    def forward(self, ctx: OpContext, in_data: list[TBlob], req: Reqs, out_data: list[TBlob], aux: list[TBlob]) -> None:
        """Fill out_data as req says; change aux in place.

        in_data, out_data, aux:  the arrays of list_arguments, list_outputs and list_auxiliary_states.
        req:                     a write request for each of out_data; where it is NULL, the TBlob may have no array.
        """
        raise NotImplementedError(type(self).__name__)

    def backward(self, ctx: OpContext, out_grad: list[TBlob | None], in_data: list[TBlob | None],
                 out_data: list[TBlob | None], req: Reqs, in_grad: list[TBlob], aux: list[TBlob]) -> None:
        """Fill in_grad, one per entry of the property's list_gradients(), as req says.

        out_grad: the derivatives of the loss by the visible outputs. What declare_backward_dependency does not name is None.
        """
        raise OperatorError(f"{type(self).__name__}: backward is not written. Add it, or let list_gradients return [].")


class OperatorProperty:
    """Describes one use of a layer. Annotated class fields are its parameters, the class docstring its documentation.

    Field types: int, float, bool, str, Literal[strings], tuple, tuple[float, ...], np.dtype, each `| None` or not.
    In shapes, None is an unknown rank and -1 an unknown size. In dtypes, None is an unknown one.
    A layer overrides the facts below, or MXNet's methods for them, whichever reads better. It must define create_operator.
    """

    def __init__(self, **params: Any):
        self.__dict__.update(params)

    # ---- facts: class attributes; a property where one depends on parameters ------------------------------------
    name: ClassVar[str] = ""
    argument_names: ClassVar[tuple[str, ...]] = ("data",)
    output_names: ClassVar[tuple[str, ...]] = ("output",)
    visible_outputs: ClassVar[int | None] = None  # the first so many outputs are returned to users; None: all
    state_names: ClassVar[tuple[str, ...]] = ()  # auxiliary states
    own_dtypes: ClassVar[bool] = False  # True if arguments after the first may have dtypes of their own
    output_dtypes: ClassVar[tuple[np.dtype | None, ...] | None] = None  # None: that of the first argument
    forward_inplace: ClassVar[tuple[tuple[int, int], ...]] = ()  # (input, output) pairs that may share memory
    gradient_arguments: ClassVar[tuple[int, ...] | None] = None  # indices of arguments that get a derivative; None: all
    optional_names: ClassVar[tuple[str, ...]] = ()  # arrays that some parameters ask for: None may stand for one by position
    backward_reads: ClassVar[tuple[str, ...]] = ("dy", "x", "y")  # arrays that backward needs: all "x", or "x0", "y1"
    backward_inplace: ClassVar[tuple[tuple[str, int], ...]] = ()  # (array that backward reads, derivative): "dy0", "x0" or "y0"
    backward_needs_aux: ClassVar[bool] = True  # backward reads or changes the auxiliary states
    resources: ClassVar[tuple[str, ...]] = ()  # of forward: RANDOM, TEMP_SPACE
    on_host: ClassVar[bool] = False  # NumPy computes it, wherever its arrays are
    waits: ClassVar[bool] = False  # on a GPU the host computes a part of it, so that no CUDA graph can hold it
    linear: ClassVar[bool] = False  # in the inputs that get a derivative
    multiplies: ClassVar[bool] = True  # False if no kernel of it multiplies matrices
    #: "bilinear": the output is linear in the first and in the second input, so that every mixed second derivative is a
    #: forward or a backward. "diagonal": backward is its own transpose. "": neither is known.
    backward_form: ClassVar[str] = ""
    is_reshape: ClassVar[bool] = False  # output 0 is input 0's memory under another shape, and their derivatives too
    drops_hidden_at_inference: ClassVar[bool] = False  # outside training the hidden outputs may have the request NULL
    costly: ClassVar[bool] = False  # see Op
    epilogue_block: ClassVar[int] = 0  # see Op; on a GPU, gpu_kernel takes the epilogue, whose arrays have a number per channel
    final_part: ClassVar[tuple[Op, tuple[Need, ...]] | None] = None  # see Op
    state_formulas: ClassVar[Mapping[str, tuple[Op, ...]]] = {}  # see Op

    # ---- MXNet's names of these facts, which a user's layer may override ----------------------------------------
    def list_arguments(self) -> list[str]:
        """Return the names of the inputs that are learned or fed."""
        return list(self.argument_names)

    def list_outputs(self) -> list[str]:
        """Return the names of all outputs; those after the first num_visible_outputs() are kept for backward."""
        return list(self.output_names)

    def list_auxiliary_states(self) -> list[str]:
        """Return the names of the arrays that forward changes, and that are not learned by a gradient."""
        return list(self.state_names)

    def num_visible_outputs(self) -> int:
        """Return how many of the outputs a user sees."""
        return len(self.list_outputs()) if self.visible_outputs is None else self.visible_outputs

    def list_gradients(self) -> list[int]:
        """Return the indices of the arguments that get a derivative: what backward fills. [] if there is no backward."""
        return list(range(len(self.list_arguments())) if self.gradient_arguments is None else self.gradient_arguments)

    def forward_resource(self) -> list[str]:
        """Return the resources of forward, RANDOM and TEMP_SPACE, in the order in which OpContext.requested has them."""
        return list(self.resources)

    def backward_resource(self) -> list[str]:
        """Return the resources of backward. RANDOM reserves one number per element of in_grad."""
        return []

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        """Return the entries of the three lists whose arrays backward needs."""
        return [n for name in self.backward_reads for n in _chosen(name, out_grad, in_data, out_data)]

    def forward_inplace_option(self, in_data: list[int], out_data: list[int]) -> list[tuple[int, int]]:
        """Return the (input, output) pairs, of the given numbers, that may share memory."""
        return [(in_data[i], out_data[j]) for i, j in self.forward_inplace]

    def backward_inplace_option(self, out_grad: list[int], in_data: list[int], out_data: list[int],
                                in_grad: list[int]) -> list[tuple[int, int]]:
        """Return the (array that backward reads, in_grad) pairs, by the given numbers, that may share memory."""
        return [(n, in_grad[i]) for name, i in self.backward_inplace for n in _chosen(name, out_grad, in_data, out_data)]

    # ---- inference ----------------------------------------------------------------------------------------------
    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        """Return the shapes of arguments, outputs and auxiliary states. Default: output_shapes, or one shape for all arrays."""
        if type(self).output_shapes is not OperatorProperty.output_shapes:
            known = [s for s in in_shape if s is not None and -1 not in s]
            outs = self.output_shapes(known) if len(known) == len(in_shape) else list(out_shape)
            return list(in_shape), outs, [None] * len(self.list_auxiliary_states())
        shape = None
        for s in (*in_shape, *out_shape):
            shape = merge_shapes(self.name, "the shape of inputs and outputs", shape, s)
        return [shape] * len(in_shape), [shape] * len(out_shape), [shape] * len(self.list_auxiliary_states())

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        """Return the shapes of the outputs. For layers that infer nothing before the shapes of all arguments are known."""
        raise NotImplementedError(self.name)

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes] | None:
        """Return the dtypes of arguments, outputs and auxiliary states; None: one dtype for all.

        Default: own_dtypes and output_dtypes. An unknown dtype is that of the first argument.
        """
        if not self.own_dtypes and self.output_dtypes is None:
            return None
        fixed = self.output_dtypes or (None,) * len(self.list_outputs())
        first = in_type[0] or (out_type[0] if fixed[0] is None else None)
        return [first, *(d or first for d in in_type[1:])], [d or first for d in fixed], []

    # ---- answers for one use --------------------------------------------------------------------------------
    def changes_states(self, train: bool) -> bool:
        """Return whether forward changes the auxiliary states, rather than only read them. Default: yes."""
        return True

    def num_random(self, outs: Specs) -> int:
        """Random numbers one forward takes. Default: one per output element, if forward_resource names RANDOM."""
        return sum(s.size for s in outs) if RANDOM in self.forward_resource() else 0

    def is_identity_at_inference(self) -> bool:
        """Return whether outside training output 0 is input 0 as it is."""
        return False

    def c_files(self, ins: Specs, train: bool) -> Sequence[Template]:
        """Return the C files from which its kernels on a CPU will be made, as far as that is known. See Op."""
        return ()

    def prefers_channels_last(self, ins: Specs, target: str) -> bool:
        """Return whether its first input is worth transposing to channels last."""
        return False

    def with_channels_last(self) -> dict[str, object] | None:
        """Return the parameters to change for arrays [n, h, w, channels] instead of [n, channels, h, w]; None: not supported."""
        return None

    def tail(self, data: Spec, target: str, *, plus: bool, backward: bool) -> Op | None:
        """Return this layer and a rectifier as one operator, or its derivative; None without one. See Op."""
        return None

    def in_pieces(self, ins: Specs, out: Spec) -> Any:
        """Return what computes the output on a CPU and calls a function for each part of it while that is in cache, so that an
        epilogue can follow: an object like `Forward` in ops/nn/c_conv.py; None if there is none."""
        return None

    def with_data_last(self) -> tuple[Op, Op | None] | None:
        """Return the operator of the same parameters whose first input and output have channels last, on a CPU, if any, and the
        one whose output alone has, if any."""
        return None

    def validate(self) -> None:
        """Raise ParameterError for a parameter, or a combination of parameters, that is not possible."""

    # ---- computing ----------------------------------------------------------------------------------------------
    def create_operator(self, target: str, in_shapes: Shapes, in_dtypes: Dtypes) -> Operator:
        """Return the operator for target "cpu" or "gpu". For backward, the shapes of arguments it does not know are None."""
        raise NotImplementedError(f"{self.name}: create_operator")

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        """Return kernel(run, inputs, outputs, random=None) over raw device arrays. Tritium's own layers override this, to
        decide everything before the first call; for others it calls create_operator."""
        n = len(self.list_arguments())
        operator = self.create_operator(target, [s.shape for s in ins[:n]], [s.dtype for s in ins[:n]])
        asked, reserved = self.forward_resource(), self.num_random(outs)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] | None = None):
            blobs = [TBlob(a, target) for a in inputs]
            context = OpContext(train, run, _resources(asked, run, target, random, reserved))
            with launching(run):
                operator.forward(context, blobs[:n], reqs, [TBlob(a, target) for a in outputs], blobs[n:])

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        """Return the kernel of the derivative. ins: the arrays that declare_backward_dependency returned, in that order,
        then the auxiliary states, if any. outs: one per entry of list_gradients()."""
        needs, n_aux = backward_needs(self), len(self.list_auxiliary_states())
        known = {i: s for (kind, i), s in zip(needs, ins) if kind == "x"} | dict(zip(self.list_gradients(), outs))
        specs = [known.get(i) for i in range(len(self.list_arguments()))]
        operator = self.create_operator(target, [s and s.shape for s in specs], [s and s.dtype for s in specs])
        asked, reserved = self.backward_resource(), sum(s.size for s in outs)
        sizes = {"dy": self.num_visible_outputs(), "x": len(specs), "y": len(self.list_outputs())}

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] | None = None):
            groups: dict[str, list[TBlob | None]] = {kind: [None] * n for kind, n in sizes.items()}
            for (kind, i), a in zip(needs, inputs):
                groups[kind][i] = TBlob(a, target)
            aux = [TBlob(a, target) for a in inputs[len(needs):]] if n_aux else []
            context = OpContext(train, run, _resources(asked, run, target, random, reserved))
            with launching(run):
                operator.backward(context, groups["dy"], groups["x"], groups["y"], reqs, [TBlob(a, target) for a in outputs], aux)

        return kernel

    def formula(self, ins: Specs, outs: Specs) -> Formula | None:
        """Return the layer as a part of a fused kernel; None if it cannot be fused."""
        return None

    def products(self, shapes: Sequence[Shape]) -> tuple[Product, ...]:
        """Return the matrix products of forward and of the derivatives by the first two inputs; () for a layer without any.

        shapes: of the inputs.
        """
        return ()

    def tuning_keys(self, products: Sequence[Product], ins: Specs, reqs: tuple[Req, ...], *, backward: bool
                    ) -> list[tuple[Key, Config, tuple[Req, ...]]]:
        """Return (key, default configuration, requests) of each CPU kernel with blocks to tune, as Op.tuning_keys.

        products: of this direction; ins: the inputs, in backward behind dy.
        """
        return []

    def backward_formula(self, ins: Specs, outs: Specs) -> Formula | None:
        """Return the derivative as a part of a fused kernel, or None; ins and outs as in backward_kernel."""
        return None

    def numpy_function(self, ins: Specs, out: Spec) -> NumpyFunction | None:
        """See Op.numpy_function."""
        if not self.is_reshape or len(ins) != 1:
            return None
        shape = out.shape
        return lambda a: a.reshape(shape).copy(), (0,)

    # ---- second derivatives ---------------------------------------------------------------------------------------
    def differentiable_gradient(self, read: Mapping[Need, Shaped], train: bool) -> list[Shaped] | None:
        """Return the derivatives as results of operators, which have derivatives themselves; None if that is not possible.

        read: the arrays that backward reads, by ("dy" | "x" | "y", number).
        """
        return None

    def backward_transpose(self, shape: Shape) -> tuple[str, dict[str, object]] | None:
        """Return the operator of (v, x), and its parameters, that is the transpose of backward in dy; None if there is not one.

        shape: of the first input, x.
        """
        return None


def _chosen(name: str, dy: list[int], x: list[int], y: list[int]) -> list[int]:
    """Return the entries that a name such as "x" (all) or "x0" selects from the three lists."""
    kind = name.rstrip("0123456789")
    group = {"dy": dy, "x": x, "y": y}[kind]
    return group if name == kind else [group[int(name[len(kind):])]]


def _resources(asked: list[str], run: Run, target: str, random: tuple[int, int] | None, reserved: int
               ) -> list[RandomNumbers | TempSpace]:
    return [RandomNumbers(*random, run, target, reserved) if r == RANDOM and random else TempSpace(run) for r in asked]


def entry_numbers(prop: OperatorProperty) -> tuple[list[int], list[int], list[int]]:
    dy, x, y = prop.num_visible_outputs(), len(prop.list_arguments()), len(prop.list_outputs())
    return list(range(dy)), list(range(dy, dy + x)), list(range(dy + x, dy + x + y))


def backward_needs(prop: OperatorProperty) -> tuple[Need, ...]:
    dy, x, y = entry_numbers(prop)
    named = {n: (kind, i) for kind, group in (("dy", dy), ("x", x), ("y", y)) for i, n in enumerate(group)}
    return tuple(named[n] for n in dict.fromkeys(prop.declare_backward_dependency(dy, x, y)))
