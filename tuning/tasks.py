"""Tuning tasks: the kernels of an operator whose blocks can be tuned, and the configurations to try.

An operator may hold several tasks (a convolution's derivatives by data and by weight are two kernels); each is the operator with
the write requests that make it compute that one thing.
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

from ..dtype import as_dtype
from ..kernels.configs import active as active_configs
from ..kernels.configs.key import Config, Key
from ..kernels.cpu.numpy_printer import SMALL, TILE
from ..kernels.declare.composite import Composite, needed_steps
from ..kernels.declare.operator_property import OperatorProperty
from ..kernels.declare.property_op import BackwardOp, PropertyOp
from ..kernels.gpu.record import FakeArray, FakeRun, record
from ..kernels.op import Op, Req, Reqs, Spec, Specs, only
from ..kernels.ops.linalg.gemm import MIN_PIECE
from ..kernels.params import Params


@dataclass(frozen=True)
class TuningTask:
    """One kernel to tune: a use of an operator, and the key of its configurations.

    flops:   multiplications and additions of one run; nbytes: the bytes that any implementation must read and write.
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

    @property
    def target(self) -> str:
        return self.key.template[:3]

    @property
    def chosen(self) -> Key | str:
        """What a configuration is for: a generated CPU kernel may be one of several that the operator is made of."""
        return self.key if self.key.template == "cpu tile" else self.key.template

    def kernel_options(self, seed: tuple[int, int]) -> dict[str, Any]:
        """The keyword arguments of the operator's kernel: random numbers and scalars, where it takes them."""
        options: dict[str, Any] = {"random": seed} if self.op.random_count(self.params, self.ins, self.outs) else {}
        return {**options, "scalars": self.params.scalars} if self.params.scalars else options

    def launch(self) -> None:
        """Run the operator's GPU kernel on arrays without memory, to record its launches."""
        kernel = self.op.kernel(self.params, self.ins, self.outs, self.reqs, "gpu", self.train)
        ins, outs = ([FakeArray(s.shape, s.dtype) for s in specs] for specs in (self.ins, self.outs))
        kernel(FakeRun(), ins, outs, **self.kernel_options((1, 2)))


def work_of(op: Op, p: Params, ins: Specs, outs: Specs, reqs: Reqs) -> tuple[float, int]:
    """Return (flops, bytes) of one run: the least that any implementation must do."""
    kept = [o for o, r in zip(outs, reqs) if r != Req.NULL]
    nbytes = sum(s.nbytes for s in (*ins, *kept))
    products = op.products(p, ins)
    if products:
        return sum(2.0 * math.prod(sizes) for sizes, r in zip(products, reqs) if r != Req.NULL), nbytes
    return float(max((s.size for s in (*ins, *kept)), default=0)), nbytes


def tasks_of(op: Op, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str,
             train: bool = True, sm: int = 90) -> list[TuningTask]:
    """Return the tuning tasks of one use of op; [] if it has no configuration to choose.

    target: "cpu" or "gpu"; sm: a GPU's compute capability times ten, which its kernels' defaults depend on.
    """
    if isinstance(op, Composite):
        trace, results = op.traced(p, ins)
        specs, (steps, live) = trace.specs, needed_steps(trace, results, reqs, train)
        return [task for s in steps for task in tasks_of(
            s.op, s.p, [specs[i] for i in s.ins], [specs[i] for i in s.outs],
            [Req.WRITE if i in live else Req.NULL for i in s.outs], target, train, sm)]
    use = TuningTask(Key("", "", "", 16, ()), op, p, tuple(ins), tuple(outs), tuple(reqs), train, (), 0.0, 0)
    if target == "cpu":
        return [_task(use, *tuned) for tuned in op.tuning_keys(p, use.ins, use.outs, use.reqs, train)]
    if any(s.size == 0 for s in (*ins, *outs)):
        return []
    products = op.products(p, ins)
    roles = [only(reqs, i) for i in range(len(products)) if reqs[i] != Req.NULL] if products else [use.reqs]
    return [task for role in roles for task in _gpu_tasks(replace(use, reqs=role), sm)]


