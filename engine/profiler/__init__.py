"""MXNet's profiler, `mx.profiler`: its functions, and the objects by which a user marks work."""

from .api import dropped as dropped
from .api import dump as dump
from .api import dump_profile as dump_profile
from .api import dumps as dumps
from .api import explain as explain
from .api import layers as layers
from .api import pause as pause
from .api import profiler_set_config as profiler_set_config
from .api import profiler_set_state as profiler_set_state
from .api import resume as resume
from .api import scope as Scope  # noqa: F401  MXNet's name
from .api import scope as scope
from .api import set_config as set_config
from .api import set_kvstore_handle as set_kvstore_handle
from .api import set_state as set_state
from .api import state as state
from .api import timeline as timeline
from .objects import Counter as Counter
from .objects import Domain as Domain
from .objects import Event as Event
from .objects import Frame as Frame
from .objects import Marker as Marker
from .objects import UserTask as Task  # noqa: F401  MXNet's name
