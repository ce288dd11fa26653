"""The template kernels' cases for gpu_suite.py: products, convolutions, rows, norms, optimizer steps, with torch beside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from gpu_machine import Machine
from tritium.kernels import op as ops
from tritium.kernels.gpu.epilogue import Epilogue
from tritium.kernels.ir import lang as L
from tritium.kernels.ir.expr import load
from tritium.kernels.op import Req, Spec
from tritium.kernels.ops.linalg.triton_gemm import POINTER, SPECIALISED, TMA, Blocks, gemm
from tritium.kernels.ops.nn import triton_conv, triton_norm
from tritium.kernels.ops.nn.conv_geometry import ConvolutionGeometry
from tritium.kernels.ops.optimizer import triton_multi
from tritium.kernels.ops.tensor import triton_take

#: ResNet-50's convolutions: channels, filters, size, kernel, stride.
RESNET = [(64, 64, 56, 1, 1), (64, 64, 56, 3, 1), (256, 64, 56, 1, 1), (256, 128, 56, 1, 2), (128, 128, 56, 3, 2),
          (128, 128, 28, 3, 1), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1), (1024, 2048, 14, 1, 2), (3, 64, 224, 7, 2)]
CONVOLUTION = {"forward": 0.70, "data": 0.60, "weight": 0.55}  # of cuDNN


class Case(NamedTuple):
    """work() launches ours and gives its result; peers: torch's on the same data; exact(): in float64 arithmetic.

    amount: FLOP or bytes. at_least: {peer, or "copy": the ratio that is asked for}.
    """

    name: str
    work: Callable[[], Any]
    peers: dict[str, Callable[[], Any] | None]
    exact: Callable[[], Any]
    amount: float
    unit: str
    at_least: dict[str, float]
    dtype: str


def products(m: Machine) -> Iterator[Case]:
    """Square, skinny and split products against torch.matmul (cuBLAS)."""
    sizes = [(8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (256, 256, 8192), (4096, 1, 4096),
             (4095, 4097, 4001)]
    for dtype, how in (("bfloat16", "ieee"), ("float32", "tf32"), ("float32", "ieee")):
        for size in sizes:
            if how == "ieee" and dtype == "float32" and max(size) > 4096:
                continue
            yield _product(m, size, dtype, how, None)
    for template, name in ((POINTER, "pointer"), (TMA, "tma"), (SPECIALISED, "specialised")):
        for bn in (128, 256):
            warps = 4 if template == SPECIALISED else 8
            yield _product(m, (4096, 4096, 4096), "bfloat16", "ieee", Blocks(template, 128, bn, 64, warps, 3), f" {name} {bn}")


def _product(m: Machine, size: tuple[int, int, int], dtype: str, how: str, blocks: Blocks | None, label: str = "") -> Case:
    rows, columns, inner = (m.size(s) if s > 1 else s for s in size)
    a, b = m.randn(rows, inner, dtype=dtype), m.randn(inner, columns, dtype=dtype)
    c = m.empty(rows, columns, dtype=dtype)
    views = [((1, *t.shape), (t.numel(), t.shape[1], 1)) for t in (a, b, c)]

    def work() -> Any:
        os.environ["TRITIUM_FLOAT32_MATMUL"] = how
        gemm(m.run, a, views[0], b, views[1], c, views[2], blocks=blocks)
        return c

    def peer() -> Any:
        m.torch.backends.cuda.matmul.allow_tf32 = how == "tf32"
        return a @ b

    kind = dtype if how == "ieee" else how
    flop = 2.0 * rows * columns * inner
    most = min(size) >= 4096
    asked = {"tf32": 0.80 if most else 0.0, "bfloat16": 0.85 if most else 0.75 if min(size) >= 1024 else 0.0}.get(kind, 0.0)
    return Case(f"gemm {kind} {rows}x{inner}x{columns}{label}", work, {"cublas": peer}, lambda: a.double() @ b.double(), flop,
                "flop", {"cublas": asked} if asked and not label else {}, dtype)


def convolutions(m: Machine, batch: int = 128, dtype: str = "bfloat16") -> Iterator[Case]:
    """ResNet-50's convolutions, channels last, in three directions, against torch (cuDNN)."""
    batch = max(2, batch // m.scale)
    conv, grad = m.torch.nn.functional.conv2d, m.torch.nn.grad
    for c, f, size, k, stride in RESNET[:3] if m.smoke else RESNET:
        size, pad = size // 4 if m.smoke else size, k // 2
        out = (size + 2 * pad - k) // stride + 1
        g = ConvolutionGeometry(batch, c, f, 1, (size, size), (out, out), (k, k), (stride, stride), (1, 1), (pad, pad), True)
        x, dy = m.randn(batch, size, size, c, dtype=dtype), m.randn(batch, out, out, f, dtype=dtype)
        w = m.randn(f, k, k, c, dtype=dtype)
        y, dx, dw = m.empty(*dy.shape, dtype=dtype), m.empty(*x.shape, dtype=dtype), m.empty(*w.shape, dtype=dtype)
        px, pw, pdy = (t.permute(0, 3, 1, 2) for t in (x, w, dy))  # channels first as torch counts, last as they lie

        def backward(i: int, g=g, dy=dy, x=x, w=w, dx=dx, dw=dw) -> Any:
            reqs = [Req.NULL, Req.NULL]
            reqs[i] = Req.WRITE
            triton_conv.backward(m.run, g, dy, x, w, [dx, dw], reqs)
            return (dx, dw)[i].permute(0, 3, 1, 2)

        def forward(g=g, x=x, w=w, y=y) -> Any:
            triton_conv.forward(m.run, g, x, w, None, y, add=False)
            return y.permute(0, 3, 1, 2)

        how: dict[str, Any] = {"stride": stride, "padding": pad}
        peers = {"forward": lambda a, b, d, h=how: conv(a, b, **h),
                 "data": lambda a, b, d, h=how: grad.conv2d_input(a.shape, b, d, **h),
                 "weight": lambda a, b, d, h=how: grad.conv2d_weight(a, b.shape, d, **h)}
        ours = {"forward": forward, "data": lambda f=backward: f(0), "weight": lambda f=backward: f(1)}
        for pass_, peer in peers.items():
            yield Case(f"conv {pass_} {k}x{k} {c}->{f} {size} /{stride}", ours[pass_],
                       {"cudnn": lambda p=peer, a=px, b=pw, d=pdy: p(a, b, d)},
                       lambda p=peer, a=px, b=pw, d=pdy: p(a.double(), b.double(), d.double()),
                       2.0 * batch * out * out * f * c * k * k, "flop", {"cudnn": CONVOLUTION[pass_]}, dtype)


def layers(m: Machine, dtype: str = "bfloat16") -> Iterator[Case]:
    """Rows, norms, embedding gradients and optimizer steps: bytes that must move."""
    for n in (256, 1000, 1024, 8192):
        x = m.randn(m.size((1 << 26) // n), n, dtype=dtype)
        y, g, dx = m.torch.empty_like(x), m.randn(*x.shape, dtype=dtype), m.torch.empty_like(x)
        moved, asked = x.numel() * x.element_size(), {"copy": 0.85} if n != 1000 else {}

        op, spec = ops.get("softmax"), Spec(tuple(x.shape), np.dtype(dtype))
        p = op.parse({})
        derivative = op.gradient_of(p)
        assert derivative is not None
        forward = ops.compiled(op, p, (spec,), (spec,), (Req.WRITE,), "gpu")
        backward = ops.compiled(derivative.op, p, (spec, spec), (spec,), (Req.WRITE,), "gpu")

        def softmax(x=x, y=y, forward=forward) -> Any:
            forward(m.run, [x], [y])
            return y

        def gradient(g=g, y=y, dx=dx, backward=backward) -> Any:
            backward(m.run, [g, y], [dx])
            return dx

        yield Case(f"softmax {n}", softmax, {"torch": lambda x=x: x.softmax(-1)}, lambda x=x: x.double().softmax(-1), 2.0 * moved,
                   "byte", asked, dtype)
        yield Case(f"softmax backward {n}", gradient, {"torch": lambda g=g, y=y: _softmax_gradient(g, y)},
                   lambda g=g, y=y: _softmax_gradient(g.double(), y.double()), 3.0 * moved, "byte",
                   {"copy": 0.75} if asked else {}, dtype)
    yield from _layer_norm(m, dtype)
    yield from _batch_norm(m, dtype)
    vocabulary, k, inner = m.size(50_000), m.size(4096), 512
    index, dy, dx = m.torch.randint(vocabulary, (k,), device=m.device).float(), m.randn(k, inner), m.empty(vocabulary, inner)

    def embedding() -> Any:
        triton_take.put(m.run, (1, vocabulary, inner), k, dy, index, dx, wrap=False, add=False)
        return dx

    zeros = lambda v: m.torch.zeros(vocabulary, inner, device=m.device, dtype=v.dtype).index_add_(0, index.long(), v)
    yield Case("embedding gradient", embedding, {"torch": lambda: zeros(dy)}, lambda: zeros(dy.double()),
               4.0 * (2 * k + vocabulary) * inner, "byte", {}, "float32")
    yield from _updates_of_both(m)


def _softmax_gradient(g: Any, y: Any) -> Any:
    return y * (g - (g * y).sum(-1, keepdim=True))


def operator(m: Machine, name: str, shapes: list[tuple[int, ...]], params: dict[str, Any], dtype: str, backward: bool = False
             ) -> tuple[Callable[[list[Any]], list[Any]], list[Any]]:
    """(function of the inputs that runs an operator, or its derivative, and gives its outputs; random inputs)."""
    op = ops.get(name)
    p = op.parse(params)
    in_shapes, out_shapes = op.infer_shape(p, shapes)
    of = lambda group: [Spec(tuple(s), np.dtype(dtype)) for s in group]
    ins, outs = of(in_shapes), of(out_shapes)
    if backward:
        gradient = op.gradient_of(p)
        groups = {"dy": outs, "x": ins, "y": outs}
        op, ins, outs = gradient.op, [groups[kind][i] for kind, i in gradient.needs], [ins[i] for i in gradient.gives]
    kernel = op.kernel(p, ins, outs, [Req.WRITE] * len(outs), "gpu", True)
    made = [m.empty(*s.shape, dtype=dtype) for s in outs]

    def run(arrays: list[Any]) -> list[Any]:
        kernel(m.run, arrays, made)
        return made

    return run, [m.randn(*s.shape, dtype=dtype) for s in ins]


def _layer_norm(m: Machine, dtype: str) -> Iterator[Case]:
    functional = m.torch.nn.functional
    for n in (1024, 4096):
        shapes = [(m.size((1 << 26) // n), n), (n,), (n,)]
        run, a = operator(m, "LayerNorm", shapes, {}, dtype)
        yield Case(f"layer norm {n}", lambda r=run, a=a: r(a)[0],
                   {"torch": lambda a=a, n=n: functional.layer_norm(a[0], (n,), *a[1:])},
                   lambda a=a, n=n: functional.layer_norm(a[0].double(), (n,), *(t.double() for t in a[1:])),
                   2.0 * a[0].numel() * a[0].element_size(), "byte", {"copy": 0.85}, dtype)
        back, b = operator(m, "LayerNorm", shapes, {}, dtype, backward=True)  # of dy, x and gamma

        def plain_back(kind: Any, b: list[Any] = b, n: int = n) -> Callable[[], Any]:
            dy, x, gamma = (t.to(kind, copy=True) for t in b)
            v, w, beta = x.requires_grad_(), gamma.requires_grad_(), m.torch.zeros_like(gamma, requires_grad=True)
            out = functional.layer_norm(v, (n,), w, beta)
            return lambda: m.torch.autograd.grad(out, (v, w, beta), dy, retain_graph=True)[0]

        yield Case(f"layer norm backward {n}", lambda r=back, b=b: r(b)[0], {"torch": plain_back(b[0].dtype)},
                   lambda p=plain_back: p(m.torch.float64)(), 3.0 * b[0].numel() * b[0].element_size(), "byte",
                   {"copy": 0.75}, dtype)


def _batch_norm(m: Machine, dtype: str) -> Iterator[Case]:
    functional = m.torch.nn.functional
    rows = (max(1, 128 // m.scale) * (3136 if not m.smoke else 49), 64, 1)
    x, y, c = m.randn(rows[0], 64, dtype=dtype), m.empty(rows[0], 64, dtype=dtype), [m.randn(64).abs() for _ in range(6)]
    g, dx = m.randn(rows[0], 64, dtype=dtype), m.empty(rows[0], 64, dtype=dtype)
    p, reqs = SimpleNamespace(fix_gamma=False, eps=1e-3, momentum=1.0), [Req.WRITE] * 3
    gradients = [dx, m.empty(64), m.empty(64)]

    def norm() -> Any:
        triton_norm.forward(m.run, rows, p, True, [x, *c[:4]], [y, *c[4:]], reqs, relu=True)
        return y

    def back() -> Any:
        triton_norm.backward(m.run, rows, p, True, [g, x, c[0], *c[4:]], gradients, reqs, y=y)
        return dx

    plain = lambda v: functional.batch_norm(v, None, None, c[0].to(v.dtype), c[1].to(v.dtype), True, 0.0, 1e-3).relu()

    def plain_back(kind: Any) -> Any:
        v = x.to(kind).requires_grad_()
        return m.torch.autograd.grad(plain(v), v, g.to(kind))[0]

    other, d_other = m.randn(rows[0], 64, dtype=dtype), m.empty(rows[0], 64, dtype=dtype)

    def norm_sum() -> Any:
        triton_norm.forward(m.run, rows, p, True, [x, *c[:4]], [y, *c[4:]], reqs, relu=True, other=other)
        return y

    def back_sum() -> Any:
        triton_norm.backward(m.run, rows, p, True, [g, x, c[0], *c[4:]], gradients, reqs, y=y, d_other=d_other)
        return dx

    plain_norm = lambda v: functional.batch_norm(v, None, None, c[0].to(v.dtype), c[1].to(v.dtype), True, 0.0, 1e-3)
    plain_sum = lambda v: (plain_norm(v).to(v.dtype) + other.to(v.dtype)).relu()

    def plain_back_sum(kind: Any) -> Any:
        v = x.to(kind).requires_grad_()
        u = other.to(kind).requires_grad_()
        return m.torch.autograd.grad((plain_norm(v) + u).relu(), (v, u), g.to(kind))[0]

    moved = x.numel() * x.element_size()
    yield Case("batch norm, relu", norm, {"torch": lambda: plain(x)}, lambda: plain(x.double()), 3.0 * moved, "byte",
               {"copy": 0.75}, dtype)
    yield Case("batch norm, relu backward", back, {"torch": lambda: plain_back(x.dtype)}, lambda: plain_back(m.torch.float64),
               7.0 * moved, "byte", {"copy": 0.75}, dtype)
    yield Case("batch norm, sum, relu", norm_sum, {"torch": lambda: plain_sum(x)}, lambda: plain_sum(x.double()), 4.0 * moved,
               "byte", {"copy": 0.75}, dtype)
    yield Case("batch norm, sum, relu backward", back_sum, {"torch": lambda: plain_back_sum(x.dtype)},
               lambda: plain_back_sum(m.torch.float64), 8.0 * moved, "byte", {"copy": 0.75}, dtype)


def epilogues(m: Machine, batch: int = 128, dtype: str = "bfloat16") -> Iterator[Case]:
    """A product and a convolution with bias and rectifier in one kernel, against torch's in two."""
    functional, of = m.torch.nn.functional, np.dtype(dtype)
    epilogue = Epilogue(L.maximum(load(0, of), 0), (of,), (-1,))
    n = m.size(4096)
    a, b, bias, c = m.randn(n, n, dtype=dtype), m.randn(n, n, dtype=dtype), m.randn(n, dtype=dtype), m.empty(n, n, dtype=dtype)
    view = ((1, n, n), (n * n, n, 1))

    def product() -> Any:
        gemm(m.run, a, view, b, view, c, view, bias=bias, epilogue=epilogue)
        return c

    yield Case(f"gemm, bias, relu {n}", product, {"torch": lambda: (a @ b + bias).relu()},
               lambda: (a.double() @ b.double() + bias.double()).relu(), 2.0 * n**3, "flop", {"torch": 1.0}, dtype)
    batch, size, k = max(2, batch // m.scale), 28 // (4 if m.smoke else 1), 128
    g = ConvolutionGeometry(batch, k, k, 1, (size, size), (size, size), (3, 3), (1, 1), (1, 1), (1, 1), True)
    x, w, shift = m.randn(batch, size, size, k, dtype=dtype), m.randn(k, 3, 3, k, dtype=dtype), m.randn(k, dtype=dtype)
    y = m.empty(batch, size, size, k, dtype=dtype)
    px, pw = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)

    def convolution() -> Any:
        triton_conv.forward(m.run, g, x, w, shift, y, add=False, epilogue=epilogue)
        return y.permute(0, 3, 1, 2)

    plain = lambda u, v, s: functional.conv2d(u, v, s, padding=1).relu()
    yield Case(f"conv, bias, relu 3x3 {k} {size}", convolution, {"torch": lambda: plain(px, pw, shift)},
               lambda: plain(px.double(), pw.double(), shift.double()), 2.0 * batch * size * size * k * k * 9, "flop",
               {"torch": 0.80}, dtype)


def _updates(m: Machine, name: str, sizes: list[int], rates: dict[str, float], peer: Callable[[list[Any]], Any]) -> Case:
    """All arrays in one launch; the rates are 0, so that the weights stay. peer: torch's optimizer for weights."""
    op = ops.get(name)
    p, of = op.parse({"lr": 0.0, **rates}), [np.dtype("float32")] * len(op.input_names)
    arrays = [[m.randn(n).abs() for n in sizes] for _ in of]
    many = triton_multi.many_update(op.name, op.expression(p, of), of, None)
    host = triton_multi.tables([[t.data_ptr() for t in row] for row in arrays], sizes, many.block)
    where = [m.torch.from_numpy(t).to(m.device) for t in host]
    numbers = m.torch.tensor([p.scalars] * len(sizes), dtype=m.torch.float64, device=m.device)
    weights = [t.clone() for t in arrays[0]]
    for w, g in zip(weights, arrays[1]):
        w.grad = g

    def work() -> Any:
        many.launch(m.run.stream, *where, numbers)
        return arrays[0][0]

    keep = arrays[0][0].double()
    return Case(f"{name}, {len(sizes)} arrays", work, {"torch": peer(weights).step}, lambda: keep,
                (2.0 * len(of) - 1) * 4 * sum(sizes), "byte", {"copy": 0.90}, "float32")


def _updates_of_both(m: Machine) -> Iterator[Case]:
    fused = {"fused": True} if m.device == "cuda" else {}
    large = [m.size(1 << 22)] * (3 if m.smoke else 16)
    small = [s for f, units in ((64, 3), (128, 4), (256, 6), (512, 3)) for _ in range(units)  # as in ResNet-50
             for s in (4 * f * f, 9 * f * f, 4 * f * f, f, f, f, f, 4 * f, 4 * f)]
    yield _updates(m, "adam_update", large, {}, lambda w: m.torch.optim.Adam(w, 1e-3, **fused))
    yield _updates(m, "sgd_mom_update", small[:9] if m.smoke else small, {"momentum": 0.0},
                   lambda w: m.torch.optim.SGD(w, 1e-9, 0.9, **fused))
