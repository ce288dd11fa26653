"""NDArray, autograd, random numbers, save and load: where work first meets memory. `mx.nd` is this package.

Every registered operator is a function here (`mx.nd.exp`), also one that was declared a moment ago.
"""

from typing import Any

from .. import kernels as kernels
from . import autograd as autograd
from .core.chunk import Chunk as Chunk
from .core.chunk import Layout as Layout
from .core.csr import CSRNDArray as CSRNDArray
from .core.ndarray import NDArray as NDArray
from .core.row_sparse import RowSparseNDArray as RowSparseNDArray
from .core.sparse import BaseSparseNDArray as BaseSparseNDArray
from .core.sparse_ops import FUNCTIONS as _SPARSE
from .core.sparse_ops import cast_storage as cast_storage
from .custom import custom_op as custom_op
from .dispatch.arguments import call_op as call_op
from .dispatch.invoke import invoke as invoke
from .functions import control_flow as _flow
from .functions import random as random
from .functions.binary import FUNCTIONS as _FUNCTIONS
from .functions.contrib import FUNCTIONS as _CONTRIB
from .functions.creation import arange as arange
from .functions.creation import array as array
from .functions.creation import concatenate as concatenate
from .functions.creation import empty as empty
from .functions.creation import eye as eye
from .functions.creation import from_dlpack as from_dlpack
from .functions.creation import from_numpy as from_numpy
from .functions.creation import full as full
from .functions.creation import linspace as linspace
from .functions.creation import moveaxis as moveaxis
from .functions.creation import ones as ones
from .functions.creation import to_dlpack_for_read as to_dlpack_for_read
from .functions.creation import to_dlpack_for_write as to_dlpack_for_write
from .functions.creation import waitall as waitall
from .functions.creation import zeros as zeros
from .functions.namespace import Namespace as _Namespace
from .functions.namespace import publish as _publish
from .interop.params_file import load as load
from .interop.params_file import load_frombuffer as load_frombuffer
from .interop.params_file import load_metadata as load_metadata
from .interop.params_file import save as save

op = _Namespace("nd.op")
_internal = _Namespace("nd._internal", ("", "_"))
contrib = _Namespace("nd.contrib", ("_contrib_",), {
    "foreach": _flow.foreach, "while_loop": _flow.while_loop, "cond": _flow.cond} | _CONTRIB)
linalg = _Namespace("nd.linalg", ("_linalg_", "linalg_"))
sparse = _Namespace("nd.sparse", extra=_SPARSE)  # csr and row-sparse arrays; their operators are those of mx.nd
image = _Namespace("nd.image", ("_image_",))
CachedOp: Any  # these two are set by the root's `connect`: graphs and decoders live on higher floors
imdecode: Any
globals().update(_FUNCTIONS)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _publish(globals(), "nd", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(op)})
