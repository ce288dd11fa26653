"""More samplers and datasets."""

from . import sampler as sampler
from . import text as text
from .sampler import IntervalSampler as IntervalSampler
from .text import WikiText2 as WikiText2
from .text import WikiText103 as WikiText103
