"""torch holds memory, streams and events, and computes nothing: every operator, every method of arrays, every function of mx.nd,
a training step, a store and a loop run on the interpreted GPU under a mode that sees each call of torch."""

import copy
import operator
import pickle

import numpy as np
import pytest
import tritium as mx
from support import operator_jobs
from support.census import MORE
from tritium.context import GPU_MODE
from tritium.engine.gpu import transfer
from tritium.kernels.op import registered
from tritium.ndarray.core.methods import NAMES

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="needs TRITIUM_GPU=interpret")
pytest.importorskip("torch")
from support.torch_guard import PACKAGE, torch_computes_nothing
from test_every_operator import data, run

GPU = mx.gpu(0)
VALUES = np.arange(1, 13, dtype="float32").reshape(3, 4) / 8


def of(values, dtype="float32"):
    return mx.nd.array(np.asarray(values), ctx=GPU, dtype=dtype)


# ---- operators ---------------------------------------------------------------------------------------------------------
ONE = ("rescale_grad", "r1", "r2", "rescale")  # inputs that hold one number
MATRIX = VALUES[:, :3] @ VALUES[:, :3].T + 2 * np.eye(3, dtype="float32")
#: Operators on values of a kind.
GIVEN = {
    "batch_take": lambda: mx.nd.batch_take(of(VALUES), of([3, 0, 1], "int32")),
    "_linalg_trsm": lambda: mx.nd.linalg.trsm(of(np.tril(MATRIX)), of(VALUES)),
    **{f"_linalg_{name}": lambda name=name: getattr(mx.nd.linalg, name)(of(MATRIX)) for name in (
        "sumlogdiag", "potrf", "potri", "gelqf", "syevd", "inverse", "det", "slogdet")},
    "cast_storage": lambda: mx.nd.cast_storage(of(VALUES), "default"),
    **dict.fromkeys(("Custom", "_foreach", "_while_loop", "_cond")),  # below
}


@pytest.mark.parametrize("op", operator_jobs.operators(), ids=lambda op: op.name)
def test_an_operator_is_computed_without_torch(op, rng):
    if op.name in GIVEN:
        if GIVEN[op.name] is not None:
            with torch_computes_nothing():
                GIVEN[op.name]()
        return
    uses = [(*use, "float32") for use in operator_jobs.uses(op, 33)] or MORE.get(op.name)
    assert uses, f"{op.name}: give it a line in TABLE, in a MORE or in GIVEN"
    given, params, dtype = uses[0]
    p = op.parse(params)
    names = (*op.arguments(p), *op.auxiliaries(p))
    values = data([(1,) if name in ONE else shape for name, shape in zip(names, given)], rng)
    with torch_computes_nothing():
        if dtype == "float32":
            run(op.name, values, params, GPU)
        else:
            dtypes, _ = op.infer_dtype(p, [np.dtype(dtype)] + [None] * (len(values) - 1))
            getattr(mx.nd, op.name)(*(of(v, d or dtype) for v, d in zip(values, dtypes)), **params)


# ---- methods -----------------------------------------------------------------------------------------------------------
def in_place(compute):
    def use(a):
        compute(a, of(VALUES))
        compute(a, 2)
        return a
    return use


def written(key, value):
    def use(a):
        a[key] = value() if callable(value) else value
        return a
    return use


def recorded(a):
    a.attach_grad()
    with mx.autograd.record():
        y = a[1:, ::2] * a.T.reshape(3, 4)[:2, ::-2] + a[[0, 2]][:, :2] + a[a > 1].sum()
    y.backward()
    return a.grad


KEYS = [0, slice(1, 3), (slice(None), 1), (slice(None, None, -1), slice(None, None, 2)), (Ellipsis, None, 2), [2, 0],
        (slice(None), [3, 0, 1]), np.array([True, False, True]), ([0, 2], None, [1])]
DEVICE_KEYS = [lambda a: of([2, 0, 2], "int32"), lambda a: of([-1.0, 0.5]), lambda a: a > 0.7, lambda a: a.sum(axis=1) > 2,
               lambda a: (of([0, 1], "int64"), slice(0, 3)), lambda a: (slice(None), of([0, 3], "int64"))]
