"""mx.test_utils: its checks accept correct results and reject wrong ones. Also mx.base, mx.util, mx.runtime and others."""

import gzip
import os

import numpy as np
import pytest
import tritium as mx
from tritium import test_utils as tu
from tritium.errors import ContextError, FileError, MXNetError, ParameterError
from tritium.executor import Executor
from tritium.executor_manager import _check_arguments, _load_data
from tritium.model import _update_params
from tritium.module.base_module import BaseModule
from tritium.rnn.rnn_cell import LSTMCell


@mx.simple_op(name="_test_wrong_slope", replace=True)
def wrong(x):
    """x² with a wrong derivative, 3x."""
    return x * x


@wrong.gradient
def _(dy, x):
    return 3 * x * dy


def test_arrays_are_compared_with_tolerances():
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


def test_gradients_are_compared_with_finite_differences(rng):
    x = mx.sym.Variable("x")
    tu.check_numeric_gradient(mx.sym.tanh(x), [rng.normal(size=(2, 3))])
    tu.check_numeric_gradient(mx.sym.FullyConnected(x, num_hidden=2, name="f"),
                              {"x": rng.normal(size=(2, 3)), "f_weight": rng.normal(size=(2, 3)), "f_bias": rng.normal(size=2)},
                              grad_nodes={"x": "add", "f_weight": "write"}, dtype="float64")
    # (float64 above: in float32, rounding errors divided by eps = 1e-3 may exceed the tolerance)
    with pytest.raises(AssertionError, match="NUMERICAL_x and BACKWARD_x differ"):
        tu.check_numeric_gradient(wrong(x), [rng.normal(size=(2, 3))])


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_outputs_and_gradients_are_compared_with_expected_values(req, rng):
    x, dy = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    square = mx.sym.square(mx.sym.Variable("x"))
    tu.check_symbolic_forward(square, [x], [x * x])
    tu.check_symbolic_backward(square, {"x": x}, [dy], [2 * x * dy], grad_req=req)
    with pytest.raises(AssertionError, match=r"EXPECTED_.* and FORWARD_"):
        tu.check_symbolic_forward(square, [x], [x])
    if req != "null":
        with pytest.raises(AssertionError, match="EXPECTED_x and BACKWARD_x"):
            tu.check_symbolic_backward(square, [x], [dy], [x * dy], grad_req=req)


def test_check_consistency_compares_contexts_and_dtypes():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="f")
    where = [{"ctx": c, "data": (2, 4), "type_dict": {"data": t}} for c in (mx.cpu(), mx.gpu()) for t in ("float64", "float32")]
    truth = tu.check_consistency(net, where)
    assert truth["output f_output"].dtype == np.float64 and "gradient of f_weight" in truth
    other = mx.sym.FullyConnected(mx.sym.Variable("data") * 1.5, num_hidden=3, name="f")
    with pytest.raises(AssertionError, match="and the reference differ"):
        tu.check_consistency([net, other], where[:2])


def test_random_arrays_and_shapes():
    a, b = tu.random_arrays((2, 3), (4,))
    assert a.shape == (2, 3) and b.dtype == np.float32
    assert tu.rand_ndarray((3, 2), dtype="float64").dtype == np.float64
    assert len(tu.rand_shape_nd(4)) == 4 and len(tu.rand_shape_2d()) == 2 and min(tu.rand_shape_3d()) >= 1
    assert tu.simple_forward(mx.sym.Variable("x") * 2, x=np.ones(2, "f")).tolist() == [2, 2]
    tu.set_default_context(mx.cpu(1))
    assert tu.default_context() == mx.cpu(1)
    tu.set_default_context(mx.cpu())
    assert list(tu.list_gpus()) == list(range(mx.num_gpus()))


