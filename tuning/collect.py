"""Collect the kernels of a model's program, or of single operators, as tuning tasks; the most expensive come first.

The program is the one that an executor would run on the target, but no array is allocated. On a CPU products are collected apart
from the elementwise work that follows them. A request gives the same tasks in the same order in every process, so that the
timing process can be given a task's number.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..dtype import as_dtype
from ..errors import GraphError, OperatorError, ParameterError, nearest
from ..graph import load as load_symbol
from ..graph.compile import compile_program
from ..graph.options import current
from ..graph.passes.fuse import fuse
from ..graph.passes.gradient import add_gradients
from ..graph.passes.infer import from_user
from ..graph.program import lower, specs_of
from ..graph.symbol.node import split_variables, topological
from ..kernels import op as ops
from ..kernels.op import Op, Req, Spec
from ..kernels.params import Params
from .prune import bound_s
from .tasks import TuningTask, tasks_of, why_none, work_of

MAX_SIZE = 1 << 40  # elements of one array; more is a typing error
_CPU_FLOPS, _CPU_BYTES = 2e10, 5e9  # of one core, roughly: for sorting before anything is measured


@dataclass(frozen=True)
class TuningRequest:
    """The user's request: a model with shapes, or operators with shapes. Plain data, so that it can be sent as JSON.

    model: path of a symbol JSON. shapes: {input: shape} of a model. cases: (operator, shapes as text).
    dtype: of the inputs. target: "cpu" or "gpu". train: the training step, else inference.
    imports: modules and files that declare operators. params: the parameters of the operators in cases, as text.
    """

    model: str = ""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    cases: Sequence[tuple[str, str]] = ()
    dtype: str = "float32"
    target: str = "cpu"
    train: bool = True
    imports: Sequence[str] = ()
    params: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, d: Mapping[str, Any]) -> TuningRequest:
        """Return the request that a dictionary of its fields describes, as json.loads gives it."""
        return cls(d["model"], {n: tuple(s) for n, s in d["shapes"].items()}, [(str(a), str(b)) for a, b in d["cases"]],
                   d["dtype"], d["target"], d["train"], tuple(d.get("imports", ())), dict(d.get("params", {})))


@dataclass
class WorkloadItem:
    """A task and its share of a step.

    name:     the first node that runs it. count: its number of runs in a step.
    bound_s:  the seconds of all its runs at the published limits of the device. share: bound_s by that of the whole step.
    """

    task: TuningTask
    name: str
    count: int
    bound_s: float
    share: float = 0.0


@dataclass
class Workload:
    """items: the tunable kernels, the most expensive first. kernels: the number of all kernel calls of a step.

    without: {call that has nothing to tune: the reason}.
    """

    items: list[WorkloadItem]
    kernels: int
    step_s: float
    without: dict[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share of a step's estimated time that can be tuned."""
        return sum(i.share for i in self.items)

    def by_reason(self) -> dict[str, list[str]]:
        """Return the names of the calls that have nothing to tune, by the reason."""
        found: dict[str, list[str]] = {}
        for name, why in self.without.items():
            found.setdefault(why, []).append(name)
        return found


OperatorCall = tuple[str, Op, Params, tuple[Spec, ...], tuple[Spec, ...], tuple[Req, ...]]


def collect(request: TuningRequest, sm: int = 90) -> Workload:
    """Return the kernels that request asks to tune. sm: the compute capability, times ten, for estimates of a GPU's times.

    Raises GraphError, ShapeError, ParameterError or OperatorError for a request that cannot be read.
    """
    for name in request.imports:
        import_operators(name)
    if request.model:
        return workload(_model_calls(request), request.target, request.train, sm)
    calls = [c for name, text in request.cases for c in operator_calls(
        f"{name} {text}", *_read_case(name, text, request.params), request.dtype, request.train)]
    return workload(calls, request.target, request.train, sm)