BINARY = ("add", "sub", "mul", "truediv", "mod", "pow", "floordiv")
NUMBER_AND_ARRAY = {f"__{name}__": [lambda a, f=getattr(operator, name): [f(a, of(VALUES)), f(a, 2)]]
                    for name in (*BINARY, "eq", "ne", "lt", "le", "gt", "ge")}
REFLECTED = {f"__r{name}__": [lambda a, f=getattr(operator, name): f(2, a)] for name in BINARY}
IN_PLACE = {f"__i{name}__": [in_place(getattr(operator, f"i{name}"))] for name in BINARY}
LOGICAL = {f"__{name}__": [lambda a, f=getattr(operator, f"__{name}__"): f(a > 0.5, a < 1)] for name in ("and", "or", "xor")}
METHODS = {
    **NUMBER_AND_ARRAY, **REFLECTED, **IN_PLACE, **LOGICAL,
    "__div__": [lambda a: a.__div__(2)], "__rdiv__": [lambda a: a.__rdiv__(2)], "__idiv__": [lambda a: a.__idiv__(2)],
    "__setstate__": [lambda a: a.__setstate__(a.__getstate__())],
    "__abs__": [abs], "__neg__": [operator.neg], "__pos__": [operator.pos], "__invert__": [lambda a: ~(a > 1)],
    "__matmul__": [lambda a: a @ a.T], "__rmatmul__": [lambda a: a.T.__rmatmul__(VALUES)],
    "__getitem__": [*(lambda a, k=k: a[k] for k in KEYS), *(lambda a, k=k: a[k(a)] for k in DEVICE_KEYS)],
    "__setitem__": [written(slice(None), 3), written((slice(None), 1), 4), written((slice(None, None, -1), slice(1, 3)), 5),
                    written((slice(None), slice(None, None, 2)), VALUES[:, :2]), written(1, lambda: of(VALUES[0])),
                    written((slice(None), slice(None, None, -1)), lambda: of(VALUES)),
                    written(slice(0, 2), lambda: of([1, 2, 3, 4], "int32")),
                    written([2, 0], 7), written([2, 0, 2], lambda: of(VALUES)), written(VALUES > 1, 0),
                    *(lambda a, k=k: written(k(a), 9)(a) for k in DEVICE_KEYS), lambda a: written(slice(1, None), a[:-1])(a),
                    lambda a: written(a > 1, lambda: a[a > 1] + 1)(a), lambda a: written(a > 1, mx.nd.array([1.0]))(a)],
    "__array__": [np.asarray], "__array_ufunc__": [np.exp, lambda a: np.add(a, 1)],
    "__array_function__": [np.mean, lambda a: np.concatenate([a, a])],
    "__bool__": [lambda a: bool(a[0, 0])], "__float__": [lambda a: float(a[0, 0])], "__int__": [lambda a: int(a[0, 0])],
    "__index__": [lambda a: operator.index(a[0, 0].astype("int32"))], "__contains__": [lambda a: 0.125 in a],
    "__copy__": [copy.copy], "__deepcopy__": [copy.deepcopy], "__reduce__": [lambda a: pickle.loads(pickle.dumps(a))],
    "__reduce_ex__": [lambda a: pickle.loads(pickle.dumps(a))],
    "__dlpack__": [lambda a: a.__dlpack__(), lambda a: a.__dlpack__(copy=True)],
    "__dlpack_device__": [lambda a: a.__dlpack_device__()],
    "__iter__": [list], "__len__": [len], "__repr__": [repr], "__str__": [str], "_repr_html_": [lambda a: a._repr_html_()],
    "__hash__": [hash], "T": [lambda a: a.T],
    "as_in_context": [lambda a: a.as_in_context(mx.cpu()).as_in_context(GPU)],
    "as_in_ctx": [lambda a: a.as_in_ctx(GPU)], "as_nd_ndarray": [lambda a: a.as_nd_ndarray()], "asnumpy": [lambda a: a.asnumpy()],
    "asscalar": [lambda a: a[0, 0].asscalar()], "item": [lambda a: a[0, 0].item()], "tolist": [lambda a: a.tolist()],
    "astype": [lambda a, d=d: a.astype(d).astype("float32")
               for d in ("float16", "bfloat16", "float64", "int8", "bool", "uint64")],
    "attach_grad": [lambda a: a.attach_grad() or a.grad], "grad": [recorded], "backward": [recorded],
    "detach": [lambda a: a.detach()],
    "copy": [lambda a: a.copy(), lambda a: a[1:].copy()],
    "copyto": [lambda a: a.copyto(mx.cpu()), lambda a: a.copyto(GPU), lambda a: a.copyto(of(VALUES, "int32")),
               lambda a: of(VALUES, "float64").as_in_context(mx.cpu()).copyto(a)],
    "reshape": [lambda a: a.reshape(2, -1)],
    "slice_assign": [lambda a: a.slice_assign(of([[1.0], [2]]), (0, 1), (2, 2), (1, 1))],
    "slice_assign_scalar": [lambda a: a.slice_assign_scalar(2, (0, 1), (2, 4), (1, 2))],
    "split_v2": [lambda a: a.split_v2(2, axis=1)],
    "to_dlpack_for_read": [lambda a: a.to_dlpack_for_read()], "to_dlpack_for_write": [lambda a: a.to_dlpack_for_write()],
    "tostype": [lambda a: a.tostype("default")], "wait_to_read": [lambda a: a.wait_to_read()],
    "wait_to_write": [lambda a: a.wait_to_write()], "writable": [lambda a: a.writable],
}
#: Facts of an array, which touch no values, and what Python and the package itself use.
FACTS = {"__array_priority__", "array_class", "chunk", "context", "ctx", "device_array", "dtype", "layout", "nbytes", "ndim",
         "offset", "shape", "size", "stype", "address", "as_np_ndarray"}  # the last one raises


