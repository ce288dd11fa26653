"""mx.config.float32_matmul: which setting reaches the kernels. The interpreter multiplies alike under each of them."""

import threading

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ParameterError
from tritium.kernels.configs import float32_matmul
from tritium.kernels.gpu import launch

GPU = mx.gpu(0)


@pytest.fixture
def launched(monkeypatch):
    """The settings of the products launched so far."""
    seen: list[str] = []
    run = launch._run

    def spy(fn, grid, args, constexprs, *more):
        if "PRECISION" in constexprs:
            seen.append(constexprs["PRECISION"])
        run(fn, grid, args, constexprs, *more)

    monkeypatch.setattr(launch, "_run", spy)
    monkeypatch.setattr(float32_matmul.Chosen, "assigned", "")
    monkeypatch.setattr(float32_matmul.Chosen, "ever", False)
    monkeypatch.delenv("TRITIUM_FLOAT32_MATMUL", raising=False)
    return seen


def taken(launched):
    mx.nd.waitall()
    found = launched.copy()
    launched.clear()
    return found


def square(rng, *shape):
    return mx.nd.array(rng.normal(size=shape or (3, 3)), ctx=GPU)


def test_ieee_is_the_default_and_the_environment_gives_another_one(launched, rng, monkeypatch):
    a = square(rng)
    mx.nd.dot(a, a)
    assert mx.config.float32_matmul == "ieee" and taken(launched) == ["ieee"]
    monkeypatch.setenv("TRITIUM_FLOAT32_MATMUL", "TF32")
    mx.nd.dot(a, square(rng, 3, 5))  # launches are kept, so it must be one that was not seen yet
    assert mx.config.float32_matmul == "tf32" and taken(launched) == ["tf32"]
    monkeypatch.setenv("TRITIUM_FLOAT32_MATMUL", "fast")
    with pytest.raises(ParameterError, match="TRITIUM_FLOAT32_MATMUL: 'fast' is not one of ieee, tf32, tf32x3"):
        float32_matmul.of_launch()


def test_an_assignment_holds_for_the_process_and_a_scope_for_a_block_of_one_thread(launched, rng):
    a, read = square(rng), []
    mx.nd.dot(a, a)
    mx.config.float32_matmul = "tf32"
    mx.nd.dot(a, a)
    with mx.config.float32_matmul_scope("tf32x3"):
        mx.nd.dot(a, a)
        other = threading.Thread(target=lambda: read.append(mx.config.float32_matmul))
        other.start()
        other.join()
        with mx.config.float32_matmul_scope("ieee"):
            mx.nd.dot(a, a)
        mx.nd.linalg.gemm2(a, a)
    mx.nd.dot(a, a)
    assert taken(launched) == ["ieee", "tf32", "tf32x3", "ieee", "tf32x3", "tf32"] and read == ["tf32"]


@pytest.mark.parametrize("name, inputs", [
    ("dot", [(2, 3), (3, 2)]), ("batch_dot", [(2, 3, 3)] * 2), ("linalg_syrk", [(3, 2)]), ("linalg_potri", [(3, 3)]),
    ("_contrib_interleaved_matmul_selfatt_qk", [(4, 1, 12)]), ("Convolution", [(1, 2, 5, 5), (2, 2, 3, 3)])])
def test_every_way_to_a_product_knows_it(name, inputs, launched, rng):
    params = {"Convolution": {"kernel": (3, 3), "num_filter": 2, "no_bias": True},
              "_contrib_interleaved_matmul_selfatt_qk": {"heads": 2}}.get(name, {})
    arrays = [square(rng, *s) for s in inputs]
    for how in ("ieee", "tf32", "ieee", "tf32x3"):
        with mx.config.float32_matmul_scope(how):
            getattr(mx.nd, name)(*arrays, **params)
        assert set(taken(launched)) == {how}


def test_a_derivative_has_the_setting_of_what_was_recorded(launched, rng):
    a = square(rng)
    a.attach_grad()
    for how in ("tf32", "ieee", "tf32"):
        with mx.config.float32_matmul_scope(how), mx.autograd.record():
            y = mx.nd.dot(a, a)
        with mx.config.float32_matmul_scope("tf32x3"):
            y.backward()
        assert taken(launched) == [how] * 3
    with mx.config.float32_matmul_scope("tf32"), mx.autograd.record():
        y = mx.nd.dot(a, a)
    with mx.autograd.record():
        (dx,) = mx.autograd.grad(y, [a], create_graph=True)
    assert taken(launched) == ["tf32"] * 3
    dx.backward()
    assert set(taken(launched)) == {"tf32"}


def test_a_bound_graph_keeps_its_setting(launched, rng):
    x = mx.sym.var("x")
    graph = mx.sym.FullyConnected(mx.sym.FullyConnected(x, num_hidden=4), num_hidden=2)
    with mx.config.float32_matmul_scope("tf32"):
        executor = graph.simple_bind(GPU, x=(3, 5))
    plain = graph.simple_bind(GPU, x=(3, 5))
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward(mx.nd.ones((3, 2), ctx=GPU))
        executor.forward(is_train=False)
    larger = executor.reshape(x=(6, 5), allow_up_sizing=True)
    larger.forward(is_train=False)
    assert set(taken(launched)) == {"tf32"}
    with mx.config.float32_matmul_scope("tf32x3"):
        plain.forward(is_train=False)
    assert set(taken(launched)) == {"ieee"}


@pytest.mark.parametrize("hybridized", [False, True])
def test_a_block_multiplies_as_is_set_where_it_is_called(hybridized, launched, rng):
    net = mx.gluon.nn.Dense(3, in_units=4)
    net.initialize(ctx=GPU)
    if hybridized:
        net.hybridize()
    x = square(rng, 2, 4)
    for how in ("tf32", "ieee"):
        with mx.config.float32_matmul_scope(how), mx.autograd.record():
            y = net(x)
        y.backward()
        assert set(taken(launched)) == {how}


def test_a_loop_multiplies_as_is_set(launched, rng):
    data, w = square(rng, 3, 2, 2), square(rng, 2, 2)
    with mx.config.float32_matmul_scope("tf32"):
        graph = mx.sym.contrib.foreach(lambda x, s: (mx.sym.dot(x, s), s), mx.sym.var("data"), mx.sym.var("w"))[0]
        executor = graph.bind(GPU, {"data": data, "w": w})
    executor.forward()
    assert set(taken(launched)) == {"tf32"}


def test_a_cpu_ignores_it(launched, rng):
    a = mx.nd.array(rng.normal(size=(40, 40)))
    plain = mx.nd.dot(a, a).asnumpy()
    with mx.config.float32_matmul_scope("tf32"):
        np.testing.assert_array_equal(mx.nd.dot(a, a).asnumpy(), plain)
    assert not taken(launched)


def test_errors(launched):
    with pytest.raises(ParameterError, match="float32_matmul: 'tf23' is not one of ieee, tf32, tf32x3\\. Did you mean 'tf32'"):
        mx.config.float32_matmul = "tf23"
    with pytest.raises(ParameterError, match="float32_matmul_scope: 'float32' is not one of ieee, tf32, tf32x3"):
        mx.config.float32_matmul_scope("float32")
    assert mx.config.float32_matmul == "ieee"