def why_none(op: Op, ins: Specs, outs: Specs, target: str) -> str:
    """Return the reason why tasks_of has none for a use of op, as a phrase."""
    forward = op.forward if isinstance(op, BackwardOp) else op
    largest = max((s.size for s in (*ins, *outs)), default=0)
    if op.is_reshape:
        return "it only gives the same memory another shape"
    if isinstance(forward, PropertyOp) and forward.cls.on_host:
        return "NumPy computes it on the host, in one piece"
    if isinstance(forward, PropertyOp) and forward.cls.forward_kernel is OperatorProperty.forward_kernel:
        return "its Operator computes it with code of its own, in which Tritium chooses no blocks"
    if target == "cpu" and largest <= SMALL:
        return (f"its largest array has {largest:,} element{'' if largest == 1 else 's'}, and a kernel is divided from "
                f"{SMALL + 1:,} on")
    return f"its {target.upper()} code has no blocks to choose"


def _task(use: TuningTask, key: Key, default: Config, reqs: tuple[Req, ...]) -> TuningTask:
    flops, nbytes = work_of(use.op, use.params, use.ins, use.outs, reqs)
    return replace(use, key=key, default=tuple(default.items()), reqs=reqs, flops=flops, nbytes=nbytes)


def _gpu_tasks(use: TuningTask, target: int) -> list[TuningTask]:
    """Record the launches of a use and return a task for each choice they make.

    One operator may choose several times: a derivative by data once per phase of the stride, a sum of all elements once for its
    reduction and once for the parts of it.
    """
    choices: dict[Key, Config] = {}
    with active_configs.observed(choices.setdefault), record(target):
        use.launch()
    tasks = [_task(use, k, d, use.reqs) for k, d in choices.items() if k.template in _GENERATED]
    tasks += [task for k, d in choices.items() if k.template in ATTENTION and (task := _attention_task(use, k, d)) is not None]
    products = [(k, d, 2.0 * math.prod(k.size.get(n, 1) for n in ("m", "n", "k", "batch", "groups")))
                for k, d in choices.items() if {"BM", "BN", "BK"} <= set(d) and k.size.get("k", 1)]  # k = 0 only writes zeros
    total = sum(flops for _, _, flops in products)
    for k, default, flops in products:
        task = _task(use, k, default, use.reqs)
        tasks.append(replace(task, flops=flops, nbytes=int(task.nbytes * flops / total)))
    return tasks


def _attention_task(use: TuningTask, k: Key, default: Config) -> TuningTask | None:
    """One kernel of attention; in backward with the requests that make it compute what it gives; None if that is not wanted."""
    reqs, nothing = use.reqs, (Req.NULL,) * len(use.reqs)
    if k.template == ATTENTION_QUERY and len(reqs) > 1:
        reqs = (*reqs[:1], *nothing[1:])
    elif k.template == ATTENTION_KEY and len(reqs) > 1:
        reqs = (*nothing[:1], *reqs[1:])
    if reqs == nothing:
        return None
    size, of_size, of_value = k.size, *ATTENTION[k.template]
    flops = 2.0 * size["heads"] * size["m"] * size["n"] * (of_size * size["size"] + of_value * size["value"])
    return replace(_task(use, k, default, reqs), flops=flops / 2 if k.layout == "causal" else flops)


# ---- spaces ---------------------------------------------------------------------------------------------------------
#: The tiles of a product, picked by hand: (BM, BN, warps). The inner size of each is 64 or 128 bytes of a row.
_TILES = ((128, 256, 8), (256, 128, 8), (128, 128, 8), (128, 128, 4), (64, 256, 8), (256, 64, 8), (128, 64, 4), (64, 128, 4),
          (64, 64, 4), (32, 64, 4))
