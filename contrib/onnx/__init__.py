"""`mx.contrib.onnx`: networks to and from ONNX files, by the package `onnx` (pip install "tritium[onnx]")."""

from .export.model import export_model as export_model
from .export.model import get_operator_support as get_operator_support
from .load.model import get_model_metadata as get_model_metadata
from .load.model import import_model as import_model
from .load.model import import_to_gluon as import_to_gluon
