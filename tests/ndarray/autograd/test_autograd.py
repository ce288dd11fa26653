"""autograd: the tape. Oracle: derivatives by hand, differences in float64."""

import gc
import weakref

import numpy as np
import pytest
from support.helpers import assert_close, check_gradient
from tritium import ndarray as nd
from tritium.errors import MXNetError, OperatorError, ShapeError
from tritium.kernels.op import Gradient, Op, Req, register
from tritium.ndarray import autograd


def variable(values, ctx=None, req="write"):
    x = nd.array(values, ctx)
    x.attach_grad(req)
    return x


class Split(Op):
    """Outputs x and 2x; its derivative needs both outputs' derivatives. For one output unused, and NULL requests."""

    name, input_names = "_test_split", ("x", "unused")

    def outputs(self, p):
        return ("once", "twice")

    def infer_shape(self, p, inputs, outputs=None):
        return list(inputs), [inputs[0]] * 2

    def kernel(self, p, ins, outs, reqs, target, train=False):
        def kernel(run, inputs, outputs):
            for i, (o, r) in enumerate(zip(outputs, reqs)):
                if r == Req.ADD:
                    o += inputs[0] * (i + 1)
                else:
                    o[...] = inputs[0] * (i + 1)

        return kernel

    def gradient_of(self, p):
        return Gradient(SplitBackward(), (("dy", 0), ("dy", 1)), (0, 1))


class SplitBackward(Op):
    """dx = dy0 + 2 dy1; the other input gets 5."""

    name, input_names, seen = "_backward_test_split", ("dy0", "dy1"), []

    def kernel(self, p, ins, outs, reqs, target, train=False):
        def kernel(run, inputs, outputs):
            SplitBackward.seen.append(reqs)
            for value, o, r in zip((inputs[0] + 2 * inputs[1], 5), outputs, reqs):
                if r == Req.NULL:
                    assert o is None
                elif r == Req.ADD:
                    o += value
                else:
                    o[...] = value

        return kernel

    def outputs(self, p):
        return ("dx", "dunused")


SPLIT = register(Split(), module=__name__)


def test_product_rule_and_broadcast(ctx):
    x, y = variable([[1, 2], [3, 4]], ctx), variable([[10, 20]], ctx)
    with autograd.record():
        z = x * y + x
    z.backward(nd.array([[1, 1], [1, 2]], ctx))
    assert x.grad.tolist() == [[11, 21], [11, 42]] and y.grad.tolist() == [[4, 10]]


def test_one_array_used_twice_by_one_operator():
    x = variable([3, 4])
    with autograd.record():
        y = x * x
    y.backward()
    assert x.grad.tolist() == [6, 8]


def test_many_uses_add_up():
    x = variable([2.0])
    with autograd.record():
        y = x
        for _ in range(10):
            y = y + x * x
    y.backward()
    assert x.grad.item() == 41


def test_requests():
    for req, want in (("write", 2), ("add", 4), ("null", 0)):
        x = variable([1.0], req=req)
        w = variable([1.0])
        for _ in range(2):
            with autograd.record():
                y = x * 2 * w
            y.backward()
        assert x.grad.item() == want
        assert w.grad.item() == 2


def test_add_request_on_several_uses():
    x = variable([1.0], req="add")
    x.grad[:] = 100
    with autograd.record():
        y = x * 2 + x * 3
    y.backward()
    assert x.grad.item() == 105


def test_write_request_forgets_the_last_step():
    x = variable([1.0])
    x.grad[:] = 100
    with autograd.record():
        y = x * 2 + x * 3
    y.backward()
    assert x.grad.item() == 5


def test_no_recursion_in_deep_graphs():
    x = variable([1.0])
    with autograd.record():
        y = x
        for _ in range(3000):
            y = y + 1
    y.backward()
    assert x.grad.item() == 1


def test_several_heads_and_head_gradients():
    x = variable([1, 2])
    with autograd.record():
        a, b = x * 3, x * x
    autograd.backward([a, b], [nd.array([1, 10]), None])
    assert x.grad.tolist() == [3 + 2, 30 + 4]