_INNER = ((128, 3), (128, 4), (64, 4))  # bytes and stages
_SPLIT = ((128, 128, 8), (64, 64, 4))  # the tiles of products with few of them, which are split along the inner size,
_SPLITS = (2, 4, 8, 16)
_SPECIALISED = ((128, 256, 4), (128, 128, 4))  # and those of TMA with specialised warps
ATTENTION_QUERY, ATTENTION_KEY = "gpu attention query", "gpu attention key"
#: Templates of attention: how many products of queries and keys each makes of the heads' size, and how many of the values'.
ATTENTION = {"gpu attention forward": (1, 1), ATTENTION_QUERY: (2, 1), ATTENTION_KEY: (2, 2)}
#: Their tiles: the queries that a program keeps, the keys that it takes at a time, warps. For sums of keys the other way round.
_KEPT = ((128, 64, 4), (128, 64, 8), (128, 128, 8), (128, 32, 4), (128, 32, 8), (64, 128, 4), (64, 64, 4), (64, 64, 8),
         (64, 32, 4), (256, 64, 8))
_WALKS = (1, 2, 3)  # stages
_GENERATED = {"gpu flat": {"BLOCK": (256, 512, 1024, 2048, 4096, 8192), "num_warps": (1, 2, 4, 8)},
              "gpu row": {"BLOCK_ROWS": (1, 2, 4, 8, 16), "num_warps": (1, 2, 4, 8, 16, 32)},
              "gpu fold": {"BLOCK_M": (1, 4, 16, 64), "BLOCK_R": (16, 64, 256, 1024, 4096), "num_warps": (4, 8)}}


def space(task: TuningTask) -> list[Config]:
    """Return the configurations to try of task's template, the default first; other settings keep their default.

    Those of a GPU's are picked by hand, about thirty for each template: what a GPU times in a minute.
    """
    template, default = task.key.template, dict(task.default)
    axes: list[dict[str, tuple[int, ...]]]
    if template == "gpu gemm":
        picked = [{**b, "template": t, "splits": 1} for t, tiles in enumerate((_TILES, _TILES[:6], _SPECIALISED))
                  for b in _blocks(tiles, task.key.dtype)]
        picked += [{**b, "template": 0, "splits": n} for n in _SPLITS for b in _blocks(_SPLIT, task.key.dtype)]
        return [default, *(c for c in picked if c != default)]
    if template.startswith("gpu conv"):
        return [default, *(c for b in _blocks(_TILES, task.key.dtype) if (c := {**default, **b}) != default)]
    if template in ATTENTION:
        names = ("BN", "BM") if template == ATTENTION_KEY else ("BM", "BN")
        picked = [{**dict(zip((*names, "num_warps"), tile)), "num_stages": stages} for tile in _KEPT for stages in _WALKS]
        return [default, *(c for c in picked if c != default)]
    if template in _GENERATED:
        axes = [_GENERATED[template]]
    elif template == "cpu tile":
        axes = [{"tile": tuple((TILE >> 6) << s for s in range(8)), "threads": threads()}]
    elif template == "cpu gemm":
        axes = [{"piece": tuple(MIN_PIECE << s for s in range(16)), "threads": threads()}]
    else:
        axes = [{"cache": tuple(1 << s for s in range(17, 25)), "threads": threads()}]
    every = [{**default, **dict(zip(a, values))} for a in axes for values in product(*a.values())]
    return [default, *(c for c in every if c != default)]


def _blocks(tiles: Sequence[tuple[int, int, int]], dtype: str) -> list[Config]:
    item = as_dtype(dtype).itemsize
    return [{"BM": bm, "BN": bn, "BK": nbytes // item, "num_warps": warps, "num_stages": stages}
            for bm, bn, warps in tiles for nbytes, stages in _INNER]


@cache
def threads() -> tuple[int, ...]:
    """The thread counts to try: 0, which means all of the engine's, and powers of two below the number of processors."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return (0, *(1 << i for i in range(n.bit_length()) if 1 << i < n))


@cache
def cache_bytes() -> int:
    """Bytes of this CPU's second-level cache; 1 MiB if the system does not report it."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (index / "level").read_text().strip() == "2":
                text = (index / "size").read_text().strip()
                return int(text.rstrip("KM")) << (20 if text.endswith("M") else 10)
        except (OSError, ValueError):
            continue
    return 1 << 20


def math_itemsize(dtype: str) -> int:
    """Bytes of an element of the dtype that a dtype is computed in on the CPU."""
    return max(4, as_dtype(dtype).itemsize)
