"""mx.registry, and modules of MXNet of which only names and helpful errors remain."""

import json

import numpy as np
import pytest
import tritium as mx
from tritium.errors import NotAvailableError, ParameterError


class Animal:
    def __init__(self, legs=4):
        self.legs = legs


@pytest.fixture
def factory():
    class Base(Animal):
        pass

    register, create = mx.registry.get_register_func(Base, "animal"), mx.registry.get_create_func(Base, "animal")

    @mx.registry.get_alias_func(Base, "animal")("bird", "hen")
    class Bird(Base):
        pass

    class Dog(Base):
        pass

    return Base, register(Dog), Bird, register, create


def test_classes_by_name_json_dictionary_and_instance(factory):
    base, dog, bird, _, create = factory
    assert isinstance(create("DOG"), dog) and create("hen", 2).legs == 2 and create(animal="bird", legs=2).legs == 2
    assert create(json.dumps(["bird", {"legs": 3}])).legs == 3 and create('{"animal": "dog", "legs": 5}').legs == 5
    assert create({"animal": "dog", "legs": 1}).legs == 1
    one = dog()
    assert create(one) is one
    assert mx.registry.get_registry(base) == {"dog": dog, "bird": bird, "hen": bird}


def test_errors_of_the_registry(factory):
    _, dog, _, register, create = factory
    with pytest.raises(ParameterError, match=r"animal.create: no animal is called 'dg'. Did you mean 'dog'\?"):
        create("dg")
    with pytest.raises(ParameterError, match="is an instance already, so no other arguments can be given"):
        create(dog(), 3)
    with pytest.raises(ParameterError, match=r"animal.create: 3 is neither a name nor an instance of Base"):
        create(3)
    with pytest.raises(ParameterError, match="is not a class derived from Base"):
        register(int)
    with pytest.warns(UserWarning, match=r"animal 'dog' was .*Dog, and is .*Dog now"):
        register(dog)


def test_initializers_metrics_and_optimizers_are_in_it():
    assert mx.registry.get_registry(mx.init.Initializer)["xavier"] is mx.init.Xavier
    assert mx.registry.get_create_func(mx.metric.EvalMetric, "metric")("acc").name == "accuracy"
    assert mx.registry.get_registry(mx.optimizer.Optimizer)["sgd"] is mx.optimizer.SGD


def test_errors_by_name():
    from tritium.train.compat.error import error_types

    @mx.error.register
    class OurError(mx.MXNetError):
        pass

    @mx.error.register_error("Another")
    class OtherError(mx.MXNetError):
        pass

    assert error_types["OurError"] is OurError and error_types["Another"] is OtherError
    assert issubclass(mx.error.InternalError, mx.error.MXNetError) and error_types["TypeError"] is TypeError


@pytest.mark.parametrize("use, text", [
    (lambda: mx.rtc.CudaModule("__global__ void f() {}"), "Write the kernel in Triton, as @mx.operator.jit"),
    (lambda: mx.rtc.CudaKernel(), "CUDA source cannot be compiled here"),
    (lambda: mx.libinfo.find_lib_path(), "Tritium has no C library"),
    (lambda: mx.libinfo.find_include_path(), "Tritium has no C library"),
    (lambda: mx.library.load("libmine.so"), "libmine.so is compiled for MXNet's C interface"),
    (lambda: mx.np.array([1]), "mx.np.array: the NumPy interface of MXNet 1.6 and later is not available. Use mx.nd"),
    (lambda: mx.np.ndarray((2,)), "mx.np.ndarray: the NumPy interface"),
    (lambda: mx.npx.softmax(1), "mx.npx.softmax: .* Use mx.nd, .* such as mx.nd.softmax"),
])
def test_what_is_not_available_says_what_to_use(use, text):
    with pytest.raises(NotAvailableError, match=text):
        use()


def test_importing_np_and_npx_leaves_nd_alone():
    from tritium import nd, np as mxnp, npx  # noqa: I001

    assert nd.ones(2).sum().asscalar() == 2 and not isinstance(nd.ones(1), mxnp.ndarray)
    assert npx.num_gpus() == mx.num_gpus() and npx.cpu() == mx.cpu() and npx.is_np_array() is False
    assert not mx.is_np_shape()
    with pytest.raises(NotAvailableError):
        from tritium.numpy import array  # noqa: F401


def test_namespaces_are_modules():
    import tritium.ndarray.contrib
    import tritium.symbol.linalg
    from tritium.contrib.ndarray import box_iou
    from tritium.ndarray.contrib import box_nms, foreach

    assert box_iou is mx.nd.contrib.box_iou and box_nms is mx.nd.contrib.box_nms and foreach is mx.nd.contrib.foreach
    assert tritium.symbol.linalg is mx.sym.linalg and mx.contrib.nd is mx.nd.contrib and mx.contrib.sym is mx.sym.contrib


def test_modules_of_images():
    import tritium.image.detection
    import tritium.image.image

    assert mx.img is mx.image and tritium.image.detection.ImageDetIter is mx.image.ImageDetIter
    by_size = [tritium.image.image._get_interp_method(*a) for a in (
        (2,), (9, (10, 10, 20, 20)), (9, (10, 10, 5, 5)), (9, (10, 10, 10, 5)), (9,))]
    assert by_size == [2, 2, 3, 1, 2]  # as MXNet 1.9.1


def test_nd_imdecode_gives_planes():
    cv2 = pytest.importorskip("cv2")
    pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 3)).astype(np.uint8)
    data = cv2.imencode(".png", pixels[:, :, ::-1])[1].tobytes()
    planes = pixels.transpose(2, 0, 1)
    assert np.array_equal(mx.nd.imdecode(data).asnumpy(), planes)
    assert np.array_equal(mx.nd.imdecode(data, clip_rect=(1, 2, 5, 6), mean=mx.nd.ones((3, 4, 4))).asnumpy(),
                          planes[:, 2:6, 1:5].astype(np.float32) - 1)
    out = mx.nd.zeros((2, 3, 6, 8))
    assert mx.nd.imdecode(data, out=out, index=1) is out
    assert not out[0].asnumpy().any() and np.array_equal(out[1].asnumpy(), planes)
    assert mx.nd.imdecode(data, channels=1).shape == (1, 6, 8)
    with pytest.raises(mx.errors.ShapeError, match=r"clip_rect \(0, 0, 9, 2\) is not inside an image of width 8 and height 6"):
        mx.nd.imdecode(data, clip_rect=(0, 0, 9, 2))
    with pytest.raises(mx.errors.ShapeError, match=r"out has room for \(3, 5, 8\), the image is \(3, 6, 8\)"):
        mx.nd.imdecode(data, out=mx.nd.zeros((3, 5, 8)))


@pytest.mark.parametrize("module, name", [(mx.np, "torch"), (mx.npx, "torch"), (mx.contrib, "torch")])
def test_a_name_that_is_not_there_does_not_stop_who_looks_through_all_modules(module, name):
    assert not hasattr(module, name) and getattr(module, name, None) is None
