"""Operators of users: a formula (simple_op), a Python body over arrays (CustomOp), a layer on memory (OperatorProperty)."""

import contextlib
import traceback

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.engine import NaiveEngine, ThreadedEngine, current, set_current
from tritium.errors import MXNetError, OperatorError
from tritium.lang import sign, where
from tritium.ndarray.custom import custom_op as operator


@pytest.fixture(params=["one worker", "naive", "two workers"])
def engine(request):
    """Every engine in turn; one worker is where MXNet hangs."""
    before = current()
    made = {"one worker": lambda: ThreadedEngine(1), "naive": NaiveEngine, "two workers": lambda: ThreadedEngine(2)}
    set_current(made[request.param]())
    yield request.param
    with contextlib.suppress(ValueError):  # what a test of errors left in arrays it did not read
        current().stop()
    set_current(before)


# ---- a formula ------------------------------------------------------------------------------------------------------
@mx.simple_op(name="_test_smooth", replace=True)
def smooth(x, *, scalar=1.0):
    """Quadratic near zero, linear outside."""
    s2 = scalar * scalar
    return where(abs(x) < 1 / s2, 0.5 * s2 * x * x, abs(x) - 0.5 / s2)


@mx.simple_op(name="_test_twice", replace=True)
def twice(x):
    """Another operator inside a body."""
    return smooth(x, scalar=2.0) + smooth(x)


def smooth_oracle(x, scalar=1.0):
    return np.array([0.5 * (scalar * v) ** 2 if np.abs(v) < scalar**-2 else np.abs(v) - 0.5 * scalar**-2 for v in x])


def test_a_formula_runs_in_nd_sym_and_other_bodies(ctx, rng):
    x = rng.normal(size=9)
    assert_close(mx.nd._test_smooth(mx.nd.array(x, ctx), scalar=2.0), smooth_oracle(x.astype("float32"), 2.0))
    bound = mx.sym._test_smooth(mx.sym.Variable("x"), scalar=2.0).bind(ctx, {"x": mx.nd.array(x, ctx)})
    assert_close(bound.forward()[0], smooth_oracle(x.astype("float32"), 2.0))
    assert_close(twice(mx.nd.array(x, ctx)), smooth_oracle(x.astype("float32"), 2.0) + smooth_oracle(x.astype("float32")))
    check_gradient(lambda a: twice(a), x, ctx, rng)


def test_a_formula_proves_itself_in_one_line_per_item(capsys):
    smooth.check(scalar=1.5)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["values", "requests", "gradient", "gpu"], lines


def test_a_wrong_gradient_is_caught():
    @mx.simple_op(name="_test_wrong", replace=True)
    def wrong(x):
        return x * x

    @wrong.gradient
    def _(dy, x):
        return dy * x

    with pytest.raises(AssertionError, match="gradient is off by"):
        wrong.check()


def test_what_was_generated_can_be_read():
    assert "def " in smooth.cpu_source((4,)) and "tl." in smooth.triton_source((4,))
    assert smooth.gradient_source().startswith("# backward keeps")
    assert "dy" in smooth.gradient_source()


def test_a_body_that_branches_is_told_what_to_write():
    with pytest.raises(MXNetError, match=r"where\("):
        @mx.simple_op(name="_test_branch", replace=True)
        def branch(x):
            return x if x > 0 else -x

        branch(mx.nd.ones((2,)))


def test_redefining_takes_effect_at_once():
    results = []
    for factor in (2, 3):
        @mx.simple_op(name="_test_again", replace=True)
        def again(x, *, factor=factor):
            return x * factor

        results.append(mx.nd._test_again(mx.nd.ones((1,))).item())
    assert results == [2, 3]


def test_sign_is_not_special(ctx):
    @mx.simple_op(name="_test_sign", replace=True)
    def signed(x):
        return sign(x)

    assert signed(mx.nd.array([-2, 0, 3], ctx)).tolist() == [-1, 0, 1]


# ---- a Python body over arrays --------------------------------------------------------------------------------------
class Softmax(operator.CustomOp):
    """Softmax with cross entropy as its backward, the example of MXNet's manual: half numpy, half mx.nd."""

    def forward(self, is_train, req, in_data, out_data, aux):
        x = mx.nd.broadcast_sub(in_data[0], in_data[0].max(axis=1, keepdims=True))
        y = mx.nd.exp(x).asnumpy()
        self.assign(out_data[0], req[0], mx.nd.array(y / y.sum(axis=1, keepdims=True)))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        label = in_data[1].asnumpy().ravel().astype(int)
        y = out_data[0].asnumpy()
        y[np.arange(len(label)), label] -= 1.0
        self.assign(in_grad[0], req[0], mx.nd.array(y))