def test_no_method_of_arrays_is_left_out():
    public = {n for n in dir(mx.nd.NDArray) if not n.startswith("_") or (n.startswith("__") and n not in dir(object))}
    left = {n for n in public - FACTS - set(METHODS) - set(NAMES) if callable(getattr(mx.nd.NDArray, n))}
    assert left == {"__annotations__", "__slots__", "__weakref__", "__module__"} & left, f"give these a line in METHODS: {left}"


def test_methods_named_like_operators_are_operators():
    assert not set(NAMES) - set(registered())


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_arrays_is_computed_without_torch(name):
    for use in METHODS[name]:
        with torch_computes_nothing():
            use(of(VALUES))


# ---- functions of mx.nd --------------------------------------------------------------------------------------------------
def two(name):
    def use(a):
        f = getattr(mx.nd, name)
        return [f(a, a), f(a, 2), f(2, a)]
    return use


def saved(a, path):
    mx.nd.save(path, {"a": a})
    mx.nd.load(path)["a"].as_in_context(GPU)
    mx.nd.save(path, [a.as_in_context(GPU)])


def drawn(a):
    for name, numbers in {"uniform": 2, "normal": 2, "exponential": 1, "gamma": 2, "poisson": 1, "negative_binomial": 2,
                          "generalized_negative_binomial": 2}.items():
        draw = getattr(mx.nd.random, name)
        draw(*[0.5, 0.7][:numbers], shape=(3,), ctx=GPU)
        draw(*[of([0.5, 1]), of([0.6, 1])][:numbers], shape=2)
    mx.nd.random.randint(0, 9, shape=(3,), ctx=GPU)
    mx.nd.random.randn(2, 2, ctx=GPU)
    mx.nd.random.multinomial(a / a.sum(axis=1, keepdims=True), shape=3, get_prob=True)


def updated(a):
    state = [mx.nd.zeros_like(a) for _ in range(4)]
    mx.nd.contrib.adamw_update(a, a * 0.1, state[0], state[1], rescale_grad=1, lr=0.1, eta=1, out=a)
    mx.nd.contrib.multi_lamb_update([a], [a * 0.1], [state[2]], [state[3]], out=[a], step_count=[1], lrs=[0.1], wds=[0])


