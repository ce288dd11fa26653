"""Runs one operator on raw arrays, without engine or NDArray: forward, backward, golden cases, gradient checks."""

import json
from pathlib import Path

import numpy as np
from tritium import context
from tritium.engine.gpu import cuda
from tritium.kernels import op as ops
from tritium.kernels.op import Req, Spec

GOLDEN = Path(__file__).parents[1] / "golden" / "ops"
TARGETS = ["cpu", "gpu"] if context.GPU_MODE == "interpret" else ["cpu"]
TOLERANCE = {"float16": 1e-2, "bfloat16": 4e-2, "float32": 1e-4, "float64": 1e-7}


class Run:
    """Stands in for the engine's RunContext: serial, no stream."""

    stream = None

    def __init__(self, target="cpu", backwards=False):
        self.target, self.backwards = target, backwards

    def parallel(self, fn, n):
        for i in range(n)[:: -1 if self.backwards else 1]:
            fn(i)

    def workspace(self, shape, dtype):
        return to_device(np.zeros(shape, dtype), self.target)

    def to_host(self, array):
        return array if isinstance(array, np.ndarray) else cuda.as_numpy(array)

    def from_host(self, array, values):
        np.copyto(self.to_host(array), values, casting="no")

    def constant(self, values):
        return to_device(values, self.target)


def to_device(a, target):
    if target == "cpu":
        return a
    import torch

    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def call(op, p, inputs, specs, *, reqs=None, target="cpu", train=True, random=None, fill=7, run=None, like=None):
    """Run a compiled op on copies of inputs. Returns the outputs (which held `fill` before) and the inputs after."""
    ins = [np.array(a, order="C") for a in inputs]
    outs = [np.full(s.shape, fill, s.dtype) for s in specs] if like is None else like
    reqs = tuple(reqs or [Req.WRITE] * len(outs))
    kernel = ops.compiled(op, p, tuple(Spec(a.shape, a.dtype) for a in ins), tuple(specs), reqs, target, train)
    extra = {"random": random} if random is not None else {}
    kernel(run or Run(target), [to_device(a, target) for a in ins], [to_device(a, target) for a in outs], **extra)
    return outs, ins


def specs_of(op, p, inputs):
    """Specs of the outputs for these inputs."""
    _, shapes = op.infer_shape(p, [a.shape for a in inputs])
    _, dtypes = op.infer_dtype(p, [a.dtype for a in inputs])
    return [Spec(tuple(s), d) for s, d in zip(shapes, dtypes)]


def forward(name, inputs, target="cpu", train=True, random=None, **params):
    """Visible and hidden outputs of one forward run."""
    op = ops.get(name)
    p = op.parse(params)
    return call(op, p, inputs, specs_of(op, p, inputs), target=target, train=train, random=random)[0]


def backward(name, inputs, heads, target="cpu", reqs=None, fill=7, random=None, run=None, **params):
    """{input index: derivative} of one forward and backward run."""
    op = ops.get(name)
    p = op.parse(params)
    outs, _ = call(op, p, inputs, specs_of(op, p, inputs), target=target, random=random)
    g = op.gradient_of(p)
    groups = {"dy": heads, "x": inputs, "y": outs}
    needed = [groups[kind][i] for kind, i in g.needs]
    specs = [Spec(inputs[i].shape, inputs[i].dtype) for i in g.gives]
    _shapes, given = g.op.infer_shape(p, [a.shape for a in needed], [s.shape for s in specs])
    assert [tuple(s) for s in given] == [s.shape for s in specs], (given, specs)
    if reqs is not None:
        reqs = [reqs] * len(specs) if isinstance(reqs, Req) else [reqs[i] for i in g.gives]
    grads, _ = call(g.op, p, needed, specs, reqs=reqs, target=target, fill=fill, run=run)
    return dict(zip(g.gives, grads))


