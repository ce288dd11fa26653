"""`mx.rtc`: kernels written at run time. MXNet compiles CUDA source; here they are written in Triton."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import NotAvailableError

_REASON = ("CUDA source cannot be compiled here. Write the kernel in Triton, as @mx.operator.jit with mx.operator.launch, or "
           "declare an operator by its formula with @mx.simple_op, which is compiled for CPU and GPU. See docs/operators.md.")


class CudaModule:
    """CUDA source code. Not available: raises NotAvailableError that shows how to write a kernel here."""

    def __init__(self, source: str, options: Sequence[str] = (), exports: Sequence[str] = ()):
        raise NotAvailableError(f"rtc.CudaModule: {_REASON}")


class CudaKernel:
    """A kernel of a CudaModule. Not available: raises NotAvailableError."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise NotAvailableError(f"rtc.CudaKernel: {_REASON}")
