"""The memory plan: checked by plan_checker on random graphs; close to the bound; one arena."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plan_checker import check_plan
from support.random_graphs import networks, program
from tritium.graph.memory.plan import apply_inplace, plan_memory
from tritium.graph.passes.fuse import fuse
from tritium.graph.program import INNER, Program, Step
from tritium.graph.symbol import namespace as sym
from tritium.kernels.op import Op, Req, Spec


class Plain(Op):
    """An operator without in-place outputs."""

    name = "plain"


class Inplace(Op):
    name = "inplace"

    def inplace(self, p):
        return ((0, 0),)


PLAIN, INPLACE = Plain(), Inplace()


def chain(ops, elements=64):
    """A program x -> v0 -> v1 -> ..., all inner."""
    p = Program()
    x = p.add_value(Spec((elements,), np.dtype("float32")), "arg", "x")
    for i, op in enumerate(ops):
        v = p.add_value(Spec((elements,), np.dtype("float32")), INNER, f"v{i}")
        p.steps.append(Step(op, op.parse({}), f"s{i}", (x,), (v,), (Req.WRITE,)))
        x = v
    p.n_forward = len(p.steps)
    return p


def test_a_chain_needs_two_buffers_and_one_in_place():
    p = chain([PLAIN] * 50)
    plan = plan_memory(p)
    check_plan(p, plan)
    assert (plan.planned_bytes, plan.lower_bound_bytes, plan.naive_bytes) == (512, 512, 50 * 256)
    p = chain([PLAIN] + [INPLACE] * 49)
    plan = plan_memory(p)
    apply_inplace(p, plan)
    check_plan(p, plan)
    assert plan.planned_bytes == 256 and [s.reqs[0] for s in p.steps] == [Req.WRITE] + [Req.INPLACE] * 49


def test_values_share_no_bytes_in_place_where_that_makes_packing_worse():
    """Four parts of one block are changed one by one and joined: changed in place, they leave no gap for the joined one."""
    p = Program()

    def value(n, kind=INNER):
        return p.add_value(Spec((n * 64,), np.dtype("float32")), kind, f"v{len(p.values)}")

    def step(op, inputs, outputs):
        p.steps.append(Step(op, op.parse({}), f"s{len(p.steps)}", tuple(inputs), tuple(outputs), (Req.WRITE,) * len(outputs)))

    whole = value(4)
    step(PLAIN, [value(1, "arg")], [whole])
    for _ in range(3):
        a, b, c, d = cut = [value(1) for _ in range(4)]
        step(PLAIN, [whole], cut)
        parts = [value(1) for _ in range(4)]
        for out, inputs in zip(parts, ([a], [b, c], [d], [a, d])):
            step(INPLACE, inputs, [out])
        joined, whole = value(4), value(4)
        step(PLAIN, parts, [joined])
        step(PLAIN, [joined], [whole])
    plan = plan_memory(p)
    apply_inplace(p, plan)
    check_plan(p, plan)
    assert plan.planned_bytes == plan.lower_bound_bytes == 8 * 256


def test_a_value_that_is_read_later_is_not_overwritten():
    p = chain([PLAIN, INPLACE, PLAIN])
    late = p.add_value(Spec((64,), np.dtype("float32")), INNER, "w")
    p.steps.append(Step(PLAIN, PLAIN.parse({}), "late", (p.steps[0].outputs[0],), (late,), (Req.WRITE,)))
    plan = plan_memory(p)
    check_plan(p, plan)
    assert plan.inplace == {}


def test_no_sharing():
    p = chain([INPLACE] * 5)
    plan = plan_memory(p, share=False)
    check_plan(p, plan)
    assert plan.arena_bytes == 5 * 256 and len(set(plan.offsets[1:])) == 5


def test_the_plan_checker_finds_an_overlap():
    p = chain([PLAIN] * 3)
    plan = plan_memory(p)
    plan.offsets[2] = plan.offsets[1]
    with pytest.raises(AssertionError, match=r"v0 and v1 share bytes 0..256 in steps 1..1"):
        check_plan(p, plan)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.booleans())
def test_random_graphs(network, fused):
    symbol, shapes = network
    p = fuse(program(symbol, dict.fromkeys(shapes, "write"), **shapes), fused)
    plan = plan_memory(p)
    check_plan(p, plan)
    assert plan.planned_bytes <= max(plan_memory(p, share=False).planned_bytes, 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=60))
def test_random_lifetimes_stay_near_the_bound(spans):
    """Values written at one step and read some steps later, all sizes."""
    p = Program()
    x = p.add_value(Spec((1,), np.dtype("float32")), "arg", "x")
    steps = {}
    for n, (size, first, length) in enumerate(spans):
        v = p.add_value(Spec((size,), np.dtype("float32")), INNER, f"v{n}")
        steps.setdefault(first, ([], []))[1].append(v)
        steps.setdefault(first + 1 + length, ([], []))[0].append(v)
    for i in sorted(steps):
        reads, writes = steps[i]
        p.steps.append(Step(PLAIN, PLAIN.parse({}), f"s{i}", (x, *reads), tuple(writes), (Req.WRITE,) * len(writes)))
    plan = plan_memory(p)
    check_plan(p, plan)
    assert plan.planned_bytes <= 1.3 * plan.lower_bound_bytes  # typical is 1.00; the bound cannot always be reached


def test_many_values_quickly():
    plan = plan_memory(chain([PLAIN] * 100_000))
    assert plan.planned_bytes == 512


def test_table_names_offsets_and_steps():
    plan = plan_memory(chain([PLAIN] * 2))
    assert plan.table() == [{"name": "v0", "offset": 0, "nbytes": 256, "first": 0, "last": 1},
                            {"name": "v1", "offset": 256, "nbytes": 256, "first": 1, "last": 1}]
    assert str(plan).startswith("planned 512 bytes (arena 512, outputs 0), lower bound 512, naive 512\n")


def test_lenet_is_near_its_bound():
    x = sym.Variable("data")
    for k, n in enumerate((20, 50)):
        x = sym.Convolution(x, kernel=(5, 5), num_filter=n, name=f"conv{k}")
        x = sym.Pooling(sym.Activation(x, act_type="tanh"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = sym.FullyConnected(sym.Activation(sym.FullyConnected(sym.Flatten(x), num_hidden=500), act_type="tanh"), num_hidden=10)
    shapes = dict(zip(x.list_arguments(), x.infer_shape(data=(64, 1, 28, 28))[0]))
    for reqs in ({}, {n: "write" for n in shapes if n != "data"}):
        p = fuse(program(x, reqs, **shapes))
        plan = plan_memory(p)
        check_plan(p, plan)
        assert plan.planned_bytes <= 1.05 * plan.lower_bound_bytes < plan.naive_bytes