def close(got, want, what="", scale=1):
    """Equal shapes, dtypes, and values within the tolerance of the dtype."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype, (what, got.shape, want.shape, got.dtype, want.dtype)
    tolerance = TOLERANCE.get(want.dtype.name, 0) * scale
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance,
                               err_msg=what)


def golden_cases(*names, folder=GOLDEN):
    """(id, file, case) of every stored case of these operators."""
    cases = []
    for name in names:
        with np.load(folder / f"{name}.npz") as z:
            meta, arrays = json.loads(str(z["meta"])), {k: z[k] for k in z.files}
        cases += [(f"{name}-{m['case']}", m, arrays) for m in meta]
    return cases


def check_golden(m, z, target="cpu"):
    """One golden case: MXNet's outputs, derivatives and states; or its refusal."""
    op, c = ops.get(m["op"]), m["case"] + "."
    kw = {k: tuple(v) if isinstance(v, list) else v for k, v in m["kwargs"].items()}
    inputs = [z[c + "in." + n] for n in m["inputs"]] + [z[c + "aux." + n] for n in m["aux"]]
    try:
        p = op.parse(kw)
        specs = specs_of(op, p, inputs)
        if m["error"]:  # what inference lets pass the kernel must refuse
            call(op, p, inputs, specs, target=target, train=m["is_train"])
    except Exception as e:
        assert m["error"], e
        return
    assert not m["error"], f"accepted what MXNet refuses: {m['error']}"
    random = (1, 0) if op.num_random(p, specs) else None
    outs, after = call(op, p, inputs, specs, target=target, train=m["is_train"], random=random)
    for i in range(op.visible_outputs(p)):
        close(outs[i], z[f"{c}out.{i}"], f"out {i}")
    for n, a in zip(m["aux"], after[len(m["inputs"]):]):
        close(a, z[f"{c}aux_after.{n}"], n)
    if not m["backward"]:
        return
    wanted = {i: z[c + "grad." + n] for i, n in enumerate(m["inputs"]) if c + "grad." + n in z}
    reqs = m["grad_req"] or {}
    heads = [z[f"{c}head.{i}"] for i in range(m["outputs"])]
    g = op.gradient_of(p)
    if g is None:
        assert all(not w.any() for w in wanted.values())
        return
    asked = [{"add": Req.ADD, "write": Req.WRITE, "null": Req.NULL}[reqs.get(n, "write")] for n in m["inputs"]]
    groups = {"dy": heads, "x": inputs, "y": outs}
    needed = [groups[kind][i] for kind, i in g.needs]
    grads, _ = call(g.op, p, needed, [Spec(inputs[i].shape, inputs[i].dtype) for i in g.gives],
                    reqs=[asked[i] for i in g.gives], target=target, train=m["is_train"])
    for i, got in zip(g.gives, grads):
        if i in wanted:
            close(got, wanted[i], f"grad {m['inputs'][i]}")


def check_gradient(name, inputs, rng, target="cpu", eps=1e-6, tolerance=1e-6, random=None, **params):
    """<u, (f(x + eps v) - f(x - eps v)) / 2 eps> equals <backward(u), v> in float64, for random u and v."""
    op = ops.get(name)
    p = op.parse(params)
    gives = op.gradient_of(p).gives
    ys = forward(name, inputs, target, random=random, **params)[: op.visible_outputs(p)]
    u = [rng.standard_normal(y.shape) for y in ys]
    v = {i: rng.standard_normal(inputs[i].shape) for i in gives}
    moved = lambda s: [a + s * eps * v[i] if i in v else a for i, a in enumerate(inputs)]
    up, down = (forward(name, moved(s), target, random=random, **params) for s in (1, -1))
    numeric = sum(float((w * (a - b)).sum()) / (2 * eps) for w, a, b in zip(u, up, down))
    grads = backward(name, inputs, u, target, random=random, **params)
    exact = sum(float((grads[i] * v[i]).sum()) for i in gives)
    assert abs(numeric - exact) <= tolerance * max(1.0, abs(exact)) * 10, (name, numeric, exact)


def check_requests(name, inputs, heads, target="cpu", **params):
    """add = what was there + write; null leaves what was there. Forward and backward."""
    op = ops.get(name)
    p = op.parse(params)
    specs = specs_of(op, p, inputs)
    wrote, _ = call(op, p, inputs, specs, target=target)
    for req, want in ((Req.ADD, lambda w: w + w.dtype.type(7)), (Req.NULL, lambda w: np.full_like(w, 7))):
        n = op.visible_outputs(p)
        got, _ = call(op, p, inputs, specs, reqs=[req] * n + [Req.WRITE] * (len(specs) - n), target=target)
        for a, b in zip(got[:n], wrote):
            close(a, want(b), f"forward {req.name}", 5)
        if op.gradient_of(p):
            wrote_back = backward(name, inputs, heads, target, **params)
            got_back = backward(name, inputs, heads, target, reqs=req, **params)
            for i, a in got_back.items():
                close(a, want(wrote_back[i]), f"backward {req.name}", 5)
