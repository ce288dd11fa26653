"""How many threads BLAS may use: a number that does not depend on the workers, so that results do not either.

A matrix product split over another number of threads adds up in another order. Kernels split their work themselves
(`RunContext.parallel`), so BLAS gets one thread; TRITIUM_BLAS_THREADS sets another number. It is set for the whole
process when the first engine is made, and holds for the user's own NumPy calls as well.
"""

from __future__ import annotations

import functools

import threadpoolctl

from .base import number_from


@functools.cache
def limit_blas() -> int:
    """Set the number once; what it is."""
    n = number_from(("TRITIUM_BLAS_THREADS",), 1)
    threadpoolctl.threadpool_limits(limits=n, user_api="blas")
    return n