def import_operators(name: str) -> None:
    """Import a module of the current folder or of Python's path, or run the file my_ops.py, once: it declares operators.

    Raises OperatorError if it does not exist or fails.
    """
    path = Path(name)
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    known = path.stem if path.suffix == ".py" else name
    try:
        if path.suffix != ".py":
            importlib.import_module(name)
        elif known not in sys.modules:
            spec = importlib.util.spec_from_file_location(known, path)
            assert spec is not None and spec.loader is not None
            sys.modules[known] = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(sys.modules[known])
            except BaseException:
                del sys.modules[known]
                raise
    except ModuleNotFoundError as e:
        if e.name != name.partition(".")[0]:
            raise OperatorError(f"tune: importing {name} failed: {e}. Install what it needs.") from e
        raise OperatorError(f"tune: there is no module {name} in {Path.cwd()} or on Python's path. Give the name of a module, "
                            f"without .py, or the path of a file: my_ops, my_package.ops, or path/my_ops.py.") from e
    except FileNotFoundError as e:
        raise OperatorError(f"tune: there is no file {name}. Give the path of a Python file that declares operators.") from e
    except Exception as e:
        raise OperatorError(f"tune: importing {name} failed: {type(e).__name__}: {e}. Correct it first.") from e


def workload(calls: Sequence[OperatorCall], target: str, train: bool, sm: int = 90) -> Workload:
    """Return the kernels of calls that can be tuned, equal ones once."""
    items: dict[Any, WorkloadItem] = {}
    without: dict[str, str] = {}
    step = 0.0
    for name, op, p, ins, outs, reqs in calls:
        step += _seconds(*work_of(op, p, ins, outs, reqs), outs[0].dtype.name if outs else "float32", target, sm)
        tasks = tasks_of(op, p, ins, outs, reqs, target, train, sm)
        if not tasks:
            without[name] = why_none(op, ins, outs, target)
        for task in tasks:
            seconds = _seconds(task.flops, task.nbytes, task.key.dtype, target, sm)
            k = task.key
            item = items.setdefault((k.template, k.dtype, k.layout, k.align, k.bucket), WorkloadItem(task, name, 0, 0.0))
            item.count += 1
            item.bound_s += seconds
    order = sorted(items.values(), key=lambda i: -i.bound_s)
    step = max(step, sum(i.bound_s for i in order))  # the tasks of a derivative read some arrays twice
    return Workload([replace(i, share=i.bound_s / step) for i in order], len(calls), step, without)


def _seconds(flops: float, nbytes: int, dtype: str, target: str, sm: int) -> float:
    return bound_s(flops, nbytes, dtype, sm) if target == "gpu" else max(flops / _CPU_FLOPS, nbytes / _CPU_BYTES)


def _model_calls(request: TuningRequest) -> list[OperatorCall]:
    symbol = load_symbol(request.model)
    order = topological(n for n, _ in symbol._outputs)
    arguments, states = ([n.name for n in part] for part in split_variables(order))
    for name in request.shapes:
        if name not in (*arguments, *states):
            raise GraphError(f"tune: {request.model} has no input {name!r}.{nearest(name, arguments)} "
                             f"Its arguments: {', '.join(arguments[:12])}{' ...' if len(arguments) > 12 else ''}.")
    known = {n: from_user(tuple(s)) for n, s in request.shapes.items()}
    specs = specs_of(order, {n: s for n, s in known.items() if s is not None},
                     dict.fromkeys(request.shapes, as_dtype(request.dtype)))
    fed = {*request.shapes, *(n for n in arguments if n.endswith("label"))}
    wanted = {n: "null" if n in fed else "write" for n in arguments}
    if request.target == "gpu":
        program = compile_program(symbol._outputs, specs, request.train, wanted, current(), targets=("gpu",))[0]
    else:
        program = lower(symbol._outputs, specs, request.train)
        program = fuse(add_gradients(program, wanted) if request.train else program)
    return [(s.name, s.op, s.params, program.input_specs(s), program.output_specs(s), s.reqs) for s in program.steps]


# ---- single operators -------------------------------------------------------------------------------------------------
_CONVOLUTION = re.compile(r"(?P<data>\d+x\d+(?:x\d+){1,3})@(?P<filters>\d+)x(?P<kernel>\d+(?:x\d+)*)(?:/(?P<stride>\d+))?"
                          r"(?:\+(?P<pad>\d+))?")