def test_the_head_may_be_the_variable_and_its_gradient_the_buffer():
    x = variable([1, 2])
    autograd.backward(x)
    assert x.grad.tolist() == [1, 1]
    with autograd.record():
        y = x * 3
    y.backward(x.grad)
    assert x.grad.tolist() == [3, 3]


def test_missing_output_gradients_are_zero_and_unwanted_ones_are_not_computed():
    x = variable([1, 2])
    with autograd.record():
        _, twice = nd.invoke(SPLIT, [x, nd.ones((2,))], SPLIT.parse({}))
    twice.backward()
    assert x.grad.tolist() == [2, 2]
    assert SplitBackward.seen[-1] == (Req.WRITE, Req.NULL)
    u = variable([7, 7])
    with autograd.record():
        once, twice = nd.invoke(SPLIT, [x, u], SPLIT.parse({}))
        y = once + twice + x
    y.backward()
    assert x.grad.tolist() == [4, 4] and u.grad.tolist() == [5, 5]


def test_two_derivatives_for_one_sum_never_share_an_output():
    x = variable([1, 2])
    with autograd.record():
        once, _ = nd.invoke(SPLIT, [x, x], SPLIT.parse({}))
    once.backward()
    assert x.grad.tolist() == [6, 6] and SplitBackward.seen[-1] == (Req.WRITE, Req.WRITE)


def test_backward_keeps_only_what_the_gradient_names():
    x = variable([1.0])
    with autograd.record():
        y = x + 1  # the derivative of a sum needs neither x nor y
        gone = weakref.ref(y.chunk)
        z = y + 1
    del y
    z.wait_to_read()
    gc.collect()
    assert gone() is None
    z.backward()
    assert x.grad.item() == 1


def test_freed_after_backward_unless_retained():
    x = variable([3.0])
    with autograd.record():
        y = x * x
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(MXNetError, match=r"backward: the arrays that elemwise_mul kept were freed.*retain_graph=True"):
        y.backward()


def test_an_operator_without_derivative_passes_zero():
    x = variable([3.0])
    x.grad[:] = 7
    with autograd.record():
        y = (x * 2) > 1
    y.backward()
    assert x.grad.item() == 0


def test_detach_and_pause():
    x = variable([3.0])
    with autograd.record():
        y = x * x
        z = y.detach() * x
        with autograd.pause():
            w = x * 100
    assert w._grad_edge is None
    z.backward()
    assert x.grad.item() == 9


def test_states_nest():
    assert not autograd.is_recording() and not autograd.is_training()
    with autograd.record():
        assert autograd.is_recording() and autograd.is_training()
        with autograd.predict_mode():
            assert autograd.is_recording() and not autograd.is_training()
        with autograd.pause(train_mode=True):
            assert not autograd.is_recording() and autograd.is_training()
    with autograd.record(train_mode=False), autograd.train_mode():
        assert autograd.is_training()
    assert autograd.set_recording(True) is False and autograd.set_recording(False) is True
    assert autograd.set_training(True) is False and autograd.set_training(False) is True
    assert not autograd.is_recording() and not autograd.is_training()


def test_states_end_with_an_error():
    with pytest.raises(ZeroDivisionError), autograd.record():
        1 / 0
    assert not autograd.is_recording()


def test_grad_returns_and_leaves_buffers_alone():
    x, y = variable([3.0]), variable([4.0])
    with autograd.record():
        m = x * y
        z = m * x
    gx, gm, gy = autograd.grad(z, [x, m, y], retain_graph=True)
    assert (gx.item(), gm.item(), gy.item()) == (24, 3, 9) and x.grad.item() == 0
    assert autograd.grad(z, x, nd.array([2.0]))[0].item() == 48


def test_derivatives_of_derivatives():
    x = variable([1.0, 2.0, 3.0])
    with autograd.record():
        y = x * x * x
        dy = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
        z = dy * dy
    z.backward()
    assert_close(x.grad, 2 * 3 * np.array([1, 4, 9.0]) * 6 * np.array([1, 2, 3.0]))


def test_create_graph_says_which_derivative_is_missing():
    x, u = variable([1.0]), nd.ones((1,))
    with autograd.record():
        y = nd.invoke(SPLIT, [x * x, u], SPLIT.parse({}))[1]
        with pytest.raises(MXNetError, match="needs the derivative of _backward_test_split"):
            dy = autograd.grad(y * y, x, create_graph=True)[0]
            autograd.grad(dy, x)


