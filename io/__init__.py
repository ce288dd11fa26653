"""Data loading: RecordIO files, iterators over arrays and over files."""

from .iterator import DataBatch as DataBatch
from .iterator import DataDesc as DataDesc
from .iterator import DataIter as DataIter
from .iterator import ResizeIter as ResizeIter
from .iterators.csv_iter import CSVIter as CSVIter
from .iterators.image_det_record_iter import ImageDetRecordIter as ImageDetRecordIter
from .iterators.image_record_iter import ImageRecordInt8Iter as ImageRecordInt8Iter
from .iterators.image_record_iter import ImageRecordIter as ImageRecordIter
from .iterators.image_record_iter import ImageRecordUInt8Iter as ImageRecordUInt8Iter
from .iterators.libsvm_iter import LibSVMIter as LibSVMIter
from .iterators.mnist_iter import MNISTIter as MNISTIter
from .iterators.ndarray_iter import NDArrayIter as NDArrayIter
from .iterators.ndarray_iter import _init_data as _init_data
from .iterators.prefetching_iter import PrefetchingIter as PrefetchingIter
from .iterators.row_iter import PlanIter
from .records.recordio import read_arrays as read_arrays

MXDataIter = PlanIter  # MXNet's class of iterators over files
ImageRecordIter_v1, ImageRecordUInt8Iter_v1 = ImageRecordIter, ImageRecordUInt8Iter  # MXNet has two of each