SHAPE_HELP = ("M x K x N for dot and FullyConnected: 1024x1024x1024; data @ filters x kernel / stride + pad for Convolution: "
              "32x64x56x56@64x3x3/1+1; for others the one shape of all inputs, or theirs with @ between them: 32x64@64x10")


def _numbers(name: str, text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,12}(x\d{1,12})*", text):
        raise ParameterError(f"{name}: {text!r} is not a shape. Write {SHAPE_HELP}.")
    shape = tuple(map(int, text.split("x")))
    if 0 in shape or np.prod(shape, dtype=float) > MAX_SIZE:
        raise ParameterError(f"{name}: {text} has {'no' if 0 in shape else 'too many'} elements. Write {SHAPE_HELP}.")
    return shape


def _read_case(name: str, text: str, given: Mapping[str, str]) -> tuple[Op, dict[str, Any], list[tuple[int, ...]]]:
    """Return the operator, its parameters and the shapes of its inputs from a case of the command line."""
    op, params, shapes = ops.get(name), {}, []
    if op.name in ("dot", "FullyConnected"):
        sizes = _numbers(name, text)
        if len(sizes) != 3:
            raise ParameterError(f"{name}: {text!r} is not three sizes. Write M x K x N: 1024x1024x1024.")
        m, k, n = sizes
        shapes = [(m, k), (k, n)] if op.name == "dot" else [(m, k), (n, k)]
        params = {} if op.name == "dot" else {"num_hidden": n, "no_bias": True}
    elif op.name == "Convolution":
        match = _CONVOLUTION.fullmatch(text)
        if match is None:
            raise ParameterError(f"{name}: {text!r} is not a convolution. Write {SHAPE_HELP}.")
        data, kernel = _numbers(name, match["data"]), _numbers(name, match["kernel"])
        if len(kernel) != len(data) - 2:
            raise ParameterError(f"{name}: data {match['data']} needs a kernel of {len(data) - 2} sizes, not {match['kernel']}.")
        filters = _numbers(name, match["filters"])[0]
        params = {"kernel": kernel, "num_filter": filters, "stride": (int(match["stride"] or 1),) * len(kernel),
                 "pad": (int(match["pad"] or 0),) * len(kernel), "no_bias": True}
        shapes = [data, (filters, data[1], *kernel)]
    else:
        shapes = [_numbers(name, part) for part in text.split("@")]
    return op, {**params, **given}, shapes


def operator_calls(name: str, op: Op, params: Mapping[str, Any], shapes: Sequence[tuple[int, ...]], dtype: DTypeLike, train: bool
                   ) -> list[OperatorCall]:
    """Return the call of an operator, and that of its derivative if train.

    shapes: of the inputs; one shape is that of all of them.
    """
    p = op.parse(params)
    n = len(op.arguments(p)) + len(op.auxiliaries(p))
    given: list[Any] = list(shapes) * n if len(shapes) == 1 else list(shapes)
    if len(given) != n:
        names = ", ".join((*op.arguments(p), *op.auxiliaries(p)))
        raise ParameterError(f"{op.name}: {len(given)} shapes for {n} inputs ({names}). Give one for each, or one for all.")
    in_shapes, out_shapes = op.infer_shape(p, given)
    dtype = as_dtype(dtype)
    in_types, out_types = op.infer_dtype(p, [dtype] * n)
    ins = tuple(Spec(tuple(s or ()), np.dtype(d or dtype)) for s, d in zip(in_shapes, in_types))
    outs = tuple(Spec(tuple(s or ()), np.dtype(d or dtype)) for s, d in zip(out_shapes, out_types))
    calls: list[OperatorCall] = [(name, op, p, ins, outs, (Req.WRITE,) * len(outs))]
    gradient = op.gradient_of(p) if train else None
    if gradient is not None:
        groups = {"dy": outs, "x": ins, "y": outs}
        gives = tuple(ins[i] for i in gradient.gives)
        calls.append((f"{name} backward", gradient.op, p, tuple(groups[kind][i] for kind, i in gradient.needs), gives,
                      (Req.WRITE,) * len(gives)))
    return calls
