"""Tasks: what of an operator can be tuned, and the space of configurations to try it with.

An operator may hold several tasks (a convolution's derivative by data and by weight are two kernels); each is the
operator with the requests that make it compute that one thing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.configs import active as active_configs
from ..kernels.configs.key import Config, Key, key
from ..kernels.cpu.numpy_printer import TILE
from ..kernels.declare.traced import TracedOp
from ..kernels.gpu.record import FakeArray, FakeRun, record
from ..kernels.op import Op, Req, Spec
from ..kernels.ops.linalg import gemm
from ..kernels.ops.nn import convolution_cpu
from ..kernels.ops.nn.convolution_cpu import Geometry
from ..kernels.params import Params


@dataclass(frozen=True)
class Task:
    """One thing to tune: a use of an operator, and what its configurations are kept under.

    flops:   multiplications and additions of one run; nbytes: what must be read and written at least.
    """

    key: Key
    op: Op
    params: Params
    ins: tuple[Spec, ...]
    outs: tuple[Spec, ...]
    reqs: tuple[Req, ...]
    train: bool
    default: tuple[tuple[str, int], ...]
    flops: float
    nbytes: int
    geometry: Geometry | None = None

    @property
    def target(self) -> str:
        return self.key.template[:3]


def work_of(op: Op, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req]) -> tuple[float, int]:
    """(flops, bytes) of one run: what any implementation must at least do."""
    kept = [o for o, r in zip(outs, reqs) if r != Req.NULL]
    nbytes = sum(s.nbytes for s in (*ins, *kept))
    name = op.name.removeprefix("_backward_")
    backward = name != op.name
    passes = sum(r != Req.NULL for r in reqs[:2]) if backward else 1
    if name == "Convolution":
        g = _geometry(op, p, ins)
        return 2.0 * g.n * math.prod(g.out) * g.f * g.depth * passes, nbytes
    sizes = _product(op, p, ins)
    if sizes:
        return 2.0 * math.prod(sizes) * passes, nbytes
    return float(max((s.size for s in (*ins, *kept)), default=0)), nbytes


def tasks_of(op: Op, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], target: str,
             train: bool = True, sm: int = 90) -> list[Task]:
    """What can be tuned in one use of op. Empty where there is nothing to choose.

    target: "cpu" or "gpu"; sm: a GPU's compute capability times ten, which its kernels' defaults depend on.
    """
    ins, outs, reqs = tuple(ins), tuple(outs), tuple(reqs)
    base = Task(key("", ""), op, p, ins, outs, reqs, train, (), 0.0, 0)
    name = op.name.removeprefix("_backward_")
    sizes, backward = _product(op, p, ins), name != op.name
    if target == "gpu":
        return _gpu_tasks(base, _roles(reqs, backward) if sizes or name == "Convolution" else [reqs], sm)
    if name == "Convolution":
        return _cpu_convolution(base, backward)
    if sizes:
        return _cpu_gemm(base, sizes, backward)
    if not isinstance(op, TracedOp) or not ins:  # others write their own kernels, whatever expression fusion knows of them
        return []
    return _cpu_tile(base)


def _finish(task: Task, made: Key, default: Config, reqs: Sequence[Req] | None = None, **more: object) -> Task:
    task = replace(task, key=made, default=tuple(default.items()), reqs=tuple(reqs or task.reqs), **more)
    flops, nbytes = work_of(task.op, task.params, task.ins, task.outs, task.reqs)
    return replace(task, flops=flops, nbytes=nbytes)


# ---- products and convolutions --------------------------------------------------------------------------------------
def _geometry(op: Op, p: Params, ins: Sequence[Spec]) -> Geometry:
    backward = op.name.startswith("_backward_")
    prop = (op.forward if backward else op).property(p)  # type: ignore[attr-defined]
    return prop.geometry(ins[1 if backward else 0].shape)


def _product(op: Op, p: Params, ins: Sequence[Spec]) -> tuple[int, int, int, int] | None:
    """batch, m, n, k of a matrix product; None for anything else."""
    name = op.name.removeprefix("_backward_")
    backward = name != op.name
    if name not in ("dot", "batch_dot", "FullyConnected"):
        return None
    prop = (op.forward if backward else op).property(p)  # type: ignore[attr-defined]
    if name == "FullyConnected":
        n, k = prop._sizes(ins[1 if backward else 0].shape)
        return 1, n, p["num_hidden"], k
    a, b = (s.shape for s in ins[1:3]) if backward else (s.shape for s in ins[:2])
    return prop.sizes(a, b)


def _roles(reqs: Sequence[Req], backward: bool) -> list[tuple[Req, ...]]:
    """Requests that ask for one product at a time: forward, or the derivatives by data and by weight."""
    if not backward:
        return [tuple(reqs)] if reqs[0] != Req.NULL else []
    return [tuple(r if j == i else Req.NULL for j, r in enumerate(reqs)) for i in range(2) if reqs[i] != Req.NULL]


def _cpu_convolution(task: Task, backward: bool) -> list[Task]:
    g = _geometry(task.op, task.params, task.ins)
    dtype = convolution_cpu.math_dtype(task.ins[0].dtype)
    if not g.n * math.prod(g.out) * g.f * g.depth or all(r == Req.NULL for r in task.reqs):
        return []
    made = convolution_cpu.conv_key(g, "backward" if backward else "forward", dtype)
    return [_finish(task, made, convolution_cpu.DEFAULT, geometry=g)]


def _cpu_gemm(task: Task, sizes: tuple[int, int, int, int], backward: bool) -> list[Task]:
    batch, m, n, k = sizes
    shapes = [(m, n, k)]
    if backward:  # the weight of FullyConnected is [n, k], that of dot [k, n]
        shapes = [(m, k, n), (n, k, m) if "FullyConnected" in task.op.name else (k, n, m)]
        shapes = [s for s, r in zip(shapes, task.reqs) if r != Req.NULL]
    found = []
    for reqs, (m, n, k) in zip(_roles(task.reqs, backward), shapes):
        if m * n * k >= 2 * MIN_PIECE:
            found.append(_finish(task, gemm.gemm_key(batch, m, n, k, task.ins[0].dtype), gemm.DEFAULT, reqs))
    return found


# ---- on a GPU -------------------------------------------------------------------------------------------------------
def _gpu_tasks(task: Task, roles: Sequence[tuple[Req, ...]], target: int) -> list[Task]:
    """The launches are recorded, only to see what their kernels ask for. One operator may ask several times: a
    derivative by data once per phase of the stride, a sum of all once for its fold and once for what follows."""
    if any(s.size == 0 for s in (*task.ins, *task.outs)):
        return []
    found = []
    for reqs in roles:
        seen: dict[Key, Config] = {}
        with active_configs.asked(seen.setdefault), record(target):
            kernel = task.op.kernel(task.params, task.ins, task.outs, reqs, "gpu", task.train)
            more: dict[str, Any] = {"random": (1, 2)} if task.op.num_random(task.params, task.outs) else {}
            if task.params.scalars:
                more["scalars"] = task.params.scalars
            kernel(FakeRun(), [FakeArray(s.shape, s.dtype) for s in task.ins],
                   [FakeArray(s.shape, s.dtype) for s in task.outs], **more)
        found += [_finish(task, k, d, reqs) for k, d in seen.items() if k.template in _GENERATED]
        parts = [(k, d, 2.0 * math.prod(k.size.get(n, 1) for n in ("m", "n", "k", "batch", "groups")))
                 for k, d in seen.items() if {"BM", "BN", "BK"} <= set(d) and k.size.get("k", 1)]  # without k: zeros alone
        whole = sum(flops for _, _, flops in parts)
        for k, default, flops in parts:
            made = _finish(task, k, default, reqs)
            found.append(replace(made, flops=flops, nbytes=int(made.nbytes * flops / whole)))
    return found


# ---- generated kernels ----------------------------------------------------------------------------------------------
def _cpu_tile(task: Task) -> list[Task]:
    """The kernel is made once, only to see what it asks for: an operator that asks for nothing has no tile."""
    if any(s.size == 0 for s in (*task.ins, *task.outs)):
        return []
    seen: list[tuple[Key, Config]] = []
    with active_configs.asked(lambda k, d: seen.append((k, d))):
        task.op.kernel(task.params, task.ins, task.outs, task.reqs, "cpu", task.train)
    return [_finish(task, k, d) for k, d in seen if k.template == "cpu tile"][:1]


# ---- spaces ---------------------------------------------------------------------------------------------------------
MIN_PIECE = 1 << 20
_BLOCKS = {"BM": (32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (16, 32, 64, 128), "num_warps": (4, 8),
           "num_stages": (2, 3, 4, 5)}
#: Of a product: its template alone, or split along the inner size. 0 by pointers, 1 by TMA, 2 by TMA with specialised warps.
_TEMPLATES = ({"template": (0,), "splits": (1, 2, 4, 8, 16)}, {"template": (1, 2), "splits": (1,)})
_GENERATED = {"gpu flat": {"BLOCK": (256, 512, 1024, 2048, 4096, 8192), "num_warps": (1, 2, 4, 8)},
              "gpu row": {"BLOCK_ROWS": (1, 2, 4, 8, 16), "num_warps": (1, 2, 4, 8, 16, 32)},
              "gpu fold": {"BLOCK_M": (1, 2, 4, 8, 16, 32, 64, 128), "BLOCK_R": (16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
                           "num_warps": (2, 4, 8)}}


def space(task: Task) -> list[Config]:
    """Every configuration of task's template, the default first; what a template is not varied in has its default."""
    template, default = task.key.template, dict(task.default)
    axes: list[dict[str, tuple[int, ...]]]
    if template == "gpu gemm":
        axes = [{**_BLOCKS, **t} for t in _TEMPLATES]
    elif template.startswith("gpu conv"):
        axes = [_BLOCKS]
    elif template in _GENERATED:
        axes = [_GENERATED[template]]
    elif template == "cpu tile":
        axes = [{"tile": tuple((TILE >> 6) << s for s in range(8)), "threads": threads()}]
    elif template == "cpu gemm":
        axes = [{"piece": tuple(MIN_PIECE << s for s in range(16)), "threads": threads()}]
    else:
        axes = [{"cache": tuple(1 << s for s in range(17, 25)), "threads": threads()}]
    every = [{**default, **dict(zip(a, values))} for a in axes for values in product(*a.values())]
    return [default, *(c for c in every if c != default)]


@cache
def threads() -> tuple[int, ...]:
    """Numbers of threads to try: 0, which is all of the engine's, and powers of two below the processors here."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return (0, *(1 << i for i in range(n.bit_length()) if 1 << i < n))


@cache
def cache_bytes() -> int:
    """Bytes of this CPU's second-level cache; 1 MiB where it does not say."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (index / "level").read_text().strip() == "2":
                text = (index / "size").read_text().strip()
                return int(text.rstrip("KM")) << (20 if text.endswith("M") else 10)
        except (OSError, ValueError):
            continue
    return 1 << 20


def math_itemsize(dtype: str) -> int:
    """Bytes of the numbers that a dtype is computed in on the CPU."""
    return 8 if np.dtype(dtype if dtype != "bfloat16" else "float32").itemsize == 8 else 4
