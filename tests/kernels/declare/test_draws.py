"""Random numbers in bodies: what is drawn, on every device and with any number of threads; derivatives; graphs.

Oracle: the words of the generator, of which each draw is a simple function.
"""

import importlib.util
import itertools

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.operator_jobs import jobs_of
from tritium.errors import MXNetError
from tritium.kernels.gpu.codegen_checks import wrong_with
from tritium.kernels.gpu.compile import compile_all
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Req, Spec, compiled
from tritium.kernels.philox import words
from tritium.lang import bernoulli, normal, row_sum, training, uniform, where

SEED, OFFSET = 2**63 + 5, 2**40 + 3


@mx.simple_op(name="_test_spread", shape=lambda x, *, copies: (copies, *x), outputs=("y", "noise"), replace=True)
def spread(x, *, copies: int, sigma: mx.Scalar = 1.0):
    noise = sigma * normal()
    return where(bernoulli(0.75), x, 0) + noise, noise


@mx.simple_op(name="_test_drop", replace=True)
def drop(x, *, p: float = 0.3):
    return where(bernoulli(p), 0, x / (1 - p))


@mx.simple_op(name="_test_mixture", replace=True)
def mixture(x, y):
    return x * uniform() + y * uniform(-1, 1) + normal(x, y)


@mx.simple_op(name="_test_noisy_loss", shape=lambda a, b: (1,), replace=True)
def noisy_loss(a, b):
    return (a - b) * uniform()


def computed(op, arrays, run=None, train=True, dtype=None, **params):
    """The outputs of op on the CPU with the numbers of SEED from OFFSET on."""
    p = op.parse(params)
    _, shapes = op.infer_shape(p, [a.shape for a in arrays])
    _, dtypes = op.infer_dtype(p, [a.dtype for a in arrays])
    outs = [np.zeros(s, d) for s, d in zip(shapes, dtypes)]
    specs = [tuple(Spec(a.shape, a.dtype) for a in group) for group in (arrays, outs)]
    kernel = compiled(op, p, *specs, (Req.WRITE,) * len(outs), "cpu", train)
    kernel(run or HostRun(), list(arrays), outs, random=(SEED, OFFSET))
    return outs


def numbers(site, n):
    """The uniform numbers of the site-th draw, where all before it take n words each."""
    return (words(SEED, OFFSET + site * n, n) >> 8).astype(np.float32) * np.float32(2.0**-24)


def on(ctx, fn, *arrays, seed=7):
    mx.random.seed(seed)
    made = fn(*(mx.nd.array(a, ctx=ctx, dtype=a.dtype) for a in arrays))
    return [a.asnumpy() for a in (made if isinstance(made, (list, tuple)) else [made])]


def test_an_operator_of_eight_lines_with_a_shape_rule_random_numbers_and_two_outputs_on_cpu_and_gpu(rng):
    @mx.simple_op(shape=lambda x, *, copies: (copies, *x), outputs=("y", "kept"), replace=True)
    def noisy_copies(x, *, copies: int, sigma: mx.Scalar = 0.1):
        """So many copies of x with noise, of which half the elements are zero."""
        kept = bernoulli(0.5)
        return where(kept, normal(x, sigma), 0), where(kept, 1, 0)

    x = rng.normal(size=(3, 50)).astype("float32")
    (y, kept), (y_gpu, kept_gpu) = (on(c, lambda a: noisy_copies(a, copies=4, sigma=0.01), x) for c in (mx.cpu(), mx.gpu()))
    assert y.shape == kept.shape == (4, 3, 50) and set(np.unique(kept)) == {0, 1}
    np.testing.assert_array_equal(kept, kept_gpu)
    assert_close(y_gpu, y)
    assert np.all((y != 0) == (kept == 1)) and np.abs(y - x)[kept == 1].max() < 0.06 and 0.4 < kept.mean() < 0.6


