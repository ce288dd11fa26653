"""Arrays for `mx.test_utils`: random ones, functions of elements, tolerances by name."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...context import Context, current_context
from ...errors import ParameterError
from ...ndarray import NDArray, arange, array
from .. import optimizer as opt

_STEPS = 3  # that compare_optimizer makes


def random_sample(population: Sequence[Any], k: int) -> list[Any]:
    """k of population, in its order."""
    return [population[i] for i in sorted(random.sample(range(len(population)), k))]


def random_uniform_arrays(*shapes: Sequence[int], low: float = 0.0, high: float = 1.0, dtype: Any = np.float64
                          ) -> list[np.ndarray]:
    """Arrays (NumPy) of these shapes, uniform in [low, high)."""
    return [np.asarray(np.random.uniform(low, high, tuple(s))).astype(dtype) for s in shapes]


def create_vector(size: int, dtype: Any = np.int64) -> NDArray:
    """0, 1, ... size - 1."""
    return arange(0, size, dtype=dtype)


def create_2d_tensor(rows: int, columns: int, dtype: Any = np.int64) -> NDArray:
    """[rows, columns]; each row is its number, repeated."""
    return array(np.broadcast_to(np.arange(rows)[:, None], (rows, columns)), dtype=dtype)


def np_reduce(dat: np.ndarray, axis: Any, keepdims: bool, numpy_reduce_func: Callable[..., Any]) -> np.ndarray:
    """numpy_reduce_func over each of some axes, by MXNet's rule: None is all, and all of them give shape (1,)."""
    axes = range(dat.ndim) if axis is None or axis == () else (axis,) if isinstance(axis, int) else axis
    folded = {a % dat.ndim for a in axes}
    found = dat
    for a in sorted(folded, reverse=True):
        found = numpy_reduce_func(found, axis=a)
    kept = tuple(1 if a in folded else n for a, n in enumerate(dat.shape))
    return found.reshape(kept if keepdims else found.shape or (1,))


def assign_each(the_input: np.ndarray, function: Callable[[Any], Any] | None) -> np.ndarray:
    """function of each element; the input itself, copied, if it is None."""
    return the_input.copy() if function is None else np.vectorize(function)(the_input)


def assign_each2(input1: np.ndarray, input2: np.ndarray, function: Callable[[Any, Any], Any] | None) -> np.ndarray:
    """function of each pair of elements; input1, copied, if it is None."""
    return np.array(input1) if function is None else np.vectorize(function)(input1, input2)


def same_symbol_structure(sym1: Any, sym2: Any) -> bool:
    """Whether two symbols have the same operators in the same order, whatever their names."""
    a, b = ([(n["op"], n["inputs"]) for n in json.loads(s.tojson())["nodes"]] for s in (sym1, sym2))
    return a == b


def check_speed(sym: Any, location: Mapping[str, Any] | None = None, ctx: Context | None = None, N: int = 20,
                grad_req: Any = "write", typ: str = "whole", **kwargs: Any) -> float:
    """Seconds of one pass, the mean of N: forward and backward ("whole"), or forward alone ("forward").

    location: values of the arguments; without it, random ones in the shapes of kwargs.
    """
    if typ not in ("whole", "forward"):
        raise ParameterError(f"check_speed: typ={typ!r} is not one of 'whole', 'forward'.")
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
    """Raise AssertionError unless both optimizers move the same weights by the same gradients to the same place."""
    if w_stype != "default" or g_stype != "default":
        raise ParameterError(f"compare_optimizer: w_stype={w_stype!r}, g_stype={g_stype!r}: arrays are dense here.")
    shapes = [tuple(s) for s in shape] if isinstance(shape, list) else [tuple(shape)] * ntensors
    start = [np.random.uniform(-1, 1, s) for s in shapes]
    grads = [[np.random.uniform(-1, 1, s) for s in shapes] for _ in range(_STEPS)]
    ends = []
    for one in (opt1, opt2):
        weights = [array(w, dtype=dtype) for w in start]
        updater = opt.get_updater(one)
        for step in grads:
            updater(list(range(len(weights))), [array(g, dtype=dtype) for g in step], weights)
        ends.append([w.asnumpy() for w in weights])
        ends.append([s.asnumpy() for s in _arrays(updater.states)] if compare_states else [])
    for a, b in ((ends[0], ends[2]), (ends[1], ends[3])):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def _arrays(tree: Any) -> list[NDArray]:
    """The arrays in nested states, in order."""
    if isinstance(tree, NDArray):
        return [tree]
    parts = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, (list, tuple)) else ()
    return [a for part in parts for a in _arrays(part)]