def test_nothing_is_downloaded(tmp_path):
    with pytest.raises(MXNetError, match=r"x.bin does not exist, and Tritium does not use the network. Download http://h/x.bin"):
        tu.download("http://h/x.bin", dirname=str(tmp_path))
    (tmp_path / "x.bin").write_text("")
    assert tu.download("http://h/x.bin", dirname=str(tmp_path)) == str(tmp_path / "x.bin")
    with pytest.raises(MXNetError, match=r"get_mnist: .* has no train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k"):
        tu.get_mnist(str(tmp_path))


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype("u1").tobytes()


def test_mnist_is_read_from_its_files(tmp_path, rng):
    images, labels = rng.integers(0, 256, (7, 28, 28)), rng.integers(0, 10, 7)
    for name, a in (("train-images-idx3", images), ("train-labels-idx1", labels), ("t10k-labels-idx1", labels[:4])):
        (tmp_path / f"{name}-ubyte").write_bytes(idx(a))
    with gzip.open(tmp_path / "t10k-images-idx3-ubyte.gz", "wb") as f:
        f.write(idx(images[:4]))
    found = tu.get_mnist(str(tmp_path))
    assert found["train_data"].shape == (7, 1, 28, 28) and found["train_data"].dtype == np.float32
    assert np.array_equal(np.rint(found["test_data"][:, 0] * 255), images[:4]) and np.array_equal(found["train_label"], labels)
    training, held_out = tu.get_mnist_iterator(2, (784,), num_parts=2, part_index=1, path=str(tmp_path))
    assert training.provide_data[0].shape == (2, 784) and training.num_data == 3 and held_out.num_data == 4
    dummy = tu.DummyIter(held_out)
    assert next(dummy) is next(dummy) and dummy.provide_data == held_out.provide_data
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images)[:-1])
    with pytest.raises(FileError, match=r"train-images-idx3-ubyte: announces uint8\[7, 28, 28\], 5,488 bytes, and has 5,487"):
        tu.get_mnist(str(tmp_path))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"what is this")
    with pytest.raises(FileError, match="train-images-idx3-ubyte: begins with 77 68 61 74, not as an idx file of bytes"):
        tu.get_mnist(str(tmp_path))


def test_small_helpers_for_arrays_and_symbols():
    assert tu.create_2d_tensor(2, 3).asnumpy().tolist() == [[0, 0, 0], [1, 1, 1]]
    assert tu.create_vector(3).asnumpy().tolist() == [0, 1, 2]
    a = np.arange(6.0).reshape(2, 3)
    assert tu.np_reduce(a, (0, -1), False, np.sum).tolist() == [15] and tu.np_reduce(a, None, True, np.sum).shape == (1, 1)
    assert tu.assign_each(a, lambda x: x + 1)[1, 2] == 6 and tu.assign_each2(a, a, lambda x, y: x * y)[1, 1] == 16
    assert tu.random_sample([1, 2, 3], 3) == [1, 2, 3] and tu.get_rtol(dtype=np.float16) == 1e-2 and tu.get_atol(0.5) == 0.5
    assert all((x >= 1).all() and (x < 2).all() for x in tu.random_uniform_arrays((2, 3), (), low=1, high=2))
    one, other = (mx.sym.exp(mx.sym.Variable(n)) for n in "ab")
    assert tu.same_symbol_structure(one, other) and not tu.same_symbol_structure(one, mx.sym.log(one))
    assert tu.check_speed(one, N=2, a=(2, 3)) > 0
    with pytest.raises(ParameterError, match="check_speed: typ='half' is not one of"):
        tu.check_speed(one, typ="half", a=(2,))


def test_compare_optimizer_finds_a_difference():
    make = mx.optimizer.create
    tu.compare_optimizer(make("adam"), make("adam"), (3, 4), "float32")
    with pytest.raises(AssertionError):
        tu.compare_optimizer(make("sgd", learning_rate=0.1), make("sgd", learning_rate=0.2), [(3, 4), (2,)], "float32")


