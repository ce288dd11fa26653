"""foreach, while_loop and cond as nodes: equal to the same steps written out one by one, forward and backward."""

import functools

import numpy as np
import pytest
import tritium as mx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.helpers import assert_close
from tritium.errors import GraphError
from tritium.graph import options
from tritium.kernels import op as ops

sym = mx.sym
v = functools.cache(mx.sym.Variable)  # one node by name, also where a body runs more than once


def run(symbol, args, ctx=None, train=True, reqs="write", **how):
    """Outputs, gradients (begun at 3) and states after two steps."""
    ctx = ctx or mx.cpu()
    with options(**how):
        names = symbol.list_arguments()
        states = {n: mx.nd.ones(s, ctx) for n, s in zip(symbol.list_auxiliary_states(), symbol.infer_shape(
            **{n: args[n].shape for n in names})[2])}
        ex = symbol.bind(ctx, {n: mx.nd.array(args[n], ctx) for n in names},
                         {n: mx.nd.ones(args[n].shape, ctx) * 3 for n in names}, reqs, states)
    found = []
    for _ in range(2):
        outs = ex.forward(is_train=train)
        if train:
            ex.backward([mx.nd.array(np.cos(np.arange(o.size)).reshape(o.shape), ctx) for o in outs])
        found += [o.asnumpy() for o in outs] + [ex.grad_dict[n].asnumpy() for n in sorted(ex._grads)]
    return found + [ex.aux_dict[n].asnumpy() for n in sorted(ex.aux_dict)]


def agree(got, want, tol=1e-5):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)  # tol: sums in another order


def written_out(body, data, states, rows):
    """Compute foreach row by row."""
    parts = [list(sym.SliceChannel(d, num_outputs=rows, axis=0, squeeze_axis=True)) for d in data]
    results = []
    for t in range(rows):
        outs, states = body([p[t] for p in parts], states)
        results.append(outs)
    return sym.Group([*(sym.stack(*column, axis=0) for column in zip(*results)), *states])


def cell(rows, states):
    a, b = rows
    s, t = states
    h = sym.tanh(sym.FullyConnected(s, v("w"), v("b"), num_hidden=3) + a * sym.exp(v("k")))
    return [h * t, a * b], [h + b, t * 0.5 + s]


CELL = {"x": (4, 2, 3), "y": (4, 2, 3), "s": (2, 3), "t": (2, 3), "w": (3, 3), "b": (3,), "k": (2, 3)}


def arrays(shapes, rng):
    return {n: rng.uniform(-1, 1, s).astype("float32") for n, s in shapes.items()}


@pytest.mark.parametrize("reqs", ["write", "add", {"x": "add", "s": "write", "w": "add"}])
def test_foreach_is_its_rows_one_by_one(rng, reqs):
    args = arrays(CELL, rng)
    outs, states = sym.contrib.foreach(cell, [v("x"), v("y")], [v("s"), v("t")])
    long = written_out(cell, [v("x"), v("y")], [v("s"), v("t")], 4)
    agree(run(sym.Group([*outs, *states]), args, reqs=reqs), run(long, args, reqs=reqs))
    agree(run(sym.Group([*outs, *states]), args, train=False), run(long, args, train=False))


