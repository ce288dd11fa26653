"""Prepared calls compute what ordinary ones do, on arrays by their addresses. Oracle: the ordinary run, bit for bit."""

import numpy as np
import pytest
import tritium as mx
from test_every_operator import TABLE, Integers
from tritium.context import GPU_MODE
from tritium.dtype import as_dtype
from tritium.engine.gpu import cuda, transfer
from tritium.engine.memory import storage
from tritium.engine.run_context import RunContext
from tritium.kernels.gpu.launch import launch
from tritium.kernels.gpu.prepared import PreparedCall
from tritium.kernels.gpu.source import tl, triton
from tritium.kernels.kernel import NOTHING
from tritium.kernels.op import Req, Spec, builtin, compiled_static

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="runs kernels in the interpreter")
RUN = RunContext(mx.gpu(0), cuda.stream(0))
F32 = np.dtype("float32")
X = Spec((5, 16), F32)
#: Operators whose use here is not prepared: the host reads a value of the device, or torch copies.
ORDINARY = {"_contrib_DeformablePSROIPooling", "_linalg_inverse", "_contrib_RROIAlign", "_contrib_ROIAlign"}
def arrays_of(case, rng):
    for shape in case.shapes:
        if isinstance(shape, Integers):
            yield rng.integers(0, shape.below, shape.shape).astype("float32")
        else:
            yield rng.normal(size=shape).astype("float32")


def on_gpu(values):
    """A tensor of the interpreted GPU with these values."""
    array = storage.array(values.shape, values.dtype, mx.gpu(0))
    transfer.from_host(array, values)
    return array


def both(kernel, prepared, inputs, specs, reqs, scalars=()):
    """(prepared?, results of the prepared call, results of the ordinary run)."""
    more = {"scalars": scalars} if scalars else {}
    before = [np.full(s.shape, 3, s.dtype) for s in specs]
    results = []
    for call in (None, prepared):
        ins = [on_gpu(a) for a in inputs]
        outs = [on_gpu(b) if req is not Req.NULL else None for b, req in zip(before, reqs)]
        if call is None:
            kernel.run(RUN, ins, outs, **more)
        elif not call(RUN, [0 if a is None else a.data_ptr() for a in (*ins, *outs)], scalars):
            return False, [], []
        results.append([None if a is None else transfer.to_host(a).copy() for a in (*ins, *outs)])
    return True, results[1], results[0]


def kernel_of(name, params, specs, reqs=None, outs=None, train=False):
    op = builtin(name)
    p = op.parse(params)
    if outs is None:
        _, shapes = op.infer_shape(p, [s.shape for s in specs])
        _, dtypes = op.infer_dtype(p, [s.dtype for s in specs])
        outs = tuple(Spec(tuple(s), as_dtype(d)) for s, d in zip(shapes, dtypes))
    reqs = reqs or (Req.WRITE,) * len(outs)
    kernel = compiled_static(op, p, tuple(specs), outs, reqs, "gpu", train)
    return p, kernel, PreparedCall(kernel.run, tuple(specs), outs, reqs), outs, reqs


def test_every_use_of_every_operator_computes_the_same_bits():
    prepared, ordinary, rng = set(), set(), np.random.default_rng(0)
    for name, cases in TABLE.items():
        op = builtin(name)
        for case in cases if op.nonblocking else ():
            inputs = list(arrays_of(case, rng))
            p = op.parse(case.params)
            specs = [Spec(a.shape, a.dtype) for a in inputs]
            if op.auxiliaries(p) or len(specs) != len(op.arguments(p)):
                continue
            _, kernel, call, outs, reqs = kernel_of(name, case.params, specs)
            if not outs or any(0 in s.shape for s in (*specs, *outs)) or op.random_count(p, specs, outs):
                continue
            called, got, want = both(kernel, call, inputs, outs, reqs, p.scalars)
            (prepared if called else ordinary).add(name)
            for g, w in zip(got, want):
                np.testing.assert_array_equal(g, w, err_msg=name)
    assert ordinary == ORDINARY and len(prepared) > 100


def test_run_time_scalars_are_those_of_each_call():
    _, kernel, call, outs, reqs = kernel_of("_plus_scalar", {"scalar": 1.0}, [X])
    x = np.arange(80, dtype="float32").reshape(5, 16)
    for scalars in ((1.0,), (2.5,), (-3.0,)):
        called, got, want = both(kernel, call, [x], outs, reqs, scalars)
        assert called and (got[1] == x + scalars[0]).all() and (got[1] == want[1]).all()
    assert len(call._found) == 1  # the launches of any value


