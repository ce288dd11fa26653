"""Checks of machine code, without a GPU: the properties that a fast kernel must have."""

from __future__ import annotations

import re

from .compile import CompiledKernel, CompileJob


def gate(kernel: CompiledKernel, *, loads: int = 0, stores: int = 0, narrow_loads: int = 0, bits: int = 128,
         spills: bool = False, max_registers: int = 255, min_occupancy: float = 0.0, wide_offsets: bool = True,
         masked: bool = False, tensor_ops: bool = False, instruction: str = "", async_copies: int = 0, tma: int = 0,
         specialised: bool = False) -> list[str]:
    """Return the faults of a kernel, one sentence each; an empty list is a pass.

    The accesses of the hot branch are those that no predicate guards. masked: guarded accesses count, too, for kernels that have
    no other branch.
    loads, stores:   the number of accesses of `bits` each that the hot branch must have at least.
    narrow_loads:    the number of narrower loads it may have (scalars and other broadcast operands).
    min_occupancy:   the share of a multiprocessor's warps that must fit.
    instruction:     the tensor core instruction it must use: "mma.sync", "wgmma.mma_async" or "tcgen05.mma".
    async_copies, tma: the number of asynchronous copies to shared memory that it must have, and of those by the copy engine.
    specialised:     warps must divide the work.
    """
    wrong = []
    hot = [a for a in kernel.accesses if masked or not a.masked]
    unmasked = "" if masked else "unmasked "
    for kind, wanted, narrow_allowed in (("load", loads, narrow_loads), ("store", stores, 0)):
        widths = [a.bits for a in hot if a.kind == kind]
        wide = sum(b >= bits for b in widths)
        if wide < wanted:
            everywhere = [a.bits for a in kernel.accesses if a.kind == kind]
            wrong.append(f"{wide} {unmasked}{bits}-bit {kind}s, {wanted} needed; {kind}s are {_tally(everywhere)}")
        if wanted and len(widths) - wide > narrow_allowed:
            wrong.append(f"{len(widths) - wide} {unmasked}{kind}s narrower than {bits} bits, {narrow_allowed} allowed; "
                         f"{kind}s are {_tally(widths)}")
    if not spills and (kernel.spills or kernel.local):
        wrong.append(f"{kernel.spills} spill instructions, stack {kernel.stack} bytes, local {kernel.local} bytes")
    if kernel.shared > (most := 166_912 if kernel.target < 90 else 232_448):
        wrong.append(f"{kernel.shared} bytes of shared memory, {most} fit: it cannot be launched")
    if kernel.registers > max_registers:
        wrong.append(f"{kernel.registers} registers, {max_registers} allowed")
    if kernel.occupancy < min_occupancy:
        wrong.append(f"occupancy {kernel.occupancy:.2f}, {min_occupancy:.2f} needed ({kernel.registers} registers, "
                     f"{kernel.shared} bytes shared)")
    if wide_offsets and not kernel.wide_offsets:
        wrong.append("no 64-bit address arithmetic")
    if tensor_ops and not kernel.tensor_ops:
        wrong.append("no tensor core instruction")
    if instruction and kernel.instruction != instruction:
        wrong.append(f"no {instruction}; the tensor cores get {kernel.instruction or 'nothing'}")
    for name, count, least in (("asynchronous copies", kernel.async_copies, async_copies), ("TMA copies", kernel.tma, tma)):
        if count < least:
            wrong.append(f"{count} {name}, {least} needed")
    if specialised and not kernel.specialised:
        wrong.append("warps are not specialised")
    return wrong


def excuse(source: str) -> str:
    """Return the reason why a kernel may have accesses below 128 bits, from its comment `# narrow: reason`; "" if none."""
    comment = re.search(r"# narrow: (.+)", source)
    return comment[1] if comment else ""


#: Kernels that may have more registers than MAX_REGISTERS: the reason, and their limit.
CROWDED = {"_spread": ("a product in float32, which no tensor core does: its tile is held in registers", 255)}
#: The limit of registers per thread for kernels without matrix products, so that a multiprocessor holds 16 warps.
MAX_REGISTERS = 128
#: A called division or root may save a register: at most so many instructions, in so many bytes.
_FEW, _FEW_BYTES = 8, 16
#: The slow path of a sine keeps the words of 2/π in local memory; only arguments above 10⁵ take it.
_SINE, _SINE_BYTES = ("tl.sin(", "tl.cos("), 64


def hardly_spills(job: CompileJob, kernel: CompiledKernel) -> bool:
    """Return True if a kernel uses local memory only to save a register around a called division, or for a sine's slow path."""
    few = kernel.spills <= _FEW and kernel.stack <= _FEW_BYTES
    return few or (any(s in job.source for s in _SINE) and kernel.stack <= _SINE_BYTES)


def wrong_with(job: CompileJob, kernel: CompiledKernel) -> list[str]:
    """Return the faults that no operator's kernel may have, for any shapes.

    They are spilled registers; more registers than MAX_REGISTERS (kernels with a matrix product may use 255); a matrix product in
    half precision or TF32 without tensor cores; an elementwise kernel without 128-bit loads or stores in the unmasked branch.
    """
    product = "PRECISION" in job.constexprs
    halves = any(t in ("*fp16", "*bf16") for t in list(job.signature.values())[:2])
    wrong = gate(kernel, wide_offsets=False, spills=hardly_spills(job, kernel),
                 max_registers=255 if product else CROWDED.get(kernel.name, ("", MAX_REGISTERS))[1],
                 tensor_ops=product and (halves or job.constexprs["PRECISION"] == "tf32"))
    for kind in ("load", "store"):
        arrays = re.findall(rf"tl\.{kind}\((\w+) \+ base \+ lane", job.source)
        widths = [a.bits for a in kernel.accesses if a.kind == kind and not a.masked]
        if any(_could_be_wide(job, x, kind) for x in arrays) and max(widths, default=0) < 128:
            wrong.append(f"no 128-bit {kind} in the branch without masks")
    return wrong


def _could_be_wide(job: CompileJob, array: str, kind: str) -> bool:
    """Return True if a thread's elements of an array fill 128 bits. Integers may not be loaded at all, where 0 · x is known."""
    aligned = job.signature if job.align16 is None else job.align16
    dtype = job.signature[array][1:]
    enough = BITS[dtype] * job.constexprs["BLOCK"] >= 128 * 32 * job.num_warps
    return array in aligned and enough and (kind == "store" or "f" in dtype)


#: The bits of an element, by the type that Triton names.
BITS = {"i1": 8, "i8": 8, "u8": 8, "i16": 16, "u16": 16, "fp16": 16, "bf16": 16, "i32": 32, "u32": 32, "fp32": 32, "i64": 64,
         "u64": 64, "fp64": 64}


def _tally(widths: list[int]) -> str:
    return ", ".join(f"{widths.count(b)}x{b}" for b in sorted(set(widths))) or "none"
