"""A user's OperatorProperty, with NumPy on the CPU and a Triton kernel on the GPU: in mx.nd, mx.sym, autograd and Module."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import OperatorError, ShapeError
from tritium.kernels import op as registry
from tritium.operator import RANDOM, TEMP_SPACE, Operator, OperatorProperty, Req, TBlob, assign, jit, launch, register, tl


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """Restore the registered names of operators after the test."""
    for table in ("_registry", "_declared_in"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))


# ---- a layer with states, a hidden output, in-place hints, dependencies, and both resources ---------------------------
@jit
def track_kernel(x, scale, state, noise, y, kept, n, rate, amount, train: tl.constexpr, add: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n, other=0.0)
    if train:
        mean = tl.sum(value, 0) / n
        tl.store(state, tl.load(state) * rate + mean * (1 - rate))
    out = (value - tl.load(state)) * tl.load(scale) + amount * tl.load(noise + at, at < n, other=0.0)
    tl.store(kept + at, value - tl.load(state), at < n)
    tl.store(y + at, tl.load(y + at, at < n, other=0.0) + out if add else out, at < n)


@jit
def track_backward_kernel(dy, scale, kept, dx, dscale, scratch, n, add_x: tl.constexpr, add_scale: tl.constexpr,
                          BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(dy + at, at < n, other=0.0)
    part = value * tl.load(scale)
    tl.store(scratch + at, value * tl.load(kept + at, at < n, other=0.0), at < n)
    tl.store(dx + at, tl.load(dx + at, at < n, other=0.0) + part if add_x else part, at < n)
    total = tl.sum(tl.load(scratch + at, at < n, other=0.0), 0)
    tl.store(dscale, tl.load(dscale) + total if add_scale else total)


class TrackOnCpu(Operator):
    def __init__(self, layer):
        self.layer = layer

    def forward(self, ctx, in_data, req, out_data, aux):
        numbers, = ctx.requested
        x, scale, state = in_data[0].numpy(), in_data[1].numpy(), aux[0].numpy()
        if ctx.is_train:
            state[...] = state * self.layer.rate + x.mean() * (1 - self.layer.rate)
        noise = numbers.uniform(x.shape)
        centred = x - state
        assign(out_data[0], req[0], centred * scale + self.layer.amount * noise)
        assign(out_data[1], req[1], centred)

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
        assert in_data[0] is None and out_data[0] is None and len(aux) == 1  # what was not asked for is not kept
        dy, scale, centred = out_grad[0].numpy(), in_data[1].numpy(), out_data[1].numpy()
        scratch = ctx.requested[0].get_space(dy.shape, dy.dtype)
        np.multiply(dy, centred, out=scratch)
        total = scratch.sum()
        assign(in_grad[0], req[0], dy * scale)
        assign(in_grad[1], req[1], total)


class TrackOnGpu(TrackOnCpu):
    def forward(self, ctx, in_data, req, out_data, aux):
        x = in_data[0]
        noise = ctx.requested[0].uniform(x.shape)
        launch(track_kernel, 1, x, in_data[1], aux[0], noise, *out_data, x.size, self.layer.rate, self.layer.amount,
               train=ctx.is_train, add=req[0] == Req.ADD, BLOCK=64)

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
        dy, space = out_grad[0], ctx.requested[0]
        dx = space.get_space(dy.shape, dy.dtype) if req[0] == Req.NULL else in_grad[0]
        scratch = space.get_space(dy.shape, dy.dtype)
        launch(track_backward_kernel, 1, dy, in_data[1], out_data[1], dx, in_grad[1], scratch, dy.size, add_x=req[0] == Req.ADD,
               add_scale=req[1] == Req.ADD, BLOCK=64)


class Track(OperatorProperty):
    """(data - running mean) · scale + amount · uniform noise.

    data: any shape, at most 64 elements. scale, moving_mean: [1].
    """

    rate: float = 0.9
    amount: float = 0.0

    def list_arguments(self):
        return ["data", "scale"]

    def list_outputs(self):
        return ["output", "centred"]

    def num_visible_outputs(self):
        return 1

    def list_auxiliary_states(self):
        return ["moving_mean"]

    def infer_shape(self, in_shape, out_shape):
        data = in_shape[0] or out_shape[0]
        return [data, [1]], [data, data], [[1]]

    def forward_resource(self):
        return [RANDOM]

    def backward_resource(self):
        return [TEMP_SPACE]

    def num_random(self, outs):
        return outs[0].size

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [out_grad[0], in_data[1], out_data[1]]

    def forward_inplace_option(self, in_data, out_data):
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(self, out_grad, in_data, out_data, in_grad):
        return [(out_grad[0], in_grad[0])]

    def create_operator(self, target, in_shapes, in_dtypes):
        assert in_shapes[1] == (1,)
        return TrackOnGpu(self) if target == "gpu" else TrackOnCpu(self)


@pytest.fixture
def track(names):
    register("_test_track", aliases=("_test_follow",))(Track)


def test_values_states_and_random_numbers_are_equal_on_both_devices(track, rng):
    a, found = rng.normal(size=(4, 8)).astype("f"), []
    for ctx in (mx.cpu(), mx.gpu(0)):
        mx.random.seed(3)
        mean = mx.nd.ones(1, ctx)
        with mx.autograd.record():
            y = mx.nd._test_follow(mx.nd.array(a, ctx), mx.nd.array([2.0], ctx), mean, amount=0.5)
        again = mx.nd._test_track(mx.nd.array(a, ctx), mx.nd.array([2.0], ctx), mean, amount=0.5)
        found.append([y.asnumpy(), mean.asnumpy(), again.asnumpy()])
    for cpu, gpu in zip(*found):
        assert_close(gpu, cpu)
    mx.random.seed(3)
    noise = mx.nd.random.uniform(shape=a.shape).asnumpy()
    state = np.float32(0.9 + 0.1 * a.mean())
    assert_close(found[0][0], (a - state) * 2 + 0.5 * noise)
    assert_close(found[0][1], [state])  # the second call was not training


def test_gradients_by_autograd(track, ctx, rng):
    mean = mx.nd.zeros(1, ctx, "float64")
    check_gradient(lambda a, s: mx.nd._test_track(a, s, mean, rate=1.0), [rng.normal(size=(3, 5)), rng.normal(size=1)], ctx, rng)


@pytest.mark.parametrize("request_of", ["write", "add", "null"])
def test_write_requests_of_a_bound_graph(track, ctx, rng, request_of):
    a = rng.normal(size=(2, 6)).astype("f")
    net = mx.sym.load_json((mx.sym._test_track(mx.sym.Variable("x"), name="t", rate=0.5) * 2).tojson())
    assert net.list_arguments() == ["x", "t_scale"] and net.list_auxiliary_states() == ["t_moving_mean"]
    bound = net.simple_bind(ctx, x=a.shape, grad_req={"x": request_of, "t_scale": "add"})
    bound.arg_dict["x"][:], bound.arg_dict["t_scale"][:], bound.aux_dict["t_moving_mean"][:] = a, 3, 1
    for grad in bound._grads.values():
        if grad is not None:
            grad[:] = 10
    out = bound.forward(is_train=True)[0]
    mean = (1 + a.mean()) / 2
    assert_close(out, (a - mean) * 6)
    assert_close(bound.aux_dict["t_moving_mean"], [mean])
    bound.backward(mx.nd.ones(a.shape, ctx))
    if request_of != "null":
        assert_close(bound.grad_dict["x"], np.full(a.shape, 6.0 + 10 * (request_of == "add")))
    assert_close(bound.grad_dict["t_scale"], [10 + 2 * (a - mean).sum()], scale=8)  # 8: a sum of numbers that nearly cancel


def test_a_module_trains_with_it(track, ctx):
    a = np.random.default_rng(0).normal(size=(32, 4)).astype("f") + 5
    labels = (a.sum(1) > 20).astype("f")
    net = mx.sym._test_track(mx.sym.Variable("data"), mx.sym.Variable("scale", init=mx.init.One()), name="track")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=2), name="softmax")
    mx.random.seed(1)
    module = mx.mod.Module(net, context=ctx)
    batches = mx.io.NDArrayIter(a, labels, batch_size=8)
    module.fit(batches, num_epoch=15, optimizer_params={"learning_rate": 0.5}, initializer=mx.init.Xavier())
    args, auxes = module.get_params()
    assert abs(float(auxes["track_moving_mean"].asnumpy()[0]) - a.mean()) < 0.5  # a running mean of the batches
    assert float(args["scale"].asnumpy()[0]) != 1
    assert dict(module.score(batches, "acc"))["accuracy"] > 0.9


def test_several_visible_outputs_and_outputs_of_other_shapes(ctx, rng):
    @register("_test_halves")
    class Halves(OperatorProperty):
        """The two halves of the rows, and their number as int32 [1]."""

        output_names = ("left", "right", "rows")
        output_dtypes = (None, None, np.dtype("int32"))
        backward_reads = ("dy",)

        def output_shapes(self, in_shape):
            (n, m), = in_shape
            if m % 2:
                raise ShapeError(f"_test_halves: {m} columns are odd. Give an even number.")
            return [(n, m // 2), (n, m // 2), (1,)]

        def create_operator(self, target, in_shapes, in_dtypes):
            class Split(Operator):
                def forward(self, ctx, in_data, req, out_data, aux):
                    x = in_data[0].array
                    half = x.shape[1] // 2
                    for blob, r, part in zip(out_data, req, (x[:, :half], x[:, half:], x.shape[0])):
                        assign(blob, r, part)

                def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
                    half = in_grad[0].shape[1] // 2
                    assign(TBlob(in_grad[0].array[:, :half], target), req[0], out_grad[0].array)
                    assign(TBlob(in_grad[0].array[:, half:], target), req[0], out_grad[1].array)

            return Split()

    a = rng.normal(size=(3, 4)).astype("f")
    x = mx.nd.array(a, ctx)
    x.attach_grad()
    with mx.autograd.record():
        left, right, rows = mx.nd._test_halves(x)
        (left * 2 + right * 3).sum().backward()
    assert_close(left, a[:, :2])
    assert_close(right, a[:, 2:])
    assert rows.dtype == np.int32 and rows.tolist() == [3]
    assert x.grad.tolist() == [[2, 2, 3, 3]] * 3
    with pytest.raises(ShapeError, match=r"^_test_halves: 3 columns are odd\. Give an even number\.$"):
        mx.nd._test_halves(mx.nd.ones((1, 3), ctx))


def test_normal_numbers_of_a_layer_are_those_of_mx_nd(ctx):
    @register("_test_normal")
    class Normal(OperatorProperty):
        """Noise like data."""

        gradient_arguments = ()
        resources = (RANDOM,)

        def create_operator(self, target, in_shapes, in_dtypes):
            class Draw(Operator):
                def forward(self, ctx, in_data, req, out_data, aux):
                    assign(out_data[0], req[0], ctx.requested[0].normal(in_data[0].shape))

            return Draw()

    mx.random.seed(9)
    got = mx.nd._test_normal(mx.nd.zeros((3, 4), ctx)).asnumpy()
    mx.random.seed(9)
    np.testing.assert_array_equal(got, mx.nd.random.normal(shape=(3, 4), ctx=ctx).asnumpy())


# ---- mistakes -----------------------------------------------------------------------------------------------------------
def declare(name, **members):
    """Register a layer whose forward is members["forward"]."""
    forward = members.pop("forward", lambda self, ctx, in_data, req, out_data, aux: None)
    members.setdefault("create_operator", lambda self, *_: type("Compute", (Operator,), {"forward": forward})())
    members.setdefault("__module__", "__main__")
    register(name)(type("Layer", (OperatorProperty,), members))
    return getattr(mx.nd, name)


def draws_too_many(self, ctx, in_data, req, out_data, aux):
    ctx.requested[0].uniform((3, 3))


def launches_on_the_host(self, ctx, in_data, req, out_data, aux):
    launch(track_kernel, 1, in_data[0], *[0.0] * 11)


@pytest.mark.parametrize(("members", "text"), [
    ({"infer_shape": lambda self, ins, outs: (ins, outs)},
     r"^_test_fault: infer_shape returned \(\[\(2,\)\], \[None\]\)\. Return three lists: of 1 arguments, 1 outputs and 0 aux"),
    ({"infer_shape": lambda self, ins, outs: (ins, [], [])},
     r"^_test_fault: infer_shape returned lists of 1, 0 and 0 entries\. It has 1 arguments, 1 outputs and 0 auxiliary states\.$"),
    ({"infer_shape": lambda self, ins, outs: (ins, ["x"], [])}, r"^_test_fault: infer_shape returned \(\[\(2,\)\], \['x'\]"),
    ({"infer_shape": lambda self, ins, outs: ([(3,)], [(3,)], [])}, r"^_test_fault: data would have to be both \(2,\) and"),
    ({"infer_type": lambda self, ins, outs: ["float32"]}, r"^_test_fault: infer_type returned \['float32'\]"),
    ({"resources": (RANDOM,), "forward": draws_too_many},
     r"uniform: 7 more random numbers are drawn than this run has reserved\. Let num_random return how many it needs\."),
    ({"forward": launches_on_the_host}, r"track_kernel: x is in host memory, float32\[2\]\. A kernel reads a GPU's memory"),
    ({"create_operator": OperatorProperty.create_operator}, r"_test_fault: create_operator"),
])
def test_mistakes_of_a_layer_are_named(members, text):
    with pytest.raises((ShapeError, OperatorError, NotImplementedError), match=text):
        declare("_test_fault", **members)(mx.nd.ones(2)).asnumpy()


def test_a_cell_that_runs_again_replaces_the_layer_and_another_place_may_not(ctx):
    x = mx.nd.ones(2, ctx)
    for factor in (2, 3):
        def forward(self, ctx, in_data, req, out_data, aux, factor=factor):
            assign(out_data[0], req[0], in_data[0].array * factor)

        layer = declare("_test_cell", forward=forward)
        bound = mx.sym._test_cell(mx.sym.Variable("x")).bind(ctx, {"x": x})
        assert layer(x).tolist() == bound.forward()[0].tolist() == [factor, factor]
    with pytest.raises(OperatorError, match=r"^_test_cell: is declared in __main__\. Give yours another name, or declare it"):
        declare("_test_cell", __module__="a_users_module")
    with pytest.raises(OperatorError, match=r"^Flatten: is one of the framework's operators\. Give yours another name"):
        declare("Flatten")
    with pytest.raises(OperatorError, match=r"^register: .* is not a subclass of CustomOpProp or OperatorProperty\.$"):
        register("_test_cell")(dict)


def test_the_memory_of_a_real_gpu_is_no_numpy_array():
    class Far:
        """Stands in for a tensor on a GPU."""

        shape, dtype, device = (2, 3), "torch.bfloat16", "cuda:0"

    blob = TBlob(Far(), "gpu")
    assert (blob.shape, blob.size, blob.ndim, blob.dtype.name) == ((2, 3), 6, 2, "bfloat16")
    with pytest.raises(OperatorError, match=r"^TBlob\.numpy: bfloat16\[2,3\] is in the memory of a GPU, which NumPy cannot "
                                            r"read\. Give it to launch\(kernel, grid, \.\.\.\), which takes its address\.$"):
        blob.numpy()
