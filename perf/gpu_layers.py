"""The template kernels' cases for gpu_suite.py: products, convolutions, rows, norms, optimizer steps, with torch beside.

A case is (name, work, peer, amount, unit): work() launches ours, peer() torch's on the same data and gives its result;
amount is FLOP or bytes. `check` is the largest difference of ours from float64 arithmetic on a part of the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from tritium.dtype import bfloat16
from tritium.kernels.op import Req
from tritium.kernels.ops import triton_conv, triton_norm, triton_softmax, triton_take, triton_update
from tritium.kernels.ops.convolution_cpu import Geometry
from tritium.kernels.ops.triton_gemm import POINTER, SPECIALISED, TMA, Blocks, gemm

#: ResNet-50's convolutions: channels, filters, size, kernel, stride, and the ratio to cuDNN that is asked for.
RESNET = [(64, 64, 56, 1, 1), (64, 64, 56, 3, 1), (256, 64, 56, 1, 1), (256, 128, 56, 1, 2), (128, 128, 56, 3, 2),
          (128, 128, 28, 3, 1), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1), (1024, 2048, 14, 1, 2), (3, 64, 224, 7, 2)]
Case = tuple[str, Callable[[], Any], Callable[[], Any] | None, Callable[[], Any], float, str]


class Machine:
    """Where cases live: tensors on device ("cuda", or "cpu" where launches are only recorded)."""

    def __init__(self, torch: Any, device: str, scale: int = 1):
        self.torch, self.device, self.scale = torch, device, scale
        self.run = SimpleNamespace(stream=None, space=self._space)

    def _space(self, shape: Any, dtype: Any) -> Any:
        name = "bfloat16" if dtype == bfloat16 else np.dtype(dtype).name
        return self.torch.empty(tuple(map(int, shape)), device=self.device, dtype=getattr(self.torch, name))

    def randn(self, *shape: int, dtype: str = "float32") -> Any:
        return self.torch.randn(*shape, device=self.device).to(getattr(self.torch, dtype))

    def empty(self, *shape: int, dtype: str = "float32") -> Any:
        return self.torch.empty(*shape, device=self.device, dtype=getattr(self.torch, dtype))


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
    rows, columns, inner = (max(1, s // m.scale) if s > 1 else s for s in size)
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
    return f"gemm {kind} {rows}x{inner}x{columns}{label}", work, peer, lambda: a.double() @ b.double(), flop, "flop"


def convolutions(m: Machine, batch: int = 128, dtype: str = "bfloat16") -> Iterator[Case]:
    """ResNet-50's convolutions, channels last, in three directions, against torch (cuDNN)."""
    batch = max(2, batch // m.scale)
    conv, grad = m.torch.nn.functional.conv2d, m.torch.nn.grad
    for c, f, size, k, stride in RESNET:
        pad = k // 2
        out = (size + 2 * pad - k) // stride + 1
        g = Geometry(batch, c, f, 1, (size, size), (out, out), (k, k), (stride, stride), (1, 1), (pad, pad), True)
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

        name, flop = f"{k}x{k} {c}->{f} {size} /{stride}", 2.0 * batch * out * out * f * c * k * k
        how: dict[str, Any] = {"stride": stride, "padding": pad}
        yield (f"conv forward {name}", forward, lambda a=px, b=pw, h=how: conv(a, b, **h),
               lambda a=px, b=pw, h=how: conv(a.float(), b.float(), **h), flop, "flop")
        data = lambda a, b, d, h=how: grad.conv2d_input(a.shape, b, d, **h)
        weight = lambda a, b, d, h=how: grad.conv2d_weight(a, b.shape, d, **h)
        for i, what, step in ((0, "data", data), (1, "weight", weight)):
            yield (f"conv {what} {name}", lambda i=i, f=backward: f(i), lambda s=step, a=px, b=pw, d=pdy: s(a, b, d),
                   lambda s=step, a=px, b=pw, d=pdy: s(a.float(), b.float(), d.float()), flop, "flop")


def layers(m: Machine, dtype: str = "bfloat16") -> Iterator[Case]:
    """Rows, norms, embedding gradients and optimizer steps: bytes that must move."""
    functional = m.torch.nn.functional
    for n in (256, 1000, 1024, 8192):
        x = m.randn((1 << 26) // n // m.scale or 1, n, dtype=dtype)
        y = m.torch.empty_like(x)

        def softmax(x=x, y=y) -> Any:
            triton_softmax.forward(m.run, (*x.shape, 1), x, y)
            return y

        yield (f"softmax {n}", softmax, lambda x=x: x.softmax(-1), lambda x=x: x.double().softmax(-1),
               2.0 * x.numel() * x.element_size(), "byte")
    rows = (max(1, 128 // m.scale) * 3136, 64, 1)
    x, y, c = m.randn(rows[0], 64, dtype=dtype), m.empty(rows[0], 64, dtype=dtype), [m.randn(64).abs() for _ in range(6)]
    p = SimpleNamespace(fix_gamma=False, eps=1e-3, momentum=1.0)

    def norm() -> Any:
        triton_norm.forward(m.run, rows, p, True, [x, *c[:4]], [y, *c[4:]], [Req.WRITE] * 3, relu=True)
        return y

    plain = lambda v: functional.batch_norm(v, None, None, c[0].to(v.dtype), c[1].to(v.dtype), True, 0.0, 1e-3).relu()
    yield "batch norm, relu", norm, lambda: plain(x), lambda: plain(x.double()), 3.0 * x.numel() * x.element_size(), "byte"
    vocabulary, k, inner = 50_000 // m.scale, 4096 // m.scale, 512
    index, dy, dx = m.torch.randint(vocabulary, (k,), device=m.device).float(), m.randn(k, inner), m.empty(vocabulary, inner)

    def embedding() -> Any:
        triton_take.put(m.run, (1, vocabulary, inner), k, dy, index, dx, wrap=False, add=False)
        return dx

    zeros = lambda v: m.torch.zeros(vocabulary, inner, device=m.device, dtype=v.dtype).index_add_(0, index.long(), v)
    moved = 4.0 * (2 * k + vocabulary) * inner
    yield "embedding gradient", embedding, lambda: zeros(dy), lambda: zeros(dy.double()), moved, "byte"
    yield _adam(m)


def _adam(m: Machine) -> Case:
    sizes = [(1 << 22) // m.scale] * 16
    arrays = [[m.randn(n).abs() for n in sizes] for _ in range(4)]
    block = 1024
    host = triton_update.tables([[t.data_ptr() for t in row] for row in arrays], sizes, block)
    table, lengths, chunks = (m.torch.from_numpy(t).to(m.device) for t in host)
    numbers = m.torch.tensor([[0.0, 0.0, 1.0, -1.0, 0.9, 0.999, 1e-8]] * len(sizes), device=m.device)  # lr 0: weights stay

    def work() -> Any:
        triton_update.update(m.run, "adam", table, lengths, chunks, numbers, count=len(sizes), programs=len(host[2]), block=block)
        return arrays[0][0]

    keep = arrays[0][0].double()
    return "adam, 16 arrays", work, None, lambda: keep, 7.0 * 4 * sum(sizes), "byte"
