"""Binding: its checks, and the texts of its errors."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ContextError, DTypeError, GraphError, ShapeError
from tritium.graph.symbol import namespace as sym


def small():
    return sym.FullyConnected(sym.Variable("data"), num_hidden=3, name="fc")


def arrays(**shapes):
    return {k: mx.nd.zeros(s) for k, s in shapes.items()}


def test_lists_and_dictionaries():
    given = arrays(data=(2, 4), fc_weight=(3, 4), fc_bias=(3,))
    assert small().bind(mx.cpu(), list(given.values())).forward()[0].shape == (2, 3)
    assert small().bind(mx.cpu(), given).arg_dict["data"] is given["data"]


def without_bias(good):
    return {"data": good["data"], "fc_weight": good["fc_weight"], "fc_bais": good["fc_bias"]}


@pytest.mark.parametrize(("args", "error", "text"), [
    (lambda good: (without_bias(good),), GraphError,
     r"bind: args: 'fc_bias' is missing. Did you mean 'fc_bais'\? Given: data, fc_we"),
    (lambda good: (list(good.values())[:2],), GraphError, r"bind: args: 2 arrays for 3 names: data, fc_weight, fc_bias"),
    (lambda good: ({**good, "data": np.zeros((2, 4))},), GraphError,
     r"data is ndarray, not an NDArray. Wrap it with mx.nd.array"),
    (lambda good: ({**good, **arrays(fc_weight=(3, 5))},), ShapeError, r"fc \(FullyConnected\)"),
    (lambda good: (good, arrays(fc_bias=(4,))), ShapeError,
     r"bind: args_grad: fc_bias is float32\[4\]@cpu\(0\), the graph wants float32\[3\]"),
    (lambda good: ({**good, "data": mx.nd.zeros((2, 4), dtype="float16")},), DTypeError, r"float16"),
], ids=["missing", "too few", "not an NDArray", "shape", "shape of a gradient", "dtype"])  # fmt: skip
def test_errors_name_the_array_that_does_not_fit(args, error, text):
    good = arrays(data=(2, 4), fc_weight=(3, 4), fc_bias=(3,))
    with pytest.raises(error, match=text):
        small().bind(mx.cpu(), *args(good))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: small().simple_bind(mx.cpu(), dta=(2, 4)), GraphError,
     r"simple_bind: no argument is called 'dta'. Did you mean 'data'"),
    (lambda: small().simple_bind(mx.cpu()), ShapeError,
     r"bind: the shape of argument 'data' cannot be inferred: \?. Give it by keyword"),
    (lambda: small().simple_bind(mx.cpu(), "wirte", data=(2, 4)), GraphError, r"simple_bind: grad_req of 'data' is 'wirte'"),
    (lambda: small().simple_bind(mx.cpu(), ["write", "null"], data=(2, 4)), GraphError,
     r"simple_bind: 2 grad_req for 3 arguments"),
    (lambda: small().simple_bind("cpu", data=(2, 4)), ContextError, r"bind: 'cpu' is not a Context"),
    (lambda: (sym.Variable("a") + sym.Variable("a")).simple_bind(mx.cpu(), a=(2,)), GraphError,
     r"two variables are called 'a'"),
], ids=["name", "unknown shape", "request", "requests", "context", "equal names"])  # fmt: skip
def test_errors_name_the_request_that_is_not_valid(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_arrays_of_other_contexts_and_gradients_of_another_dtype_and_shape_are_copied():
    good = arrays(data=(2, 4), fc_weight=(3, 4), fc_bias=(3,))
    good["data"] = mx.nd.ones((2, 4), mx.cpu(1))
    grads = {"fc_weight": mx.nd.ones((3, 4), mx.cpu(1), "float64"), "fc_bias": mx.nd.zeros((1, 3))}
    ex = small().bind(mx.cpu(), good, grads, {"fc_weight": "add", "fc_bias": "write"})
    ex.forward(is_train=True)
    ex.backward(mx.nd.ones((2, 3)))
    assert ex.grad_dict["fc_weight"] is grads["fc_weight"] and (grads["fc_weight"].asnumpy() == 3).all()
    assert (grads["fc_bias"].asnumpy() == 2).all() and ex.grad_dict["data"] is None


def test_names_that_the_graph_lacks_are_ignored():
    ex = small().simple_bind(mx.cpu(), type_dict={"lable": "float64"}, data=(2, 4), label=(2,))
    assert list(ex.arg_dict) == ["data", "fc_weight", "fc_bias"]


def test_types():
    ex = small().simple_bind(mx.cpu(), type_dict={"data": "float64"}, data=(2, 4))
    assert {a.dtype for a in ex.arg_arrays} == {np.float64} and ex.outputs[0].dtype == np.float64
    declared = sym.relu(sym.Variable("x", shape=(2, 3), dtype="float64")).simple_bind(mx.cpu())
    assert declared.outputs[0].dtype == np.float64 and declared.outputs[0].shape == (2, 3)


def test_shared_buffer_is_used_and_filled():
    buffer = {}
    first = small().simple_bind(mx.cpu(), data=(2, 4), shared_buffer=buffer)
    second = small().simple_bind(mx.cpu(), data=(5, 4), shared_buffer=buffer)
    assert first.arg_dict["fc_weight"] is second.arg_dict["fc_weight"] and buffer["data"] is second.arg_dict["data"]


def test_to_bind_again_takes_the_plans_of_the_first_binding(monkeypatch):
    from tritium.graph.executor import executor

    compiled = []
    compile_program = executor.compile_program
    monkeypatch.setattr(executor, "compile_program", lambda *a, **k: compiled.append(a) or compile_program(*a, **k))
    net = mx.sym.tanh(mx.sym.Variable("x") * 2, name="y")
    for k in range(3):
        assert net.eval(x=mx.nd.ones((2,)) * k)[0].asnumpy().tolist() == pytest.approx([np.tanh(2 * k)] * 2)
    assert len(compiled) == 1
    net.eval(x=mx.nd.ones((3,)))
    net.bind(mx.cpu(), {"x": mx.nd.ones((2,))}, {"x": mx.nd.ones((2,))}).forward(is_train=True)
    assert len(compiled) == 3
    net._set_attr(force_mirroring="True")  # an attribute may change the plan
    net.eval(x=mx.nd.ones((2,)))
    assert len(compiled) == 4
