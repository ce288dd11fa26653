"""Pruning: reject configurations that cannot be the best before anything is compiled or timed, and rank the rest by a model of
the GPU. The model only ranks; its numbers are never shown as measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..dtype import as_dtype
from ..integers import cdiv, next_power_of_2
from ..kernels.configs.gpu_device import Limits, limits_of
from ..kernels.configs.key import Config, Key
from ..kernels.declare.property_op import BackwardOp, PropertyOp
from ..kernels.gpu.row import LONGEST_BLOCK, LOOP_BLOCK
from ..kernels.ops.linalg.gemm import cut
from ..kernels.ops.nn.conv_geometry import ConvolutionGeometry
from ..kernels.ops.nn.convolution_cpu import row_pieces
from ..kernels.ops.nn.triton_conv_nhwc import splits_of
from .tasks import ATTENTION, ATTENTION_KEY, ATTENTION_QUERY, TuningTask, cache_bytes, math_itemsize

MAX_ACCUMULATORS, MIN_ACCUMULATORS = 160, 8  # registers per thread for the sums of a product
LAUNCH_S = 2e-6
SPECIALISED = 2  # the template of a product whose warps divide the work
WEIGHT = "gpu conv weight"
#: The reasons that the summary counts.
REASONS = ("registers", "shared memory", "waves", "alignment", "same as another", "cache", "compiled")


@dataclass(frozen=True)
class Pruned:
    """A configuration that is not tried. reason: one of REASONS; why: the explanation, with numbers."""

    config: Config
    reason: str
    why: str


def prune(task: TuningTask, space: Sequence[Config], target: int = 90) -> tuple[list[Config], list[Pruned]]:
    """Return (the configurations to compile, the most promising first; the others with reasons). The default is always kept.

    target: a GPU's compute capability times ten.
    """
    default, rest = space[0], space[1:]
    check = _cpu_check(task, default) if task.target == "cpu" else _gpu_check(task, limits_of(target))
    kept, pruned = [], []
    for config in rest:
        reason = check(config)
        if reason is None:
            kept.append(config)
        else:
            pruned.append(Pruned(config, *reason))
    if task.target != "cpu":
        kept.sort(key=lambda c: estimate(task, c, target))
    return [default, *kept], pruned


# ---- GPU ------------------------------------------------------------------------------------------------------------
def _gpu_check(task: TuningTask, limits: Limits):
    generated = {"gpu flat": _flat, "gpu row": _row, "gpu fold": _reduction}.get(task.key.template)
    return partial(generated, task.key) if generated else lambda c: template_reason(task.key, c, limits)


def template_reason(k: Key, c: Config, limits: Limits) -> tuple[str, str] | None:
    """Return (reason, explanation) if a configuration of a template written by hand need not be compiled, else None."""
    return (_attention if k.template in ATTENTION else product_reason)(k, c, limits)


def _attention(k: Key, c: Config, limits: Limits) -> tuple[str, str] | None:
    size, item, threads = k.size, as_dtype(k.dtype).itemsize, 32 * c["num_warps"]
    bm, bn, stages, wide = c["BM"], c["BN"], c["num_stages"], max(1, item // 4)
    head, value = (max(16, next_power_of_2(size[n])) for n in ("size", "value"))
    by_key = k.template == ATTENTION_KEY
    kept, walked = (bn, bm) if by_key else (bm, bn)
    sums = kept * (head + value if by_key else head if k.template == ATTENTION_QUERY else value)
    scores = bm * bn * (1 if k.template == "gpu attention forward" else 2)
    registers = wide * (sums + scores) / threads
    if registers > MAX_ACCUMULATORS:
        return "registers", f"{registers:.0f} registers per thread for sums and scores, {MAX_ACCUMULATORS} are the limit"
    if registers < MIN_ACCUMULATORS:
        return "registers", f"{registers:.0f} sums and scores per thread: too little work for {c['num_warps']} warps"
    shared = (kept + stages * walked) * (head + value) * item
    if shared > limits.shared_block:
        return "shared memory", f"{shared} bytes for {stages} stages, {limits.shared_block} are available"
    for name, block, whole in (("BM", bm, size["m"]), ("BN", bn, size["n"])):
        if block > 16 and block >= 2 * max(16, next_power_of_2(whole)):
            return "same as another", f"{name}={block} for {whole}: more than half of every tile is empty"
    rounds = cdiv(size["m" if by_key else "n"], walked)
    if stages > 2 and rounds < stages:
        return "same as another", f"{rounds} rounds of the loop: {stages} stages are never full"
    return None


def _parts(k: Key, c: Config, tiles: int, limits: Limits) -> int:
    """The number of parts of the inner sum; a weight gradient has as many as fill the machine."""
    return splits_of(k.size["k"], tiles, c["BK"], limits.sms, c["num_warps"])[0] if k.template == WEIGHT else c.get("splits", 1)


def product_reason(k: Key, c: Config, limits: Limits) -> tuple[str, str] | None:
    """Return (reason, explanation) if a product's configuration need not be compiled, else None."""
    bm, bn, bk, warps, stages = (c[n] for n in ("BM", "BN", "BK", "num_warps", "num_stages"))
    size, item = k.size, as_dtype(k.dtype).itemsize
    m, n, inner = size["m"], size["n"], size["k"]
    batch = size.get("batch", 1) * size.get("groups", 1)
    tiles = cdiv(m, bm) * cdiv(n, bn) * batch
    wide, template, splits = 2 if k.dtype == "float64" else 1, c.get("template", 0), _parts(k, c, tiles, limits)
    if template and (k.align < 16 or batch > 1):
        return "alignment", f"TMA needs rows at multiples of 16 bytes and one product, here {k.align} and {batch}"
    if template == SPECIALISED and warps != 4:
        return "same as another", f"specialised warps come in fours; {warps} are ignored"
    accumulators = bm * bn * wide / (warps * 32 * (2 if template == SPECIALISED else 1))
    if accumulators > MAX_ACCUMULATORS:
        return "registers", f"{accumulators:.0f} registers per thread for sums alone, {MAX_ACCUMULATORS} are the limit"
    if accumulators < MIN_ACCUMULATORS:
        return "registers", f"{accumulators:.0f} sums per thread: too little work for {warps} warps"
    shared = stages * (bm + bn) * bk * item
    if shared > limits.shared_block:
        return "shared memory", f"{shared} bytes for {stages} stages, {limits.shared_block} are available"
    for name, block, whole in (("BM", bm, m), ("BN", bn, n), ("BK", bk, inner)):
        if block > 16 and block >= 2 * max(16, next_power_of_2(whole)):
            return "same as another", f"{name}={block} for {whole}: more than half of every tile is empty"
    if bk * item < 32:
        return "alignment", f"rows of {bk * item} bytes in a tile, 32 make a full access"
    if stages > 3 and k.align < 16:
        return "alignment", f"rows start at multiples of {k.align} bytes: asynchronous copies need 16, more stages do not help"
    iterations = cdiv(inner, bk * splits)
    if stages > 2 and iterations < stages:
        return "same as another", f"{iterations} iterations of the loop: {stages} stages are never full"
    if splits > 1 and tiles >= limits.sms and k.template != WEIGHT:
        return "waves", f"{tiles} tiles fill {limits.sms} multiprocessors: splitting only adds work"
    if splits > 1 and iterations < 4:
        return "waves", f"{splits} parts of {iterations} iterations each: too little work"
    tiles *= splits
    if tiles < limits.sms / 2 and bm * bn > 32 * 32 and m * n * batch >= 32 * 32 * limits.sms:
        return "waves", f"{tiles} tiles for {limits.sms} multiprocessors"
    waves = tiles / limits.sms
    if waves > 1 and waves / math.ceil(waves) < 0.55:
        return "waves", f"{waves:.2f} waves: the last leaves {1 - waves / math.ceil(waves):.0%} of the time unused"
    return None


