"""The census of declarations: how each built-in operator says what it computes, counted from what happens in its uses.

    python tests/support/census.py            prints the operators of each kind
    python tests/support/census.py --write    states the counts in docs/architecture.md

Each use of an operator is built and run, forward and backward, on the CPU and on a GPU whose launches are recorded only. An
operator's own code is what it has in `kernels/ops/`. Code that serves all operators (`kernels/declare/`, the printers, moves of
views) is not, and a composite is not charged for the operators that it calls.

one           one declaration serves both devices: a formula, a reduction, rows, indices, calls of other operators (whatever those
              are), moves of views, an update rule. The same functions of its own run for both devices, and it has no GPU kernel.
template      it is written twice: its own code asks for a module of Triton kernels (`gpu_module`) or launches such a kernel, or a
              function of its own runs for one of the devices only.
host          NumPy computes it on the host, although its arrays are on a GPU (`on_host`).
control flow  it runs a graph or a user's function: `_foreach`, `_while_loop`, `_cond` and `Custom`.
"""

from __future__ import annotations

import contextlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[3])]

import numpy as np
from tritium.graph.control_flow.mxnet_nodes import ControlFlow
from tritium.kernels import op as registry
from tritium.kernels.declare import operator_property
from tritium.kernels.declare.reduction import ReductionOp
from tritium.kernels.gpu import record as gpu_record
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.kernel import HostRun, Kernel
from tritium.kernels.op import Op, Req, Spec
from tritium.kernels.params import Params

from support.operator_jobs import on_host, specs_of, uses

KERNELS = Path(registry.__file__).parent
PAGE = KERNELS.parent / "docs" / "architecture.md"
KINDS = ("one", "template", "host", "control flow")
#: Code in kernels/ops/ that runs what operators declare, from one declaration for both devices: lists of moves, and the update
#: rule of one weight for several.
MACHINERY = {KERNELS / "ops" / "tensor" / "data_movement.py", KERNELS / "ops" / "optimizer" / "multi.py"}
#: Uses, with their dtype, of operators for which tests/support/operator_jobs.py has none.
MORE: dict[str, list[tuple[list[Any], dict[str, Any], str]]] = {
    **{f"_linalg_{n}": [([(2, 3, 3)], {}, "float32")]
       for n in ("sumlogdiag", "potrf", "potri", "gelqf", "syevd", "inverse", "det", "slogdet")},
    "_linalg_trsm": [([(2, 3, 3), (2, 3, 4)], {}, "float32")],
    "_contrib_quantize": [([(2, 3), (1,), (1,)], {}, "float32")],
    "_quantize_given": [([(2, 3)], {"out_type": "int8", "low": -1.0, "high": 1.0}, "float32")],
    "_quantize_ends": [([(1,), (1,)], {}, "float32")],
    "_quantize_by": [([(2, 3), (1,)], {"out_type": "int8"}, "float32")],
    "_requantize_ends": [([(1,)] * 4, {"out_type": "int8"}, "int32")],
    "_requantize_by": [([(2, 3), (1,), (1,), (1,)], {"out_type": "int8"}, "int32")],
    "_requantize_given": [([(2, 3), (1,), (1,)], {"out_type": "int8", "largest": 1.0}, "int32")],
    "_contrib_quantize_v2": [([(2, 3)], {}, "float32"),
                             ([(2, 3)], {"min_calib_range": -1.0, "max_calib_range": 1.0}, "float32")],
    "_contrib_dequantize": [([(2, 3), (1,), (1,)], {}, "int8")],
    "_contrib_requantize": [([(2, 3), (1,), (1,)], {}, "int32"),
                            ([(2, 3), (1,), (1,)], {"min_calib_range": -1.0, "max_calib_range": 1.0}, "int32")],
}


@dataclass
class Found:
    """The observations of one operator.

    modules:  the Triton modules that its own code asks for, or whose kernels it launches.
    lone:     functions of its own that run for one device only, as "device: file:function".
    """

    kind: str = "one"
    modules: set[str] = field(default_factory=set)
    lone: set[str] = field(default_factory=set)
    ran: dict[str, set[str]] = field(default_factory=lambda: {"cpu": set(), "gpu": set()})
    launches: int = 0


