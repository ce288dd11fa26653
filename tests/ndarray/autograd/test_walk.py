"""Backward is a program of the tape's structure; what ran before changes nothing. Oracle: NumPy in float64; an empty cache."""

import gc
import weakref

import numpy as np
import pytest
from support.helpers import assert_close
from tritium import autograd, nd
from tritium.errors import MXNetError
from tritium.kernels.kernel import Kernel
from tritium.ndarray.autograd.program import NEW
from tritium.ndarray.autograd.walk import PROGRAMS


@pytest.fixture(autouse=True)
def programs():
    PROGRAMS.clear()
    return PROGRAMS


def variable(values, ctx=None, req="write"):
    a = nd.array(values, ctx)
    a.attach_grad(req)
    return a


def mixed(x, w):
    """Small and larger operators, broadcasts, sums, views, and arrays that are used more than once."""
    h = nd.tanh(x * w + x)
    h = nd.broadcast_add(h, w[0:1]) * 0.5
    return nd.dot(nd.relu(h), w, transpose_b=True) * nd.exp(-h).mean() + (h.reshape((-1,)) * 2).sum()


@pytest.mark.parametrize("n", [3, 130])
@pytest.mark.parametrize("req", ["write", "add"])
def test_a_tape_seen_before_gives_the_same_bits(n, req, ctx, rng, programs):
    values = rng.normal(size=(2, n, n)).astype("float32")
    seen = []
    for _ in range(4):
        x, w = variable(values[0], ctx, req), variable(values[1], ctx, req)
        with autograd.record():
            y = mixed(x, w)
        y.backward()
        seen.append((x.grad.asnumpy(), w.grad.asnumpy()))
    assert len(programs) == 1
    programs.clear()
    x, w = variable(values[0], ctx, req), variable(values[1], ctx, req)
    with autograd.record():
        y = mixed(x, w)
    y.backward()
    for dx, dw in seen:
        assert np.array_equal(dx, x.grad.asnumpy()) and np.array_equal(dw, w.grad.asnumpy())


@pytest.mark.parametrize("kept, arrays", [(False, 1), (True, 4)])
def test_a_derivative_takes_the_memory_of_the_one_it_is_made_from(kept, arrays, ctx, rng, programs):
    """Unless it is a result: then there are the three and the ones that they begin with."""
    values = rng.normal(size=(80, 90))
    x = variable(values.astype("float32"), ctx)
    with autograd.record():
        a = nd.tanh(x)
        b = nd.tanh(a)
        y = nd.tanh(b)
    if kept:
        dx = autograd.grad([y], [x, a, b])[0]
    else:
        y.backward()
        dx = x.grad
    (program,) = programs.values()
    (item,) = program.items
    assert sum(len(step[4]) for step in item.code.steps) + sum(kind == NEW for _, kind, _ in item.fetched) == arrays
    want = np.ones_like(values)
    for _ in range(3):
        values = np.tanh(values)
        want *= 1 - values**2
    assert_close(dx.asnumpy(), want.astype("float32"))


def test_ones_to_which_a_derivative_is_added_are_made_anew(ctx, programs):
    """Other ones, which are only read, are the same in every run."""
    x = variable([1.0, 2.0], ctx)
    for _ in range(5):
        with autograd.record():
            y = nd.tanh(x)
            z = y * 3
        autograd.backward([y, z])
        assert_close(x.grad.asnumpy(), (4 * (1 - np.tanh([1.0, 2.0]) ** 2)).astype("float32"))
    assert len(programs) == 1


def test_parameters_of_the_run_are_those_of_this_tape(programs):
    x = variable([1.0, 2.0])
    for factor in (3.0, 5.0, -1.0):
        with autograd.record():
            y = (x * factor) * factor + factor
        y.backward()
        assert x.grad.tolist() == [factor * factor] * 2
    assert len(programs) == 1


def test_parameters_of_the_run_change_after_steps_were_fused(programs):
    x = variable([1.0, 2.0])
    for factor in (3.0, 3.0, 3.0, 3.0, 5.0, 3.0, 3.0, 3.0):
        with autograd.record():
            y = nd.relu((x * factor) * 2.0) * x
        y.backward()
        assert x.grad.tolist() == [4 * factor, 8 * factor]
    (program,) = programs.values()
    assert any("fused" in step[-1] for code in program._fused[1] for step in code.steps)


def test_a_factor_of_zero_keeps_its_sign():
    x = variable([1.0, 2.0])
    for factor in (0.0, 0.0, 0.0, 0.0, -0.0):
        with autograd.record():
            y = nd.relu(x) * factor * 3.0 * 0.0
        y.backward()
        assert np.signbit(x.grad.asnumpy()).tolist() == [factor == 0 and str(factor) == "-0.0"] * 2


