"""`mx.contrib.onnx`: networks to and from ONNX files, by the package `onnx` (pip install "tritium[onnx]")."""

import sys as _sys

from .export import model as mx2onnx
from .export.model import export_model as export_model
from .export.model import get_operator_support as get_operator_support
from .load import model as onnx2mx
from .load.model import get_model_metadata as get_model_metadata
from .load.model import import_model as import_model
from .load.model import import_to_gluon as import_to_gluon

for _name, _module in (("mx2onnx", mx2onnx), ("mx2onnx.export_model", mx2onnx), ("onnx2mx", onnx2mx),
                       ("onnx2mx.import_model", onnx2mx), ("onnx2mx.import_to_gluon", onnx2mx)):
    _sys.modules[f"{__name__}.{_name}"] = _module  # MXNet's places for the two directions
