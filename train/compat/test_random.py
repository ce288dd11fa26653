"""The part of `mx.test_utils` with random dense and sparse arrays, and checks of random generators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...context import Context
from ...errors import MissingLibraryError, ParameterError, check_choice
from ...ndarray import CSRNDArray, array
from .optional import optional
from .test_arrays import assign_each, default_context

__all__ = ["chi_square_check", "create_sparse_array", "create_sparse_array_zd", "gen_buckets_probs_with_ppf", "mean_check",
           "rand_coord_2d", "rand_ndarray", "rand_shape_2d", "rand_shape_3d", "rand_shape_nd", "rand_sparse_ndarray",
           "random_arrays", "shuffle_csr_column_indices", "var_check", "verify_generator"]

_Generator = Callable[[int], Any]


# ---- dense arrays and shapes -------------------------------------------------------------------------------------------
def random_arrays(*shapes: Sequence[int]) -> Any:
    """Return standard normal float32 arrays (NumPy) of these shapes: a list, or the array for a single shape."""
    arrays = [np.array(np.random.randn(*s)).astype(np.float32) for s in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def rand_ndarray(shape: Sequence[int], stype: str = "default", density: float | None = None, dtype: Any = None,
                 modifier_func: Any = None, shuffle_csr_indices: bool = False, distribution: str | None = None,
                 ctx: Context | None = None) -> Any:
    """Return an NDArray of random numbers uniform in [-1, 1); for a sparse stype, the array of rand_sparse_ndarray."""
    if stype != "default":
        return rand_sparse_ndarray(shape, stype, density, dtype, distribution, modifier_func=modifier_func,
                                   shuffle_csr_indices=shuffle_csr_indices, ctx=ctx)[0]
    return array(np.random.uniform(-1, 1, tuple(shape)), ctx=ctx or default_context(), dtype=dtype or "float32")


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """Return a random shape with sizes up to dim0 and dim1."""
    return _rand_shape((dim0, dim1), allow_zero_size)


def rand_shape_3d(dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """Return a random shape with sizes up to dim0, dim1 and dim2."""
    return _rand_shape((dim0, dim1, dim2), allow_zero_size)


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """Return a random shape with num_dim sizes up to dim."""
    return tuple(int(n) for n in np.random.randint(0 if allow_zero_size else 1, dim + 1, size=num_dim))


def _rand_shape(largest: Sequence[int], allow_zero_size: bool) -> tuple[int, ...]:
    return tuple(int(np.random.randint(0 if allow_zero_size else 1, n + 1)) for n in largest)


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    """Return a random x from x_low to x_high - 1, and a y likewise."""
    return np.random.randint(x_low, x_high), np.random.randint(y_low, y_high)


# ---- sparse arrays -----------------------------------------------------------------------------------------------------
def rand_sparse_ndarray(shape: Sequence[int], stype: str, density: float | None = None, dtype: Any = None,
                        distribution: str | None = None, data_init: float | None = None, rsp_indices: Any = None,
                        modifier_func: Any = None, shuffle_csr_indices: bool = False, ctx: Context | None = None
                        ) -> tuple[Any, tuple[Any, ...]]:
    """Return a sparse array of random numbers uniform in [0, 1), and its parts.

    density:        the probability that a row ("row_sparse") or an element ("csr") is stored; by default random.
    distribution:   "uniform"; or for csr "powerlaw", rows with 1, 2, 4, ... elements until density is reached.
    data_init:      the value of all stored elements instead.
    rsp_indices:    the rows to store.
    modifier_func:  a function of each stored element.
    Returns:        (array, (data, rows)), or (array, (indptr, indices, data)).
    """
    check_choice("rand_sparse_ndarray", "stype", stype, ("row_sparse", "csr"))
    distribution = distribution or "uniform"
    check_choice("rand_sparse_ndarray", "distribution", distribution, ("uniform", "powerlaw") if stype == "csr" else ("uniform",))
    ctx, dtype = ctx or default_context(), np.dtype(dtype or "float32")
    density = np.random.rand() if density is None else density

    def values(*size: int) -> np.ndarray:
        drawn = np.random.rand(*size) if data_init is None else np.full(size, data_init)
        return assign_each(drawn, modifier_func).astype(dtype) if drawn.size else drawn.astype(dtype)

    if stype == "row_sparse":
        rows = np.flatnonzero(np.random.rand(shape[0]) < density) if rsp_indices is None else np.sort(np.asarray(rsp_indices))
        data = values(len(rows), *shape[1:])
        made = nd.sparse.row_sparse_array((data, rows), shape=shape, dtype=dtype, ctx=ctx)
        return made, (data, rows)
    if len(shape) != 2:
        raise ParameterError(f"rand_sparse_ndarray: shape={tuple(shape)}: a csr array has two axes.")
    stored = np.random.rand(*shape) < density if distribution == "uniform" else _powerlaw(shape, density)
    row, column = np.nonzero(stored)
    row_ends = np.searchsorted(row, np.arange(shape[0] + 1))
    made = nd.sparse.csr_matrix((values(len(row)), column, row_ends), shape=shape, dtype=dtype, ctx=ctx)
    return made, (made.indptr, made.indices, made.data)


def _powerlaw(shape: Sequence[int], density: float) -> np.ndarray:
    """Return the places of about density of the elements: row i has 2 to the power i of them, as far as there are columns."""
    stored, left, width = np.zeros(shape, bool), int(np.prod(shape) * density), 1
    for row in stored:
        count = min(width, left, len(row))
        row[:count] = True
        left, width = left - count, width * 2
    return stored


def create_sparse_array(shape: Sequence[int], stype: str, data_init: float | None = None, rsp_indices: Any = None,
                        dtype: Any = None, modifier_func: Any = None, density: float = 0.5, shuffle_csr_indices: bool = False
                        ) -> Any:
    """Return the array of rand_sparse_ndarray."""
    return rand_sparse_ndarray(shape, stype, density, dtype, None, data_init, rsp_indices, modifier_func, shuffle_csr_indices)[0]


def create_sparse_array_zd(shape: Sequence[int], stype: str, density: float, data_init: float | None = None,
                           rsp_indices: Any = None, dtype: Any = None, modifier_func: Any = None,
                           shuffle_csr_indices: bool = False) -> Any:
    """Return the array of rand_sparse_ndarray; a row-sparse one without rows, unless rsp_indices are given."""
    return create_sparse_array(shape, stype, data_init, rsp_indices, dtype, modifier_func,
                               0.0 if stype == "row_sparse" else density, shuffle_csr_indices)


def shuffle_csr_column_indices(csr: Any) -> None:
    """Shuffle the columns in each row of a matrix with indptr and indices, such as SciPy's.

    Raises ParameterError for an array of mx.nd, whose columns must ascend.
    """
    if isinstance(csr, CSRNDArray):
        raise ParameterError("shuffle_csr_column_indices: the columns of a csr array must ascend. Use it on a matrix of SciPy.")
    for begin, end in zip(csr.indptr, csr.indptr[1:]):
        np.random.shuffle(csr.indices[begin:end])


# ---- random generators -------------------------------------------------------------------------------------------------
def gen_buckets_probs_with_ppf(ppf: Callable[[float], float], nbuckets: int) -> tuple[list[tuple[float, float]], list[float]]:
    """Return nbuckets buckets (low, high) of equal probability, and the probabilities. ppf: the inverse distribution function."""
    if nbuckets < 1:
        raise ParameterError(f"gen_buckets_probs_with_ppf: nbuckets={nbuckets} must be at least 1.")
    return [(ppf(i / nbuckets), ppf((i + 1) / nbuckets)) for i in range(nbuckets)], [1.0 / nbuckets] * nbuckets


def mean_check(generator: _Generator, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Return True if the mean of the samples generator(nsamples) is within three of its standard deviations of mu."""
    return bool(abs(np.mean(generator(nsamples)) - mu) < 3 * sigma / np.sqrt(nsamples))