@operator.register("_test_softmax")
class SoftmaxProp(operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        return Softmax()


class Scale(operator.CustomOp):
    """y = factor·x, |x|; counts its runs in aux; hands what forward saw to backward through self."""

    def __init__(self, factor):
        self.factor, self.seen = factor, None

    def forward(self, is_train, req, in_data, out_data, aux):
        assert self.seen is None or is_train
        self.seen = in_data[0].asnumpy()
        self.assign(out_data[0], req[0], in_data[0] * self.factor)
        self.assign(out_data[1], req[1], mx.nd.abs(in_data[0]))
        aux[0][:] = aux[0] + 1

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        assert in_data == [None] and out_data == [None, None]
        self.assign(in_grad[0], req[0], out_grad[0] * self.factor + out_grad[1] * mx.nd.array(np.sign(self.seen)))


@operator.register("_test_scale")
class ScaleProp(operator.CustomOpProp):
    def __init__(self, factor="1"):
        super().__init__()
        assert isinstance(factor, str)  # as in MXNet
        self.factor = float(factor)

    def list_outputs(self):
        return ["scaled", "size"]

    def list_auxiliary_states(self):
        return ["runs"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]] * 2, [(1,)]

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return out_grad

    def create_operator(self, ctx, shapes, dtypes):
        return Scale(self.factor)


def want_softmax(x, label):
    e = np.exp(x - x.max(1, keepdims=True))
    y = e / e.sum(1, keepdims=True)
    return y, y - np.eye(x.shape[1])[label]


def test_custom_imperative(ctx, rng, engine):
    x, label = rng.normal(size=(4, 3)).astype("float32"), np.array([0, 2, 1, 1])
    data = mx.nd.array(x, ctx)
    data.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Custom(data, mx.nd.array(label, ctx), op_type="_test_softmax")
    y.backward()
    want, slope = want_softmax(x, label)
    assert_close(y, want)
    assert_close(data.grad, slope)


def test_custom_in_a_graph_many_times(ctx, rng, engine):
    x, label = rng.normal(size=(4, 3)).astype("float32"), np.array([0, 2, 1, 1])
    s = mx.sym.Custom(data=mx.sym.Variable("data") * 2, name="softmax", op_type="_test_softmax")
    assert s.list_arguments() == ["data", "softmax_label"] and s.list_outputs() == ["softmax_output"]
    s = mx.sym.load_json(s.tojson())
    ex = s.simple_bind(ctx, grad_req={"data": "add", "softmax_label": "null"}, data=(4, 3))
    ex.copy_params_from({"data": mx.nd.array(x), "softmax_label": mx.nd.array(label)})
    want, slope = want_softmax(2 * x, label)
    for n in (1, 2):
        assert_close(ex.forward(is_train=True)[0], want)
        ex.backward()
        assert_close(ex.grad_dict["data"], 2 * n * slope)


def test_custom_state_outputs_and_parameters(ctx, engine):
    x, runs = mx.nd.array([1.0, -2.0], ctx), mx.nd.zeros((1,), ctx)
    x.attach_grad()
    with mx.autograd.record():
        first = mx.nd.Custom(x, runs, op_type="_test_scale", factor=3)
        second = mx.nd.Custom(x * 10, runs, op_type="_test_scale", factor=3)
        total = first[0] + first[1] + second[1]
    total.backward()
    assert [o.tolist() for o in first] == [[3, -6], [1, 2]] and runs.item() == 2
    assert x.grad.tolist() == [3 + 1 + 10, 3 - 1 - 10]


def test_custom_state_in_a_graph(ctx):
    s = mx.sym.Custom(mx.sym.Variable("data"), name="s", op_type="_test_scale", factor=2)
    assert s.list_auxiliary_states() == ["s_runs"] and s.list_outputs() == ["s_scaled", "s_size"]
    assert s.infer_shape(data=(2, 5)) == ([(2, 5)], [(2, 5), (2, 5)], [(1,)])
    loaded = mx.sym.load_json(s.tojson())
    ex = loaded.simple_bind(ctx, data=(3,))
    ex.arg_dict["data"][:] = [1, -2, 3]
    for _ in range(3):
        out = ex.forward(is_train=True)
    ex.backward([mx.nd.ones((3,), ctx), mx.nd.ones((3,), ctx)])
    assert out[0].tolist() == [2, -4, 6] and ex.aux_dict["s_runs"].item() == 3
    assert ex.grad_dict["data"].tolist() == [3, 1, 3]


