"""Loops in a GPU's machine code: the number of instructions, and the time that the tensor cores need meanwhile.

The text is that of NVIDIA's nvdisasm, which Triton brings. Tensor cycles are counted for a multiprocessor of the H100, which does
2,048 multiplications of half precision in a cycle and half as many in TF32 (NVIDIA H100 white paper, 2022).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_BRANCH = re.compile(r"\bBRA(?:\.\w+)* (?:.*)?`\((\.L_x_\d+)\)")
_CALL = re.compile(r"\bCALL\b")
_PRODUCT, _WAIT = re.compile(r"\bHGMMA\b"), re.compile(r"\bWARPGROUP\.DEPBAR\b")
_TENSOR = re.compile(r"\bH(?:G)?MMA\.(?:SP\.)?(\d+x\d+x\d+|\d{4,5})\.([\w.]+)")
_SHAPES = {"16816": (16, 8, 16), "1688": (16, 8, 8), "1684": (16, 8, 4)}
_PER_CYCLE = {"half": 2048, "TF32": 1024}


@dataclass(frozen=True)
class Loop:
    """A loop that contains no other.

    instructions:  of one warp in one round, on the shortest way round that has all tensor instructions: what is done once for
                   many rounds, such as going on to the next tile, is behind a branch.
    cycles:        those that the tensor cores need in it.
    calls:         of functions, such as a division of 64-bit integers; their instructions are not counted.
    products:      of four warps together (HGMMA); waits: for such products.
    """

    instructions: int
    cycles: float
    calls: int = 0
    products: int = 0
    waits: int = 0

    @property
    def serial(self) -> bool:
        """True if each product is waited for before the next begins, so that none overlap.

        The compiler does so to a whole kernel where other instructions write a sum between its products, as where a sum goes from
        one loop on to another.
        """
        return 1 < self.products <= self.waits


def loops(text: str) -> list[Loop]:
    """Return the innermost loops of a kernel, in order. text: from `nvdisasm -c`."""
    places: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        label, instruction = _LABEL.match(line), _INSTRUCTION.match(line)
        if label is not None:
            labels[label[1]] = len(places)
        elif instruction is not None:
            places.append(instruction[2])
    found: list[tuple[int, int]] = []
    for at, instruction in enumerate(places):
        branch = _BRANCH.search(instruction)
        if branch is not None and labels.get(branch[1], at + 1) < at:  # a branch to itself ends the program
            found.append((labels[branch[1]], at))
    inner = [a for a in found if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in found)]
    return [_loop(places, labels, begin, end) for begin, end in sorted(inner)]


def _loop(places: list[str], labels: dict[str, int], begin: int, end: int) -> Loop:
    cycles = {at: tensor_cycles(places[at]) for at in range(begin, end + 1)}
    points = [begin, *(at for at, c in cycles.items() if c and begin < at < end), end]
    steps = sum(_shortest(places, labels, a, b) for a, b in pairwise(points))
    calls, products, waits = (sum(kind.search(places[at]) is not None for at in range(begin, end + 1))
                              for kind in (_CALL, _PRODUCT, _WAIT))
    return Loop(steps + 1, sum(cycles.values()), calls, products, waits)


def _shortest(places: list[str], labels: dict[str, int], begin: int, end: int) -> int:
    """Return the least number of instructions from begin to end, itself not counted, without going back."""
    far = end + 1 - begin
    least = {begin: 0}
    for at in range(begin, end):
        if at not in least:
            continue
        branch = _BRANCH.search(places[at])
        target = labels.get(branch[1], -1) if branch is not None else -1
        goes_on = branch is None or places[at].lstrip().startswith("@")
        for then in ([at + 1] if goes_on else []) + ([target] if at < target <= end else []):
            least[then] = min(least.get(then, far), least[at] + 1)
    return least.get(end, end - begin)


def tensor_cycles(instruction: str) -> float:
    """Return the cycles that an instruction keeps the tensor cores of a multiprocessor busy, for one warp, or a group of four.

    An HGMMA is one of four warps together: each of them counts a quarter.
    """
    found = _TENSOR.search(instruction)
    if found is None:
        return 0.0
    shape, kinds = found[1], found[2]
    m, n, k = map(int, shape.split("x")) if "x" in shape else _SHAPES[shape]
    cycles = m * n * k / _PER_CYCLE["TF32" if "TF32" in kinds else "half"]
    return cycles / 4 if "GMMA" in instruction else cycles


def busiest(text: str) -> Loop | None:
    """Return the innermost loop with most work of the tensor cores, else the one with most instructions; None without a loop."""
    return max(loops(text), key=lambda loop: (loop.cycles, loop.instructions), default=None)
