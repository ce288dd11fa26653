"""Data loading: RecordIO files, iterators over arrays."""

from .iterator import DataBatch as DataBatch
from .iterator import DataDesc as DataDesc
from .iterator import DataIter as DataIter
from .iterator import ResizeIter as ResizeIter
from .ndarray_iter import NDArrayIter as NDArrayIter
from .record_arrays import read_arrays as read_arrays