def test_each_draw_takes_the_next_numbers_of_the_generator():
    x = np.full((3, 5), 2.0, "float32")
    y, *_ = computed(drop, [x], p=0.3)
    dropped = words(SEED, OFFSET, 15).reshape(3, 5) < round(0.3 * 2**32)
    np.testing.assert_array_equal(y == 0, dropped)
    one, two = np.full(15, 1, "float32"), np.zeros(15, "float32")
    y, *_ = computed(mixture, [one, two])
    np.testing.assert_array_equal(y, numbers(0, 15) * 1 + 0 + 1)
    y, *_ = computed(mixture, [two, one])
    pairs = words(SEED, OFFSET + 30, 16).reshape(8, 2)  # normal numbers come in pairs, of two words each
    radius = np.sqrt(-2 * np.log(((pairs[:, 0] >> 8) + 1.0) / 2**24))
    angle = (pairs[:, 1] >> 8) * (2 * np.pi / 2**24)
    z = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[:15]
    assert_close(y, numbers(1, 15) * 2 - 1 + z)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (0,), (3, 5), (2, 129), (70, 1000)])
def test_draws_are_equal_on_cpu_and_gpu(shape, rng):
    x, y = rng.normal(size=(2, *shape)).astype("float32")
    for fn, arrays in ((drop, [x]), (mixture, [x, y]), (lambda a: spread(a, copies=3, sigma=0.5), [x])):
        for cpu, gpu in zip(on(mx.cpu(), fn, *arrays), on(mx.gpu(), fn, *arrays)):
            assert_close(gpu, cpu)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_draws_in_other_dtypes(ctx, dtype):
    @mx.simple_op(name="_test_only_uniform", replace=True)
    def only(x):
        return x * 0 + uniform()

    mx.random.seed(1)
    y = only(mx.nd.zeros((20000,), ctx, dtype=dtype)).asnumpy().astype("float64")
    mx.random.seed(1)
    want = mx.nd.random.uniform(shape=(20000,), dtype=dtype, ctx=ctx).asnumpy().astype("float64")
    np.testing.assert_array_equal(y, want)  # as the framework's own uniform numbers: below 1 in every dtype
    assert y.min() >= 0 and y.max() < 1


def test_the_result_does_not_depend_on_the_order_of_tiles(rng):
    class Backwards(HostRun):
        def parallel(self, fn, n):
            for i in reversed(range(n)):
                fn(i)

    x = rng.normal(size=(1, 600_001)).astype("float32")  # larger than a register, of an odd length
    for op, params in ((mixture, {}), (spread, {"copies": 3})):
        arrays = [x] * len(op.input_names)
        for got, want in zip(computed(op, arrays, Backwards(), **params), computed(op, arrays, **params)):
            np.testing.assert_array_equal(got, want)
    x = np.ones(1_200_002, "float32")
    y, *_ = computed(drop, [x])
    np.testing.assert_array_equal(y == 0, words(SEED, OFFSET, x.size) < round(0.3 * 2**32))
    y, *_ = computed(mixture, [np.zeros_like(x), x])
    small = (words(SEED, OFFSET + 2 * x.size, x.size).reshape(-1, 2) >> 8) / 2**24
    angle = 2 * np.pi * small[:, 1]
    z = np.sqrt(-2 * np.log(small[:, :1] + 2**-24)) * np.stack([np.cos(angle), np.sin(angle)], 1)
    np.testing.assert_allclose(y, numbers(1, x.size) * 2 - 1 + z.reshape(-1), atol=2e-5)


def test_axes_along_which_a_draw_is_shared(ctx):
    @mx.simple_op(name="_test_shared", outputs=("rows", "columns"), replace=True)
    def shared(x):
        return x + uniform(shared=(1,)), x + normal(shared=(0, 2))

    rows, columns = on(ctx, shared, np.zeros((3, 40, 5), "float32"))
    assert np.all(rows == rows[:, :1]) and len(np.unique(rows)) == 15
    assert np.all(columns == columns[:1, :, :1]) and len(np.unique(columns)) == 40