class Census:
    """Watches operators while their kernels are built and run.

    own: the folder, or the file, of the operators' own code.
    """

    def __init__(self, own: Path = KERNELS / "ops"):
        self.own = own
        self.found: dict[str, Found] = {}
        self._files: dict[str, bool] = {}  # whether it is an operator's own code
        self._stack: list[str] = []  # the operators whose code runs now
        self._target = "cpu"

    # ---- what is noted ------------------------------------------------------------------------------------------------
    def _is_own(self, file: str) -> bool:
        known = self._files.get(file)
        if known is None:
            path = Path(file)
            known = path.is_relative_to(self.own) and path not in MACHINERY and not path.name.startswith("triton_")
            self._files[file] = known
        return known

    def _called(self, frame: FrameType, _event: str, _arg: object) -> None:
        """Note a function of an operator's own (sys.settrace)."""
        if self._stack and self._is_own(frame.f_code.co_filename):
            where = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"
            self.found[self._stack[-1]].ran[self._target].add(where)

    def _asked(self, module: str) -> None:
        """Note a module of Triton kernels, if the operator's own code, and not machinery of all operators, is the reason."""
        frame = sys._getframe(2)
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path in MACHINERY or path.is_relative_to(KERNELS / "declare") or path.is_relative_to(KERNELS / "fusion"):
                return
            if self._stack and self._is_own(frame.f_code.co_filename):
                self.found[self._stack[-1]].modules.add(module)
                return
            frame = frame.f_back

    @staticmethod
    def _named(op: Op) -> str | None:
        """The built-in that op is, or whose derivative it is; None for a part without a name, which belongs to its user."""
        forward = getattr(op, "forward", op)
        return forward.name if registry._builtin.get(forward.name) is forward else None

    def _watched(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """Return Op.kernel, which says whose code runs while the kernel is built, and each time it runs."""

        def during(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **more: Any) -> Any:
                self._stack.append(name)
                try:
                    return function(*args, **more)
                finally:
                    self._stack.pop()

            return call

        def made(op: Op, *args: Any, **more: Any) -> Any:
            name = self._named(op)
            if name is None:
                return kernel(op, *args, **more)
            self.found.setdefault(name, Found())
            result = during(name, kernel)(op, *args, **more)
            return during(name, result.run if isinstance(result, Kernel) else result)

        return made

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch every operator, `gpu_module` and every recorded launch inside the block."""
        undo: list[tuple[Any, str, Any]] = []

        def put(holder: Any, name: str, value: Any) -> None:
            undo.append((holder, name, vars(holder)[name]))
            setattr(holder, name, value)

        asked, job_of = operator_property.gpu_module, gpu_record.job_of

        def gpu_module(name: str) -> Any:
            self._asked(name)
            return asked(name)

        def noted_job(fn: Any, *args: Any) -> Any:
            module = "" if fn.fn is None else fn.fn.__module__  # "": printed from a declaration
            if module and not module.startswith("tritium.kernels.gpu."):  # those are the back end's: copies and fills
                self._asked(module.partition(".ops.")[2] or module)
            return job_of(fn, *args)

        try:
            for cls in _classes(Op):
                if "kernel" in vars(cls):
                    put(cls, "kernel", self._watched(vars(cls)["kernel"]))
            for module in [m for n, m in sys.modules.items() if n.startswith("tritium.") and vars(m).get("gpu_module") is asked]:
                put(module, "gpu_module", gpu_module)
            put(gpu_record, "job_of", noted_job)
            yield
        finally:
            for holder, name, value in reversed(undo):
                setattr(holder, name, value)
            registry._compiled.clear()

    # ---- uses ---------------------------------------------------------------------------------------------------------
    def look(self, op: Op, cases: Sequence[tuple[list[Any], dict[str, Any], str]]) -> Found:
        """Use op in each case, (input shapes, parameters, dtype); return what was seen. Call it inside `watch`."""
        found = self.found[op.name] = Found()
        if is_control_flow(op):
            found.kind = "control flow"
            return found
        assert cases, f"{op.name}: has no use. Add one to TABLE in tests/test_every_operator.py, or to MORE in census.py."
        for shapes, params, dtype in cases:
            p = op.parse(params)
            if on_host(op, p):
                found.kind = "host"
                return found
            seen: set[str] = set()
            for _ in range(2):  # what differs once may have been remembered for the other device
                found.ran = {"cpu": set(), "gpu": set()}
                for self._target in ("gpu", "cpu"):
                    registry._compiled.clear()
                    self._use(op, p, *specs_of(op, p, shapes, np.dtype(dtype)))
                cpu, gpu = found.ran["cpu"], found.ran["gpu"]
                seen = {f"cpu: {f}" for f in cpu - gpu} | {f"gpu: {f}" for f in gpu - cpu}
                if not seen or found.modules:
                    break
            found.lone |= seen
        assert found.launches, f"{op.name}: launched nothing on the GPU in its uses, and says nowhere that the host computes it."
        if found.modules or found.lone:
            found.kind = "template"
        return found

    def _use(self, op: Op, p: Params, ins: Sequence[Spec], outs: Sequence[Spec]) -> None:
        """Run op and its derivative for the present target."""
        self._run(op, op.name, p, ins, outs, Req.WRITE)
        derivative = op.gradient_of(p)
        if derivative is not None:
            groups = {"dy": outs, "x": ins, "y": outs}
            self._run(derivative.op, op.name, p, [groups[kind][i] for kind, i in derivative.needs],
                      [ins[i] for i in derivative.gives], Req.WRITE)

    def _run(self, op: Op, name: str, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], req: Req) -> None:
        gpu = self._target == "gpu"
        make, run = (FakeArray, FakeRun()) if gpu else (_values, HostRun())
        arrays = [[make(s.shape, s.dtype) for s in group] for group in (ins, outs)]
        more: dict[str, Any] = {"random": (1, 2)} if op.random_count(p, ins, outs) else {}
        if p.scalars:
            more["scalars"] = p.scalars
        self._stack.append(name)
        try:
            with record(90) if gpu else contextlib.nullcontext() as recorder:
                sys.settrace(self._called)
                op.kernel(p, tuple(ins), tuple(outs), (req,) * len(outs), self._target, True)(run, *arrays, **more)
            if recorder is not None:
                self.found[name].launches += len(recorder.launches)
        finally:
            sys.settrace(None)
            self._stack.pop()


def _values(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """0 and 1 in turn; square matrices of some rows are positive definite. They are indices within any bounds, too."""
    made = (np.arange(int(np.prod(shape))) % 2).reshape(shape)
    if len(shape) > 1 and shape[-1] == shape[-2] > 2:
        made = made * 0 + np.eye(shape[-1])
    return made.astype(dtype)


def _classes(cls: type) -> list[type]:
    return [cls, *(c for sub in cls.__subclasses__() for c in _classes(sub))]


def operators() -> list[Op]:
    """Every built-in operator once, aliases and those of tests apart, by name."""
    found = {o.name: o for o in registry._builtin.values() if not o.name.startswith("_test_")}
    return [found[name] for name in sorted(found)]


def is_control_flow(op: Op) -> bool:
    """Return whether op runs a graph or a user's function, so that there is nothing to declare."""
    return isinstance(op, ControlFlow) or op is registry._builtin["Custom"]


def take() -> dict[str, Found]:
    """Return what was seen of each built-in operator, by its name. Raises AssertionError for one without a use."""
    census = Census()
    with census.watch():
        for op in operators():
            small = [([(4, 6)], params) for _, params in uses(op)] if isinstance(op, ReductionOp) else uses(op, 103)
            census.look(op, [(shapes, params, "float32") for shapes, params in small] or MORE.get(op.name, []))
    return census.found


# ---- the counts, and the page that states them ---------------------------------------------------------------------------
def counts(found: dict[str, Found]) -> dict[str, int]:
    """Return how many operators there are of each kind."""
    return {k: sum(f.kind == k for f in found.values()) for k in KINDS}


def table(found: dict[str, Found]) -> str:
    """Return the census as text: each kind with its count and its operators, with the Triton modules of each template."""
    lines = [f"{len(found)} built-in operators"]
    for kind, count in counts(found).items():
        names = [n + (f" ({', '.join(sorted(f.modules))})" if f.modules else "") for n, f in found.items() if f.kind == kind]
        lines += ["", f"{kind}: {count}", *textwrap.wrap(", ".join(names), 128, initial_indent="    ", subsequent_indent="    ")]
    return "\n".join(lines)


def stated(text: str) -> dict[str, int]:
    """Return the counts in the table of docs/architecture.md, by kind; "all" is their sum."""
    return {k: int(n) for k, n in re.findall(r"^\| (all|one|template|host|control flow) \| (\d+) \|", text, re.M)}


def write(found: dict[str, Found]) -> None:
    """State the counts in docs/architecture.md. Raises SystemExit if `one` would fall or `host` rise, which is no correction."""
    text, fresh = PAGE.read_text(), {"all": len(found), **counts(found)}
    before = stated(text)
    if fresh["one"] < before["one"] or fresh["host"] > before["host"]:
        raise SystemExit(f"census: `one` would go from {before['one']} to {fresh['one']} and `host` from {before['host']} to "
                         f"{fresh['host']}. Declare the operator once; or, with a reason, change {PAGE.name} by hand.")
    for kind, n in fresh.items():
        text = re.sub(rf"^(\| {kind} \| )\d+( \|)", rf"\g<1>{n}\g<2>", text, flags=re.M)
    PAGE.write_text(text)


if __name__ == "__main__":
    seen = take()
    print(table(seen))
    if "--write" in sys.argv[1:]:
        write(seen)