def _flat(k: Key, c: Config) -> tuple[str, str] | None:
    item, per_thread = as_dtype(k.dtype).itemsize, c["BLOCK"] / (c["num_warps"] * 32)
    if per_thread * item < 16:
        return "alignment", f"{per_thread:g} elements per thread are {per_thread * item:g} bytes, less than one 128-bit access"
    registers = per_thread * k.size["arrays"] * max(item, 4) / 4
    if registers > MAX_ACCUMULATORS:
        return "registers", f"{registers:.0f} registers per thread for the operands alone"
    if c["BLOCK"] >= 2 * max(1, k.size["elements"]) and c["BLOCK"] > 256:
        return "same as another", f"a block of {c['BLOCK']} for {k.size['elements']} elements"
    blocks = cdiv(k.size["elements"], c["BLOCK"])
    if blocks < 132 <= cdiv(k.size["elements"], 256):
        return "waves", f"{blocks} blocks leave multiprocessors without work"
    return None


def _row(k: Key, c: Config) -> tuple[str, str] | None:
    last, rows, warps = k.size["last"], k.size["rows"], c["num_warps"]
    block = next_power_of_2(last) if last <= LONGEST_BLOCK else LOOP_BLOCK
    per_thread = block * c["BLOCK_ROWS"] / (warps * 32)
    registers = per_thread * k.size["arrays"]
    if registers > MAX_ACCUMULATORS:
        return "registers", f"{registers:.0f} registers per thread for {c['BLOCK_ROWS']} rows of {last}"
    if per_thread < 1 and warps > 1:
        return "waves", f"{warps} warps for {c['BLOCK_ROWS']} rows of {last}: threads without work"
    if per_thread * as_dtype(k.dtype).itemsize < 8 and warps > 1:
        return "alignment", f"{per_thread:g} elements per thread: accesses are narrow"
    if c["BLOCK_ROWS"] > 1 and c["BLOCK_ROWS"] >= 2 * rows:
        return "same as another", f"{c['BLOCK_ROWS']} rows at once of {rows}"
    programs = cdiv(rows, c["BLOCK_ROWS"])
    if c["BLOCK_ROWS"] > 1 and programs < 132 <= rows:
        return "waves", f"{programs} programs leave multiprocessors without work"
    return None