def gates(F, x, w):
    h = F.tanh(x * w) * F.sigmoid(x) + F.relu(x - w) / (F.abs(w) + 1.5)
    h = F.where(x > w, h * h, F.sqrt(F.abs(h) + 0.5)) - 0.25 * h
    return F.square(h) * x + F.exp(-h) * w + F.maximum(h, w)


@pytest.mark.parametrize("code", ["c", "numpy", "auto"])
@pytest.mark.parametrize("n, dtype", [(0, "float32"), (1, "float32"), (17, "float64"), (40_013, "float32"), (1500, "float16")])
def test_fused_steps_give_the_bits_of_single_ones(n, dtype, code, rng, programs, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", code)
    values = rng.normal(size=(2, n)).astype(dtype)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 3e38])
    for v, spread in zip(values, (np.repeat(special, 8), np.tile(special, 8))):
        with np.errstate(all="ignore"):
            v[:64] = spread[:n]
    seen = []
    x, w = nd.array(values[0], dtype=dtype), nd.array(values[1], dtype=dtype)
    x.attach_grad()
    w.attach_grad("add")
    for _ in range(4):
        w.grad[:] = 0.5
        with autograd.record():
            y = gates(nd, x, w)
        y.backward()
        seen.append((x.grad.asnumpy(), w.grad.asnumpy()))
    (program,) = programs.values()
    assert (program._fused[1][0] is not program.items[0].code) == (dtype != "float16")
    for dx, dw in seen:
        for a, b in ((dx, seen[0][0]), (dw, seen[0][1])):
            assert np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a)[a == 0], np.signbit(b)[b == 0])


def test_a_head_gradient_on_the_memory_of_a_gradient(programs):
    x = variable([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(5):
        x.grad[:] = nd.array([[1.0, 0.0], [2.0, 1.0]])
        with autograd.record():
            y = nd.relu(nd.dot(x, x)) * 3 - x
        y.backward(x.grad)
        a, g = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [2.0, 1.0]])
        assert_close(x.grad, 3 * (g @ a.T + a.T @ g) - g)


def test_what_the_structure_consists_of(programs):
    def run(fn, heads=1, req="write", **options):
        x, w = variable([1.0, 2.0], req=req), variable([3.0, 4.0])
        with autograd.record():
            y = fn(x, w)
        autograd.backward([y] * heads, **options)
        return x.grad.tolist(), len(programs)

    product, other = (lambda x, w: x * w), (lambda x, w: w * x)
    assert run(product) == ([3, 4], 1)
    assert run(other) == ([3, 4], 2)  # inputs in another order
    assert run(product, req="add") == ([3, 4], 3)
    assert run(product, heads=2) == ([6, 8], 4)
    assert run(product, head_grads=[nd.array([2.0, 0.5])]) == ([6, 2], 5)
    assert run(lambda x, w: x * x) == ([2, 4], 6)
    assert run(lambda x, w: x * w.detach()) == ([3, 4], 7)
    assert run(product, retain_graph=True) == ([3, 4], 7)


@pytest.mark.parametrize("n", [5, 3000])
def test_long_tapes_of_several_tasks(n, ctx, rng):
    value, factor = rng.uniform(0.1, 0.5, size=(n,)), rng.uniform(0.5, 1.5, size=(n,))
    x, w = variable(value, ctx), nd.array(factor, ctx)
    with autograd.record():
        y, kept = x, []
        for i in range(100):
            y = y * w if i % 3 else nd.tanh(y) + x
            kept.append(y)
    y.backward()
    expected, at = np.zeros(n), [value]
    for i in range(100):
        at.append(at[-1] * factor if i % 3 else np.tanh(at[-1]) + value)
    dy = np.ones(n)
    for i in reversed(range(100)):
        expected += 0 if i % 3 else dy
        dy = dy * factor if i % 3 else dy * (1 - np.tanh(at[i]) ** 2)
    assert_close(x.grad, expected + dy, scale=50)  # 50: a hundred roundings


class Sometimes(autograd.Function):
    """The sum of two arrays; returns the derivatives of those that are wanted."""

    def __init__(self, *wanted):
        self.wanted = wanted

    def forward(self, x, y):
        return x + y

    def backward(self, dy):
        return [dy if w else None for w in self.wanted]


@pytest.mark.parametrize("to_buffers", [True, False])
def test_a_function_may_return_none_now_and_then(to_buffers, programs):
    x, w = variable([1.0, 2.0]), variable([3.0, 4.0])
    for wanted in ((1, 1), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1)):
        with autograd.record():
            y = Sometimes(*wanted)(nd.exp(x) * w, w * 2) * w + nd.exp(x)
        if to_buffers:
            y.backward()
            dx, dw = x.grad, w.grad
        else:
            dx, dw = autograd.grad(y, [x, w])
        e, b = np.exp([1.0, 2.0]), np.array([3.0, 4.0])
        total = e * b + b * 2
        assert_close(dx, wanted[0] * b * b * e + e)
        assert_close(dw, total + wanted[0] * b * e + wanted[1] * 2 * b)
    assert len(programs) == 4


