"""NDArray: waiting, conversion, copies between contexts and dtypes, Python's protocols."""

import copy
import pickle

import numpy as np
import pytest
import tritium as mx
from tritium import ndarray as nd
from tritium.context import cpu
from tritium.errors import FileError, ShapeError
from tritium.kernels.op import Op, register
from tritium.ndarray.core.chunk import layout_of

X = np.arange(6, dtype="float32").reshape(2, 3)


class Failing(Op):
    """Raises when it runs."""

    name, input_names = "_test_failing", ("data",)

    def infer_shape(self, p, inputs, outputs=None):
        return list(inputs), [inputs[0]]

    def kernel(self, p, ins, outs, reqs, target, train=False):
        def kernel(run, inputs, outputs):
            raise ArithmeticError("on purpose")

        return kernel


FAILING = register(Failing(), module=__name__)


def test_properties_of_an_array(ctx):
    a = nd.array(X, ctx)
    assert (a.shape, a.size, a.ndim, a.dtype, a.context, a.ctx, a.stype) == ((2, 3), 6, 2, np.float32, ctx, ctx, "default")
    assert len(a) == 2 and [r.tolist() for r in a] == X.tolist() and a.nbytes == 24
    assert a.T.shape == (3, 2) and np.array_equal(a.T.asnumpy(), X.T)


def test_repr_is_mxnets():
    assert repr(nd.ones((2, 3))) == "\n[[1. 1. 1.]\n [1. 1. 1.]]\n<NDArray 2x3 @cpu(0)>"
    assert repr(nd.array([1])[0]) == "\n[1.]\n<NDArray 1 @cpu(0)>"


def test_scalars():
    a = nd.array([2.5])
    assert a.asscalar() == np.float32(2.5) and a.item() == 2.5 and float(a) == 2.5 and int(a) == 2 and bool(a)
    assert not nd.zeros((1,)) and [10, 20, 30][nd.array([2], dtype="int32")] == 30 and 2.5 in a and 3 not in a


@pytest.mark.parametrize("call, error, text", [
    (lambda: nd.zeros((2,)).asscalar(), ShapeError, r"asscalar: float32\[2\]@cpu\(0\) is not one element"),
    (lambda: bool(nd.zeros((2,))), ValueError, "neither true nor false"),
    (lambda: [1][nd.array([0.0])], TypeError, "cannot be an index"),
    (lambda: len(nd.array(1)), TypeError, "without axes"),
])
def test_an_array_that_is_not_a_scalar_cannot_be_used_as_one(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8", "bool"])
def test_astype(dtype, ctx):
    a = nd.array(X, ctx)
    b = a.astype(dtype)
    assert b.ctx == ctx and np.array_equal(b.asnumpy(), X.astype(b.asnumpy().dtype)) and b is not a
    assert a.astype("float32", copy=False) is a and a.astype("float32") is not a


def test_copies_do_not_share_memory(ctx):
    a = nd.array(X)
    for b in (a.copy(), a.copyto(ctx), a.copyto(nd.zeros((2, 3), ctx)), copy.copy(a), copy.deepcopy(a)):
        a[:] = 9
        assert np.array_equal(b.asnumpy(), X)
        a[:] = X
    assert a.as_in_context(cpu(0)) is a and a.as_in_ctx(cpu(1)).ctx == cpu(1)
    assert np.array_equal(a.as_in_context(ctx).as_in_context(cpu(0)).asnumpy(), X)
    assert nd.zeros((6,)).copy().shape == (6,) and a.copyto(nd.zeros((6,), dtype="int32")).tolist() == list(range(6))
    with pytest.raises(ShapeError, match=r"copyto: sizes differ: from float32\[2,3\]"):
        a.copyto(nd.zeros((4,)))
    with pytest.raises(TypeError, match="copyto: a int"):
        a.copyto(3)


def test_asnumpy_is_a_copy(ctx):
    a = nd.array(X, ctx)
    a.asnumpy()[:] = 7
    assert np.array_equal(a.asnumpy(), X)


def test_a_failure_is_raised_at_the_wait_with_the_operators_name():
    y = nd.invoke(FAILING, [nd.ones((2,))], FAILING.parse({}))[0]
    z = y + 1
    with pytest.raises(ArithmeticError, match="on purpose") as caught:
        z.asnumpy()
    assert "_test_failing" in str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    y[:] = 3  # written anew, the mark is gone
    assert y.tolist() == [3, 3]


def test_a_long_chain_is_in_order(ctx):
    a = nd.zeros((3,), ctx)
    for _ in range(200):
        a += 1
    assert a.tolist() == [200] * 3


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "uint16", "uint64", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_an_array_is_pickled_as_data(dtype, shape, ctx):
    a = nd.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2, ctx, dtype)
    a.attach_grad()
    b = pickle.loads(pickle.dumps(a))
    assert b.ctx == ctx and b.shape == shape and b.dtype is a.dtype and b.tolist() == a.tolist() and b.grad is None


