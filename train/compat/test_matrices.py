"""The part of `mx.test_utils` with matrices for tests of linear algebra. All are float64 and NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["get_identity_mat", "get_identity_mat_batch", "new_matrix_with_real_eigvals_2d", "new_matrix_with_real_eigvals_nd",
           "new_orthonormal_matrix_2d", "new_sym_matrix_with_real_eigvals_2d", "new_sym_matrix_with_real_eigvals_nd"]


def get_identity_mat(size: int) -> np.ndarray:
    """Return the identity matrix [size, size]."""
    return np.eye(size)


def get_identity_mat_batch(size: int) -> np.ndarray:
    """Return two identity matrices, [2, size, size]."""
    return np.stack([np.eye(size)] * 2)


def new_orthonormal_matrix_2d(n: int) -> np.ndarray:
    """Return a random matrix [n, n] whose columns are orthonormal."""
    return np.linalg.qr(np.random.randn(n, n))[0]


def new_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """Return a random matrix [n, n] with real eigenvalues from -10 to 10, of moderate condition."""
    basis = new_orthonormal_matrix_2d(n) * np.random.uniform(1, 2, n)
    return np.linalg.inv(basis) @ np.diag(np.random.uniform(-10, 10, n)) @ basis


def new_sym_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """Return a random symmetric matrix [n, n] with eigenvalues from -10 to 10."""
    basis = new_orthonormal_matrix_2d(n)
    matrix = basis.T @ np.diag(np.random.uniform(-10, 10, n)) @ basis
    return (matrix + matrix.T) / 2


def new_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> np.ndarray:
    """Return matrices of new_matrix_with_real_eigvals_2d. shape: [..., n, n]."""
    return _stacked(new_matrix_with_real_eigvals_2d, shape)


def new_sym_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> np.ndarray:
    """Return matrices of new_sym_matrix_with_real_eigvals_2d. shape: [..., n, n]."""
    return _stacked(new_sym_matrix_with_real_eigvals_2d, shape)


def _stacked(make: Callable[[int], np.ndarray], shape: Sequence[int]) -> np.ndarray:
    count = int(np.prod(shape[:-2]))
    return np.stack([make(shape[-1]) for _ in range(count)]).reshape(tuple(shape))
