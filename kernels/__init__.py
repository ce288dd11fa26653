"""Operators: declared once, traced, differentiated, printed for each target. Knows nothing of queues or memory."""

from . import op as op
from . import ops as ops
from .declare.indexed import indexed as indexed
from .declare.reduction import reduction as reduction
from .declare.scan import scan as scan
from .declare.simple_op import Array as Array
from .declare.simple_op import Axes as Axes
from .declare.simple_op import Float as Float
from .declare.simple_op import Ints as Ints
from .declare.simple_op import Scalar as Scalar
from .declare.simple_op import simple_op as simple_op
from .fusion.fused import fused_op as fused_op
from .ir import lang as lang
from .op import Expression as Expression
from .op import Gradient as Gradient
from .op import Op as Op
from .op import Req as Req
from .op import Spec as Spec
from .op import compiled as compiled
from .op import compiled_static as compiled_static
from .op import get as get
from .op import register as register
from .op import registered as registered
from .params import Range as Range
