"""mx.test_utils: that its checks pass what is right and fail what is wrong; and its neighbours base, util, runtime."""

import os

import numpy as np
import pytest
import tritium as mx
from tritium import test_utils as tu
from tritium.errors import ContextError, MXNetError, ParameterError


@mx.simple_op(name="_test_wrong_slope", replace=True)
def wrong(x):
    """x², whose derivative says 3x."""
    return x * x


@wrong.gradient
def _(dy, x):
    return 3 * x * dy


def test_comparing():
    a = mx.nd.array([1.0, 2.0, np.nan])
    assert tu.same(a[:2], np.array([1, 2], "f")) and not tu.almost_equal(a, a) and tu.almost_equal(a, a, equal_nan=True)
    tu.assert_almost_equal(a, a + 1e-6, equal_nan=True)
    with pytest.raises(AssertionError, match=r"x and y differ: error .* most at \(1,\): 2.0 3.0; 1 of 2 elements"):
        tu.assert_almost_equal(np.array([1.0, 2.0]), np.array([1.0, 3.0]), names=("x", "y"))
    with pytest.raises(AssertionError, match=r"a has shape \(2,\), b \(1,\)"):
        tu.assert_almost_equal(np.ones(2), np.ones(1), use_broadcast=False)
    tu.assert_almost_equal_ignore_nan(np.array([np.nan, 1]), np.array([5, 1.0]))
    tu.assert_exception(lambda: 1 / 0, ZeroDivisionError)
    assert tu.same_array(a, a) and not tu.same_array(a, a.copy())


def test_slopes_are_checked(rng):
    x = mx.sym.Variable("x")
    tu.check_numeric_gradient(mx.sym.tanh(x), [rng.normal(size=(2, 3))])
    tu.check_numeric_gradient(mx.sym.FullyConnected(x, num_hidden=2, name="f"),
                              {"x": rng.normal(size=(2, 3)), "f_weight": rng.normal(size=(2, 3)), "f_bias": rng.normal(size=2)},
                              grad_nodes={"x": "add", "f_weight": "write"})
    with pytest.raises(AssertionError, match="NUMERICAL_x and BACKWARD_x differ"):
        tu.check_numeric_gradient(wrong(x), [rng.normal(size=(2, 3))])


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_forward_and_backward_are_held_against_the_expected(req, rng):
    x, dy = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    square = mx.sym.square(mx.sym.Variable("x"))
    tu.check_symbolic_forward(square, [x], [x * x])
    tu.check_symbolic_backward(square, {"x": x}, [dy], [2 * x * dy], grad_req=req)
    with pytest.raises(AssertionError, match=r"EXPECTED_.* and FORWARD_"):
        tu.check_symbolic_forward(square, [x], [x])
    if req != "null":
        with pytest.raises(AssertionError, match="EXPECTED_x and BACKWARD_x"):
            tu.check_symbolic_backward(square, [x], [dy], [x * dy], grad_req=req)


def test_contexts_and_dtypes_agree():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="f")
    where = [{"ctx": c, "data": (2, 4), "type_dict": {"data": t}} for c in (mx.cpu(), mx.gpu()) for t in ("float64", "float32")]
    truth = tu.check_consistency(net, where)
    assert truth["output f_output"].dtype == np.float64 and "gradient of f_weight" in truth
    other = mx.sym.FullyConnected(mx.sym.Variable("data") * 1.5, num_hidden=3, name="f")
    with pytest.raises(AssertionError, match="and the finest differ"):
        tu.check_consistency([net, other], where[:2])


def test_random_arrays_and_shapes():
    a, b = tu.random_arrays((2, 3), (4,))
    assert a.shape == (2, 3) and b.dtype == np.float32
    assert tu.rand_ndarray((3, 2), dtype="float64").dtype == np.float64
    assert len(tu.rand_shape_nd(4)) == 4 and len(tu.rand_shape_2d()) == 2 and min(tu.rand_shape_3d()) >= 1
    with pytest.raises(ParameterError, match="rand_ndarray: stype='csr'"):
        tu.rand_ndarray((2, 2), "csr")
    assert tu.simple_forward(mx.sym.Variable("x") * 2, x=np.ones(2, "f")).tolist() == [2, 2]
    tu.set_default_context(mx.cpu(1))
    assert tu.default_context() == mx.cpu(1)
    tu.set_default_context(mx.cpu())
    assert list(tu.list_gpus()) == list(range(mx.num_gpus()))


def test_nothing_is_fetched(tmp_path):
    with pytest.raises(MXNetError, match=r"x.bin is not here, and Tritium does not use the network. Fetch http://h/x.bin"):
        tu.download("http://h/x.bin", dirname=str(tmp_path))
    (tmp_path / "x.bin").write_text("")
    assert tu.download("http://h/x.bin", dirname=str(tmp_path)) == str(tmp_path / "x.bin")
    with pytest.raises(MXNetError, match="MNIST is not bundled"):
        tu.get_mnist()


def test_environment_and_retry():
    with tu.environment("TRITIUM_TEST_WORD", "1"):
        assert mx.util.getenv("TRITIUM_TEST_WORD") == "1"
    assert "TRITIUM_TEST_WORD" not in os.environ
    tries = []

    @tu.retry(3)
    def flaky():
        tries.append(1)
        assert len(tries) == 3

    flaky()


def test_base_util_runtime_context():
    assert isinstance(1.5, mx.base.numeric_types) and isinstance("a", mx.base.string_types)
    assert mx.base.MXNetError is mx.MXNetError
    with pytest.raises(AttributeError, match=r"mx.base._LIB: Tritium has no C library"):
        _ = mx.base._LIB
    features = mx.runtime.Features()
    assert features.is_enabled("lapack") and not features.is_enabled("CUDNN") and "✖ CUDNN" in repr(features)
    with pytest.raises(ParameterError, match="no feature is called 'X'"):
        features.is_enabled("x".upper())
    assert mx.context.num_gpus() == mx.util.get_gpu_count() == mx.num_gpus()
    free, total = mx.context.gpu_memory_info(0)
    assert 0 < free <= total
    with pytest.raises(ContextError):
        mx.context.gpu_memory_info(99)
    assert not mx.util.is_np_array() and not mx.util.set_np_shape(False)
    with pytest.raises(MXNetError, match=r"set_np: mx.np is not built"):
        mx.util.set_np()
    assert mx.executor_manager._split_input_slice(6, [1, 2]) == [slice(0, 2), slice(2, 6)]
