"""`mx.test_utils`: comparison of arrays, gradients by finite differences, and random arrays, for tests of operators."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Any
from unittest.mock import patch

import numpy as np

from ... import engine
from ... import ndarray as nd
from ...context import Context, current_context
from ...errors import ParameterError
from ...ndarray import NDArray, array
from .test_arrays import *  # noqa: F403
from .test_data import *  # noqa: F403
from .util import setenv

_RTOL = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-5}
_ATOL = {"float16": 1e-1, "float32": 1e-3, "float64": 1e-20}
_default: list[Context | None] = [None]


# ---- contexts and random arrays --------------------------------------------------------------------------------------
def default_context() -> Context:
    """Return the context of tests: that of set_default_context, by default the current context."""
    return _default[0] or current_context()


def set_default_context(ctx: Context) -> None:
    """Set the context of tests."""
    _default[0] = ctx


def default_dtype() -> type:
    """Return float32."""
    return np.float32


def list_gpus() -> range:
    """Return the device numbers of the GPUs."""
    return range(engine.num_gpus())


def random_arrays(*shapes: Sequence[int]) -> Any:
    """Return standard normal float32 arrays (NumPy) of these shapes: a list, or the array for a single shape."""
    arrays = [np.array(np.random.randn(*s)).astype(np.float32) for s in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def rand_ndarray(shape: Sequence[int], stype: str = "default", density: float | None = None, dtype: Any = None,
                 modifier_func: Any = None, shuffle_csr_indices: bool = False, distribution: str | None = None,
                 ctx: Context | None = None) -> NDArray:
    """Return an NDArray of random numbers uniform in [-1, 1). Raises ParameterError for a sparse stype."""
    if stype != "default":
        raise ParameterError(f"rand_ndarray: stype={stype!r} is not supported. Use stype='default'.")
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


# ---- comparison ------------------------------------------------------------------------------------------------------
def _numpy(a: Any) -> np.ndarray:
    return a.asnumpy() if isinstance(a, NDArray) else np.asarray(a)


def get_tolerance(dat: Any, tol: float | None, default_tol: Mapping[Any, float]) -> float:
    """Return tol, or by default that of dat's dtype."""
    return tol if tol is not None else default_tol.get(np.dtype(dat.dtype).name, 0.0)


def _tolerances(a: np.ndarray, b: np.ndarray, rtol: float | None, atol: float | None) -> tuple[float, float]:
    """Return (rtol, atol); None is replaced by the larger default of the two dtypes."""
    r, t = (max(get_tolerance(x, tol, table) for x in (a, b)) for tol, table in ((rtol, _RTOL), (atol, _ATOL)))
    return r, t


def same(a: Any, b: Any) -> bool:
    """Return True if all elements of two arrays are equal."""
    return np.array_equal(_numpy(a), _numpy(b))


def same_array(array1: NDArray, array2: NDArray) -> bool:
    """Return True if two NDArrays are the same memory."""
    return array1.chunk.block is array2.chunk.block and array1.offset == array2.offset and array1.nbytes == array2.nbytes


def almost_equal(a: Any, b: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
                 use_broadcast: bool = True) -> bool:
    """Return True if |a - b| ≤ atol + rtol |b| for all elements."""
    a, b = _numpy(a), _numpy(b)
    if not use_broadcast and a.shape != b.shape:
        return False
    r, t = _tolerances(a, b, rtol, atol)
    return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), r, t, equal_nan))


def assert_almost_equal(a: Any, b: Any, rtol: float | None = None, atol: float | None = None, names: tuple[str, str] = ("a", "b"),
                        equal_nan: bool = False, use_broadcast: bool = True, mismatches: tuple[int, int] = (10, 10)) -> None:
    """Raise AssertionError, with the largest differences, unless |a - b| ≤ atol + rtol |b| for all elements."""
    x, y = _numpy(a), _numpy(b)
    if not use_broadcast and x.shape != y.shape:
        raise AssertionError(f"{names[0]} has shape {x.shape}, {names[1]} {y.shape}.")
    if almost_equal(x, y, rtol, atol, equal_nan):
        return
    r, t = _tolerances(x, y, rtol, atol)
    x, y = (v.astype(np.float64) for v in np.broadcast_arrays(x, y))
    with np.errstate(all="ignore"):
        error = np.abs(x - y) / (t + r * np.abs(y) + 1e-20)
    error[np.isnan(x) & np.isnan(y)] = 0 if equal_nan else np.inf
    error[np.isnan(error)] = np.inf
    error[x == y] = 0
    worst = np.unravel_index(np.argmax(error), error.shape)
    bad = np.argwhere(error > 1)[: mismatches[1]]
    bad = [tuple(int(k) for k in i) for i in bad[: mismatches[0]]]
    listed = "\n".join(f"  {i}: {float(x[i])!r} {float(y[i])!r}" for i in bad)
    at = tuple(int(k) for k in worst)
    raise AssertionError(f"{names[0]} and {names[1]} differ: error {error[worst]:.6g} of the tolerance (rtol={r:g}, atol={t:g}), "
                         f"most at {at}: {float(x[worst])!r} {float(y[worst])!r}; {int((error > 1).sum())} of {error.size} "
                         f"elements.\n{listed}")


