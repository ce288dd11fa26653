"""Order: functions run as soon as what they read and mutate allows. Also memory, scratch, random numbers, GPU streams.

`tritium.engine` is MXNet's `mx.engine` too: `bulk(size)`, `set_bulk_size(size)`.
"""

from . import cuda as cuda
from . import lifetime as lifetime
from . import profiler as profiler
from . import resource as resource
from . import storage as storage
from .base import Engine as Engine
from .base import Opr as Opr
from .checked import CheckedEngine as CheckedEngine
from .choose import bulk as bulk
from .choose import current as current
from .choose import set_bulk_size as set_bulk_size
from .choose import set_current as set_current
from .cuda import num_gpus as num_gpus
from .deps import Var as Var
from .naive import NaiveEngine as NaiveEngine
from .run import RunContext as RunContext
from .threaded import ThreadedEngine as ThreadedEngine
