"""NDArray, autograd, random numbers, save and load: where work first meets memory. `mx.nd` is this package.

Every registered operator is a function here (`mx.nd.exp`), also one that was declared a moment ago.
"""

from typing import Any

from .. import kernels as kernels
from . import autograd as autograd
from . import custom as custom
from . import on_gpu as _on_gpu  # noqa: F401  hands itself to kernels/proof.py
from . import random as random
from .call import call_op as call_op
from .chunk import Chunk as Chunk
from .chunk import Layout as Layout
from .contrib import FUNCTIONS as _CONTRIB
from .control_flow import cond as _cond
from .control_flow import foreach as _foreach
from .control_flow import while_loop as _while_loop
from .creation import arange as arange
from .creation import array as array
from .creation import concatenate as concatenate
from .creation import empty as empty
from .creation import eye as eye
from .creation import from_dlpack as from_dlpack
from .creation import from_numpy as from_numpy
from .creation import full as full
from .creation import linspace as linspace
from .creation import moveaxis as moveaxis
from .creation import ones as ones
from .creation import to_dlpack_for_read as to_dlpack_for_read
from .creation import to_dlpack_for_write as to_dlpack_for_write
from .creation import waitall as waitall
from .creation import zeros as zeros
from .functions import FUNCTIONS as _FUNCTIONS
from .invoke import invoke as invoke
from .namespace import Namespace as _Namespace
from .namespace import attribute as _attribute
from .ndarray import NDArray as NDArray
from .row_sparse import FUNCTIONS as _SPARSE
from .row_sparse import RowSparseNDArray as RowSparseNDArray
from .serialize import load as load
from .serialize import load_frombuffer as load_frombuffer
from .serialize import load_metadata as load_metadata
from .serialize import save as save

op = _Namespace("nd.op")
_internal = _Namespace("nd._internal", ("", "_"))
contrib = _Namespace("nd.contrib", ("_contrib_",), {"foreach": _foreach, "while_loop": _while_loop, "cond": _cond} | _CONTRIB)
linalg = _Namespace("nd.linalg", ("_linalg_", "linalg_"))
sparse = _Namespace("nd.sparse", extra=_SPARSE)  # row-sparse arrays; operators on dense ones
image = _Namespace("nd.image", ("_image_",))


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    found = _FUNCTIONS.get(name)
    return found if found is not None else _attribute("nd", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(op), *_FUNCTIONS})