assert_allclose = assert_almost_equal


def assert_almost_equal_ignore_nan(a: Any, b: Any, rtol: float | None = None, atol: float | None = None,
                                   names: tuple[str, str] = ("a", "b")) -> None:
    """Call assert_almost_equal for the elements that are not NaN in either array."""
    x, y = np.copy(_numpy(a)), np.copy(_numpy(b))
    nan = np.isnan(x) | np.isnan(y)
    x[nan] = y[nan] = 0
    assert_almost_equal(x, y, rtol, atol, names)


def assert_exception(f: Any, exception_type: type[BaseException], *args: Any, **kwargs: Any) -> None:
    """Raise AssertionError unless f(*args, **kwargs) raises exception_type."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{getattr(f, '__name__', f)} did not raise {exception_type.__name__}.")


# ---- running symbols -------------------------------------------------------------------------------------------------
def _location(sym: Any, location: Any, ctx: Context, dtype: Any = None) -> dict[str, NDArray]:
    names = sym.list_arguments()
    named = dict(location) if isinstance(location, Mapping) else dict(zip(names, location))
    if len(location) != len(names) or set(named) != set(names):
        raise ParameterError(f"test_utils: location has {len(location)} arrays ({', '.join(named)}) for the arguments "
                             f"{', '.join(names)}.")
    return {n: _on(named[n], ctx, dtype) for n in names}


def _on(value: Any, ctx: Context, dtype: Any = None) -> NDArray:
    if isinstance(value, NDArray):
        return value.as_in_context(ctx)
    host = np.asarray(value)
    return array(host, ctx=ctx, dtype=dtype if dtype is not None and host.dtype.kind == "f" else host.dtype)


def _states(sym: Any, aux: Any, ctx: Context, dtype: Any = None) -> dict[str, NDArray] | None:
    if not aux:
        return None
    named = aux if isinstance(aux, Mapping) else dict(zip(sym.list_auxiliary_states(), aux))
    return {n: _on(v, ctx, dtype) for n, v in named.items()}


def simple_forward(sym: Any, ctx: Context | None = None, is_train: bool = False, **inputs: Any) -> Any:
    """Return the outputs (NumPy) of a symbol for these inputs: a list, or the array of a single output."""
    arrays = {k: array(v) for k, v in inputs.items()}
    executor = sym.simple_bind(ctx or default_context(), grad_req="null", **{k: v.shape for k, v in arrays.items()})
    outputs = [o.asnumpy() for o in executor.forward(is_train=is_train, **arrays)]
    return outputs[0] if len(outputs) == 1 else outputs


def check_symbolic_forward(sym: Any, location: Any, expected: Any, rtol: float | None = None, atol: float | None = None,
                           aux_states: Any = None, ctx: Context | None = None, equal_nan: bool = False, dtype: Any = np.float32
                           ) -> list[NDArray]:
    """Raise AssertionError unless the outputs for location equal `expected` (a list, or a dictionary by name)."""
    ctx = ctx or default_context()
    executor = sym.bind(ctx, _location(sym, location, ctx, dtype), None, "null", _states(sym, aux_states, ctx, dtype))
    outputs = executor.forward(is_train=False)
    values = [expected[n] for n in sym.list_outputs()] if isinstance(expected, Mapping) else expected
    for name, value, output in zip(sym.list_outputs(), values, outputs):
        assert_almost_equal(value, output, rtol, atol, (f"EXPECTED_{name}", f"FORWARD_{name}"), equal_nan)
    return executor.outputs


def check_symbolic_backward(sym: Any, location: Any, out_grads: Any, expected: Any, rtol: float | None = None,
                            atol: float | None = None, aux_states: Any = None, grad_req: Any = "write",
                            ctx: Context | None = None, grad_stypes: Any = None, equal_nan: bool = False,
                            dtype: Any = np.float32) -> dict[str, NDArray]:
    """Raise AssertionError unless the derivatives by the arguments equal `expected` (a list, or a dictionary by name).

    grad_req: for "add", the buffers begin with random numbers, to which the derivatives must be added.
    """
    ctx = ctx or default_context()
    names = sym.list_arguments()
    args = _location(sym, location, ctx, dtype)
    wanted = dict(expected) if isinstance(expected, Mapping) else dict(zip(names, expected))
    reqs = (dict.fromkeys(names, grad_req) if isinstance(grad_req, str) else
            dict(zip(names, grad_req)) if isinstance(grad_req, (list, tuple)) else dict(grad_req))
    begin = {n: np.random.normal(size=args[n].shape).astype(np.dtype(args[n].dtype)) for n in wanted}
    grads = {n: array(b, ctx=ctx, dtype=b.dtype) for n, b in begin.items()}
    executor = sym.bind(ctx, args, grads, {n: reqs.get(n, "null") if n in wanted else "null" for n in names},
                        _states(sym, aux_states, ctx, dtype))
    executor.forward(is_train=True)
    if isinstance(out_grads, Mapping):
        out_grads = [out_grads[n] for n in sym.list_outputs()]
    executor.backward([_on(g, ctx, dtype) for g in out_grads] if out_grads is not None else None)
    for name, value in wanted.items():
        buffer = _after(reqs.get(name, "null"), begin[name], _numpy(value))
        assert_almost_equal(buffer, grads[name], rtol, atol, (f"EXPECTED_{name}", f"BACKWARD_{name}"), equal_nan)
    return executor.grad_dict


def _after(req: str, begin: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return the content of a gradient buffer after a write request."""
    return begin + value if req == "add" else value if req == "write" else begin


