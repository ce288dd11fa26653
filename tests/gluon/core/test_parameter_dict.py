"""ParameterDict: parameters by full name."""

import pytest
import tritium as mx
from tritium.gluon import ParameterDict


def test_get_makes_a_parameter_once_and_completes_its_shape():
    d = ParameterDict("net_")
    w = d.get("w", shape=(10, 0))
    assert d.get("w", shape=(10, 4)) is w and w.shape == (10, 4) and list(d) == ["net_w"] and w.name == "net_w"
    with pytest.raises(AssertionError, match=r"Cannot retrieve Parameter 'net_w': its shape is \(10, 4\), not \(5, 4\)"):
        d.get("w", shape=(5, 4))
    assert repr(d) == "net_ (\n  Parameter net_w (shape=(10, 4), dtype=<class 'numpy.float32'>)\n)"


def test_constants():
    d = ParameterDict("net_")
    with pytest.raises(KeyError, match="No constant named 'net_k'"):
        d.get_constant("k")
    k = d.get_constant("k", [[1, 2], [3, 4]])
    assert d.get_constant("k") is k is d.get_constant("k", mx.nd.array([[1, 2], [3, 4]]))
    with pytest.raises(AssertionError, match="Constant 'net_k' exists already with another value"):
        d.get_constant("k", [[0, 2], [3, 4]])
    d.get("w", shape=(1,))
    with pytest.raises(AssertionError, match="exists already, and is not a constant"):
        d.get_constant("w", [1])


def test_shared_dictionaries_and_update():
    first = ParameterDict("a_")
    w = first.get("w", shape=(2,))
    second = ParameterDict("a_", shared=first)
    assert second.get("w") is w and list(second) == ["a_w"]
    third = ParameterDict("a_")
    third.get("w", shape=(2,))
    with pytest.raises(AssertionError, match="both have a parameter 'a_w'"):
        third.update(first)


def test_all_parameters_at_once():
    d = ParameterDict("n_")
    d.get("weight", shape=(2,), init="ones"), d.get("bias", shape=(2,))
    d.initialize(mx.init.Constant(3), ctx=[mx.cpu(0), mx.cpu(1)])
    assert [p.data(mx.cpu(0)).asnumpy().tolist() for p in d.values()] == [[1, 1], [3, 3]]  # whatever the names end in
    assert d.list_ctx() == [mx.cpu(0), mx.cpu(1)]
    d.setattr("grad_req", "add")
    assert {p.grad_req for p in d.values()} == {"add"}
    d.reset_ctx(mx.cpu(1))
    assert d.list_ctx() == [mx.cpu(1)]


def test_files(tmp_path):
    d = ParameterDict("n_")
    d.get("w", shape=(2,), init="ones")
    d.initialize()
    file = str(tmp_path / "d.params")
    d.save(file, strip_prefix="n_")
    assert list(mx.nd.load(file)) == ["w"]
    d.load(file, restore_prefix="n_")
    with pytest.raises(ValueError, match="the name 'n_w' does not begin with 'foo_', which is to be removed"):
        d.save(file, "foo_")
    with pytest.raises(AssertionError, match="the name 'n_w' does not begin with restore_prefix='foo_'"):
        d.load(file, restore_prefix="foo_")
    with pytest.raises(AssertionError, match=r"Parameter 'n_w' is missing in file: .*d.params, which contains parameters: 'w'"):
        d.load(file)
    with pytest.raises(AssertionError, match="Parameter 'x' loaded from param_dict is not present in ParameterDict"):
        d.load_dict({"x": mx.nd.ones((1,)), "n_w": mx.nd.ones((2,))})
    d.load_dict({"x": mx.nd.ones((1,)), "aux:n_w": mx.nd.ones((2,)) * 4}, ignore_extra=True)
    assert d["n_w"].data().asnumpy().tolist() == [4, 4]
    d.load_dict({}, allow_missing=True)
    mx.nd.save(file, [mx.nd.ones((2,))])
    with pytest.raises(ValueError, match="the arrays have no names"):
        d.load(file)