FUNCTIONS = {
    **{name: two(name) for name in (
        "add", "subtract", "multiply", "divide", "true_divide", "modulo", "power", "maximum", "minimum", "equal", "not_equal",
        "greater", "greater_equal", "lesser", "lesser_equal", "logical_and", "logical_or", "logical_xor")},
    "array": lambda a: [mx.nd.array(a, ctx=GPU), mx.nd.array(VALUES, ctx=GPU, dtype="float16"), mx.nd.array(a, ctx=mx.cpu())],
    "arange": lambda a: mx.nd.arange(9, ctx=GPU), "linspace": lambda a: mx.nd.linspace(0, 1, 5, ctx=GPU),
    "eye": lambda a: mx.nd.eye(3, 4, 1, ctx=GPU), "concatenate": lambda a: mx.nd.concatenate([a, a], axis=1),
    "empty": lambda a: mx.nd.empty((2, 3), ctx=GPU), "zeros": lambda a: mx.nd.zeros((2, 3), ctx=GPU, dtype="int64"),
    "ones": lambda a: mx.nd.ones((2, 3), ctx=GPU, dtype="bfloat16"), "full": lambda a: mx.nd.full((2, 3), 1.5, ctx=GPU, out=None),
    "moveaxis": lambda a: mx.nd.moveaxis(a, 0, 1), "histogram": lambda a: mx.nd.histogram(a, bins=3, range=(0, 1)),
    "onehot_encode": lambda a: mx.nd.onehot_encode(of([0, 3, 1]), a), "split_v2": lambda a: mx.nd.split_v2(a, 2, axis=1),
    "negative": lambda a: mx.nd.negative(a),
    "from_dlpack": lambda a: mx.nd.from_dlpack(a), "from_numpy": lambda a: mx.nd.from_numpy(VALUES).as_in_context(GPU),
    "to_dlpack_for_read": mx.nd.to_dlpack_for_read, "to_dlpack_for_write": mx.nd.to_dlpack_for_write,
    "waitall": lambda a: mx.nd.waitall(),
    "random": drawn, "contrib updates": updated,
    "boolean_mask": lambda a: [mx.nd.contrib.boolean_mask(a, of([0, 1, 1])),
                               mx.nd.contrib.boolean_mask(a, of([0, 1, 1, 0]), axis=1)],
    "rand_zipfian": lambda a: mx.nd.contrib.rand_zipfian(of([1.0, 3]), 4, 9),
    "foreach": lambda a: mx.nd.contrib.foreach(lambda x, s: (x + s, s + x), a, mx.nd.zeros_like(a[0])),
    "while_loop": lambda a: mx.nd.contrib.while_loop(lambda i: i < 3, lambda i: (i, [i + 1]), [of([0.0])], 5),
    "cond": lambda a: mx.nd.contrib.cond(a.sum() > 1, lambda: a * 2, lambda: a),
    "row_sparse": lambda a: mx.nd.sparse.row_sparse_array((VALUES[:2], [0, 2]), shape=(3, 4), ctx=GPU).tostype("default"),
    "csr": lambda a: mx.nd.dot(mx.nd.sparse.csr_matrix(a), a, transpose_a=True).tostype("default"),
    "cast_storage": lambda a: mx.nd.cast_storage(mx.nd.cast_storage(a, "csr") * 2, "default"),
    "CachedOp": lambda a: mx.nd.CachedOp(mx.sym.exp(mx.sym.Variable("a")) * 2)(a),
    "sparse.zeros": lambda a: mx.nd.sparse.zeros("row_sparse", (3, 4), ctx=GPU),
}
#: Files, and what is no function of arrays.
NOT_OF_ARRAYS = {"load", "load_frombuffer", "load_metadata", "save", "call_op", "invoke", "NDArray", "RowSparseNDArray", "Chunk",
                 "CSRNDArray", "BaseSparseNDArray", "imdecode", "Layout", "Any"}


def test_no_function_is_left_out():
    public = {n for n in dir(mx.nd) if not n.startswith("_") and callable(getattr(mx.nd, n)) and n not in registered()}
    assert not public - set(FUNCTIONS) - NOT_OF_ARRAYS, "give these a line in FUNCTIONS"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_arrays_is_computed_without_torch(name):
    with torch_computes_nothing():
        FUNCTIONS[name](of(VALUES))


