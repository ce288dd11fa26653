"""`mxnet.ndarray.ndarray`: every name of `mx.nd`, and the tables of that module that scripts import."""

from __future__ import annotations

from typing import Any

from ... import ndarray
from ...dtype import DTYPE_TO_FLAG
from ...ndarray import NDArray as NDArray

_DTYPE_NP_TO_MX = {None: -1, **{d.type: flag for d, flag in DTYPE_TO_FLAG.items()}}
_DTYPE_MX_TO_NP = {flag: kind for kind, flag in _DTYPE_NP_TO_MX.items()}
_GRAD_REQ_MAP = {"null": 0, "write": 1, "add": 3}
_STORAGE_TYPE_UNDEFINED, _STORAGE_TYPE_DEFAULT, _STORAGE_TYPE_ROW_SPARSE, _STORAGE_TYPE_CSR = -1, 0, 1, 2
_STORAGE_TYPE_STR_TO_ID = {"undefined": -1, "default": 0, "row_sparse": 1, "csr": 2}
_STORAGE_TYPE_ID_TO_STR = {number: name for name, number in _STORAGE_TYPE_STR_TO_ID.items()}


def __getattr__(name: str) -> Any:
    return getattr(ndarray, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(ndarray)})