def test_foreach_on_a_device_is_foreach_on_the_cpu(ctx, rng):
    args = arrays({"x": (3, 2), "s": (2,), "w": (2,)}, rng)
    outs, last = sym.contrib.foreach(lambda row, s: (row * v("w") + s, sym.tanh(s + row)), v("x"), v("s"))
    symbol = sym.Group([outs, last])
    agree(run(symbol, args, ctx, reqs={"x": "write", "s": "add", "w": "add"}),
          run(symbol, args, reqs={"x": "write", "s": "add", "w": "add"}))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_bodies(data):
    """Bodies of random operators on rows, states and symbols from outside; fused and not; also one loop within another."""
    kinds = {"add": lambda x, y: x + y, "mul": lambda x, y: x * y, "tanh": lambda x, y: sym.tanh(x), "half": lambda x, y: x * 0.5,
             "norm": lambda x, y: sym.LayerNorm(x, v("g"), v("h")) + y * 0}
    one = st.tuples(st.sampled_from(list(kinds)), st.integers(0, 9), st.integers(0, 9))
    picks = data.draw(st.lists(one, min_size=1, max_size=5))
    outside = sym.exp(v("o"))

    def body(rows, states):
        pool = [rows[0], states[0], outside, v("p")]
        for kind, i, j in picks:
            pool.append(kinds[kind](pool[i % len(pool)], pool[j % len(pool)]))
        return [pool[-1] + rows[0]], [sym.tanh(pool[-1] + states[0])]

    rows = data.draw(st.integers(1, 4))
    rng = np.random.default_rng(0)
    args = arrays({"x": (rows, 2, 3), "s": (2, 3), "o": (2, 3), "p": (2, 3), "g": (3,), "h": (3,)}, rng)
    outs, states = sym.contrib.foreach(body, [v("x")], [v("s")])
    want = run(written_out(body, [v("x")], [v("s")], rows), args)
    for how in ({}, {"fuse": False, "plan": False}):
        agree(run(sym.Group([*outs, *states]), args, **how), want, 1e-4)
    nested, last = sym.contrib.foreach(lambda r, s: sym.contrib.foreach(lambda q, z: (q * z[0], [q + z[0]]), r, s),
                                       v("x"), [v("c")])
    args["c"] = args["g"]

    def inner(rows_, states_):
        outs_, states_ = [], states_[0]
        for q in sym.SliceChannel(rows_[0], num_outputs=2, axis=0, squeeze_axis=True):
            outs_, states_ = [*outs_, q * states_], q + states_
        return [sym.stack(*outs_, axis=0)], [states_]

    agree(run(sym.Group([nested, *last]), args), run(written_out(inner, [v("x")], [v("c")], rows), args), 1e-4)


@pytest.mark.parametrize("most, rounds", [(6, 3), (3, 3), (2, 2), (1, 1)])
def test_while_loop_is_its_rounds_one_by_one(ctx, rng, most, rounds):
    args = {"i": np.array([0.0], "float32"), "s": np.array([0.5, 1.0], "float32"), "w": np.array([1.5, 2.0], "float32")}
    i, s, results = v("i"), v("s"), []
    for _ in range(rounds):
        results.append(s * v("w"))
        i, s = i + 1, sym.broadcast_add(s * v("w"), i)
    results += [sym.zeros_like(v("s"))] * (most - rounds)
    outs, last = sym.contrib.while_loop(
        lambda i, s: i < 3, lambda i, s: (s * v("w"), [i + 1, sym.broadcast_add(s * v("w"), i)]), [v("i"), v("s")], most)
    agree(run(sym.Group([outs, *last]), args, ctx), run(sym.Group([sym.stack(*results, axis=0), i, s]), args, ctx))


def test_a_loop_without_rounds_gives_its_variables_and_their_derivatives(ctx):
    outs, last = sym.contrib.while_loop(lambda i: i < 0, lambda i: (i * 2, i + 1), v("i"), 3)
    got = run(sym.Group([outs, last]), {"i": np.array([5.0], "float32")}, ctx)
    assert [g.tolist() for g in got[:3]] == [[[0.0]] * 3, [5.0], [1.0]]


@pytest.mark.parametrize("reqs", ["write", "add"])
@pytest.mark.parametrize("limit, wins", [(100.0, "then"), (-100.0, "else")])
def test_cond_runs_one_branch(ctx, rng, limit, wins, reqs):
    args = arrays({"a": (2, 3), "b": (2, 3)}, rng)
    a, b = v("a"), v("b")
    branches = {"then": lambda: [sym.tanh(a * b), b * 2], "else": lambda: [a - b, a]}
    both = sym.contrib.cond(sym.sum(a) < limit, *branches.values())
    zero = (a + b) * 0
    agree(run(sym.Group(both), args, ctx, reqs=reqs), run(sym.Group([x + zero for x in branches[wins]()]), args, ctx, reqs=reqs))


