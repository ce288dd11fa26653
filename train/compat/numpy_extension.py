"""`mx.npx`: of MXNet's additions to `mx.np`, the functions that need no such array. Any other name is an error."""

from __future__ import annotations

from typing import Any

from ...context import Context as Context
from ...context import cpu as cpu
from ...context import cpu_pinned as cpu_pinned
from ...context import current_context as current_context
from ...context import gpu as gpu
from ...engine import num_gpus as num_gpus
from ...errors import NoSuchNameError
from ...ndarray import waitall as waitall
from .util import gpu_memory_info as gpu_memory_info
from .util import is_np_array as is_np_array
from .util import is_np_shape as is_np_shape
from .util import reset_np as reset_np
from .util import set_np as set_np


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise NoSuchNameError(f"mx.npx.{name}: the NumPy interface of MXNet 1.6 and later is not available. Use mx.nd, which has "
                            f"the same operators under the names of MXNet 1.x, such as mx.nd.softmax.")