def test_names_that_old_scripts_import(tmp_path, caplog):
    assert issubclass(mx.mod.Module, BaseModule) and LSTMCell is mx.rnn.LSTMCell
    x = mx.sym.Variable("x")
    assert isinstance(x.simple_bind(mx.cpu(), x=(1,)), Executor)
    with pytest.raises(ParameterError, match="executor_manager: two arguments have the name 'x'"):
        _check_arguments(x + mx.sym.Variable("x"))
    batch = mx.io.DataBatch([mx.nd.array([1, 2, 3])])
    parts = [mx.nd.zeros(1), mx.nd.zeros(2)]
    _load_data(batch, [[(slice(0, 1), parts[0]), (slice(1, 3), parts[1])]])
    assert parts[0].asscalar() == 1 and parts[1].asnumpy().tolist() == [2, 3]
    weight = mx.nd.ones(2)
    _update_params([[weight]], [[mx.nd.ones(2)]], mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5, wd=0)), 1)
    assert weight.asnumpy().tolist() == [0.5, 0.5]
    assert mx.log.get_logger("tritium.test", str(tmp_path / "log"), level=mx.log.INFO).handlers


def test_the_scheduler_of_mx_misc(caplog):
    schedule = mx.misc.FactorScheduler(10, 0.5)
    schedule.base_lr = 1.0
    with caplog.at_level("INFO"):
        assert [schedule(i) for i in (0, 5, 9, 10, 11, 20, 30)] == [1, 1, 1, 0.5, 0.5, 0.25, 0.125]
    assert len(caplog.records) == 3
    with pytest.raises(ParameterError, match=r"step=0 must be at least 1 and factor=0.1 below 1"):
        mx.misc.FactorScheduler(0)


def test_environment_is_restored_and_retry_repeats_a_test():
    with tu.environment("TRITIUM_TEST_WORD", "1"):
        assert mx.util.getenv("TRITIUM_TEST_WORD") == "1"
    assert "TRITIUM_TEST_WORD" not in os.environ
    tries = []

    @tu.retry(3)
    def flaky():
        tries.append(1)
        assert len(tries) == 3

    flaky()


def test_functions_of_base_util_runtime_and_context():
    assert isinstance(1.5, mx.base.numeric_types) and isinstance("a", mx.base.string_types)
    assert mx.base.MXNetError is mx.MXNetError
    assert list(mx.base.c_str_array(["a", "b"])) == [b"a", b"b"] and mx.base._as_list((1, 2)) == [1, 2]
    features = mx.runtime.Features()
    assert features.is_enabled("lapack") and not features.is_enabled("CUDNN") and "✖ CUDNN" in repr(features)
    assert mx.context.num_gpus() == mx.util.get_gpu_count() == mx.num_gpus()
    free, total = mx.context.gpu_memory_info(0)
    assert 0 < free <= total
    assert not mx.util.is_np_array() and not mx.util.set_np_shape(False)
    with mx.util.np_shape():  # the answers are MXNet's
        assert mx.util.is_np_shape() and mx.nd.ones((3,))[0].shape == ()
        fc = mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3)
        assert fc.infer_shape_partial() == ([None, None, None], [None], [])
        assert fc.infer_shape_partial(x=(-1, 4)) == ([(-1, 4), (3, 4), (3,)], [(-1, 3)], [])
        assert fc.infer_shape(x=(0, 4)) == ([(0, 4), (3, 4), (3,)], [(0, 3)], [])
    assert mx.util.use_np_shape(mx.util.is_np_shape)() and not mx.util.is_np_shape()
    assert mx.executor_manager._split_input_slice(6, [1, 2]) == [slice(0, 2), slice(2, 6)]


@pytest.mark.parametrize("call, error, text", [
    (lambda: mx.base._LIB.MXNDArrayFree, AttributeError, "mx.base._LIB: Tritium has no C library, so there is no MXNDArrayFree"),
    (lambda: mx.base.check_call(-1), MXNetError, "mx.base.check_call: a library function returned -1"),
    (lambda: mx.runtime.Features().is_enabled("X"), ParameterError, "no feature is called 'X'"),
    (lambda: mx.context.gpu_memory_info(99), ContextError, r"gpu\(99\)"),
    (lambda: mx.util.set_np(), MXNetError, "set_np: mx.np is not available"),
])
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