def test_states_of_operators_inside_change_once_a_round_and_not_in_backward(ctx, rng):
    def body(row, state):
        x = sym.BatchNorm(row, name="bn", fix_gamma=False)
        return x, state + x

    outs, last = sym.contrib.foreach(body, v("x"), v("s"))
    symbol = sym.Group([outs, last])
    assert symbol.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    args = arrays({"x": (3, 4, 2), "s": (4, 2), "bn_gamma": (2,), "bn_beta": (2,)}, rng)
    mean = np.ones(2)
    for _ in range(2):
        for row in args["x"]:
            mean = 0.9 * mean + 0.1 * row.mean(0)
    got = run(symbol, args, ctx)
    assert_close(got[-2], mean, scale=0.1)  # 0.1: closer than the table: few roundings
    assert symbol.list_arguments() == ["x", "s", "bn_gamma", "bn_beta"]


def test_backward_draws_the_numbers_that_forward_drew(ctx):
    """y = dropout(x) summed over rounds: the derivative is the mask, and the mask is y / x."""
    outs, last = sym.contrib.foreach(lambda row, s: (sym.Dropout(row, p=0.5), s + row), v("x"), v("s"))
    ex = sym.Group([outs, last]).simple_bind(ctx, x=(5, 40), s=(40,))
    ex.arg_dict["x"][:] = 1
    mx.random.seed(5)
    mask = ex.forward(is_train=True)[0].asnumpy()
    ex.backward([mx.nd.ones((5, 40), ctx), mx.nd.zeros((40,), ctx)])
    assert set(np.unique(mask)) == {0.0, 2.0} and (ex.grad_dict["x"].asnumpy() == mask).all()
    assert len({tuple(m) for m in mask}) == 5, "every row has numbers of its own"
    assert (ex.forward(is_train=True)[0].asnumpy() != mask).any()


def test_inference_keeps_no_history():
    outs, last = sym.contrib.foreach(lambda row, s: (row, s + row), v("x"), v("s"))
    symbol = sym.Group([outs, last])
    kept = [symbol.simple_bind(mx.cpu(), grad_req=r, x=(50, 64), s=(64,)).memory_plan().arena_bytes for r in ("null", "write")]
    assert kept == [0, 50 * 64 * 4]


def test_shapes_and_types_go_through_in_both_directions():
    outs, last = sym.contrib.foreach(lambda row, s: (sym.FullyConnected(row, num_hidden=4, name="fc"), s + row), v("x"), v("s"))
    symbol = sym.Group([outs, last])
    assert symbol.infer_shape(x=(5, 2, 3)) == ([(5, 2, 3), (2, 3), (4, 3), (4,)], [(5, 2, 4), (2, 3)], [])
    assert symbol.infer_shape_partial(s=(2, 3))[0] == [(0, 2, 3), (2, 3), (4, 3), (4,)]
    assert symbol.infer_type(x="float16")[1] == [np.float16] * 2
    with pytest.raises(mx.base.MXNetError, match=r"_foreach0 \(_foreach\).*elemwise_add"):
        symbol.infer_shape(x=(5, 2, 3), s=(2, 4))


def test_one_axis_gives_rows_of_one_element():
    outs, last = sym.contrib.foreach(lambda row, s: (row * s, s + row), v("x"), v("s"))
    assert sym.Group([outs, last]).infer_shape(x=(5,))[:2] == ([(5,), (1,)], [(5, 1), (1,)])


@pytest.mark.parametrize("name, change, says", [
    ("_foreach", {"in_data_locs": "[7]"}, r"_foreach: the positions \(7, 1\) are not all below 2\."),
    ("_foreach", {"num_outputs": "3"}, r"_foreach: 2 inputs and 3 outputs do not fit a subgraph with 2 inputs and 2 results\."),
    ("_foreach", {"subgraphs": ()}, r"_foreach: 0 subgraphs, not 1\. Make it with mx\.sym\.contrib\."),
])
def test_parameters_that_do_not_fit_their_subgraphs_are_refused(name, change, says):
    outs, _ = sym.contrib.foreach(lambda row, s: (row, s + row), v("x"), v("s"))
    with pytest.raises(GraphError, match=says):
        ops.get(name).parse({**outs._outputs[0][0].params, **change})
