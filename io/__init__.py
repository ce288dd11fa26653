"""Data loading: RecordIO files, iterators over arrays and over files."""

from .csv_iter import CSVIter as CSVIter
from .image_det_record_iter import ImageDetRecordIter as ImageDetRecordIter
from .image_record_iter import ImageRecordInt8Iter as ImageRecordInt8Iter
from .image_record_iter import ImageRecordIter as ImageRecordIter
from .image_record_iter import ImageRecordUInt8Iter as ImageRecordUInt8Iter
from .iterator import DataBatch as DataBatch
from .iterator import DataDesc as DataDesc
from .iterator import DataIter as DataIter
from .iterator import ResizeIter as ResizeIter
from .libsvm_iter import LibSVMIter as LibSVMIter
from .mnist_iter import MNISTIter as MNISTIter
from .ndarray_iter import NDArrayIter as NDArrayIter
from .prefetching_iter import PrefetchingIter as PrefetchingIter
from .record_arrays import read_arrays as read_arrays

ImageRecordIter_v1, ImageRecordUInt8Iter_v1 = ImageRecordIter, ImageRecordUInt8Iter  # MXNet has two of each
