"""Values in the memory of outputs that are not written yet. Oracles: plan_checker, and NumPy for the results."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.plan_checker import check_plan
from tritium.graph.memory.plan import plan_memory
from tritium.graph.program import INNER, OUTPUT, Program, Step
from tritium.kernels.op import Op, Req, Spec


class Plain(Op):
    """An operator without in-place outputs."""

    name = "plain"


def program(*steps, train=False, **sizes):
    """A program of steps (inputs, output) over values of so many blocks of 256 bytes; "y" is the output."""
    p, op = Program(train=train), Plain()
    at = {n: p.add_value(Spec((64 * k,), np.dtype("float32")), OUTPUT if n == "y" else INNER, n) for n, k in sizes.items()}
    for ins, out in steps:
        p.steps.append(Step(op, op.parse({}), out, tuple(at[i] for i in ins), (at[out],), (Req.WRITE,)))
    p.n_forward, p.heads = len(p.steps), [at["y"]]
    return p


def planned(p, **how):
    plan = plan_memory(p, **how)
    check_plan(p, plan)
    return plan


def test_two_values_lie_side_by_side_in_an_output():
    p = program(("", "a"), ("a", "b"), ("ab", "c"), ("c", "y"), a=1, b=1, c=1, y=2)
    plan = planned(p)
    assert plan.planned_bytes == 3 * 256 and sorted(plan.offsets[v] for v in plan.in_output) == [0, 256]


def test_at_inference_an_output_gets_more_memory_for_a_slightly_larger_value():
    steps = [("", "a"), ("a", "b"), ("b", "c"), ("c", "y")]
    sizes = {"a": 1, "b": 5, "c": 1, "y": 4}
    plan = planned(program(*steps, **sizes))
    assert plan.planned_bytes == 6 * 256 and list(plan.capacity.values()) == [5 * 256] and plan.output_bytes == 5 * 256
    assert planned(program(*steps, train=True, **sizes)).planned_bytes == 10 * 256
    assert planned(program(*steps, **sizes), capacity=[4 * 256]).planned_bytes == 10 * 256
    assert planned(program(*steps, **sizes), capacity=[5 * 256]).planned_bytes == 6 * 256


def test_without_sharing_no_value_lies_in_an_output():
    plan = planned(program(("", "a"), ("a", "y"), a=1, y=2), share=False)
    assert not plan.in_output and plan.planned_bytes == plan.naive_bytes


@pytest.mark.parametrize("first", [False, True])
def test_outputs_with_more_memory_stay_the_executors_outputs(first):
    """Inference and training write the same arrays, whichever is compiled first, even if `outputs` was read before."""
    x = mx.sym.Variable("x")
    h = mx.sym.FullyConnected(x, num_hidden=80, no_bias=True, weight=mx.sym.Variable("v"))
    h = mx.sym.FullyConnected(h, num_hidden=8, no_bias=True, weight=mx.sym.Variable("u"))
    y = mx.sym.FullyConnected(h, num_hidden=72, no_bias=True, weight=mx.sym.Variable("w"))
    ex = y.simple_bind(mx.cpu(), grad_req={"x": "write", "v": "null", "u": "null", "w": "null"}, x=(64, 8))
    values = {n: np.random.RandomState(0).randn(*a.shape).astype("f") for n, a in ex.arg_dict.items()}
    for n, a in ex.arg_dict.items():
        a[:] = values[n]
    want = values["x"] @ values["v"].T @ values["u"].T @ values["w"].T
    held = ex.outputs[0] if first else None
    out = ex.forward(is_train=False)[0]
    assert held is None or held is out
    room = ex._compile(train=False).plan.capacity
    assert list(room.values()) == [64 * 72 * 4 if first else 64 * 80 * 4]
    assert_close(out, want, scale=10)  # 10: rounded in another order
    assert ex.forward(is_train=True)[0] is out
    assert_close(out, want, scale=10)  # 10: rounded in another order
    ex.backward(mx.nd.ones((64, 72)))
    slope = np.ones((64, 72)) @ values["w"] @ values["u"] @ values["v"]
    assert_close(ex.grad_dict["x"], slope, scale=10)  # 10: rounded in another order