def _reduction(k: Key, c: Config) -> tuple[str, str] | None:
    m, r, block_m, block_r = k.size["m"], k.size["r"], c["BLOCK_M"], c["BLOCK_R"]
    for name, block, whole in (("BLOCK_M", block_m, m), ("BLOCK_R", block_r, r)):
        if block > 1 and block >= 2 * next_power_of_2(whole):
            return "same as another", f"{name}={block} for {whole}: more than half of every tile is empty"
    per_thread = block_m * block_r / (c["num_warps"] * 32)
    registers = per_thread * (k.size["arrays"] + 1)
    if registers > MAX_ACCUMULATORS:
        return "registers", f"{registers:.0f} registers per thread for the operands and the sums"
    if per_thread < 4 and m * r >= 4 * 32 * c["num_warps"]:
        return "waves", f"{per_thread:g} elements per thread: too little to load at once"
    along = block_r if k.layout == "inner" else block_m
    if along * as_dtype(k.dtype).itemsize < 64 and (r if k.layout == "inner" else m) * as_dtype(k.dtype).itemsize >= 64:
        return "alignment", f"{along} neighbours are {along * as_dtype(k.dtype).itemsize} bytes, 64 make a full access"
    return None


def estimate(task: TuningTask, c: Config, target: int = 90) -> float:
    """Return the seconds that the model expects: full waves of tiles, each bound by arithmetic or by its reads through the L2."""
    limits, k = limits_of(target), task.key
    bound = max(task.nbytes / limits.bytes_per_s, task.flops / limits.flops.get(k.dtype, limits.flops["float32"]))
    if "BK" not in c:
        default = dict(task.default)
        spread = sum(abs(math.log2(v / default[n])) for n, v in c.items())
        return LAUNCH_S + bound * (1 + 0.02 * spread)
    size, item = k.size, as_dtype(k.dtype).itemsize
    bm, bn, bk = c["BM"], c["BN"], c["BK"]
    tiles = cdiv(size["m"], bm) * cdiv(size["n"], bn) * size.get("batch", 1) * size.get("groups", 1)
    splits, template = _parts(k, c, tiles, limits), c.get("template", 0)
    inner = cdiv(size["k"], bk * splits) * bk
    tiles *= splits
    shared = c["num_stages"] * (bm + bn) * bk * item
    registers = min(255, bm * bn // (c["num_warps"] * 32) + 40)
    resident = max(1, min(limits.shared // (shared + 1024), limits.registers // (registers * c["num_warps"] * 32), 8))
    peak, through = limits.flops.get(k.dtype, limits.flops["float32"]) / limits.sms, limits.l2_bytes_per_s / limits.sms
    reach = 0.55 + 0.075 * math.log2(bm * bn / 1024) + 0.05 * (c["num_stages"] - 2) + 0.05 * template  # small tiles reach less
    busy = min(1.0, 0.6 + 0.4 * resident * c["num_warps"] / 8)
    per_tile = max(2 * bm * bn * inner / (peak * min(1.0, reach)), (bm + bn) * inner * item / through) / busy
    overhead = inner / bk * 3e-8 / c["num_stages"]
    adding = LAUNCH_S + splits * size["m"] * size["n"] * 8 / limits.bytes_per_s if splits > 1 else 0.0
    waves = math.ceil(tiles / limits.sms) * (per_tile + overhead / resident)
    return LAUNCH_S + adding + max(waves, task.nbytes / limits.bytes_per_s)


def bound_s(flops: float, nbytes: int, dtype: str, target: int = 90) -> float:
    """Return the least seconds by the published limits of the device: kernels are sorted by it before anything is measured."""
    limits = limits_of(target)
    return LAUNCH_S + max(nbytes / limits.bytes_per_s, flops / limits.flops.get(dtype, limits.flops["float32"]))


# ---- CPU ------------------------------------------------------------------------------------------------------------
def _cpu_check(task: TuningTask, default: Config):
    seen = {_cuts(task, default): default}

    def check(c: Config) -> tuple[str, str] | None:
        if task.key.template == "cpu tile":
            nbytes = c["tile"] * math_itemsize(task.key.dtype) * min(task.key.size["arrays"], 4)
            if nbytes > 8 * cache_bytes() and task.key.size["elements"] > c["tile"]:
                return "cache", f"{nbytes} bytes in use by a tile, more than {8 * cache_bytes()}, eight second-level caches"
        cuts = _cuts(task, c)
        pieces = cuts[0]
        if c["threads"] > pieces:
            return "same as another", f"{pieces} pieces for {c['threads']} threads"
        if c["threads"] == 0 and pieces == 1:
            cuts = (1, *cuts[1:-1], 1)
        if cuts in seen:
            return "same as another", "divides the work as " + " ".join(f"{n}={v}" for n, v in seen[cuts].items()) + " does"
        seen[cuts] = c
        return None

    return check


def _cuts(task: TuningTask, c: Config) -> tuple[int, ...]:
    """The division of the work: (pieces, sizes of one ..., threads). Equal ones are the same program."""
    size, threads = task.key.size, c["threads"]
    if task.key.template == "cpu tile":
        last = size.get("last", 1)
        step = max(c["tile"], last) if task.key.layout == "row" else c["tile"]
        tiles = cdiv(size["elements"], max(1, min(step, size["elements"])))
        return tiles, step if tiles > 1 else 0, threads if tiles > 4 else 1
    if task.key.template == "cpu gemm":
        pieces = cut(size["batch"] * size["m"] * size["n"] * size["k"], c["piece"])
        return pieces, threads if pieces > 1 else 1
    g = _geometry(task)
    images, rows = row_pieces(g, math_itemsize(task.key.dtype), c["cache"])
    pieces = cdiv(g.n, images) * cdiv(g.out[0], rows)
    return max(1, pieces), min(images, g.n), rows, threads if pieces > 1 else 1


def _geometry(task: TuningTask) -> ConvolutionGeometry:
    op = task.op
    assert isinstance(op, (PropertyOp, BackwardOp))
    layer: Any = op.property(task.params)
    return layer.geometry(task.ins[isinstance(op, BackwardOp)].shape)