def test_a_kernel_that_computes_with_scalars_on_the_host_is_prepared_for_each_value():
    def kernel(run, inputs, outputs, scalars=()):
        launch(scaled, (5,), inputs[0], outputs[0], 1.0 + scalars[0] * scalars[0], 16, BLOCK=16, stream=run.stream)

    call, x = PreparedCall(kernel, (X,), (X,), (Req.WRITE,)), on_gpu(np.ones((5, 16), F32))
    y = on_gpu(np.zeros((5, 16), F32))
    places = [x.data_ptr(), y.data_ptr()]
    for value in (2.0, 3.0, 2.0):
        assert call(RUN, places, (value,)) and (transfer.to_host(y) == 1 + value * value).all()
    assert sum(program is not None for program in call._found.values()) == 2
    values = [float(v) for v in range(10, 40)]
    done = [call(RUN, places, (v,)) for v in values]
    assert done[0] and not done[-1]  # so many values are not kept
    assert len(call._found) < 20


@triton.jit
def scaled(x, y, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * factor)


def test_the_number_of_launches_and_their_places_are_found_once(monkeypatch):
    _, kernel, call, outs, reqs = kernel_of("elemwise_add", {}, [X, X])
    x = [np.full((5, 16), v, F32) for v in (1, 2)]
    assert both(kernel, call, x, outs, reqs)[0]
    monkeypatch.setattr(PreparedCall, "_record", lambda *_: pytest.fail("recorded again"))
    called, got, want = both(kernel, call, x, outs, reqs)
    assert called and (got[2] == 3).all() and (want[2] == 3).all()


def test_arrays_that_are_not_aligned_are_left_to_the_ordinary_call():
    _, _, call, _, _ = kernel_of("elemwise_add", {}, [X, X])
    a = on_gpu(np.ones((6, 16), F32))
    at = a.data_ptr()
    assert call(RUN, [at, at, at], ())
    assert not call(RUN, [at + 4, at, at], ())
    assert not call(RUN, [at, at, 0], ())


def test_an_output_that_is_not_wanted_has_no_address():
    outs, reqs = (X, X), (Req.WRITE, Req.NULL)
    _, kernel, call, _, _ = kernel_of("SliceChannel", {"num_outputs": 2, "axis": 1}, [Spec((5, 32), F32)], reqs, outs)
    x = np.arange(160, dtype="float32").reshape(5, 32)
    called, got, want = both(kernel, call, [x], outs, reqs)
    assert called and got[2] is None and (got[1] == x[:, :16]).all() and (want[1] == x[:, :16]).all()


def test_a_kernel_that_asks_for_values_on_the_host_is_not_prepared():
    asked = []

    def kernel(run, inputs, outputs):
        asked.append(run.to_host(inputs[0]))

    call, a = PreparedCall(kernel, (X,), (X,), (Req.WRITE,)), on_gpu(np.ones((5, 16), F32))
    assert not call(RUN, [a.data_ptr(), a.data_ptr()]) and not asked


def test_scratch_memory_and_constants_are_given_by_their_addresses():
    table = np.arange(16, dtype=F32)

    def kernel(run, inputs, outputs):
        between = run.workspace((5, 16), F32)
        launch(scaled, (5,), inputs[0], between, 3.0, 16, BLOCK=16, stream=run.stream)
        launch(scaled, (5,), between, outputs[0], 2.0, 16, BLOCK=16, stream=run.stream)
        launch(scaled, (1,), run.constant(table), outputs[0], 1.0, 16, BLOCK=16, stream=run.stream)

    call = PreparedCall(kernel, (X,), (X,), (Req.WRITE,))
    x, y = on_gpu(np.ones((5, 16), F32)), on_gpu(np.zeros((5, 16), F32))
    for _ in range(2):
        assert call(RUN, [x.data_ptr(), y.data_ptr()])
        assert (transfer.to_host(y)[0] == table).all() and (transfer.to_host(y)[1:] == 6).all()


def test_the_kernel_of_empty_results_is_prepared_for_nobody():
    """All devices share it."""
    a = mx.nd.zeros((0, 3), ctx=mx.gpu(0))
    assert (a + a).shape == (0, 3) and NOTHING.at is None