def test_files_are_written_and_read_without_torch(tmp_path):
    with torch_computes_nothing():
        saved(of(VALUES), str(tmp_path / "a.params"))


# ---- graphs, training, stores ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_steps_are_computed_without_torch(optimizer):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="fc1")
    net = mx.sym.Dropout(mx.sym.Activation(mx.sym.BatchNorm(net, name="bn"), act_type="relu"), p=0.3)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc2"), name="softmax")
    batches = mx.io.NDArrayIter(np.tile(VALUES, (8, 1)), np.arange(24) % 3, batch_size=8, last_batch_handle="discard")
    with torch_computes_nothing():
        module = mx.mod.Module(net, context=GPU)
        module.fit(batches, num_epoch=2, optimizer=optimizer, eval_metric="acc", kvstore="local")
        module.score(batches, "ce")


@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_control_flow_in_a_graph_is_computed_without_torch(kind):
    x, s = mx.sym.Variable("x"), mx.sym.Variable("s")
    out = {"foreach": lambda: mx.sym.contrib.foreach(lambda row, state: (row * state, state + row), x, s),
           "while_loop": lambda: mx.sym.contrib.while_loop(lambda i, v: i < 3, lambda i, v: (v, [i + 1, v * 2]),
                                                           [mx.sym.zeros((1,)), s], 5),
           "cond": lambda: (mx.sym.contrib.cond(mx.sym.sum(s) > 1, lambda: s * 2, lambda: s), s)}[kind]()
    graph = mx.sym.Group([mx.sym.sum(o) for o in (out[0], *(out[1] if isinstance(out[1], list) else [out[1]]))])
    arrays = {n: of(VALUES if n == "x" else VALUES[0]) for n in graph.list_arguments()}
    with torch_computes_nothing():
        executor = graph.bind(GPU, arrays, args_grad={n: mx.nd.zeros_like(a) for n, a in arrays.items()}, grad_req="add")
        executor.forward(is_train=True)
        executor.backward([mx.nd.ones(o.shape, ctx=GPU) for o in executor.outputs])


def test_a_store_is_computed_without_torch():
    with torch_computes_nothing():
        store = mx.kv.create("local")
        store.init("w", of(VALUES))
        store.push("w", [of(VALUES), of(VALUES)])
        out = [mx.nd.zeros((3, 4), ctx=GPU) for _ in range(2)]
        store.pull("w", out)
        store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1))
        store.push("w", [of(VALUES), of(VALUES)])
        store.pull("w", out)
        store.row_sparse_pull("w", out=out[0], row_ids=of([0, 2], "int64"))


def test_a_custom_operator_is_given_its_arrays_without_torch():
    class Double(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register("_test_double_guarded")
    class DoubleProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Double()

    a = of(VALUES)
    a.attach_grad("add")
    with torch_computes_nothing():
        with mx.autograd.record():
            y = mx.nd.Custom(a, op_type="_test_double_guarded")
        y.backward()
        assert (a.grad.asnumpy() == 2).all()


# ---- the guard itself --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("line, what", [("dst.copy_(src.clone())", "aten.clone"), ("dst[...] = 1.0", "aten.fill_"),
                                        ("dst.copy_(src.T.reshape(dst.shape))", "aten.clone"), ("dst.zero_()", "aten.zero_"),
                                        ("dst[::2] = src[::2]", "aten.copy_"), ("dst += src", "aten.add_"),
                                        ("dst.copy_(src.double())", "aten._to_copy")])
def test_what_torch_computes_is_found(line, what, monkeypatch):
    """transfer.copy computes: as if it were written so in a file of the package."""
    names = {}
    exec(compile(f"def copy(dst, src):\n {line}", str(PACKAGE / "engine" / "gpu" / "transfer.py"), "exec"), names)
    monkeypatch.setattr(transfer, "copy", names["copy"])
    with pytest.raises(AssertionError, match=rf"torch computed:\n{what}.* in engine/gpu/transfer.py:2"), torch_computes_nothing():
        of(VALUES).copy()


def test_a_plain_copy_passes():
    with torch_computes_nothing():
        of(VALUES).copy()
