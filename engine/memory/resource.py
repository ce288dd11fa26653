"""Random numbers of operators (MXNet's kRandom). Scratch memory (kTempSpace) is `RunContext.workspace`.

Numbers of a counter-based generator are reserved by count when work is pushed. So two random operators need no order between
them, and results depend on the order of pushes alone.
"""

from __future__ import annotations

from ...context import Context, current_context
from ...errors import EngineError
from ...fork import lock_free_in_child

_MASK = (1 << 64) - 1


class _Stream:
    """A seed, and how many of its numbers are reserved."""

    __slots__ = ("offset", "seed")

    def __init__(self, seed: int):
        self.seed, self.offset = seed, 0


_lock = lock_free_in_child()  # re-entered when the garbage collector drops an array inside
_shared = _Stream(0)
_own: dict[Context, _Stream] = {}


def seed(n: int, ctx: Context | str = "all") -> None:
    """Seed the generator.

    n:    any integer; its lowest 64 bits are used.
    ctx:  "all" for the numbers that all contexts draw from, in push order. A context has numbers of its own from then on,
          until the next seed for "all".
    """
    global _shared
    fresh = _Stream(int(n) & _MASK)
    with _lock:
        if isinstance(ctx, Context):
            _own[ctx] = fresh
        elif ctx == "all":
            _shared = fresh
            _own.clear()
        else:
            raise EngineError(f'resource.seed: ctx is {ctx!r}. Give a context or "all".')


def get_random(count: int, ctx: Context | None = None) -> tuple[int, int]:
    """Reserve the next count numbers. Return (seed, offset of the first). Call it when pushing, not inside a function.

    ctx: where they are used; None for the current context.
    """
    if count < 0:
        raise EngineError(f"resource.get_random: count is negative: {count}.")
    with _lock:
        stream = _own.get(current_context() if ctx is None else ctx, _shared) if _own else _shared
        offset = stream.offset
        stream.offset = offset + count
        return stream.seed, offset