def var_check(generator: _Generator, sigma: float, nsamples: int = 1000000) -> bool:
    """Return True if the variance of normal samples is within three of its standard deviations of sigma²."""
    return bool(abs(np.var(generator(nsamples), ddof=1) - sigma**2) < 3 * np.sqrt(2 * sigma**4 / (nsamples - 1)))


def chi_square_check(generator: _Generator, buckets: list[Any], probs: Sequence[float], nsamples: int = 1000000
                     ) -> tuple[float, np.ndarray, np.ndarray]:
    """Compare the samples generator(nsamples) with the expected counts, by Pearson's chi-squared test.

    buckets:  (low, high) of each, in ascending order; or the values of a discrete distribution.
    probs:    the probability of each bucket.
    Returns:  the p-value, the counts, and the expected counts.
    """
    if not isinstance(buckets, list) or len(buckets) != len(probs):
        raise ParameterError(f"chi_square_check: {len(buckets)} buckets, in a list, need as many probabilities, not "
                             f"{len(probs)}.")
    stats = optional("scipy.stats")
    if stats is None:
        raise MissingLibraryError("chi_square_check: SciPy is not installed. Install it with pip install scipy.")
    samples = np.asarray(generator(nsamples))
    if isinstance(buckets[0], (list, tuple)):
        counts = np.array([np.count_nonzero((samples >= low) & (samples < high)) for low, high in buckets])
    else:
        counts = np.array([np.count_nonzero(samples == value) for value in buckets])
    expected = (nsamples * np.asarray(probs)).astype(np.int32)
    return stats.chisquare(counts, expected * counts.sum() / max(expected.sum(), 1))[1], counts, expected


def verify_generator(generator: _Generator, buckets: list[Any], probs: Sequence[float], nsamples: int = 1000000, nrepeat: int = 5,
                     success_rate: float = 0.2, alpha: float = 0.05) -> list[float]:
    """Raise AssertionError unless success_rate of nrepeat runs of chi_square_check have a p-value above alpha.

    Returns: the p-values.
    """
    runs = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    p_values = [p for p, _, _ in runs]
    if sum(p > alpha for p in p_values) < nrepeat * success_rate:
        raise AssertionError(f"verify_generator: p-values {p_values}; counts {runs[0][1].tolist()}, expected "
                             f"{runs[0][2].tolist()}, for the buckets {buckets}.")
    return p_values
