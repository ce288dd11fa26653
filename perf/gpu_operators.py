"""Every operator on a GPU, on random data, against float64 on the CPU: values and derivatives. For gpu_suite.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from gpu_machine import Machine

WORST = 1e-3  # of the largest value, in float32: sums in another order, and the GPU's exp and log
LENGTH = 40_001  # elements of an elementwise operator's arrays


def check(m: Machine) -> None:
    """One line: how many operators were run, the worst difference, and those that are wrong."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    try:
        from operator_jobs import operators, uses
        from test_every_operator import data
    except ImportError as e:
        m.say("operators", error=f"the tests are not here: {e}")
        return
    import tritium as mx

    rng = np.random.default_rng(0)
    wrong, worst, ran, left = {}, 0.0, 0, []
    for op in operators()[:: 12 if m.smoke else 1]:
        for inputs, params in uses(op, 41 if m.smoke else LENGTH):
            if m.late:
                left.append(op.name)
                break
            p = op.parse(params)
            shapes = [i[1] if i and i[0] == "ints" else i for i in inputs]
            if op.draws(p, _specs(op, p, shapes)):
                continue  # the same numbers on CPU and GPU in float32 alone: the tests compare those
            xs = data(inputs, rng)
            try:
                difference = _difference(_run(mx, op.name, xs, params, mx.gpu(), "float32"),
                                         _run(mx, op.name, xs, params, mx.cpu(), "float64"))
            except Exception as e:
                wrong[op.name] = f"{type(e).__name__}: {e}"[:200]
                continue
            ran, worst = ran + 1, max(worst, difference if difference < WORST else 0.0)
            if not difference < WORST:
                wrong[op.name] = difference
    m.say("operators against float64", cases=ran, largest_difference=worst, wrong=wrong, left_out=sorted(set(left)))


def _specs(op: Any, p: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    from tritium.kernels.op import Spec

    _, outs = op.infer_shape(p, shapes)
    return [Spec(tuple(s or ()), np.dtype("float32")) for s in outs]


def _run(mx: Any, name: str, xs: list[np.ndarray], params: dict[str, Any], ctx: Any, dtype: str) -> list[np.ndarray]:
    """Outputs and derivatives of one run; heads are the same on both sides."""
    with ctx:
        arrays = [mx.nd.array(x.astype("float32"), ctx=ctx, dtype=dtype) for x in xs]
        for a in arrays:
            a.attach_grad()
        call = getattr(mx.nd, name, None) or getattr(mx.nd._internal, name)
        with mx.autograd.record():
            out = call(*arrays, **params)
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        results = [o.asnumpy() for o in outs]
        if any(o._entry is not None for o in outs):
            heads = [mx.nd.array(np.linspace(-1, 1, o.size).reshape(o.shape), ctx=ctx, dtype=o.dtype) for o in outs]
            mx.autograd.backward(outs, heads)
            results += [a.grad.asnumpy() for a in arrays]
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
