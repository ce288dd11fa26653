"""Calls that MXNet 1.9.1 accepts: the values beside them are those that it returns."""

import subprocess
import sys

import numpy as np
import pytest
import tritium as mx
from tritium.errors import NotAvailableError, ParameterError, ShapeError

nd = mx.nd
IMAGES = nd.ones((1, 2, 4, 4))


@pytest.mark.parametrize("call, wanted", [
    (lambda: nd.L2Normalization(nd.array([3, -2, 0])), [1, -1, 0]),  # each element is a sample
    (lambda: nd.broadcast_like(nd.array([[1, 2, 3]]), nd.ones((2, 3)), lhs_axes=(2, 2)), [[1, 2, 3]] * 2),
    (lambda: nd.broadcast_like(nd.array([[1, 2, 3]]), nd.ones((2, 3)), rhs_axes=0), [[1, 2, 3]] * 2),
    (lambda: nd.smooth_l1(nd.array([1, -2]), scalar=0), [0, 0]),
    (lambda: nd.exp(nd.zeros(2), ctx="2"), [1, 1]),  # an operator with inputs ignores ctx
    (lambda: nd.negative(nd.ones(2), name="n", lr_mult=1), [-1, -1]),
    (lambda: nd.array(["1", "2.5"]), [1, 2.5]),
    (lambda: nd.arange("3", 6), [3, 4, 5]),
    (lambda: nd.linspace(0, 1, "3"), [0, 0.5, 1]),
    (lambda: nd.eye(2, name="n"), [[1, 0], [0, 1]]),
    (lambda: mx.sym.eye(2, ctx=None).eval()[0], [[1, 0], [0, 1]]),
    (lambda: nd.zeros("(2, 1)"), [[0], [0]]),
    (lambda: nd.ones("2"), [1, 1]),
    (lambda: nd.full("[1,2]", 3), [[3, 3]]),
    (lambda: nd.ones(2).__div__(2), [0.5, 0.5]),
    (lambda: nd.ones(2).__rdiv__(2), [2, 2]),
    (lambda: nd.ones(2).__idiv__(4), [0.25, 0.25]),
    (lambda: mx.sym.var("x").__div__(2).eval(x=nd.ones(2))[0], [0.5, 0.5]),
])
def test_values(call, wanted):
    assert call().asnumpy().tolist() == wanted


@pytest.mark.parametrize("given, size", [
    ({"height": 5, "width": 6, "scale_width": 2.0}, (5, 6)),  # without scale_height, height and width count
    ({"height": 5, "width": 6, "scale_height": 3.0, "scale_width": 2.0}, (12, 8)),
])
def test_sizes_of_bilinear_resize(given, size):
    assert nd.contrib.BilinearResize2D(IMAGES, **given).shape[2:] == size


def test_cudnn_off_may_be_none():
    place = nd.array([[1, 0, 0, 0, 1, 0]])
    found = nd.SpatialTransformer(IMAGES, place, target_shape=(4, 4), transform_type="affine", sampler_type="bilinear",
                                  cudnn_off=None)
    assert found.shape == IMAGES.shape


def test_dtype_none_is_the_default():
    assert nd.topk(nd.ones((2, 3)), dtype=None).dtype == np.float32
    assert nd.sample_multinomial(nd.array([[0.5, 0.5]]), dtype=None).dtype == np.int32
    with pytest.raises(ParameterError, match="Cast: dtype=None"):
        nd.Cast(nd.ones(2), dtype=None)


def test_functions_of_two_numbers():
    for function, wanted in ((nd.equal, 0), (nd.not_equal, 1), (nd.greater, 1), (nd.lesser, 0), (nd.greater_equal, 1),
                             (nd.lesser_equal, 0)):
        found = function(5, 1)
        assert found == wanted and type(found) is int
    assert nd.maximum(np.float32(2), 1) == 2 and nd.logical_and(np.int64(2), 0) == 0
    assert nd.equal(nd.ones(2), 1).asnumpy().tolist() == [1, 1]


def test_text_that_is_no_shape():
    with pytest.raises(ShapeError, match="shape 'abc' is not a tuple of integers"):
        nd.zeros("abc")


def test_operators_of_the_class_symbol():
    x = mx.sym.var("x")
    assert mx.sym.Symbol.sum(x, axis=1, name="s").list_outputs() == ["s_output"]
    assert mx.sym.Symbol.reshape(x, (2, 3)).eval(x=nd.ones(6))[0].shape == (2, 3)
    assert not hasattr(mx.sym.Symbol, "no_such_operator")


@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_class_1_of_several_is_scored(metric):
    scored = mx.metric.create(metric)
    scores = nd.array([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.2, 0.5, 0.3]])
    scored.update([nd.array([1, 0, 1, 0])], [scores])
    assert scored.get()[1] == {"f1": 0.5, "mcc": 0}[metric]
    for labels, preds in (([1, 0, 2, 0], scores), ([1, 0], nd.ones(2))):
        scored = mx.metric.create(metric)
        scored.update([nd.array(labels)], [preds])
        with pytest.raises(ParameterError, match="only two classes can be scored"):
            scored.get()


def test_a_warm_up_longer_than_the_schedule():
    schedule = mx.lr_scheduler.CosineScheduler(10, base_lr=0.1, final_lr=0.01, warmup_steps=20)
    assert [round(schedule(i), 6) for i in (2, 10, 18)] == [0.01, 0.05, 0.09]
    assert schedule(25) == 0.1


def test_a_learning_rate_as_text():
    weight, grad = nd.ones(3), nd.ones(3)
    optimizer = mx.optimizer.Signum(learning_rate="0.1", momentum=0)
    optimizer.update(0, weight, grad, optimizer.create_state(0, weight))
    assert np.allclose(weight.asnumpy(), 0.9) and optimizer.learning_rate == 0.1


def test_names_with_little_behind_them():
    with pytest.raises(NotAvailableError, match="as_np_ndarray: the NumPy interface"):
        nd.ones(2).as_np_ndarray()
    mx.profiler.set_kvstore_handle(None)
    pearson = mx.metric.PearsonCorrelation(average="micro")
    pearson.update([nd.array([1, 2, 3])], [nd.array([1, 2, 4])])
    pearson.reset_micro()
    assert np.isnan(pearson.get()[1])


@pytest.mark.parametrize("program", ["import numpy as np; np.bool = bool; import mxnet as mx",
                                     "import mxnet as mx; import numpy as np; np.bool = bool; np.int = int"])
def test_a_script_may_say_what_np_bool_is(program, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(program.replace("; ", "\n") + "\nmask = mx.nd.array([0, 2]) > 1\nprint(np.dtype(bool), "
                      "mask[mask].asnumpy(), mx.nd.LeakyReLU(mask, act_type='elu').asnumpy(), np.int(3))\n")
    done = subprocess.run([sys.executable, "-m", "tritium", "run", str(script)], capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[0] == "bool [1.] [0. 1.] 3", done.stderr


def test_a_constant_of_an_array_of_numpy_is_written():
    assert mx.init.Constant(np.array([1.0, 2.0])).dumps() == '["constant", {"value": [1.0, 2.0]}]'
