"""Networks with known names: `mx.gluon.model_zoo`."""

from . import model_store as model_store
from . import vision as vision
