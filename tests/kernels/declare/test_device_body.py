"""Bodies for one device, beside the formula and instead of it, and what check() says of every sort of declaration."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import MXNetError, OperatorError, ShapeError
from tritium.kernels.declare.check_op import run_cpu
from tritium.kernels.gpu.source import tl
from tritium.kernels.op import Req
from tritium.lang import bernoulli, exp, normal, uniform, where


@mx.operator.jit
def cube_kernel(x, y, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n)
    tl.store(y + at, v * v * v * factor, at < n)


@mx.operator.jit
def reverse_kernel(x, y, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y + row * columns + columns - 1 - at, tl.load(x + row * columns + at, at < columns), at < columns)


@mx.operator.jit
def turn_kernel(x, y, out, columns, k, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    turned = tl.load(x + row * columns + columns - 1 - at, at < columns)
    tl.store(out + row * columns + at, turned + k * tl.load(y + row * columns + at, at < columns), at < columns)


@mx.operator.jit
def scale_kernel(x, y, columns, k, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y + row * columns + at, k * tl.load(x + row * columns + at, at < columns), at < columns)


@mx.simple_op(name="_test_cube", replace=True)
def cube(x, *, factor: mx.Scalar = 1.0):
    """The cube of x, by a formula, and by a body for each device."""
    return x * x * x * factor


@cube.cpu
def _(x, *, factor):
    return x**3 * factor


cube.gpu(lambda x, y, *, factor: mx.operator.launch(cube_kernel, ((y.numel() + 63) // 64,), x, y, y.numel(), factor, BLOCK=64))


@mx.simple_op(name="_test_flipped", replace=True)
def flipped(x):
    """Each row from its end. It has no formula."""


@flipped.cpu
def _(x):
    return x[..., ::-1]


@flipped.gpu
def _(x, y):
    columns = x.shape[-1] if x.shape else 1
    mx.operator.launch(reverse_kernel, (x.numel() // columns,), x, y, columns, BLOCK=256)


@flipped.gradient
def _(dy):
    return dy * 0 + 7  # no formula reverses: a recognisable constant


@mx.simple_op(name="_test_histogram", shape=lambda x, *, bins: (bins,), dtype="int32", differentiable=False, replace=True)
def histogram(x, *, bins: int):
    """The number of elements of each value."""


@histogram.cpu
def _(x, *, bins):
    return np.bincount(x.astype(int).reshape(-1), minlength=bins)[:bins]


@mx.simple_op(name="_test_turned", replace=True)
def turned(x, y, *, k: float = 1.0):
    """x from the end of each row, plus k y: the derivative by x is no formula of one element."""


@turned.cpu
def _(x, y, *, k):
    return x[..., ::-1] + k * y


@turned.gpu
def _(x, y, out, *, k):
    mx.operator.launch(turn_kernel, (x.numel() // x.shape[-1],), x, y, out, x.shape[-1], k, BLOCK=256)


@turned.cpu_gradient
def _(dy, y, *, k):
    return dy[..., ::-1], k * dy * np.ones_like(y)


@turned.gpu_gradient
def _(dy, y, dx, dright, *, k):
    rows, columns = dy.numel() // dy.shape[-1], dy.shape[-1]
    mx.operator.launch(reverse_kernel, (rows,), dy, dx, columns, BLOCK=256)
    mx.operator.launch(scale_kernel, (rows,), dy, dright, columns, k, BLOCK=256)


@pytest.mark.parametrize("req", ["write", "add"])
def test_derivatives_for_each_device(ctx, rng, req):
    x, y, u = rng.normal(size=(3, 4, 6))
    check_gradient(lambda a, b: turned(a, b, k=2.0), [x, y], ctx, rng)
    made = getattr(mx.sym, "_test_turned")(mx.sym.Variable("x"), mx.sym.Variable("y"), k=2.0)  # noqa: B009
    ex = made.simple_bind(ctx, x=x.shape, y=y.shape, grad_req=req)
    for _ in range(3):
        ex.forward(is_train=True, x=x, y=y)
        ex.backward(mx.nd.array(u, ctx))
    n = 3 if req == "add" else 1
    assert_close(ex.outputs[0], x[:, ::-1] + 2 * y)
    assert_close(ex.grad_dict["x"], n * u[:, ::-1])
    assert_close(ex.grad_dict["y"], n * 2 * u)


def test_mistakes_of_derivatives_for_the_cpu_or_a_gpu():
    op = mx.simple_op(lambda x: None, name="_test_bad", replace=True)
    op.cpu(lambda x: x)
    op.cpu_gradient(lambda dy, x: dy)
    with pytest.raises(OperatorError, match=r"_test_bad\.gpu_gradient: reads dy, and the derivative for the other device dy"):
        op.gpu_gradient(lambda dy, dx: None)
    with pytest.raises(OperatorError, match=r"_test_bad: the gradient asks for 'z'\. It can ask for dy, y, x\."):
        op.cpu_gradient(lambda z: z)
    op.gpu(lambda x, y: mx.operator.launch(reverse_kernel, (1,), x, y, 3, BLOCK=4))
    x = mx.nd.ones((3,), mx.gpu())
    x.attach_grad()
    with pytest.raises(OperatorError, match=r"_test_bad: has no derivative for the GPU\. Declare it with @_test_bad"):
        with mx.autograd.record():
            y = op(x)
        y.backward()


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0,), (2, 129)])
def test_a_body_for_each_device_beside_the_formula(ctx, rng, shape):
    x = rng.normal(size=shape).astype("float32")
    assert_close(cube(mx.nd.array(x, ctx), factor=2.5), 2.5 * x.astype("float64") ** 3)
    check_gradient(lambda a: cube(a, factor=0.5), x, ctx, rng)  # derived from the formula


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
def test_dtypes_of_device_bodies(ctx, dtype):
    x = mx.nd.array(np.arange(12).reshape(3, 4), ctx, dtype=dtype)
    y = flipped(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.asnumpy().astype(float), np.arange(12.0).reshape(3, 4)[:, ::-1])


def test_bodies_instead_of_a_formula(ctx, rng):
    x = mx.nd.array(rng.normal(size=(4, 9)), ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = flipped(x)
    y.backward()
    np.testing.assert_array_equal(y.asnumpy(), x.asnumpy()[:, ::-1])
    assert (x.grad.asnumpy() == 7).all()


@pytest.mark.parametrize("req", ["write", "add"])
def test_device_bodies_in_graphs_and_write_requests(ctx, rng, req):
    x = rng.normal(size=(4, 9)).astype("float32")
    made = getattr(mx.sym, "_test_flipped")(mx.sym.relu(mx.sym.Variable("x"))) + 1  # noqa: B009
    ex = made.simple_bind(ctx, x=(4, 9))
    for _ in range(3):
        assert_close(ex.forward(x=x)[0], np.maximum(x, 0)[:, ::-1] + 1)
    op = flipped
    held = mx.nd.ones((4, 9), ctx)
    op(mx.nd.array(x, ctx), out=held)
    assert_close(held, x[:, ::-1])
    assert op.expression(op.parse({}), [np.dtype("float32")]) is None


def test_an_added_result_of_a_device_body(ctx, rng):
    x, y = rng.normal(size=(3, 5)).astype("float32"), np.ones((3, 5), "float32")
    run_cpu(flipped, flipped.parse({}), [x], [Req.ADD], [y])
    assert_close(y, x[:, ::-1] + 1)


def test_a_shape_and_a_dtype_rule_with_a_body_for_the_cpu_and_none_for_a_gpu():
    x = mx.nd.array([0, 1, 1, 4, 2], dtype="float32")
    y = histogram(x, bins=4)
    assert y.dtype == np.int32 and y.asnumpy().tolist() == [1, 2, 1, 0]
    with pytest.raises(MXNetError, match=r"_test_histogram: has neither a formula nor a body for the GPU\. Return a formula "
                                         r"from its body, or declare one with @_test_histogram\.gpu\."):
        histogram(x.as_in_context(mx.gpu()), bins=4).wait_to_read()


def test_a_gpu_kernel_itself_stands_for_the_function_that_launches_it(rng):
    op = mx.simple_op(lambda x, *, factor=1.0: x * x * x * factor, name="_test_kernel_alone", outputs=("y",), replace=True)
    op.gpu(cube_kernel)
    x = rng.normal(size=(3000,)).astype("float32")
    assert_close(op(mx.nd.array(x, mx.gpu()), factor=2.0), 2.0 * x.astype("float64") ** 3)


@pytest.mark.parametrize("body, text", [
    (lambda x: x[:, :2],
     r"_test_bad: the body for the CPU returned the shape \(3, 2\), and the output has \(3, 4\)\. Declare another"),
    (lambda x: (x, x), r"_test_bad: the body for the CPU returned 2 arrays, not one for each of the 1 outputs\."),
    (lambda x: "text", r"_test_bad: the body for the CPU returned .*\. Return numbers\."),
])
def test_what_a_body_for_the_cpu_returns_is_checked(body, text):
    op = mx.simple_op(lambda x: None, name="_test_bad", replace=True)
    op.cpu(body)
    with pytest.raises(MXNetError, match=text):
        op(mx.nd.ones((3, 4))).wait_to_read()


def test_a_body_for_the_cpu_cannot_change_its_inputs():
    op = mx.simple_op(lambda x: None, name="_test_bad", replace=True)

    @op.cpu
    def _(x):
        x[0] = 5
        return x

    with pytest.raises(ValueError, match="read-only"):
        op(mx.nd.ones((3,))).wait_to_read()


def test_mistakes_of_declarations():
    op = mx.simple_op(lambda x: None, name="_test_bad", replace=True)
    op.cpu(lambda x: x)
    x = mx.nd.ones((2,))
    x.attach_grad()
    with pytest.raises(OperatorError, match=r"_test_bad: has no formula to derive its derivative from\. Declare it with "
                                            r"@_test_bad\.gradient, or say differentiable=False\."):
        with mx.autograd.record():
            op(x).backward()
    with pytest.raises(OperatorError, match=r"_test_bad\.cpu: got 3, which is not a function\."):
        op.cpu(3)
    drawing = mx.simple_op(lambda x: x * uniform(), name="_test_bad", replace=True)
    drawing.cpu(lambda x: x)
    with pytest.raises(OperatorError, match=r"_test_bad: its formula draws random numbers, which a body for one device cannot\."):
        drawing(mx.nd.ones((2,)))
    fold = mx.reduction(lambda x: x, name="_test_bad", combine="add", replace=True)
    with pytest.raises(OperatorError, match=r"_test_bad\.cpu: is a reduction, which is declared by its formula alone\."):
        fold.cpu(lambda x: x)


def test_check_of_an_operator_without_arrays(capsys):
    op = mx.simple_op(lambda *, size=(3, 40): normal(), name="_test_checked", shape=lambda *, size: size, replace=True)
    assert [line[0] for line in said(op, capsys)] == ["values", "requests", "gradient", "gpu"]


# ---- check() ------------------------------------------------------------------------------------------------------------
def said(op, capsys, **options):
    op.check(**options)
    return [line.split(":", 1)[1].split() for line in capsys.readouterr().out.splitlines()]


def test_check_of_an_operator_that_draws(capsys):
    op = mx.simple_op(lambda x, y: where(bernoulli(0.3), 0, x * uniform()) + normal(y), name="_test_checked", replace=True)
    lines = said(op, capsys)
    assert [line[0] for line in lines] == ["values", "requests", "gradient", "gpu"]
    assert "equal for equal seeds, others for others" in " ".join(lines[0]) and "keeps draw0, draw1" in " ".join(lines[2])


def test_check_of_several_outputs_and_of_a_fold(capsys):
    two = mx.simple_op(lambda x: (exp(x), x * x), name="_test_checked", outputs=("a", "b"), replace=True)
    assert [line[0] for line in said(two, capsys)] == ["values", "requests", "gradient", "gpu"]
    loss = mx.simple_op(lambda x, t: (x - t) * (x - t), name="_test_checked", shape=lambda x, t: (1,), replace=True)
    assert said(loss, capsys)[1] == ["requests", "write,", "add,", "in", "place", "on", "0", "of", "2", "inputs"]


def test_check_of_cpu_and_gpu_bodies(capsys):
    lines = [" ".join(line) for line in said(cube, capsys, factor=1.5)]
    assert "cpu the body for the CPU equals the formula" in lines and lines[-1].startswith("gpu interpreted, equals the CPU")
    wrong = mx.simple_op(lambda x: x * 2, name="_test_checked", replace=True)
    wrong.cpu(lambda x: x * 3)
    with pytest.raises(AssertionError, match="_test_checked: the body for the CPU and the formula differ"):
        wrong.check()


def test_check_finds_a_wrong_second_derivative_and_shapes_are_given(capsys):
    op = mx.simple_op(lambda x: (x, x * x), name="_test_checked", outputs=("a", "b"), replace=True)
    op.gradient(lambda da, db, x: da + db * x)
    with pytest.raises(AssertionError, match="_test_checked: gradient is off by"):
        op.check()
    capsys.readouterr()

    def square(x):
        if len(x) != 2 or x[0] != x[1]:
            raise ShapeError("not square")
        return x

    op = mx.simple_op(lambda x: x * x, name="_test_checked", shape=square, replace=True)
    with pytest.raises(OperatorError, match=r"_test_checked: takes none of the shapes .*Give those of its 1 inputs: check\("):
        op.check()
    assert said(op, capsys, shapes=[(4, 4)])[0] == ["values", "float64", "float32", "float16", "bfloat16,", "1", "shape"]
