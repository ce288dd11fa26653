"""mx.operator: every way to write an operator in Python, by MXNet's names."""

from .custom import CustomOp as CustomOp
from .custom import CustomOpProp as CustomOpProp
from .custom import Operator as Operator
from .custom import OperatorProperty as OperatorProperty
from .custom import assign as assign
from .custom import get_all_registered_operators as get_all_registered_operators
from .custom import register as register
from .custom import register_operator as register_operator
from .python_op import NDArrayOp as NDArrayOp
from .python_op import NumpyOp as NumpyOp
from .python_op import PythonOp as PythonOp
