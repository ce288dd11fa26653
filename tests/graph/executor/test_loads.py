"""Long arrays that a pass is given are copied by the first phase of its functions in C; other passes leave that phase out."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, threaded_engine
from tritium.graph.executor import segment
from tritium.graph.executor.loads import is_long
from tritium.kernels.cpu import c_compile

SHAPE = (96, 1024)  # longer than is copied by one thread


@pytest.fixture(params=["auto", "numpy"])
def code(request, cpu_code):
    cpu_code(request.param)


def bound(symbol=None, **shapes):
    symbol = mx.sym.tanh(mx.sym.var("x")) + 1 if symbol is None else symbol
    return symbol.simple_bind(mx.cpu(), grad_req="null", **(shapes or {"x": SHAPE}))


def array(seed):
    return mx.nd.array(np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32))


def expected(x):
    return np.tanh(x) + 1


def load(executor, **given):
    executor.load_and_forward(False, [(array, executor.arg_dict[name]) for name, array in given.items()])


def check(executor, x):
    assert_close(executor.outputs[0].asnumpy(), expected(x))


def test_each_pass_reads_the_array_that_it_was_given(code):
    executor = bound()
    assert is_long(executor.arg_dict["x"])
    for seed in range(4):
        given = array(seed)
        load(executor, x=given)
        check(executor, given.asnumpy())
        np.testing.assert_array_equal(executor.arg_dict["x"].asnumpy(), given.asnumpy())


def test_a_pass_that_is_given_nothing_reads_what_the_argument_holds(code):
    executor = bound()
    for seed in range(3):
        load(executor, x=array(seed))
        own = array(100 + seed)
        executor.arg_dict["x"][:] = own
        executor.forward()
        check(executor, own.asnumpy())


def test_passes_that_are_pushed_without_a_wait_keep_their_arrays_apart(code):
    executor = bound()
    given = [array(seed) for seed in range(6)]
    results = [executor.call(False, [(a, executor.arg_dict["x"])])[0] for a in given]
    for a, result in zip(given, results):
        assert_close(result.asnumpy(), expected(a.asnumpy()))


def test_passes_may_be_given_different_arguments(code):
    x, y, short = mx.sym.var("x"), mx.sym.var("y"), mx.sym.var("short")
    executor = bound(mx.sym.broadcast_add(mx.sym.tanh(x) * 2 - y, short), x=SHAPE, y=SHAPE, short=(1, SHAPE[1]))
    assert not is_long(executor.arg_dict["short"])
    values = {name: array(k).asnumpy() for k, name in enumerate("xy")} | {"short": array(3).asnumpy()[:1]}
    for name, value in values.items():
        executor.arg_dict[name][:] = value
    for k, names in enumerate([("x",), ("y",), ("x", "y"), ("short",), ("short", "y"), ()]):
        for j, name in enumerate(names):
            values[name] = array(10 * k + j).asnumpy()[:len(values[name])]
        load(executor, **{name: mx.nd.array(values[name]) for name in names})
        want = np.tanh(values["x"]) * 2 - values["y"] + values["short"]
        assert_close(executor.outputs[0].asnumpy(), want)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_helper_may_begin_with_the_copies(workers, monkeypatch):
    monkeypatch.setattr(segment, "SHORT", -1)
    with threaded_engine(workers):
        executor = bound()
        for seed in range(20):
            given = array(seed)
            load(executor, x=given)
            check(executor, given.asnumpy())


def test_a_profile_names_the_copies(tmp_path):
    executor = bound()
    load(executor, x=array(0))
    mx.nd.waitall()
    mx.profiler.set_config(profile_all=True, filename=str(tmp_path / "profile.json"))
    mx.profiler.set_state("run")
    load(executor, x=array(1))
    mx.nd.waitall()
    mx.profiler.set_state("stop")
    mx.profiler.dump()
    text = (tmp_path / "profile.json").read_text()
    assert ("copy of the inputs" in text) == c_compile.available()
    assert "tanh" in text