def test_a_pickle_names_one_function_of_ours_and_holds_bytes():
    function, (data, where) = nd.ones((2,)).__reduce__()
    assert function.__module__ == "tritium.ndarray.core.ndarray" and isinstance(data, bytes) and where == "cpu(0)"
    with pytest.raises(FileError, match="load: pickle: "):
        function(data[:-1], where)
    assert function(data, "gpu(7)").ctx == cpu(0)  # a context that does not exist here


@pytest.mark.parametrize("shape, shown", [((2, 3), "<td"), ((7,), "<td"), ((), "<pre>"), ((2, 2, 2), "<pre>"), ((0, 3), "<pre>"),
                                          ((100, 100), "…")])
def test_html_of_small_and_large_arrays(shape, shown):
    html = nd.ones(shape)._repr_html_()
    assert shown in html and f"NDArray float32 ({', '.join(map(str, shape))}) @cpu(0)" in html and len(html) < 30000


def test_arrays_over_one_chunk_share_memory():
    a = nd.array(X)
    b = nd.NDArray(layout_of((2, 2), np.dtype("float32"), a.ctx), chunk=a.chunk, offset=4)
    b[:] = -1
    assert a.tolist() == [[0, -1, -1], [-1, -1, 5]] and b.layout.spec.nbytes == 16
    assert nd.NDArray(layout_of((2,), np.dtype("float32"), cpu(0)), chunk=nd.Chunk.new(8, cpu(0))).shape == (2,)


def test_methods_come_from_the_registry():
    a = nd.array(X)
    assert a.sum(axis=1).tolist() == [3, 12] and a.expand_dims(0).shape == (1, 2, 3) and a.flatten().shape == (2, 3)
    assert a.transpose().shape == (3, 2) and a.transpose((1, 0)).shape == (3, 2) and a.transpose(1, 0).shape == (3, 2)
    assert a.max().asscalar() == 5 and a.clip(1, 2).tolist() == [[1, 1, 2], [2, 2, 2]]
    assert a.sum.__doc__.startswith("The operator `sum`")
    assert mx is not None


@pytest.mark.parametrize("view, shape", [
    (lambda a: a.expand_dims(0, inplace=True), (1, 2, 3)), (lambda a: a.flatten(inplace=True), (2, 3)),
    (lambda a: a.expand_dims(1, True).squeeze(inplace=True), (2, 3)), (lambda a: a.expand_dims(1, True).squeeze(1, True), (2, 3)),
])
def test_methods_with_inplace_share_memory(view, shape):
    a = nd.array(X)
    b = view(a)
    b[:] = 7
    assert b.shape == shape and a.tolist() == [[7] * 3] * 2


def test_the_method_broadcast_to_adds_axes():
    a = nd.array([3.0, 1, 2])
    assert a.broadcast_to((2, 3)).tolist() == [[3, 1, 2]] * 2 and a.broadcast_to(3).tolist() == [3, 1, 2]
    assert a.broadcast_like(nd.zeros((2, 1, 3))).tolist() == [[[3, 1, 2]]] * 2
    with pytest.raises(ShapeError, match=r"broadcast_to: \(1, 3\) does not broadcast to \(2, 4\)"):
        a.broadcast_to((2, 4))


def test_parameters_by_position_are_in_mxnets_order():
    a = nd.array([[3.0, 1, 2], [4, 6, 5]])
    assert a.argsort(0, False).tolist() == [[1, 1, 1], [0, 0, 0]] and nd.topk(a, 1, 2, "value").tolist() == [[3, 2], [6, 5]]
    assert nd.SequenceMask(a, nd.array([1.0, 2, 0]), True, -1).tolist() == [[3, 1, -1], [-1, 6, -1]]


def test_functions_of_two_numbers_give_a_number():
    assert (nd.maximum(1, 2.5), nd.minimum(1, 2.5)) == (2.5, 1)
    assert (nd.logical_and(1, 0), nd.logical_or(2, 0), nd.logical_xor(1, 2)) == (0, 1, 0)


def test_numbers_wrap_around_in_unsigned_arrays():
    a = nd.array([3, 4, 250], dtype="uint8")
    assert (a * -1).tolist() == [253, 252, 6] and (a + -1).tolist() == [2, 3, 249]
    assert nd.full(1, -1, dtype="uint8").tolist() == [255]
    assert a.clip(-1, 300).tolist() == [3, 4, 250] and nd.sign(a).tolist() == [1, 1, 1] and a.repeat(0).shape == (0,)


def test_mxnets_state_of_a_pickle_is_read_and_written():
    handle = bytes.fromhex("c9fa93f90000000002000000010000000000000002000000000000000100000000000000040000000100000002000000")
    a = nd.array([[1, 2]], dtype="int32")  # whose state MXNet 1.9.1 writes so
    assert a.__getstate__() == {"handle": bytearray(handle)}
    b = nd.NDArray.__new__(nd.NDArray)
    b.__setstate__({"handle": bytearray(handle)})
    assert b.asnumpy().tolist() == [[1, 2]] and b.dtype == np.int32
    with pytest.raises(FileError, match="pickle: the array"):
        b.__setstate__({"handle": handle[:-1]})