def test_mark_variables():
    x, g = nd.array([1.0]), nd.zeros((1,))
    autograd.mark_variables(x, g, "add")
    for _ in range(3):
        with autograd.record():
            y = x * 2
        y.backward()
    assert g.item() == 6 and x.grad is g
    with pytest.raises(ShapeError, match=r"mark_variables: the gradient is float32\[2\]"):
        autograd.mark_variables(x, nd.zeros((2,)))
    with pytest.raises(OperatorError, match="grad_req 'maybe'"):
        autograd.mark_variables(x, g, "maybe")


@pytest.mark.parametrize("call, error, text", [
    (lambda y: nd.ones((1,)).backward(), MXNetError, "not computed from a variable while recording"),
    (lambda y: y.backward(nd.ones((2,))), ShapeError, r"backward: the head is float32\[1\].*float32\[2\]"),
    (lambda y: autograd.grad(y, nd.ones((1,))), MXNetError, r"grad: .*attach_grad"),
])
def test_errors_of_backward(call, error, text):
    x = variable([1.0])
    with autograd.record():
        y = x * 2
    with pytest.raises(error, match=text):
        call(y)


def test_in_place_results_flow_and_overwritten_needs_are_refused():
    x = variable([3.0])
    with autograd.record():
        total = nd.zeros((1,))
        total += x * 2
        for recorded in (x, total):
            with pytest.raises(MXNetError, match="part of a recorded computation"):
                recorded += 1
        other = nd.ones((1,))
        with pytest.raises(MXNetError, match="the gradient needs input 0"):
            other *= x
    total.backward()
    assert x.grad.item() == 2


def test_astype_and_copies_pass_gradients(ctx):
    x = variable([1.0, 2.0], ctx)
    with autograd.record():
        y = x.astype("float64").copy().as_in_context(nd.ones((1,)).ctx) * 3
    y.backward()
    assert x.grad.tolist() == [3, 3] and x.grad.ctx == ctx


class Cube(autograd.Function):
    def forward(self, x, scale):
        self.save_for_backward(x)
        return x * x * x * scale, x + 1

    def backward(self, dy, dz):
        (x,) = self.saved_tensors
        return 3 * x * x * dy + dz, None


def test_function():
    x, s = variable([2.0]), variable([1.0])
    with autograd.record():
        y, z = Cube()(x, s)
        w = y * 10 + z
    w.backward()
    assert x.grad.item() == 121 and s.grad.item() == 0
    with autograd.record():
        y, _ = Cube()(x, s)
    y.backward()
    assert x.grad.item() == 12


def test_function_errors():
    class Short(autograd.Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            return dy, dy

    class Wide(Short):
        def backward(self, dy):
            return nd.ones((5,))

    for cls, reason in ((Short, "Short: backward returned 2 arrays for 1 inputs"), (Wide, r"Wide: .*float32\[5\]")):
        x = variable([1.0])
        with autograd.record():
            y = cls()(x)
        with pytest.raises(MXNetError, match=reason):
            y.backward()


def test_against_differences(ctx, rng):
    check_gradient(lambda a, b: (a * b + a / (b * b + 2))[1:] - a[:1], [rng.normal(size=(3, 4)), rng.normal(size=(3, 4))],
                   ctx, rng)


def test_assigning_a_whole_array_passes_the_derivative_on():
    y = nd.array([4.0, 5.0])
    y.attach_grad()
    with autograd.record():
        o, wide = nd.zeros(2), nd.zeros((3, 2), dtype="float64")
        o[:] = y * 2
        wide[:] = y
        loss = (o * o).sum() + wide.sum().astype("float32")
    loss.backward()
    assert y.grad.tolist() == [8 * 4 + 3, 8 * 5 + 3]


def test_assigning_to_a_part_of_an_array_is_refused_while_recording():
    y = nd.array([4.0])
    y.attach_grad()
    with autograd.record():
        o = nd.zeros(2)
        with pytest.raises(MXNetError, match=r"a part of float32\[2\]@cpu\(0\) cannot pass its derivative on"):
            o[0:1] = y * 2
        o[0:1] = (y * 2).detach()
    assert o.tolist() == [8, 0]
