"""A list of what torch computes for Tritium: torch may allocate, view, and copy contiguous bytes, and nothing else."""

import contextlib
import sys
from pathlib import Path

import tritium as mx
from torch.utils._python_dispatch import TorchDispatchMode
from tritium.engine import NaiveEngine

PACKAGE = Path(mx.__file__).parent
#: Allocations, memory of the host as a tensor, views, facts of memory, and the end of a use on a stream.
ALLOWED = {f"aten.{name}" for name in (
    "empty.memory_format", "lift_fresh.default", "is_pinned.default", "record_stream.default", "view.default", "view.dtype",
    "as_strided.default", "slice.Tensor", "select.int", "alias.default", "detach.default", "_reshape_alias.default",
    "expand.default", "unsqueeze.default", "permute.default", "transpose.int")}


class Watch(TorchDispatchMode):
    """Adds to `computed` what torch is called for, by the package, within this thread."""

    def __init__(self, computed):
        super().__init__()
        self.computed = computed

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if str(func) not in ALLOWED and not moves_bytes(func, args) and (where := caller()):
            self.computed.append(f"{func} in {where}")
        return func(*args, **(kwargs or {}))


def moves_bytes(func, args):
    """A plain transfer: contiguous, and without a conversion."""
    if str(func) != "aten.copy_.default":
        return False
    to, source = args[:2]
    return to.dtype == source.dtype and to.shape == source.shape and to.is_contiguous() and source.is_contiguous()


def caller():
    """The line of the package that called torch; "" if it was a test's own."""
    frame = sys._getframe(2)
    while frame is not None and "/torch/" in frame.f_code.co_filename:
        frame = frame.f_back
    path = Path(frame.f_code.co_filename) if frame is not None else Path()
    inside = path.is_relative_to(PACKAGE) and path.relative_to(PACKAGE).parts[0] != "tests"
    return f"{path.relative_to(PACKAGE)}:{frame.f_lineno}" if inside else ""


@contextlib.contextmanager
def torch_computes_nothing():
    """Fail if torch computes anything for arrays on the interpreted GPU inside the block.

    The engine is serial there, since a dispatch mode belongs to one thread. Triton's interpreter is given addresses, no tensors.
    """
    before = mx.engine.set_current(NaiveEngine())
    computed = []
    try:
        with Watch(computed):
            yield
            mx.nd.waitall()
    finally:
        mx.engine.set_current(before)
    assert not computed, "torch computed:\n" + "\n".join(dict.fromkeys(computed))
