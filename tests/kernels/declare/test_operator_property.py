"""A user's Operator and OperatorProperty: parameters, dependencies, resources, states, requests; TBlob and assign."""

from typing import ClassVar, Literal

import numpy as np
import pytest
from support.layer_helpers import Run, backward, call, check_gradient, check_requests, close, forward, specs_of
from tritium.errors import OperatorError, ParameterError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.declare.operator_property import RANDOM, TEMP_SPACE, Operator, OperatorProperty, TBlob, assign
from tritium.kernels.declare.property_op import register_operator
from tritium.kernels.op import Req, Spec
from tritium.kernels.philox import uniform


class ScaledSum(Operator):
    def __init__(self, factor):
        self.factor = factor

    def forward(self, ctx, in_data, req, out_data, aux):
        a, b = (i.numpy() for i in in_data)
        assign(out_data[0], req[0], self.factor * (a + b))
        assign(out_data[1], req[1], a * b)
        if ctx.is_train:
            aux[0].numpy()[...] += 1

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
        assert out_data == [None, None]  # not declared, so not kept
        assert in_data[0] is None
        d, b = out_grad[0].numpy(), in_data[1].numpy()
        assert len(out_grad) == 1  # one a visible output
        assert aux[0].shape == (1,)
        assign(in_grad[0], req[0], self.factor * d + 0 * b)
        assign(in_grad[1], req[1], self.factor * d)


class ScaledSumProperty(OperatorProperty):
    """factor · (a + b), and a · b beside it.

    a, b: any equal shape.
    """

    factor: float
    kind: Literal["plain", "fancy"] = "plain"
    sizes: tuple = (1,)
    limit: int | None = None
    constant: ClassVar[int] = 3

    def list_arguments(self):
        return ["a", "b"]

    def list_outputs(self):
        return ["sum", "product"]

    def num_visible_outputs(self):
        return 1

    def list_auxiliary_states(self):
        return ["calls"]

    def infer_shape(self, in_shape, out_shape):
        ins, outs, _ = super().infer_shape(in_shape, out_shape)
        return ins, outs, [(1,)]

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [out_grad[0], in_data[1]]

    def forward_inplace_option(self, in_data, out_data):
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(self, out_grad, in_data, out_data, in_grad):
        return [(out_grad[0], in_grad[1])]

    def create_operator(self, target, in_shapes, in_dtypes):
        return ScaledSum(self.factor)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """The operators of this file, known while one test runs."""
    monkeypatch.setattr(ops, "_registry", dict(ops._registry))
    register_operator("_test_scaled_sum", aliases=("_test_alias",))(ScaledSumProperty)


def test_declaration():
    op = ops.get("_test_alias")
    assert op is ops.get("_test_scaled_sum") and op.doc.startswith("factor · (a + b)")
    p = op.parse({"factor": "2.5", "sizes": "(3, 4)", "limit": "None"})
    assert (p.factor, p.kind, p.sizes, p.limit) == (2.5, "plain", (3, 4), None)
    assert op.arguments(p) == ("a", "b") and op.auxiliaries(p) == ("calls",)
    assert op.outputs(p) == ("sum", "product") and op.visible_outputs(p) == 1
    assert op.inplace(p) == ((0, 0),)
    g = op.gradient_of(p)
    assert g.needs == (("dy", 0), ("x", 1), ("x", 2)) and g.gives == (0, 1)
    assert g.op.inplace(p) == ((0, 1),) and g.op.auxiliaries(p) == ("calls",)
    assert g.op.arguments(p) == ("sum_grad", "b") and g.op.outputs(p) == ("a_grad", "b_grad")
    assert g.op.infer_shape(p, [(2,), (2,), (1,)]) == ([(2,), (2,), (1,)], [(2,), (2,)])
    assert op.infer_shape(p, [None, (2, 3), None]) == ([(2, 3), (2, 3), (1,)], [(2, 3), (2, 3)])


