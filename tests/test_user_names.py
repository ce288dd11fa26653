"""Names of users' operators: they cannot replace the framework's, and its own calls do not look operators up by name."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import OperatorError
from tritium.kernels import op as registry
from tritium.ndarray.custom import custom_op as operator


@pytest.fixture
def names():
    """Restore the registered names of operators after the test."""
    tables = registry._registry, registry._declared_in
    before = [dict(t) for t in tables]
    yield
    for table, held in zip(tables, before):
        table.clear()
        table.update(held)


def declare(name, module, body=lambda x: x, **options):
    body.__module__ = module
    return mx.simple_op(body, name=name, **options)


@pytest.mark.parametrize("module", ["__main__", "a_users_module", "tritium.examples.mine"])
def test_a_user_s_name_does_not_replace_the_framework_s(module, names):
    with pytest.raises(OperatorError, match=r"square: is one of the framework's operators\. Give yours another name, or declare "
                                            r"it with replace=True: what you call by that name is then yours"):
        declare("square", module)
    with pytest.raises(OperatorError, match="relu: is one of the framework's operators"):
        declare("_test_name_with_alias", module, aliases=("_test_free", "relu"))
    assert "_test_name_with_alias" not in registry.registered() and "_test_free" not in registry.registered()
    with pytest.raises(OperatorError, match="sum: is one of the framework's operators"):
        mx.reduction(lambda x: x, name="sum", combine="add")
    with pytest.raises(OperatorError, match="Flatten: is one of the framework's operators"):
        operator.register_operator("Flatten")(type("Mine", (operator.OperatorProperty,), {"__module__": module}))
    assert mx.nd.square(mx.nd.array([3])).tolist() == [9]


def test_a_user_s_name_replaces_the_same_module_s_own(names):
    first = declare("_test_cell", "__main__", lambda x: x + 1)
    again = declare("_test_cell", "__main__", lambda x: x + 2)
    assert first is not again and mx.nd._test_cell(mx.nd.zeros(1)).tolist() == [2]
    with pytest.raises(OperatorError, match="_test_cell: is declared in __main__"):
        declare("_test_cell", "a_users_module")
    declare("_test_cell", "a_users_module", lambda x: x + 3, replace=True)
    assert mx.nd._test_cell(mx.nd.zeros(1)).tolist() == [3]


#: What users could come to call their own, and what the framework needs it for.
TAKEN = ["broadcast_add", "elemwise_add", "_plus_scalar", "_mul_scalar", "elemwise_mul", "square", "sum", "exp", "_copy", "Cast",
         "BatchNorm", "softmax", "dot", "Flatten", "zeros_like", "tanh", "sgd_update", "Concat", "_zeros", "broadcast_mul"]


def test_the_framework_keeps_its_own(names, ctx, rng):
    """Whatever users put in place of operators, with replace=True, arithmetic, methods, gradients, graphs and updates stand."""
    def everything():
        x = mx.nd.array([[1.0, 2], [3, 4]], ctx)
        x.attach_grad()
        with mx.autograd.record():
            y = ((x + x[0:1]) * 2 + 1).sum() + (x * x).tanh().sum() + x.flatten().square().exp().mean() * 1e-7
            z = mx.lang.exp(x).sum() + y
        z.backward()
        net = mx.sym.Variable("x")
        net = (net * net + 1).square() / 2
        bound = net.bind(ctx, {"x": x}, {"x": mx.nd.zeros((2, 2), ctx)})
        out = bound.forward(is_train=True)[0].asnumpy()
        bound.backward(mx.nd.ones((2, 2), ctx))
        w = mx.nd.ones((2, 2), ctx)
        mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5))(0, x, w)
        with mx.autograd.record():
            g = mx.autograd.grad([(x * x * x).sum()], [x], create_graph=True)[0]
        return [y.asnumpy(), z.asnumpy(), x.grad.asnumpy(), out, bound.grad_dict["x"].asnumpy(), w.asnumpy(), g.asnumpy(),
                mx.nd.concat(x, x, dim=0).asnumpy()]

    before = everything()
    assert {"_zeros", *TAKEN} <= registry.registered().keys()
    for name in TAKEN:
        if name != "Concat":  # which is what is called below
            declare(name, "__main__", lambda x: x * 0 + 77, replace=True)
    assert mx.nd.square(mx.nd.array([3], ctx)).tolist() == [77]
    for got, want in zip(everything(), before):
        np.testing.assert_array_equal(got, want)


def test_a_user_s_operator_is_not_taken_for_the_framework_s(names, ctx, rng):
    """Passes over graphs and second derivatives know what BatchNorm or softmax compute; a user's of that name is another."""
    def body(x):
        return x * x * x

    body.__module__ = "__main__"
    x = rng.normal(size=(2, 3))
    for name in ("softmax", "Flatten", "BatchNorm", "dot", "Convolution", "Pooling", "elemwise_add", "Reshape"):
        mine = mx.simple_op(body, name=name, replace=True)

        def slope(a, mine=mine):
            if a.grad is None:
                a.attach_grad()
            with mx.autograd.record():
                return mx.autograd.grad([mine(a)], [a], create_graph=True)[0]

        check_gradient(slope, x, ctx, rng)
        net = mx.sym.relu(getattr(mx.sym, name)(mx.sym.Variable("x")) + 1)
        bound = net.simple_bind(ctx, x=(2, 3))
        bound.arg_dict["x"][:] = x
        assert_close(bound.forward(is_train=True)[0], np.maximum(x.astype("float32") ** 3 + 1, 0), scale=4)  # 4: a cube
        bound.backward(mx.nd.ones((2, 3), ctx))
        assert_close(bound.grad_dict["x"], 3 * x.astype("float32") ** 2 * (x ** 3 > -1), scale=4)


def test_conversion_on_a_gpu_is_the_framework_s(names):
    declare("Cast", "__main__", lambda x: x * 0 + 7, replace=True)
    a = mx.nd.array([3.5, -1.5], ctx=mx.gpu(0))
    assert a.astype("int32").tolist() == [3, -1]


def test_a_user_s_operator_gives_no_mask(names):
    declare("logical_not", "__main__", lambda x: 1 - x, replace=True)
    a = mx.nd.array([5.0, 6.0])
    assert a[mx.nd.logical_not(mx.nd.array([0.0, 1.0]))].tolist() == [6, 5]  # positions 1 and 0
