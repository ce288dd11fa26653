"""Attention for gpu_suite.py: both passes beside torch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpu_layers import Case
from gpu_machine import Machine
from tritium.kernels.op import Req
from tritium.kernels.ops.nn.attention import Attention
from tritium.kernels.ops.nn.triton_attention import backward, forward

#: Batch, heads, length, head size, causal.
SIZES = ((8, 16, 2048, 64, False), (8, 16, 2048, 64, True), (8, 16, 2048, 128, False), (8, 16, 2048, 128, True),
         (64, 16, 512, 64, False), (2, 16, 8192, 128, True))


def attention(m: Machine, dtype: str = "bfloat16") -> Iterator[Case]:
    """Both passes of each size."""
    for batch, heads, length, size, causal in SIZES[:2] if m.smoke else SIZES:
        sizes = (batch // 4, heads // 8, length // 32, size // 4) if m.smoke else (batch, heads, length, size)
        ours, peers, exact = _passes(m, sizes, causal, dtype)
        product = 2.0 * sizes[0] * sizes[1] * sizes[2]**2 * sizes[3] * (0.5 if causal else 1)
        name = f"{'x'.join(map(str, (batch, heads, length, size)))}{' causal' if causal else ''}"
        for kind, flop in (("forward", 2 * product), ("backward", 5 * product)):
            yield Case(f"attention {kind} {name}", ours[kind], {"torch": peers[kind]}, exact[kind], flop, "flop", {}, dtype)


def _passes(m: Machine, sizes: tuple[int, int, int, int], causal: bool, dtype: str) -> tuple[dict[str, Any], ...]:
    """Return ours, torch's, and exact functions, each by pass. Backward gives the three derivatives, one after another."""
    use = Attention(causal=causal, scale=None, use_mask=None).use([sizes] * 3)
    q, k, v, dy = (m.randn(*sizes, dtype=dtype) for _ in range(4))
    out, sums = m.empty(*sizes, dtype=dtype), m.empty(*sizes[:3])
    gradients = m.empty(3, *sizes, dtype=dtype)
    requests, plain = [Req.WRITE] * 3, m.torch.nn.functional.scaled_dot_product_attention

    def whole() -> Any:
        forward(m.run, use, [q, k, v], [out, sums], requests[:2])
        return out

    def back() -> Any:
        backward(m.run, use, [dy, q, k, v, out, sums], list(gradients), requests)
        return gradients

    def peer(kind: Any) -> Callable[[], Any]:
        arrays = [a.to(kind, copy=True).requires_grad_() for a in (q, k, v)]
        result = plain(*arrays, is_causal=causal)
        return lambda: m.torch.stack(m.torch.autograd.grad(result, arrays, dy.to(kind), retain_graph=True))

    whole()  # backward reads what forward leaves
    return ({"forward": whole, "backward": back},
            {"forward": lambda: plain(q, k, v, is_causal=causal), "backward": None if m.recording else peer(q.dtype)},
            {"forward": lambda: plain(q.double(), k.double(), v.double(), is_causal=causal),
             "backward": lambda: peer(m.torch.float64)()})