def _slopes(value: Callable[[], float], at: np.ndarray, array: NDArray, eps: float) -> np.ndarray:
    """Return the central differences of value() by each element of array, around `at`."""
    slopes = np.zeros(at.shape)
    for i in np.ndindex(*at.shape):
        ends = []
        for step in (eps / 2, -eps / 2):
            moved = at.copy()
            moved[i] += step
            array[:] = moved
            ends.append(value())
        slopes[i] = (ends[0] - ends[1]) / eps
    array[:] = at
    return slopes


def _objective(executor: Any, aux_states: Mapping[str, Any] | None, head: Any, is_train: bool) -> float:
    """Return the sum of the first output times head, computed from these auxiliary states."""
    for name, state in (aux_states or {}).items():
        executor.aux_dict[name][:] = state
    return float((executor.forward(is_train=is_train)[0].asnumpy().astype(np.float64) * head).sum())


def numeric_grad(executor: Any, location: Mapping[str, Any], aux_states: Any = None, eps: float = 1e-4,
                 use_forward_train: bool = True, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Return the derivative of the sum of the first output by every element of location, by finite differences."""
    value = partial(_objective, executor, aux_states, 1.0, use_forward_train)
    grads = {}
    for name, at in location.items():
        base = _numpy(at).astype(dtype)
        grads[name] = np.zeros(base.shape, dtype)
        if base.dtype.kind == "f":
            grads[name] = _slopes(value, base, executor.arg_dict[name], eps).astype(dtype)
    return grads


def check_numeric_gradient(sym: Any, location: Any, aux_states: Any = None, numeric_eps: float | None = None,
                           rtol: float | None = None, atol: float | None = None, grad_nodes: Any = None,
                           use_forward_train: bool = True, ctx: Context | None = None, grad_stype_dict: Any = None,
                           dtype: Any = np.float32) -> None:
    """Raise AssertionError unless the derivatives equal finite differences, for a random head gradient.

    grad_nodes: the arguments to check, a list or {name: grad_req}; None: all of them.
    """
    ctx = ctx or default_context()
    eps = numeric_eps or {"float16": 1e-1, "float32": 1e-3, "float64": 1e-4}[np.dtype(dtype).name]
    rtol = 1e-2 if rtol is None else rtol
    atol = 1e-4 if atol is None else atol
    args = _location(sym, location, ctx, dtype)
    names = list(args)
    reqs = dict(grad_nodes) if isinstance(grad_nodes, Mapping) else dict.fromkeys(grad_nodes or names, "write")
    _, (out_shape, *_), _ = sym.infer_shape(**{n: v.shape for n, v in args.items()})
    head = np.random.normal(size=out_shape).astype(dtype)
    aux = _states(sym, aux_states, ctx, dtype)
    begin = {n: np.random.normal(size=args[n].shape).astype(dtype) for n in reqs}
    grads = {n: array(b, ctx=ctx, dtype=dtype) for n, b in begin.items()}
    executor = sym.bind(ctx, args, grads, {n: reqs.get(n, "null") for n in names}, aux)
    aux_values = {n: v.asnumpy() for n, v in (aux or {}).items()}
    outputs = executor.forward(is_train=True)
    executor.backward([array(head, ctx=ctx, dtype=dtype), *(nd.zeros_like(o) for o in outputs[1:])])
    computed = {n: g.asnumpy() for n, g in grads.items()}
    value = partial(_objective, executor, aux_values, head, use_forward_train)
    for name, req in reqs.items():
        expected = _after(req, begin[name], _slopes(value, args[name].asnumpy(), executor.arg_dict[name], eps))
        assert_almost_equal(expected, computed[name], rtol, atol, (f"NUMERICAL_{name}", f"BACKWARD_{name}"))


def check_consistency(sym: Any, ctx_list: Sequence[Mapping[str, Any]], scale: float = 1.0, grad_req: Any = "write",
                      arg_params: Any = None, aux_params: Any = None, rtol: Any = None, atol: Any = None,
                      raise_on_err: bool = True, ground_truth: Any = None, equal_nan: bool = False, use_uniform: bool = False,
                      rand_type: Any = np.float64) -> dict[str, np.ndarray]:
    """Raise AssertionError unless a network has the same outputs and derivatives for all entries of ctx_list.

    sym:       a symbol, or a list with an equal symbol for each entry.
    ctx_list:  [{"ctx": ..., input: shape, "type_dict": ...}]. The most precise dtype is the reference; the tolerance is that
               of the other dtype.
    Returns:   the outputs and derivatives of the reference, by name.
    """
    symbols = list(sym) if isinstance(sym, (list, tuple)) else [sym] * len(ctx_list)
    executors = []
    for s, entry in zip(symbols, ctx_list):
        settings = dict(entry)
        executors.append(s.simple_bind(settings.pop("ctx"), grad_req=grad_req, **settings))
    draw = np.random.uniform if use_uniform else np.random.normal
    low = {"low": -0.1 * scale, "high": 0.1 * scale} if use_uniform else {"scale": scale}
    first = executors[0]
    values = {n: np.asarray(_numpy((arg_params or {}).get(n, draw(size=a.shape, **low)))) for n, a in first.arg_dict.items()}
    states = {n: np.asarray(_numpy((aux_params or {}).get(n, np.zeros(a.shape)))) for n, a in first.aux_dict.items()}
    heads = [draw(size=o.shape, **low) for o in first.forward(is_train=False)]
    results = []
    for e in executors:
        for arrays, hosts in ((e.arg_dict, values), (e.aux_dict, states)):
            for n, v in hosts.items():
                arrays[n][:] = v.astype(np.dtype(arrays[n].dtype))
        train = grad_req != "null"
        outputs = e.forward(is_train=train)
        result = {f"output {n}": o.asnumpy() for n, o in zip(e._symbol.list_outputs(), outputs)}
        if train:
            e.backward([array(h, ctx=o.context, dtype=o.dtype) for h, o in zip(heads, outputs)])
            result |= {f"gradient of {n}": g.asnumpy() for n, g in e.grad_dict.items() if g is not None}
        results.append(result)
    size = [np.dtype(e.outputs[0].dtype).itemsize for e in executors]
    reference = ground_truth or results[int(np.argmax(size))]
    tolerances = {"float16": 1e-1, "float32": 1e-3, "float64": 1e-5}
    for entry, result in zip(ctx_list, results):
        for n, value in result.items():
            tolerance = tolerances.get(value.dtype.name, 0.0)
            try:
                assert_almost_equal(value, reference[n], tolerance if rtol is None else rtol, tolerance if atol is None else atol,
                                    (f"{n} on {entry['ctx']}", "the reference"), equal_nan)
            except AssertionError as e:
                if raise_on_err:
                    raise
                print(e)
    return reference


# ---- environment, retries and tolerances -----------------------------------------------------------------------------
@contextlib.contextmanager
def environment(*args: Any) -> Iterator[None]:
    """Set environment variables for a block: `with environment("NAME", "value")`, or a dictionary. None removes one."""
    with patch.dict(os.environ):
        for k, v in (args[0] if len(args) == 1 else {args[0]: args[1]}).items():
            setenv(k, v)
        yield


def retry(n: int) -> Any:
    """Return a decorator that runs a test up to n times, until it passes."""

    def decorate(test: Any) -> Any:
        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> Any:
            for _ in range(n - 1):
                with contextlib.suppress(AssertionError):
                    return test(*args, **kwargs)
            return test(*args, **kwargs)

        return run

    return decorate


def default_rtols() -> dict[Any, float]:
    """Return the relative tolerance of each dtype."""
    return {np.dtype(k): v for k, v in _RTOL.items()}


def default_atols() -> dict[Any, float]:
    """Return the absolute tolerance of each dtype."""
    return {np.dtype(k): v for k, v in _ATOL.items()}


def get_rtol(rtol: float | None = None, dtype: Any = np.float64) -> float:
    """Return rtol, by default that of dtype."""
    return _RTOL[np.dtype(dtype).name] if rtol is None else rtol


def get_atol(atol: float | None = None, dtype: Any = np.float64) -> float:
    """Return atol, by default that of dtype."""
    return _ATOL[np.dtype(dtype).name] if atol is None else atol


def get_etol(etol: float | None = None) -> float:
    """Return etol, the share of elements that may differ, by default 0."""
    return etol or 0.0
