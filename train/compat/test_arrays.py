"""The part of `mx.test_utils` with arrays, elementwise functions, timing, and comparison of optimizers."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...context import Context, current_context
from ...errors import check_choice
from ...ndarray import NDArray, arange, array
from .. import optimizer as opt
from ..optimizer.states import leaves

__all__ = ["assign_each", "assign_each2", "check_speed", "compare_optimizer", "create_2d_tensor", "create_vector",
           "default_context", "default_dtype", "np_reduce", "random_sample", "random_uniform_arrays", "same_symbol_structure",
           "set_default_context"]

_STEPS = 3  # of compare_optimizer
_default: list[Context | None] = [None]


def default_context() -> Context:
    """Return the context of tests: that of set_default_context, by default the current context."""
    return _default[0] or current_context()


def set_default_context(ctx: Context) -> None:
    """Set the context of tests."""
    _default[0] = ctx


def default_dtype() -> type:
    """Return float32."""
    return np.float32


def random_sample(population: Sequence[Any], k: int) -> list[Any]:
    """Return k random elements of population, in its order."""
    return [population[i] for i in sorted(random.sample(range(len(population)), k))]


def random_uniform_arrays(*shapes: Sequence[int], low: float = 0.0, high: float = 1.0, dtype: Any = np.float64
                          ) -> list[np.ndarray]:
    """Return NumPy arrays of these shapes, uniform in [low, high)."""
    return [np.asarray(np.random.uniform(low, high, tuple(s))).astype(dtype) for s in shapes]


def create_vector(size: int, dtype: Any = np.int64) -> NDArray:
    """Return the array 0, 1, ... size - 1."""
    return arange(0, size, dtype=dtype)


def create_2d_tensor(rows: int, columns: int, dtype: Any = np.int64) -> NDArray:
    """Return an array [rows, columns] whose elements are the index of their row."""
    return array(np.broadcast_to(np.arange(rows)[:, None], (rows, columns)), dtype=dtype)


def np_reduce(dat: np.ndarray, axis: Any, keepdims: bool, numpy_reduce_func: Callable[..., Any]) -> np.ndarray:
    """Reduce some axes (None: all) by numpy_reduce_func. As in MXNet, a reduction of all axes has shape (1,)."""
    axes = range(dat.ndim) if axis is None or axis == () else (axis,) if isinstance(axis, int) else axis
    reduced = {a % dat.ndim for a in axes}
    result = dat
    for a in sorted(reduced, reverse=True):
        result = numpy_reduce_func(result, axis=a)
    with_ones = tuple(1 if a in reduced else n for a, n in enumerate(dat.shape))
    return result.reshape(with_ones if keepdims else result.shape or (1,))


def assign_each(the_input: np.ndarray, function: Callable[[Any], Any] | None) -> np.ndarray:
    """Return function of each element; None copies the input."""
    return the_input.copy() if function is None else np.vectorize(function)(the_input)


def assign_each2(input1: np.ndarray, input2: np.ndarray, function: Callable[[Any, Any], Any] | None) -> np.ndarray:
    """Return function of each pair of elements; None copies input1."""
    return np.array(input1) if function is None else np.vectorize(function)(input1, input2)


def same_symbol_structure(sym1: Any, sym2: Any) -> bool:
    """Return True if two symbols have the same operators and inputs in the same order; names may differ."""
    a, b = ([(n["op"], n["inputs"]) for n in json.loads(s.tojson())["nodes"]] for s in (sym1, sym2))
    return a == b


def check_speed(sym: Any, location: Mapping[str, Any] | None = None, ctx: Context | None = None, N: int = 20,
                grad_req: Any = "write", typ: str = "whole", **kwargs: Any) -> float:
    """Return the mean seconds of N passes: forward and backward ("whole"), or forward alone ("forward").

    location: values of the arguments; None uses random ones in the shapes of kwargs.
    """
    check_choice("check_speed", "typ", typ, ("whole", "forward"))
    shapes = {k: np.shape(v) for k, v in location.items()} if location is not None else kwargs
    executor = sym.simple_bind(ctx or current_context(), grad_req=grad_req, **shapes)
    for name, a in executor.arg_dict.items():
        a[:] = location[name] if location is not None and name in location else np.random.normal(size=a.shape)

    def once() -> None:
        executor.forward(is_train=typ == "whole")
        if typ == "whole":
            executor.backward(executor.outputs)

    once()
    nd.waitall()
    begin = time.perf_counter()
    for _ in range(N):
        once()
    nd.waitall()
    return (time.perf_counter() - begin) / N


def compare_optimizer(opt1: opt.Optimizer, opt2: opt.Optimizer, shape: Any, dtype: Any, w_stype: str = "default",
                      g_stype: str = "default", rtol: float = 1e-4, atol: float = 1e-5, compare_states: bool = True,
                      ntensors: int = 1) -> None:
    """Raise AssertionError unless both optimizers give the same weights, and states, for the same gradients.

    w_stype:  "default" or "row_sparse"; weights are dense in both cases.
    g_stype:  the storage type of gradients. In row-sparse ones about half of the rows are stored.
    """
    check_choice("compare_optimizer", "w_stype", w_stype, ("default", "row_sparse"))
    check_choice("compare_optimizer", "g_stype", g_stype, ("default", "row_sparse"))
    shapes = [tuple(s) for s in shape] if isinstance(shape, list) else [tuple(shape)] * ntensors
    start = [np.random.uniform(-1, 1, s) for s in shapes]
    grads = [[np.random.uniform(-1, 1, s) for s in shapes] for _ in range(_STEPS)]
    if g_stype == "row_sparse":
        grads = [[g * (np.random.rand(len(g), *[1] * (g.ndim - 1)) < 0.5) for g in step] for step in grads]
    ends = []
    for one in (opt1, opt2):
        weights = [array(w, dtype=dtype) for w in start]
        updater = opt.get_updater(one)
        for step in grads:
            updater(list(range(len(weights))), [array(g, dtype=dtype).tostype(g_stype) for g in step], weights)
        states = [a for s in updater.states.values() for a in leaves(s)] if compare_states else []
        ends.append([a.asnumpy() for a in (*weights, *states)])
    for x, y in zip(*ends, strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)
