"""EpilogueOp: a product or convolution, forward or backward, with elementwise work done on each block while it is in cache.

The head's first output is computed in blocks of a few samples; the epilogue runs on each block before the next is computed.
So the head's result need not be stored, which saves memory traffic. The sums over samples of a backward head (the weight's
derivative) are computed first, for all samples: so the epilogue may overwrite the inputs of the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...dtype import float32, is_float
from ..cpu import c_compile
from ..cpu.c_kernel import addresses_of, piece_of
from ..cpu.c_printer import CFunction
from ..cpu.c_team import Follower
from ..declare.operator_property import OperatorProperty
from ..declare.property_op import PropertyOp
from ..gpu.epilogue import Epilogue
from ..ir.body import Body
from ..ir.expr import CONST, LOAD, Expr, topological
from ..kernel import BoundKernel, HostRun, InTurn, Kernel, Prepared
from ..op import Expression, Op, Req, Reqs, Spec, Specs, compiled
from ..params import Params
from .fused import FusedOp, fused_op

_CACHE = 1 << 20  # bytes of the head's result in one block; with smaller blocks the threads wait too long for the GIL
_SCRATCH = 1 << 19  # bytes of scratch that a bound kernel may hold
_SAVED = 2_000  # nanoseconds that an epilogue in C must save: in NumPy it would stand between kernels that run in one call
_WORK = 1 << 17  # multiplications of a head in C from which on its epilogue is worth compiling, however small it is


@dataclass(frozen=True, slots=True)
class Wiring:
    """The inputs of head and epilogue, as positions in the step's inputs.

    head, epilogue:  the inputs of either; -1 in epilogue is the head's first output.
    n_outputs:   of the head; the epilogue's follow.
    """

    head: tuple[int, ...]
    epilogue: tuple[int, ...]
    n_outputs: int


class Scaled(NamedTuple):
    """A convolution in C whose epilogue is a scale and a shift of each filter, and a rectifier if so made.

    head: see `Forward.keep_scaled` in ops/nn/c_conv.py. scale, shift: positions in the step's inputs; -1: none.
    """

    head: Any
    scale: int
    shift: int

    def of(self, inputs: Sequence[Any]) -> tuple[Any, Any]:
        """Return scale and shift, or None."""
        return (None if self.scale < 0 else inputs[self.scale]), (None if self.shift < 0 else inputs[self.shift])

    def keeps(self, wiring: Wiring) -> list[int]:
        """Return the inputs from which something is made that stays."""
        return [*wiring.head[1:], *(i for i in (self.scale, self.shift) if i >= 0)]


class EpilogueOp(Op):
    """One head and one epilogue. Its outputs are the head's (the first one NULL where only the epilogue reads it), then those of
    the epilogue.

    target: "cpu", or "gpu", where the epilogue becomes part of the head's template and nothing else reads the head.
    """

    def __init__(self, head: Op, params: Params, body: Body, wiring: Wiring, target: str = "cpu"):
        self.target = target
        self.name = f"{head.name}+epilogue"
        self.head, self.head_params, self.body, self.wiring = head, params, body, wiring
        n = 1 + max((*wiring.head, *wiring.epilogue))
        self.input_names = tuple(f"x{i}" for i in range(n))
        self.output_names = tuple(f"output{i}" for i in range(wiring.n_outputs + len(body.outs)))
        self.capturable = head.capturable

    @property
    def _layer(self) -> OperatorProperty | None:
        return self.head.property(self.head_params) if isinstance(self.head, PropertyOp) else None

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        """Return the (input, output) pairs that may share memory: inputs of one row per sample are read before their block is
        written."""
        if self.target == "gpu" or (len(self.body.roots) > 1 and any(r.op == LOAD for r in self.body.roots)):
            return ()
        whole = self._layer is not None and type(self._layer).in_pieces is not OperatorProperty.in_pieces
        uses = [(i, k in self.head.batched and not whole) for k, i in enumerate(self.wiring.head)]
        uses += [(i, view == self.body.shape) for i, view in zip(self.wiring.epilogue, self.body.ins) if i >= 0]
        rows = {i for i, by_row in uses if by_row} - {i for i, by_row in uses if not by_row}
        full = [o for o, view in enumerate(self.body.outs) if view == self.body.shape]
        return tuple((i, self.wiring.n_outputs + o) for i in sorted(rows) for o in full)

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        wiring, n_head = self.wiring, self.wiring.n_outputs
        head_ins = tuple(ins[i] for i in wiring.head)
        if target == "gpu":
            epilogue = gpu_epilogue(self.head, self.head_params, self.body, wiring.epilogue)
            others = [i for i in wiring.epilogue if i >= 0]
            assert isinstance(epilogue, Epilogue), epilogue
            both = self.head.property(self.head_params).gpu_kernel(  # type: ignore[attr-defined]
                head_ins, outs[n_head], reqs[n_head], epilogue)
            return Kernel(lambda run, inputs, outputs: both(run, [inputs[i] for i in (*wiring.head, *others)], outputs[n_head]))
        in_pieces = self._in_pieces(head_ins, ins, outs, reqs, train)
        if in_pieces is not None:
            return in_pieces
        total, keep = outs[0].shape[0], reqs[0] != Req.NULL
        step = _block(self.head.epilogue_block, outs[0])
        starts = range(0, total, step)
        sizes = {min(step, total - a) for a in starts}
        blocks = {n: self._block_kernels(n, head_ins, ins, outs, reqs, target, train) for n in sizes}
        rest = None
        if any(r != Req.NULL for r in reqs[1:n_head]):
            rest = compiled(self.head, self.head_params, head_ins, tuple(outs[:n_head]), (Req.NULL, *reqs[1:n_head]), target,
                            train)
        views, full, scratch = self.body.ins, self.body.shape, outs[0].dtype
        n_rest = n_head - 1

        def shaped(outputs: Sequence[Any]) -> list[Any]:
            """Return the epilogue's outputs in its own shapes; None for those not requested."""
            return [None if o is None else o.reshape(view) for o, view in zip(outputs, self.body.outs)]

        def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
            """Bind head and epilogue with all samples in one block."""
            main, epilogue = blocks[total]
            made = outputs[0] if keep else _in_place(outs[0], inputs, outputs[n_head:], reqs[n_head:])
            if made is None and outs[0].nbytes > _SCRATCH:
                return lambda run: kernel(run, inputs, outputs)
            made = np.empty(outs[0].shape, scratch) if made is None else made.reshape(outs[0].shape)
            calls = [main.bind([inputs[i] for i in wiring.head], [made, *[None] * n_rest]),
                     epilogue.bind([made if i < 0 else inputs[i].reshape(view) for i, view in zip(wiring.epilogue, views)],
                          shaped(outputs[n_head:]))]
            if rest is not None:
                calls.insert(0, rest.bind([inputs[i] for i in wiring.head], [None, *outputs[1:n_head]]))
            return InTurn(calls)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            if rest is not None:
                rest(run, [inputs[i] for i in wiring.head], [None, *outputs[1:n_head]])
            epilogues = shaped(outputs[n_head:])
            sources = [None if i < 0 else inputs[i].reshape(view) for i, view in zip(wiring.epilogue, views)]
            inner = run if len(starts) == 1 else HostRun()

            def block(k: int) -> None:
                a = starts[k]
                z = min(a + step, total)
                main, epilogue = blocks[z - a]
                made = outputs[0][a:z] if keep else np.empty((z - a, *outs[0].shape[1:]), scratch)
                main(inner, [inputs[i][a:z] if k in self.head.batched else inputs[i] for k, i in enumerate(wiring.head)],
                     [made, *[None] * n_rest])
                epilogue(inner, [made if s is None else s[a:z] if view == full else s for s, view in zip(sources, views)],
                     [None if t is None else t[a:z] for t in epilogues])

            if len(starts) == 1:
                block(0)
            else:
                run.parallel(block, len(starts))

        return Kernel(kernel, bind if len(starts) == 1 else None)

    def scaled(self, ins: Specs, outs: Specs, reqs: Reqs) -> Scaled | None:
        """Return the head that computes the epilogue too, in a graph without backward; None if it does not."""
        alone = reqs == (Req.NULL, Req.WRITE)
        head = self._head_in_pieces(tuple(ins[i] for i in self.wiring.head), outs, reqs) if alone else None
        found = _scale_and_shift(self.body, self.wiring) if hasattr(head, "scaled") else None
        if head is None or found is None or any(s.dtype != float32 for s in (*ins, *outs)):
            return None
        scale, shift, rectified = found
        return Scaled(head.scaled(rectified), scale, shift)

    def _in_pieces(self, head_ins: Specs, ins: Specs, outs: Specs, reqs: Reqs, train: bool) -> Kernel | None:
        """Return the kernel of a head that calls its epilogue for each part of the result, where both are in C; else None."""
        scaled, wiring, stays = None if train else self.scaled(ins, outs, tuple(reqs)), self.wiring, reqs[0] != Req.NULL
        if scaled is not None:

            def keep(inputs: Sequence[Any], outputs: Sequence[Any]) -> Prepared:
                return scaled.head.keep_scaled([inputs[i] for i in wiring.head], *scaled.of(inputs), outputs[1])

            def anew(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
                kept = keep(inputs, outputs)
                return InTurn([kept.prepare, kept.run])

            return Kernel(bind=anew, keep=keep, keeps=scaled.keeps(wiring))
        head, f = self._head_in_pieces(head_ins, outs, reqs), self.c_code(Params({}), ins, outs, reqs)
        if head is None or isinstance(f, str):
            return None
        c_compile.request(f)

        def given(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[list[Any], Any, Follower]:
            """Return the head's inputs, where its result goes (None: into scratch memory), and the epilogue."""
            targets = [outputs[1 + t] for t in f.targets]
            arrays = [None if i < 0 else inputs[i] for i in wiring.epilogue] + targets
            found = c_compile.function(f)
            assert found is not None
            addresses = addresses_of(f, [None if a is None else a.ctypes.data for a in arrays])
            after = Follower(found, addresses, [k for k, i in enumerate(wiring.epilogue) if i < 0], piece_of(f), arrays)
            made = outputs[0] if stays else _in_place(outs[0], inputs, outputs[1:], reqs[1:])
            return [inputs[i] for i in wiring.head], made, after

        def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
            return head.bind(*given(inputs, outputs))

        shares = getattr(head, "shares", -1)
        if shares >= 0:

            def share(inputs: Sequence[Any], outputs: Sequence[Any], made: dict[Any, Any]) -> BoundKernel:
                return head.bind(*given(inputs, outputs), made)

            return Kernel(bind=bind, share=share, shares=wiring.head[shares])
        if train:
            return Kernel(bind=bind)
        return Kernel(bind=bind, keep=lambda inputs, outputs: head.keep(*given(inputs, outputs)),
                      keeps=[wiring.head[i] for i in head.keeps])

    def _head_in_pieces(self, head_ins: Specs, outs: Specs, reqs: Reqs) -> Any:
        """Return the head in C that calls its epilogue for each part of the result; None if it does not."""
        able = self._layer is not None and self.wiring.n_outputs == 1 and reqs[0] != Req.ADD
        return self._layer.in_pieces(head_ins, outs[0]) if able and self._layer is not None else None

    def _block_kernels(self, n: int, head_ins: Specs, ins: Specs, outs: Specs, reqs: Reqs,
                       target: str, train: bool) -> tuple[Kernel, Kernel]:
        """Return the kernels of head and epilogue for n samples."""
        n_head = self.wiring.n_outputs

        def cut(s: Spec) -> Spec:
            return Spec((n, *s.shape[1:]), s.dtype)

        head = compiled(
            self.head, self.head_params, tuple(cut(s) if k in self.head.batched else s for k, s in enumerate(head_ins)),
            (cut(outs[0]), *outs[1:n_head]), (Req.WRITE, *[Req.NULL] * (n_head - 1)), target, train)
        op, epilogue_ins, epilogue_outs = self._epilogue(n, ins, outs)
        in_place = [Req.INPLACE if r == Req.WRITE and reqs[0] == Req.NULL else r for r in reqs[n_head:]]  # see _in_place
        return head, op.kernel(Params({}), epilogue_ins, epilogue_outs, in_place, target, train)

    def _epilogue(self, n: int, ins: Specs, outs: Specs) -> tuple[FusedOp, list[Spec], list[Spec]]:
        """Return the epilogue for n samples as an operator, with its inputs and outputs."""
        body, n_head = self.body, self.wiring.n_outputs
        views, results = ([(n, *v[1:]) if v == body.shape else v for v in seen] for seen in (body.ins, body.outs))
        dtypes = [outs[0].dtype if i < 0 else ins[i].dtype for i in self.wiring.epilogue]
        op = fused_op(Expression(body.roots), len(views), name=f"{self.head.name}_epilogue")
        op.least = _SAVED
        return (op, [Spec(v, d) for v, d in zip(views, dtypes)], [Spec(v, s.dtype) for v, s in zip(results, outs[n_head:])])

    def c_code(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs) -> CFunction | str:
        """Return the C function that computes the epilogue of a full block on the CPU, or the reason why NumPy does."""
        head = self._head_in_pieces(tuple(ins[i] for i in self.wiring.head), outs, reqs)
        n = outs[0].shape[0]
        if head is None:
            n = min(_block(self.head.epilogue_block, outs[0]), n)
        op, epilogue_ins, epilogue_outs = self._epilogue(n, ins, outs)
        if head is not None and head.work >= _WORK:
            op.least = 0
        return op.c_code(Params({}), epilogue_ins, epilogue_outs, reqs[self.wiring.n_outputs:])


def _scale_and_shift(body: Body, wiring: Wiring) -> tuple[int, int, bool] | None:
    """Return where a scale and a shift of the last axis are, -1 where there is none, and whether the result is rectified.

    None if the body is something else.
    """

    def input_of(x: Expr) -> int | None:
        """Return the input that x loads, -1 for the head's result."""
        return wiring.epilogue[x.value] if x.op == LOAD else None

    def channel(x: Expr) -> int | None:
        """Return the input that x loads, if it has one number for each channel."""
        at = input_of(x)
        each = (*(1,) * (len(body.shape) - 1), body.shape[-1])
        return at if at is not None and at >= 0 and body.ins[x.value] == each else None

    x, found = body.roots[0], []
    rectified = x.op == "maximum" and x.args[1].op == CONST and x.args[1].value == 0
    x = x.args[0] if rectified else x
    for op in ("add", "mul"):
        at = channel(x.args[1]) if x.op == op else None
        found.append(-1 if at is None else at)
        x = x if at is None else x.args[0]
    return (found[1], found[0], rectified) if len(body.roots) == 1 and input_of(x) == -1 else None


def _in_place(head: Spec, inputs: Sequence[Any], outputs: Sequence[Any], reqs: Reqs) -> Any:
    """Return the result of an epilogue in whose memory the head's result may be computed; None if there is none."""
    for t, req in zip(outputs, reqs):
        alike = req in (Req.WRITE, Req.INPLACE) and t.dtype == head.dtype and t.size == head.size
        if alike and not any(np.may_share_memory(t, a) for a in inputs):
            return t
    return None


def _block(fewest: int, out: Spec) -> int:
    """Return the number of samples in one block."""
    rows = max(1, out.shape[0])
    return max(1, min(rows, max(fewest, _CACHE * rows // max(1, out.nbytes))))


_MOST = 4  # arrays that an epilogue on a GPU reads beside the head's result


def gpu_epilogue(head: Op, params: Params, body: Body, wiring: Sequence[int]) -> Epilogue | str:
    """Return the epilogue for the GPU kernel of a head, or the reason why it has none.

    wiring: the epilogue's inputs; -1 is the head's result.
    """
    shape, n = body.shape, sum(i >= 0 for i in wiring)
    if not isinstance(head, PropertyOp) or not head.epilogue_block:
        return f"on the GPU {head.name} takes no epilogue"
    if len(body.roots) != 1 or body.rows or body.combine or body.outs[0] != shape:
        return "on the GPU an epilogue has one result, element by element"
    layer: Any = head.property(params)
    channels = tuple(s if i == (len(shape) - 1 if layer.channels_last else 1) else 1 for i, s in enumerate(shape))
    if any((1,) * (len(shape) - len(v)) + v != channels for i, v in zip(wiring, body.ins) if i >= 0) or n > _MOST:
        return f"on the GPU an epilogue reads the result of {head.name} and at most {_MOST} arrays of a number per channel"
    found = {x.value: x.dtype for x in topological(body.roots) if x.op == LOAD}
    if not all(d is not None and is_float(d) for d in (*found.values(), body.roots[0].dtype)):
        return "on the GPU an epilogue reads floats and gives one"
    order = iter(range(n))
    vectors = tuple(-1 if i < 0 else next(order) for i in wiring)
    dtypes = tuple(found.get(k, float32) for k in range(len(wiring)))
    return Epilogue(body.roots[0], dtypes, vectors)  # type: ignore[arg-type]
