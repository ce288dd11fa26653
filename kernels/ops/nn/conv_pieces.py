"""Cutting a convolution into pieces of work by the time that they are estimated to take. Sizes alone decide.

Times are counted in multiplications of one number: a core makes 32 in a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....integers import cdiv

THREADS = (2, 4, 8)  # numbers of threads that the pieces should suit
READ = 12  # the time in which an element of a weight is read: that of so many multiplications
PIECE = 1 << 16  # the time that a piece takes at least
HEIGHTS = (12, 8, 7)  # rows of a tile, as tile_height in cpu/c_tile.py chooses them

Block = tuple[int, int, int]  # images, rows and filters of a piece


def parts(n: int) -> list[int]:
    """Return the sizes of the parts into which n may be cut, the largest first."""
    return sorted({cdiv(n, k) for k in range(1, n + 1)}, reverse=True)


def product_time(positions: int, depth: int, filters: int) -> int:
    """Return the time of a product of so many positions with a weight that is read meanwhile."""
    rest = 0 if any(positions % h == 0 for h in HEIGHTS) else positions % HEIGHTS[0]
    return depth * filters * max(positions - rest + (max(rest, 4) if rest else 0), READ)


def cheapest(whole: Block, blocks: Iterable[Block], time: Callable[[Block], int]) -> Block:
    """Return the block of which the pieces together take least time, on some numbers of threads. time: of one piece."""
    def total(block: Block) -> int:
        n = cdiv(whole[0], block[0]) * cdiv(whole[1], block[1]) * cdiv(whole[2], block[2])
        return (time(block) + PIECE) * sum(cdiv(n, t) * t for t in THREADS)

    return min(blocks, key=total)
