"""mx.sym: a function for every operator, with its signature; also for operators registered later."""

import inspect
import math

import pytest
import tritium as mx
from tritium.errors import GraphError
from tritium.graph.symbol import namespace as sym
from tritium.graph.symbol.naming import NameManager
from tritium.kernels import op as ops
from tritium.kernels import simple_op


def test_every_operator_has_a_function_with_a_signature():
    for name, op in ops.registered().items():
        function = sym.function(name)
        assert function.__name__ == name and "name" in inspect.signature(function).parameters, op


def test_signature():
    assert list(inspect.signature(sym.FullyConnected).parameters)[:3] == ["data", "weight", "bias"]
    assert inspect.signature(sym.Concat).parameters["data"].kind is inspect.Parameter.VAR_POSITIONAL


def test_an_operator_declared_later(monkeypatch):
    monkeypatch.setattr(ops, "_registry", dict(ops._registry))

    @simple_op
    def thrice_for_test(x):
        """3 x."""
        return x * 3

    assert sym.thrice_for_test(sym.Variable("a")).list_outputs() == ["thrice_for_test0_output"]
    assert thrice_for_test(sym.Variable("a"), name="t").name == "t"


def test_prefixed_namespaces():
    assert sym._internal._plus_scalar(sym.Variable("a"), scalar=1).name == "_plus_scalar0"
    with pytest.raises(AttributeError, match=r"mx.sym.linalg.nothing: no such operator"):
        sym.linalg.nothing


def test_operators_whose_shape_depends_on_values_are_refused_by_name():
    with pytest.raises(GraphError, match=r"contrib.boolean_mask: how many rows it gives depends on values.* Use mx.nd"):
        sym.contrib.boolean_mask(sym.Variable("a"), sym.Variable("b"))


def test_unnamed_nodes_of_contrib_linalg_and_image_are_called_without_the_prefix():
    """Their variables have the same names, so that checkpoints have MXNet's names."""
    x = sym.Variable("x")
    with NameManager():
        assert sym.contrib.quadratic(x).name == "quadratic0"
        assert sym.contrib.DeformableConvolution(x, num_filter=2, kernel=(3, 3)).list_arguments()[2:] == [
            "deformableconvolution0_weight", "deformableconvolution0_bias"]
        assert sym.linalg.gemm2(x, x).name == "gemm20" and sym.linalg_gemm2(x, x).name == "linalg_gemm20"
        assert sym.image.resize(x, size=2).name == "resize0"
        assert sym.random.shuffle(x).name == "_shuffle0"


def test_sparse_retain_keeps_some_rows_of_a_graph():
    """As mx.nd.sparse.retain of the same array; a NaN in a row that is not kept does not show."""
    kept = sym.sparse.retain(sym.Variable("d"), sym.Variable("i"))
    values = mx.nd.array([[1, 2], [3, 4], [math.nan, 5], [6, 7]])
    ex = kept.bind(mx.cpu(), {"d": values, "i": mx.nd.array([0, 3], dtype="int64")}, {"d": mx.nd.full((4, 2), 9)}, {"d": "write"})
    (out,) = ex.forward(is_train=True)
    assert out.asnumpy().tolist() == mx.nd.sparse.retain(values.tostype("row_sparse"), [0, 3]).asnumpy().tolist()
    ex.backward(mx.nd.ones((4, 2)))
    assert ex.grad_dict["d"].asnumpy().tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]