def test_running(rng):
    inputs = [rng.standard_normal((3, 2)), rng.standard_normal((3, 2)), np.zeros(1)]
    op = ops.get("_test_scaled_sum")
    p = op.parse({"factor": 2.0})
    outs, after = call(op, p, inputs, specs_of(op, p, inputs))
    close(outs[0], 2 * (inputs[0] + inputs[1]))
    close(outs[1], inputs[0] * inputs[1])
    assert after[2][0] == 1
    assert call(op, p, inputs, specs_of(op, p, inputs), train=False)[1][2][0] == 0
    check_gradient("_test_scaled_sum", inputs, rng, factor=2.0)
    check_requests("_test_scaled_sum", inputs, [outs[0]], factor=2.0)


class Noise(OperatorProperty):
    """data plus uniform noise, through scratch memory."""

    def forward_resource(self):
        return [RANDOM, TEMP_SPACE]

    def list_gradients(self):
        return []

    def create_operator(self, target, in_shapes, in_dtypes):
        class Compute(Operator):
            def forward(self, ctx, in_data, req, out_data, aux):
                numbers, scratch = ctx.requested
                space = scratch.get_space(in_data[0].shape, in_data[0].dtype)
                space[...] = numbers.uniform(in_data[0].shape)
                assign(out_data[0], req[0], in_data[0].numpy() + space)

        return Compute()


def test_resources():
    register_operator("_test_noise")(Noise)
    x = np.zeros((2, 3), "f")
    op = ops.get("_test_noise")
    p = op.parse({})
    assert op.num_random(p, [Spec((2, 3), x.dtype)]) == 6 and op.gradient_of(p) is None
    close(forward("_test_noise", [x], random=(4, 10))[0], uniform(4, 10, 6).reshape(2, 3))


def test_tblob_is_a_view():
    a = np.arange(6.0).reshape(2, 3)
    blob = TBlob(a, "cpu")
    assert blob.numpy() is a and blob.shape == (2, 3) and blob.strides == (3, 1) and blob.pointer == a.ctypes.data
    torch = pytest.importorskip("torch")

    t = TBlob(torch.from_numpy(a), "gpu")
    t.numpy()[0, 0] = 9
    assert a[0, 0] == 9 and t.strides == (3, 1) and t.pointer == a.ctypes.data and t.shape == (2, 3)


def test_assign_by_request():
    for req, want in ((Req.NULL, 1), (Req.WRITE, 5), (Req.INPLACE, 5), (Req.ADD, 6)):
        a = np.ones(3, "float16")
        assign(TBlob(a, "cpu"), req, np.full(3, 5.0))
        assert a.tolist() == [want] * 3


class Odd(OperatorProperty):
    """Takes a set."""

    odd: set = set()


def declare_elsewhere():
    register_operator("_test_scaled_sum")(type("Other", (ScaledSumProperty,), {"__module__": "another_module"}))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda op: op.parse({}), ParameterError, r"_test_scaled_sum: parameter 'factor' .float. is required"),
    (lambda op: op.parse({"factor": 1, "kind": "odd"}), ParameterError, "kind='odd' is not one of 'plain', 'fancy'"),
    (lambda op: op.infer_shape(op.parse({"factor": 1}), [(2,), (3,), None]), ShapeError,
     r"would have to be both \(2,\) and \(3,\)"),
    (lambda op: op.infer_shape(op.parse({"factor": 1}), [(2,), (2,)]), ShapeError,
     r"takes 3 inputs \(a, b, calls\), 2 were given"),
    (lambda op: declare_elsewhere(), OperatorError,
     r"_test_scaled_sum: is declared in .*test_operator_property\. Give yours another"),
    (lambda op: register_operator("_test_odd")(Odd), OperatorError, "parameter 'odd' has the type"),
])
def test_mistakes_in_use_or_declaration_are_reported(call, error, text):
    with pytest.raises(error, match=text):
        call(ops.get("_test_scaled_sum"))


def test_a_backward_that_is_not_written():
    @register_operator("_test_forward_only")
    class ForwardOnly(OperatorProperty):
        """The identity."""

        def create_operator(self, target, in_shapes, in_dtypes):
            class Same(Operator):
                def forward(self, ctx, in_data, req, out_data, aux):
                    assign(out_data[0], req[0], in_data[0].array)

            return Same()

    with pytest.raises(OperatorError, match=r"Same: backward is not written. Add it, or let list_gradients return"):
        backward("_test_forward_only", [np.ones(2)], [np.ones(2)], run=Run())
