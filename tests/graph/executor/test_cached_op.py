"""nd.CachedOp: a symbol called like an operator."""

import gc
import threading

import numpy as np
import pytest
import tritium as mx
from tritium import engine
from tritium.errors import GraphError

X = np.arange(6, dtype="float32").reshape(2, 3)


def linear(flags=(("param_indices", [1, 2]),)):
    out = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    return mx.nd.CachedOp(out, flags), [mx.nd.array(X), mx.nd.ones((2, 3)), mx.nd.array([10, 20])]


def test_it_computes_what_the_symbol_says():
    op, arrays = linear()
    assert op(*arrays).asnumpy().tolist() == [[13, 23], [22, 32]]
    out = mx.nd.zeros((2, 2))
    assert op(*arrays, out=out) is out and out.asnumpy().tolist() == [[13, 23], [22, 32]]
    group = mx.nd.CachedOp(mx.sym.Group([mx.sym.var("a") * 2, mx.sym.var("b")]))
    first, second = group(mx.nd.ones((2,)), mx.nd.ones((3,)))
    assert first.asnumpy().tolist() == [2, 2] and second.asnumpy().tolist() == [1, 1, 1]


def test_outputs_of_earlier_calls_stay():
    op, (x, w, b) = linear()
    first = op(x, w, b)
    op(x * 0, w, b)
    assert first.asnumpy().tolist() == [[13, 23], [22, 32]]


def test_inputs_without_param_indices_are_copied_and_have_gradients():
    op, arrays = linear(())
    for a in arrays:
        a.attach_grad()
    for _ in range(2):
        with mx.autograd.record():
            y = op(*[a + 0 for a in arrays])
        y.backward()
    assert arrays[1].grad.asnumpy().tolist() == [[3, 5, 7]] * 2 and arrays[2].grad.asnumpy().tolist() == [2, 2]
    assert len(op._calls) == 1


def test_a_call_and_its_backward_are_one_task_each_with_their_copies(monkeypatch):
    op, (x, w, b) = linear()
    w.attach_grad()
    x.attach_grad()

    def step():
        with mx.autograd.record():
            y = op(x, w, b)
        y.backward()

    step()  # compiles
    on, names = engine.current(), []
    push, push_sync = on.push, on.push_sync
    monkeypatch.setattr(on, "push", lambda opr, *more, **options: (names.append(opr.name), push(opr, *more, **options)))
    monkeypatch.setattr(on, "push_sync", lambda *given, **options: (names.append(options["name"]), push_sync(*given, **options)))
    step()
    assert names == ["fc forward 0-0", "fc backward 0-0"]
    assert x.grad.asnumpy().tolist() == [[2, 2, 2]] * 2 and w.grad.asnumpy().tolist() == [[3, 5, 7]] * 2


def test_an_input_may_be_written_after_the_call():
    op, (x, w, b) = linear()
    with mx.autograd.record():
        y = op(x, w, b)
    x[:] = 0
    assert y.asnumpy().tolist() == [[13, 23], [22, 32]]


def test_the_error_of_an_input_reaches_the_output_of_its_call_alone():
    op, (x, w, b) = linear()
    op(x, w, b)

    class Fails(mx.operator.CustomOp):
        def forward(self, *_):
            raise ValueError("no value")

    @mx.operator.register("fails_before_a_cached_op")
    class _Prop(mx.operator.CustomOpProp):
        def create_operator(self, *_):
            return Fails()

    y = op(mx.nd.Custom(x, op_type="fails_before_a_cached_op"), w, b)
    with pytest.raises(ValueError, match="no value"):
        y.wait_to_read()
    with pytest.raises(ValueError, match="no value"):
        mx.nd.waitall()
    assert op(x, w, b).asnumpy().tolist() == [[13, 23], [22, 32]]
    mx.nd.waitall()


def test_states_are_changed_in_place():
    out = mx.sym.BatchNorm(mx.sym.var("data"), fix_gamma=False, momentum=0.5, name="bn")
    op = mx.nd.CachedOp(out)
    mean, var = mx.nd.zeros((3,)), mx.nd.ones((3,))
    with mx.autograd.train_mode():
        op(mx.nd.array(X), mx.nd.ones((3,)), mx.nd.zeros((3,)), mean, var)
    assert mean.asnumpy().tolist() == [0.75, 1.25, 1.75]


def test_memory_of_forgotten_calls_is_used_again():
    op, (x, w, b) = linear()
    w.attach_grad()
    for _ in range(5):
        with mx.autograd.record():
            y = op(x, w, b)
        del y
        gc.collect()
    assert len(op._arenas[mx.cpu(0)]) == 1
    with mx.autograd.record():
        kept = [op(x, w, b) for _ in range(3)]
    assert len(op._arenas[mx.cpu(0)]) == 3
    mx.autograd.backward(kept)
    assert w.grad.asnumpy().tolist() == [[9, 15, 21]] * 2 and not op._busy


def test_a_gradient_that_two_calls_share_goes_through_a_buffer_from_then_on():
    op, (x, w, b) = linear()
    w.attach_grad()
    for _ in range(3):
        with mx.autograd.record():
            y = op(x, w, b) + op(x, w, b)
        y.backward()
        assert w.grad.asnumpy().tolist() == [[6, 10, 14]] * 2 and op._buffered == {1}


def test_replaced_parameters_are_forgotten_but_not_the_plans(monkeypatch):
    from tritium.graph.executor import executor

    compiled = []
    compile_program = executor.compile_program
    monkeypatch.setattr(executor, "compile_program", lambda *a, **k: compiled.append(a) or compile_program(*a, **k))
    op, (x, w, b) = linear()
    for k in range(3):
        assert op(x, w * k, b).asnumpy().tolist() == [[10 + 3 * k, 20 + 3 * k], [10 + 12 * k, 20 + 12 * k]]
    elsewhere = [a.as_in_context(mx.cpu(1)) for a in (x, w, b)]
    assert op(*elsewhere).context == mx.cpu(1) and len(op._calls) == 2
    assert len(compiled) == 1


def test_threads_may_call_it():
    op, (x, w, b) = linear()
    found = [None] * 8

    def call(k):
        found[k] = [op(x + k, w, b).asnumpy().tolist() for _ in range(20)]

    threads = [threading.Thread(target=call, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, lists in enumerate(found):
        assert all(one == [[13 + 3 * k, 23 + 3 * k], [22 + 3 * k, 32 + 3 * k]] for one in lists)


def test_wrong_calls():
    op, (x, w, b) = linear()
    with pytest.raises(GraphError, match="CachedOp fc: 2 arrays for 3 inputs: data, fc_weight, fc_bias"):
        op(x, w)
    with pytest.raises(ValueError, match=r"fc_weight is float32\[2,3\]@cpu\(1\), the first input is on cpu\(0\)"):
        op(x, w.as_in_context(mx.cpu(1)), b)
    with pytest.raises(GraphError, match="two inputs are called 'a'"):
        mx.nd.CachedOp(mx.sym.var("a") + mx.sym.var("a"))
    with pytest.raises(ValueError, match="fc"):
        op(mx.nd.ones((2, 4)), w, b)
