"""mx.config: settings that a program changes while it runs."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType

from . import float32_matmul as _float32

#: How GPUs multiply float32 matrices, in products and convolutions: "ieee" (as float32), "tf32" (operands with 10 bits, on the
#: tensor cores) or "tf32x3" (three such products, about 21 bits). An assignment is for the whole process, and for what is called
#: or bound from then on. At first it is TRITIUM_FLOAT32_MATMUL, or "ieee". CPUs compute in float32 and ignore it.
float32_matmul: str

__all__ = ["float32_matmul", "float32_matmul_scope"]


def float32_matmul_scope(how: str) -> AbstractContextManager[None]:
    """Set `float32_matmul` for the calling thread inside a block: `with mx.config.float32_matmul_scope("tf32"): y = net(x)`.

    Operators called in the block, and derivatives of what was recorded in it, multiply so on a GPU. A graph multiplies as was set
    when it was bound, wherever it runs; a hybridized Block is compiled once for each setting that it is called with. CPUs compute
    in float32 and ignore it.

    how: "ieee", "tf32" or "tf32x3".
    Raises ParameterError for another value.
    """
    return _float32.scope(_float32.checked("float32_matmul_scope", how))


class _Config(ModuleType):
    """This module: a setting that is read is the current one, and one that is assigned is checked."""

    @property
    def float32_matmul(self) -> str:
        return _float32.current()

    @float32_matmul.setter
    def float32_matmul(self, how: str) -> None:
        _float32.assign(_float32.checked("float32_matmul", how))


sys.modules[__name__].__class__ = _Config
