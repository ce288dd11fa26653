"""However an array is written that a tape keeps, backward says so instead of using what is there now.

That it was written is counted where functions are pushed (engine/deps.py), so there is no list of writers to keep; the
writers below are those that a user meets.
"""

import numpy as np
import pytest
import tritium as mx
from tritium import autograd, nd
from tritium.engine import bulk
from tritium.errors import MXNetError


def updater(name, **settings):
    def write(w):
        mx.optimizer.get_updater(mx.optimizer.create(name, learning_rate=0.1, **settings))(0, nd.ones(w.shape, w.ctx), w)

    return write


def store(pull):
    def write(w):
        kv = mx.kv.create("local")
        kv.init("k", nd.zeros(w.shape, w.ctx))
        pull(kv, w)

    return write


def batch_norm(w):
    one = nd.ones((2,), w.ctx)
    with autograd.train_mode():
        nd.BatchNorm(nd.ones((3, 2), w.ctx), one, one, w, one.copy())


class Counted(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])
        aux[0][:] = aux[0] + 1

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("counted_for_writes")
class CountedProp(mx.operator.CustomOpProp):
    def list_auxiliary_states(self):
        return ["count"]

    def create_operator(self, ctx, shapes, dtypes):
        return Counted()


def executor_gradient(w):
    x = mx.sym.Variable("x")
    ex = (x * 2).bind(w.ctx, {"x": nd.ones((2,), w.ctx)}, args_grad={"x": w})
    ex.forward(is_train=True)
    ex.backward(nd.ones((2,), w.ctx))


def in_a_bulk(w):
    with bulk(8):
        w[0] = 5
        nd.ones((1,), w.ctx) + 1


def backward_into(w):
    x = nd.ones((2,), w.ctx)
    autograd.mark_variables([x], [w])
    with autograd.record():
        y = x * 2
    y.backward()


WRITERS = {
    "fill": lambda w: w.__setitem__(slice(None), 0),
    "+=": lambda w: w.__iadd__(1),
    "positions": lambda w: w.__setitem__([1], 7),
    "view": lambda w: w[1:].__setitem__(0, 0),
    "copyto": lambda w: nd.ones((2,), w.ctx).copyto(w),
    "out": lambda w: nd.broadcast_add(w, w, out=w),
    "zeros": lambda w: nd.zeros((2,), w.ctx, out=w),
    "ones": lambda w: nd.ones((2,), w.ctx, out=w),
    "full": lambda w: nd.full((2,), 3, w.ctx, out=w),
    "random": lambda w: nd.random.uniform(0, 1, shape=(2,), ctx=w.ctx, out=w),
    "np out": lambda w: np.cumprod(nd.ones((2,), w.ctx), out=w),
    "sgd": updater("sgd"),
    "sgd momentum": updater("sgd", momentum=0.9),
    "adam": updater("adam"),
    "rmsprop": updater("rmsprop"),
    "pull": store(lambda kv, w: kv.pull("k", out=w)),
    "pushpull": store(lambda kv, w: kv.pushpull("k", nd.ones((2,), w.ctx), out=w)),
    "broadcast": store(lambda kv, w: kv.broadcast("b", nd.ones((2,), w.ctx), out=w)),
    "row_sparse_pull": store(lambda kv, w: kv.row_sparse_pull("k", out=w, row_ids=nd.array([0], w.ctx))),
    "a gradient": backward_into,
    "an executor's gradient": executor_gradient,
    "an executor's argument": lambda w: (mx.sym.Variable("x") * 2).bind(w.ctx, {"x": w}).forward(x=nd.ones((2,), w.ctx)),
    "BatchNorm's moving mean": batch_norm,
    "a custom operator's state": lambda w: nd.Custom(nd.ones((2,), w.ctx), w, op_type="counted_for_writes"),
    "bulk": in_a_bulk,
}
ON_HOST = {
    "DLPack": lambda w: nd.from_dlpack(w).__iadd__(1),
    "DLPack capsule": lambda w: nd.from_dlpack(w.to_dlpack_for_read()).__iadd__(1),
    "DLPack to write": lambda w: np.from_dlpack(w).__class__ and w.to_dlpack_for_write(),
    "DLPack by way of NumPy": lambda w: nd.from_dlpack(np.from_dlpack(w)[1:]).__iadd__(1),
}


def is_noticed(write, w):
    x = nd.array([1.0, 2.0], w.ctx)
    x.attach_grad()
    with autograd.record():
        y = nd.exp(x) * w
    write(w)
    with pytest.raises(MXNetError, match=r"backward: elemwise_mul needs float32\[2\].* as it was, but its memory was written"):
        y.backward()


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_is_noticed(name, ctx):
    is_noticed(WRITERS[name], nd.array([3.0, 4.0], ctx))


@pytest.mark.parametrize("name", ON_HOST)
def test_a_write_through_shared_memory_is_noticed(name):
    is_noticed(ON_HOST[name], nd.array([3.0, 4.0]))


def test_arrays_over_memory_that_was_taken_twice_see_each_others_writes():
    outside = np.ones(6, "float32")
    w, all_of_it = nd.from_dlpack(outside[2:4]), nd.from_dlpack(outside)
    is_noticed(lambda _: all_of_it.__setitem__(slice(None), 0), w)
    other = nd.from_dlpack(np.ones(2, "float32"))
    x = nd.ones((2,))
    x.attach_grad()
    with autograd.record():
        y = x * w
    other[:] = 5
    y.backward()
    assert x.grad.tolist() == [0, 0]


@pytest.mark.parametrize("again", ["forward", "forward with another batch"])
def test_an_executors_output_that_is_computed_again_is_noticed(again, ctx):
    x = mx.sym.Variable("x")
    ex = (x * 2).bind(ctx, {"x": nd.ones((2,), ctx)})
    (w,) = ex.forward()
    is_noticed(lambda _: ex.forward(**({"x": nd.zeros((2,), ctx)} if "another" in again else {})), w)


def test_reads_and_writes_before_the_record_are_not_counted(ctx):
    w, x = nd.array([3.0, 4.0], ctx), nd.array([1.0, 2.0], ctx)
    x.attach_grad()
    with bulk(8):
        w += 1
        with autograd.record():
            y = x * w
    (w + 1).wait_to_read()
    kv = mx.kv.create("local")
    kv.init("k", w)
    kv.push("k", w)
    (mx.sym.Variable("x") * 2).bind(ctx, {"x": w}).forward()
    nd.sgd_update(x.copy(), w, lr=0.1)
    y.backward()
    assert x.grad.tolist() == [4, 5]


def test_batch_norm_that_predicts_does_not_write_its_states(ctx):
    x, one, mean = nd.ones((3, 2), ctx), nd.ones((2,), ctx), nd.array([3.0, 4.0], ctx)
    x.attach_grad()
    with autograd.record(train_mode=False):
        y = x * mean + nd.BatchNorm(x, one, one, mean, one) * 0 + nd.BatchNorm(x, one, one, mean, one, use_global_stats=True) * 0
    y.backward(train_mode=False)
    assert x.grad.tolist() == [[3, 4]] * 3
