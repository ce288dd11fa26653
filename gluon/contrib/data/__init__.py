"""More samplers and datasets."""

from .sampler import IntervalSampler as IntervalSampler