class Spoils(autograd.Function):
    """The identity; its backward writes to the derivative that it gets."""

    def forward(self, x):
        return x * 1

    def backward(self, dy):
        dy *= 10
        return dy


def test_the_derivatives_of_a_sum_are_arrays_of_their_own(ctx):
    x, y = variable([1.0, 2.0], ctx), variable([3.0, 4.0], ctx)
    with autograd.record():
        z = x + y
    dx, dy = autograd.grad(z, [x, y])
    dx += 1
    assert dx.tolist() == [2, 2] and dy.tolist() == [1, 1]
    with autograd.record():
        h = x * 2
        z = Spoils()(h) + h + y
    z.backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([22, 22], [1, 1])


def test_derivatives_that_a_sum_passes_on_keep_their_bits(ctx):
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45], np.float32)
    x, y = variable(np.zeros(6), ctx), variable(np.zeros(6), ctx)
    with autograd.record():
        z = (x + y) + y.reshape((6,))
    z.backward(nd.array(special, ctx))
    assert np.array_equal(x.grad.asnumpy().view(np.int32), special.view(np.int32))


def test_a_gradient_that_the_tape_reads_and_this_backward_overwrites():
    def run(fn):
        x = variable([1.0, 2.0])
        x.grad[:] = nd.array([2.0, 4.0])
        with autograd.record():
            y = fn(x)
        y.backward()
        return x.grad.tolist()

    assert run(lambda x: x * x.grad) == [2, 4]
    for fn in (lambda x: (x * x.grad) * x, lambda x: x * x.grad + nd.tanh(x * x.grad)):
        with pytest.raises(MXNetError, match=r"elemwise_mul needs .* as it was, but its memory was written in place"):
            run(fn)


def test_an_error_names_the_operator_that_failed(programs):
    x = variable([1.0, 2.0])

    def step():
        with autograd.record():
            y = nd.exp(nd.tanh(x)) * 2
        y.backward()

    def broken(rc, ins, outs):
        raise ValueError("out of order")

    step()
    (program,) = programs.values()
    (item,) = program.items
    at = next(i for i, ready in enumerate(item.code.steps) if ready[-1] == "_backward_tanh")
    good = item.code.steps[at]
    item.code.steps[at] = (Kernel(broken), *good[1:])
    step()
    with pytest.raises(ValueError, match=r"^_backward_tanh: out of order \(pushed at .*test_walk.py:\d+\)"):
        x.grad.asnumpy()
    item.code.steps[at] = good
    step()
    assert np.isfinite(x.grad.asnumpy()).all()


def test_nodes_freed_before_are_refused_before_anything_is_written():
    x = variable([1.0, 2.0])
    with autograd.record():
        h = nd.exp(x)
        y, z = h * 2, h * 3
    y.backward()
    before = x.grad.asnumpy()
    with pytest.raises(MXNetError, match="kept were freed by an earlier backward"):
        z.backward()
    assert np.array_equal(x.grad.asnumpy(), before)


@pytest.mark.parametrize("create_graph", [False, True])
def test_what_was_freed_before_an_array_is_used_again_is_constant_as_in_mxnet(create_graph):
    w, s, found = variable([2.0]), nd.array([1.0]), []
    for _ in range(3):  # a recurrent state that is not detached: MXNet 1.9.1 gives these derivatives
        with autograd.record():
            s = s * w
            loss = s * s
        if create_graph:
            found.append(autograd.grad([loss], [w], create_graph=True, retain_graph=False)[0].asscalar())
        else:
            loss.backward()
            found.append(w.grad.asscalar())
    assert found == [4.0, 16.0, 64.0]


def test_an_array_of_freed_ones_alone_has_no_derivative():
    x = variable([3.0])
    with autograd.record():
        y = x * x
    y.backward()
    with autograd.record():
        z = y * 5
    with pytest.raises(MXNetError, match="all that these arrays were computed from was freed"):
        z.backward()


def test_a_program_keeps_no_arrays(programs):
    x = variable(np.ones((300, 300)))
    with autograd.record():
        h = nd.tanh(x)
        y = h * h
    y.backward()
    x.grad.wait_to_read()
    gone = weakref.ref(h), weakref.ref(x.grad)
    del h, x, y
    gc.collect()
    assert len(programs) == 1 and [r() for r in gone] == [None, None]
