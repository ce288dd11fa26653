"""Gates on machine code: what a kernel must be made of to be fast, checked without a GPU."""

from __future__ import annotations

import re

from .compile import CompiledKernel, CompileJob


def gate(kernel: CompiledKernel, *, loads: int = 0, stores: int = 0, narrow_loads: int = 0, bits: int = 128,
         spills: bool = False, max_registers: int = 255, min_occupancy: float = 0.0, wide_offsets: bool = True,
         masked: bool = False, tensor_ops: bool = False, instruction: str = "", async_copies: int = 0, tma: int = 0,
         specialised: bool = False) -> list[str]:
    """What is wrong with kernel, one sentence each; an empty list is a pass.

    The hot branch is what no predicate guards. masked: guarded accesses count as well, for kernels without another branch.
    loads, stores:   how many of `bits` each the hot branch must have at least.
    narrow_loads:    how many narrower loads it may have (scalars and other broadcast operands).
    min_occupancy:   share of a multiprocessor's warps that must fit.
    instruction:     of the tensor cores: "mma.sync", "wgmma.mma_async" or "tcgen05.mma".
    async_copies, tma: how many copies to shared memory run beside the arithmetic at least, and by the copy engine.
    specialised:     warps must divide the work.
    """
    wrong = []
    hot = [a for a in kernel.accesses if masked or not a.masked]
    free = "" if masked else "unmasked "
    for kind, wanted, narrow_allowed in (("load", loads, narrow_loads), ("store", stores, 0)):
        widths = [a.bits for a in hot if a.kind == kind]
        wide = sum(b >= bits for b in widths)
        if wide < wanted:
            everywhere = [a.bits for a in kernel.accesses if a.kind == kind]
            wrong.append(f"{wide} {free}{bits}-bit {kind}s, {wanted} needed; {kind}s are {_tally(everywhere)}")
        if wanted and len(widths) - wide > narrow_allowed:
            wrong.append(f"{len(widths) - wide} {free}{kind}s narrower than {bits} bits, {narrow_allowed} allowed; "
                         f"{kind}s are {_tally(widths)}")
    if not spills and (kernel.spills or kernel.local):
        wrong.append(f"{kernel.spills} spill instructions, stack {kernel.stack} bytes, local {kernel.local} bytes")
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
    for what, found, least in (("asynchronous copies", kernel.async_copies, async_copies), ("TMA copies", kernel.tma, tma)):
        if found < least:
            wrong.append(f"{found} {what}, {least} needed")
    if specialised and not kernel.specialised:
        wrong.append("warps are not specialised")
    return wrong


def excuse(source: str) -> str:
    """Why a kernel's accesses may be narrower than 128 bits: what its comment `# narrow: why` says; "" where it has none."""
    found = re.search(r"# narrow: (.+)", source)
    return found[1] if found else ""


#: Kernels that have more registers than MOST_REGISTERS: why, and how many they may have.
CROWDED = {"_spread": ("a product in float32, which no tensor core does: its tile is held in registers", 255)}
#: The registers a thread of a kernel without matrix products may have, so that a multiprocessor holds 16 warps.
MOST_REGISTERS = 128
#: A called division or root may save a register around itself: so many instructions, in so many bytes.
_FEW, _FEW_BYTES = 8, 16
#: What the slow path of a sine keeps in memory, the words of 2/π, is not spilled: arguments above 10⁵ alone take it.
_SINE, _SINE_BYTES = ("tl.sin(", "tl.cos("), 64


def hardly_spills(job: CompileJob, kernel: CompiledKernel) -> bool:
    """Whether what a kernel keeps in slow memory is a register around a called division, or the table of a sine's slow path."""
    few = kernel.spills <= _FEW and kernel.stack <= _FEW_BYTES
    return few or (any(s in job.source for s in _SINE) and kernel.stack <= _SINE_BYTES)


def wrong_with(job: CompileJob, kernel: CompiledKernel) -> list[str]:
    """What is wrong with the machine code of any operator's kernel, whatever its shapes: it spills, has more registers than
    MOST_REGISTERS (with a matrix product: all there are), a matrix product in half precision or TF32 without tensor cores, or
    is elementwise and reads, or writes, nothing 128 bits at once in the branch without masks.
    """
    product = "PRECISION" in job.constexprs
    halves = any(t in ("*fp16", "*bf16") for t in list(job.signature.values())[:2])
    wrong = gate(kernel, wide_offsets=False, spills=hardly_spills(job, kernel),
                 max_registers=255 if product else CROWDED.get(kernel.name, ("", MOST_REGISTERS))[1],
                 tensor_ops=product and (halves or job.constexprs["PRECISION"] == "tf32"))
    for kind in ("load", "store"):
        arrays = re.findall(rf"tl\.{kind}\((\w+) \+ base \+ lane", job.source)
        widths = [a.bits for a in kernel.accesses if a.kind == kind and not a.masked]
        if any(_could_be_wide(job, x, kind) for x in arrays) and max(widths, default=0) < 128:
            wrong.append(f"no 128-bit {kind} in the branch without masks")
    return wrong


def _could_be_wide(job: CompileJob, array: str, kind: str) -> bool:
    """Whether a thread's elements of an array make 128 bits. Whole numbers need not be loaded where 0 · x is 0: none is NaN."""
    aligned = job.signature if job.align16 is None else job.align16
    dtype = job.signature[array][1:]
    enough = _BITS[dtype] * job.constexprs["BLOCK"] >= 128 * 32 * job.num_warps
    return array in aligned and enough and (kind == "store" or "f" in dtype)


_BITS = {"i1": 8, "i8": 8, "u8": 8, "i16": 16, "u16": 16, "fp16": 16, "bf16": 16, "i32": 32, "u32": 32, "fp32": 32, "i64": 64,
         "u64": 64, "fp64": 64}


def _tally(widths: list[int]) -> str:
    return ", ".join(f"{widths.count(b)}x{b}" for b in sorted(set(widths))) or "none"