def test_the_same_seed_gives_the_same_numbers_and_each_call_others(ctx):
    x = np.zeros((4, 50), "float32")
    first, again, other = (on(ctx, lambda a: mixture(a, a + 1), x, seed=s)[0] for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    a = mx.nd.array(x, ctx)
    assert not np.array_equal(drop(a + 1).asnumpy(), drop(a + 1).asnumpy())


def test_moments(ctx):
    n = 40_000
    (y,) = on(ctx, lambda a: mixture(a, a + 1), np.zeros(n, "float32"))
    assert abs(y.mean()) < 5 * np.sqrt((1 / 3 + 1) / n) and abs(y.var() - (1 / 3 + 1)) < 0.05


def test_the_derived_derivative_reads_the_numbers_that_forward_drew(ctx, rng):
    x = mx.nd.array(rng.uniform(1, 2, size=(5, 40)), ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = drop(x, p=0.25)
    y.backward()
    assert_close(x.grad, np.where(y.asnumpy() == 0, 0, 1 / 0.75))
    a, b = (mx.nd.array(rng.normal(size=(30,)), ctx) for _ in range(2))
    a.attach_grad()
    b.attach_grad()
    u = mx.nd.array(rng.normal(size=30), ctx)
    mx.random.seed(11)
    with mx.autograd.record():
        y = mixture(a, b)
    y.backward(u)
    mx.random.seed(11)
    by_a = mixture(a + 1, b) - y  # linear in both
    mx.random.seed(11)
    by_b = mixture(a, b + 1) - y
    np.testing.assert_allclose(a.grad.asnumpy(), (by_a * u).asnumpy(), atol=1e-5)
    np.testing.assert_allclose(b.grad.asnumpy(), (by_b * u).asnumpy(), atol=1e-5)


def test_a_drawn_mask_is_kept_as_one_byte_and_only_where_backward_reads_it():
    p = drop.parse({})
    assert drop.outputs(p) == ("output", "draw0") and drop.visible_outputs(p) == 1
    assert drop.infer_dtype(p, [np.dtype("float16")])[1] == [np.dtype("float16"), np.dtype("uint8")]

    @mx.simple_op(name="_test_added", replace=True)
    def added(x):
        return x + normal()  # the derivative does not read the number

    assert added.outputs(added.parse({})) == ("output",)


def test_draws_in_a_loss_that_is_folded(ctx, rng):
    a, b = rng.normal(size=(2, 20, 30)).astype("float32")
    xa, xb = mx.nd.array(a, ctx), mx.nd.array(b, ctx)
    xa.attach_grad()
    mx.random.seed(2)
    with mx.autograd.record():
        loss = noisy_loss(xa, xb)
    loss.backward()
    assert loss.shape == (1,)
    g = xa.grad.asnumpy()
    assert 0 <= g.min() < g.max() < 1 and len(np.unique(g)) > 500
    assert_close(loss, [np.sum((a - b).astype("float64") * g)], scale=10)


def test_draws_in_a_formula_over_rows(ctx):
    @mx.simple_op(name="_test_centred", replace=True)
    def centred(x):
        n = x + normal()
        return n - row_sum(n) / row_sum(1)

    results = [on(c, centred, np.zeros((6, 33), "float32"))[0] for c in (mx.cpu(), ctx)]
    assert_close(results[1], results[0])
    np.testing.assert_allclose(results[1].mean(-1), 0, atol=1e-6)
    assert 0.7 < results[1].std() < 1.3


def test_a_graph_draws_anew_in_every_run_and_its_backward_reads_the_same_numbers(ctx):
    out = mx.sym.relu(mx.sym._test_drop(mx.sym.Variable("x") * 2, p=0.5, name="drop"))
    ex = out.simple_bind(ctx, x=(10, 30), grad_req="write")
    ex.arg_dict["x"][:] = 1
    seen = []
    for _ in range(4):  # on a GPU, later runs replay the launches of the first
        ex.forward(is_train=True)
        ex.backward(mx.nd.ones((10, 30), ctx))
        y, g = ex.outputs[0].asnumpy(), ex.grad_dict["x"].asnumpy()
        np.testing.assert_array_equal(g, y)
        assert set(np.unique(y)) == {0, 4}
        seen.append(y)
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(seen))
    mx.random.seed(9)
    ex.forward(is_train=False)
    first = ex.outputs[0].asnumpy()
    mx.random.seed(9)
    ex.forward(is_train=False)
    np.testing.assert_array_equal(ex.outputs[0].asnumpy(), first)


def test_a_body_can_ask_whether_it_trains(ctx):
    @mx.simple_op(name="_test_in_training", replace=True)
    def in_training(x):
        return where(bernoulli(0.5), 0, x) if training() else x

    x = mx.nd.ones((100,), ctx)
    assert in_training(x).asnumpy().all()
    with mx.autograd.record():
        assert not in_training(x).asnumpy().all()


def test_a_probability_of_zero_and_of_one(ctx):
    assert drop(mx.nd.ones((500,), ctx), p=0.0).asnumpy().all()

    @mx.simple_op(name="_test_always", replace=True)
    def always(x):
        return where(bernoulli(1), 5, x)

    assert (always(mx.nd.ones((500,), ctx)).asnumpy() == 5).all()


def test_a_probability_that_is_an_array(ctx):
    @mx.simple_op(name="_test_bernoulli_of", replace=True)
    def bernoulli_of(p):
        return where(bernoulli(p), 1, 0)

    y = bernoulli_of(mx.nd.array(np.repeat([[0.0], [0.3], [1.0]], 5000, 1), ctx)).asnumpy()
    assert not y[0].any() and y[2].all() and abs(y[1].mean() - 0.3) < 0.03


def test_errors():
    with pytest.raises(MXNetError, match=r"uniform: can be called in the body of an operator alone, and no body is being traced "
                                         r"\(test_draws.py:\d+\). For an array of random numbers call mx.nd.random."):
        uniform()

    @mx.simple_op(name="_test_drawing_gradient", replace=True)
    def drawing_gradient(x):
        return x * uniform()

    @drawing_gradient.gradient
    def _(dy):
        return dy * uniform()

    with pytest.raises(MXNetError, match=r"_test_drawing_gradient: the gradient draws random numbers \(test_draws.py:\d+\); its "
                                         r"numbers would not be those of the forward pass. Return the draw as an output"):
        x = mx.nd.ones((2,))
        x.attach_grad()
        with mx.autograd.record():
            drawing_gradient(x).backward()

    @mx.reduction(name="_test_drawing_reduction", combine="add", replace=True)
    def drawing_reduction(x):
        return x * uniform()

    with pytest.raises(MXNetError, match=r"_test_drawing_reduction: the body of a reduction draws random numbers"):
        drawing_reduction(mx.nd.ones((2,)))

    @mx.simple_op(name="_test_wrong_probability", replace=True)
    def wrong_probability(x):
        return where(bernoulli(1.5), x, 0)

    with pytest.raises(MXNetError, match=r"bernoulli: p=1.5 is not a probability. Give a number from 0 to 1."):
        wrong_probability(mx.nd.ones((2,)))


def test_the_source_says_what_is_drawn():
    assert "x1" in drop.cpu_source((4, 5)) and "_random_words(seed, offset + first1 + base, BLOCK)" in drop.triton_source((4, 5))
    with pytest.raises(MXNetError, match=r"_test_drop: has no C kernel: it draws random numbers. It is computed with NumPy"):
        drop.cpu_source((4, 5), code="c")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_kernels_that_draw_compile_for_every_target():
    cases = (mixture, [(4096, 64)] * 2), (noisy_loss, [(512, 640)] * 2)
    uses = [(op, shapes, target) for target in (80, 90, 100) for op, shapes in cases]
    jobs = [job for op, shapes, target in uses for job in jobs_of(op, shapes, {}, np.dtype("float32"), target)]
    assert len(jobs) >= 9
    for job, kernel in zip(jobs, compile_all(jobs)):
        assert not [w for w in wrong_with(job, kernel) if "spill" in w], job.name