def test_one_operator_for_each_imperative_call():
    made = []

    class Count(operator.CustomOp):
        def __init__(self):
            made.append(self)

        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0])

    @operator.register("_test_count")
    class CountProp(operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Count()

    kept = [mx.nd.Custom(mx.nd.ones((2,)), op_type="_test_count") for _ in range(3)]
    mx.nd.waitall()
    assert len(kept) == 3 == len(made)
    ex = mx.sym.Custom(mx.sym.Variable("x"), op_type="_test_count").bind(mx.cpu(), {"x": mx.nd.ones((2,))})
    for _ in range(3):
        ex.forward()
    mx.nd.waitall()
    assert len(made) == 4  # a bound graph keeps its operator


class Broken(operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        raise ValueError("the user's own words")


@operator.register("_test_broken")
class BrokenProp(operator.CustomOpProp):
    def __init__(self, where="forward"):
        super().__init__()
        if where == "init":
            raise KeyError("no such model")
        self.where = where

    def infer_shape(self, in_shape):
        if self.where == "shape":
            raise RuntimeError("bad shape rule")
        return in_shape, ([in_shape[0]] if self.where != "count" else []), []

    def create_operator(self, ctx, shapes, dtypes):
        return Broken()


def test_errors_keep_the_traceback_and_name_the_operator(engine):
    y = mx.nd.Custom(mx.nd.ones((2,)), op_type="_test_broken")
    with pytest.raises(ValueError, match="Custom: _test_broken: forward: the user's own words") as caught:
        y.asnumpy()
    assert "raise ValueError(\"the user's own words\")" in "".join(traceback.format_tb(caught.value.__traceback__))


@pytest.mark.parametrize("where, error, text", [
    ("init", KeyError, r"Custom: _test_broken: BrokenProp\(...\): no such model"),
    ("shape", RuntimeError, "Custom: _test_broken: infer_shape: bad shape rule"),
    ("count", MXNetError, r"Custom: _test_broken: infer_shape returned \[1, 0, 0\] entries"),
])
def test_errors_of_the_property(where, error, text):
    with pytest.raises(error, match=text):
        mx.nd.Custom(mx.nd.ones((2,)), op_type="_test_broken", where=where)


def test_a_name_registered_again_is_the_new_operator_in_the_next_call():
    for factor in (2, 3):
        class Factor(operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux, factor=factor):
                self.assign(out_data[0], req[0], in_data[0] * factor)

        class FactorProp(operator.CustomOpProp):
            def create_operator(self, ctx, shapes, dtypes, cls=Factor):
                return cls()
        operator.register("_test_registered_again")(FactorProp)
        for _ in range(2):
            assert mx.nd.Custom(mx.nd.ones((2,)), op_type="_test_registered_again").tolist() == [factor, factor]


def test_names_that_are_not_registered():
    with pytest.raises(OperatorError, match=r"registered as '_test_sofmax'. Did you mean '_test_softmax'"):
        mx.nd.Custom(mx.nd.ones((2,)), op_type="_test_sofmax")
    with pytest.raises(OperatorError, match=r"'op_type'.*is required"):
        mx.nd.Custom(mx.nd.ones((2,)))
    with pytest.raises(OperatorError, match="not a subclass of CustomOpProp"):
        operator.register("x")(Softmax)
    assert "_test_scale" in operator.get_all_registered_operators()


def test_assign_follows_the_request():
    op, dst = operator.CustomOp(), mx.nd.ones((2,))
    for req, want in (("null", 1), ("add", 6), ("write", 5), ("inplace", 5)):
        op.assign(dst, req, mx.nd.array([5, 5]))
        assert dst.tolist() == [want] * 2
    with pytest.raises(OperatorError, match="req 'overwrite'"):
        op.assign(dst, "overwrite", 1)


# ---- a layer on memory ----------------------------------------------------------------------------------------------
@operator.register_operator("_test_cube_layer", replace=True)
class CubeLayer(operator.OperatorProperty):
    """factor * x³."""

    factor: float = 1.0

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [*out_grad, *in_data]

    def create_operator(self, target, in_shapes, in_dtypes):
        layer = self

        class Cube(operator.Operator):
            def forward(self, ctx, in_data, req, out_data, aux):
                operator.assign(out_data[0], req[0], layer.factor * in_data[0].array ** 3)

            def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
                operator.assign(in_grad[0], req[0], 3 * layer.factor * in_data[0].array ** 2 * out_grad[0].array)

        return Cube()


def test_a_layer_in_nd_and_sym(ctx, rng, engine):
    x = rng.normal(size=(3, 4))
    check_gradient(lambda a: mx.nd._test_cube_layer(a, factor=0.5), x, ctx, rng)
    s = mx.sym.load_json(mx.sym._test_cube_layer(mx.sym.Variable("x"), factor=2.0).tojson())
    ex = s.bind(ctx, {"x": mx.nd.array(x, ctx)})
    assert_close(ex.forward()[0], 2 * x.astype("float32") ** 3, scale=4)  # 4: a cube by another road


def test_an_error_that_was_read_is_not_raised_again_by_waitall(engine):
    """The operator's hidden handle is poisoned too, but no caller can read it."""

    @operator.register("_test_told_once")
    class Told(operator.CustomOpProp):
        def create_operator(self, ctx, in_shapes, in_dtypes):
            class Fails(operator.CustomOp):
                def forward(self, is_train, req, in_data, out_data, aux):
                    raise ValueError("told once")

            return Fails()

    y = mx.nd.Custom(mx.nd.ones(3), op_type="_test_told_once")
    with pytest.raises(ValueError, match="told once"):
        y.asnumpy()
    mx.nd.waitall()
    y = mx.nd.Custom(mx.nd.ones(3), op_type="_test_told_once")
    with pytest.raises(ValueError, match="told once"):
        mx.nd.waitall()
    mx.nd.waitall()
