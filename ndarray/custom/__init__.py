"""mx.operator: every way to write an operator in Python, by MXNet's names."""

from .custom_op import CustomOp as CustomOp
from .custom_op import CustomOpProp as CustomOpProp
from .custom_op import Operator as Operator
from .custom_op import OperatorProperty as OperatorProperty
from .custom_op import assign as assign
from .custom_op import get_all_registered_operators as get_all_registered_operators
from .custom_op import register as register
from .custom_op import register_operator as register_operator
from .numpy_op import NDArrayOp as NDArrayOp
from .numpy_op import NumpyOp as NumpyOp
from .numpy_op import PythonOp as PythonOp
