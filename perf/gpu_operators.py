"""Every operator on a GPU, on random data, against float64 on the CPU: values and derivatives. For gpu_suite.py."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gpu_machine import Dead, Machine
from tritium.kernels.gpu.compile import build
from tritium.kernels.gpu.job import CompileJob
from tritium.kernels.gpu.target import compute_capability
from tritium.kernels.op import Req

TESTS = Path(__file__).parents[1] / "tests"
WORST = 1e-3  # of the largest value, in float32: sums in another order, and the GPU's exp and log
LEEWAY = 4  # times the difference of the CPU's float32
AT_ONCE = 100  # uses a line
LENGTH = 40_001  # elements of an elementwise operator's arrays


def check(m: Machine, first: int = 0) -> None:
    """Every operator from the first-th use on: lines of how many were run, the worst difference, and those that are wrong."""
    sys.path.insert(0, str(TESTS))
    try:
        from support import operator_jobs
        from test_every_operator import data
    except ImportError as e:
        m.say("operators", error=f"the tests are not here: {e}")
        return
    found = [(op, inputs, params) for op in operator_jobs.operators()[:: 12 if m.smoke else 1]
             for inputs, params in operator_jobs.uses(op, 41 if m.smoke else LENGTH)]
    if not m.smoke and not first:  # all at once, by as many processes as there are processors; what fails is said when it is run
        m.say("operators' kernels", kernels=sum(1 for _ in build(kernels(compute_capability()), timeout=60)))
    for start in range(first, len(found), AT_ONCE):
        _check(m, found, start, operator_jobs.specs_of, data)
        if m.next is not None:
            break


def _check(m: Machine, found: list[Any], start: int, specs_of: Any, data: Any) -> None:
    """One line, of AT_ONCE uses from start on."""
    import tritium as mx
    from tritium.errors import MXNetError

    rng = np.random.default_rng(start)
    wrong, worst, ran, refused, dead = {}, 0.0, 0, [], None
    for op, inputs, params in m.turns("operators", found[:start + AT_ONCE], start):
        p = op.parse(params)
        try:
            exact, rounded = (specs_of(op, p, inputs, np.dtype(d)) for d in ("float64", "float32"))
            if op.num_random(p, rounded[1]):
                continue  # the same numbers on CPU and GPU in float32 alone: the tests compare those
            xs = data(inputs, rng)
            want = _run(mx, op.name, xs, params, mx.cpu(), exact[0])
        except MXNetError:
            refused.append(op.name)
            continue
        try:
            difference = _difference(_run(mx, op.name, xs, params, mx.gpu(), rounded[0]), want)
            if not difference < WORST:  # where the CPU's float32 is as far off, it is the data: a quotient near an integer, say
                beside = _difference(_run(mx, op.name, xs, params, mx.cpu(), rounded[0]), want)
                difference = 0.0 if difference < LEEWAY * beside else difference
        except Exception as e:
            wrong[op.name] = f"{type(e).__name__}: {e}"[:200]
            try:
                m.check_alive()
            except Dead as gone:
                dead = gone
                break
            continue
        ran, worst = ran + 1, max(worst, difference if difference < WORST else 0.0)
        if not difference < WORST:
            wrong[op.name] = difference
    m.say("operators against float64", cases=ran, largest_difference=worst, wrong=wrong, refused=sorted(set(refused)),
          asked={"wrong": 0}, met=not wrong)
    if dead is not None:
        raise dead


def kernels(target: int) -> list[CompileJob]:
    """What the checks launch, for a compute capability times ten."""
    sys.path.insert(0, str(TESTS))
    from support import operator_jobs

    jobs = []
    for op in operator_jobs.operators():
        for inputs, params in operator_jobs.uses(op, LENGTH):
            with contextlib.suppress(Exception):
                jobs += operator_jobs.jobs_of(op, inputs, params, np.dtype("float32"), target, gradient=Req.WRITE)
    return jobs


def _run(mx: Any, name: str, xs: list[np.ndarray], params: dict[str, Any], ctx: Any, specs: Sequence[Any]) -> list[np.ndarray]:
    """Outputs and derivatives of one run, on inputs of the dtypes of specs; heads are the same on both sides."""
    with ctx:
        arrays = [mx.nd.array(x.astype("float32"), ctx=ctx, dtype=s.dtype) for x, s in zip(xs, specs)]
        learned = [a for a, s in zip(arrays, specs) if s.dtype.kind == "f"]
        for a in learned:
            a.attach_grad()
        call = getattr(mx.nd, name, None) or getattr(mx.nd._internal, name)
        with mx.autograd.record():
            out = call(*arrays, **params)
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        results = [o.asnumpy() for o in outs]
        if any(o._grad_edge is not None for o in outs):
            heads = [mx.nd.array(np.linspace(-1, 1, o.size).reshape(o.shape), ctx=ctx, dtype=o.dtype) for o in outs]
            mx.autograd.backward(outs, heads)
            results += [a.grad.asnumpy() for a in learned]
    return results


def _difference(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The largest, over the largest value of its array; infinite where one has a number and the other has none."""
    found = 0.0
    for g, w in zip(got, want):
        g, w = g.astype("float64"), w.astype("float64")
        if g.shape != w.shape or not np.array_equal(np.isfinite(g), np.isfinite(w)):
            return float("inf")
        finite = np.isfinite(w)
        if finite.any():
            found = max(found, float(np.max(np.abs(g[finite] - w[finite])) / max(1.0, np.max(np.abs(w[finite])))))
    return found
