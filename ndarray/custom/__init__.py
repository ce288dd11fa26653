"""mx.operator: every way to write a layer in Python.

On memory, for both devices: `OperatorProperty` (names, shapes, dependencies, resources) and `Operator` (forward and backward over
`TBlob`s, with write requests `Req`), Triton kernels by `jit` and `launch`. On NDArrays: MXNet's `CustomOp` and `CustomOpProp`,
and the older `NumpyOp` and `NDArrayOp`. `register` takes either kind. docs/operators.md shows each.
"""

from ...kernels.declare.operator_property import RANDOM as RANDOM
from ...kernels.declare.operator_property import TEMP_SPACE as TEMP_SPACE
from ...kernels.declare.operator_property import OpContext as OpContext
from ...kernels.declare.operator_property import Operator as Operator
from ...kernels.declare.operator_property import OperatorProperty as OperatorProperty
from ...kernels.declare.operator_property import RandomNumbers as RandomNumbers
from ...kernels.declare.operator_property import TBlob as TBlob
from ...kernels.declare.operator_property import TempSpace as TempSpace
from ...kernels.declare.operator_property import assign as assign
from ...kernels.declare.property_op import register_operator as register_operator
from ...kernels.gpu.source import tl as tl
from ...kernels.gpu.user_kernel import jit as jit
from ...kernels.gpu.user_kernel import launch as launch
from ...kernels.op import Req as Req
from .custom_op import CustomOp as CustomOp
from .custom_op import CustomOpProp as CustomOpProp
from .custom_op import get_all_registered_operators as get_all_registered_operators
from .custom_op import register as register
from .numpy_op import NDArrayOp as NDArrayOp
from .numpy_op import NumpyOp as NumpyOp
from .numpy_op import PythonOp as PythonOp
