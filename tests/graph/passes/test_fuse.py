"""Fusion: the steps that become one, and equal results."""

import numpy as np
import pytest
import tritium as mx
from hypothesis import HealthCheck, given, settings
from support.helpers import assert_close
from support.random_graphs import networks, numpy_outputs, program, run, values
from tritium.graph import options
from tritium.graph.passes.fuse import fuse, fused_operators
from tritium.graph.symbol import namespace as sym
from tritium.kernels.ir.body import LONGEST_ROW


def names(p):
    return [s.op.name for s in p.steps]


def test_a_chain_becomes_one_kernel_and_its_inner_values_vanish():
    a = sym.Variable("a")
    p = program(sym.tanh(sym.relu(a * 2) + a), {}, a=(3, 4))
    f = fuse(p)
    assert len(f.steps) == 1 and fused_operators(f) == 4 and f.n_forward == 1 and len(f.steps[0].outputs) == 1
    assert fuse(p, False) is p and fused_operators(p) == 0


def test_a_reader_outside_ends_the_group():
    a = sym.Variable("a")
    x = sym.relu(a)
    y = sym.dot(x, x) + sym.tanh(x)
    f = fuse(program(y, {}, a=(4, 4)))
    assert [n.startswith("fused") for n in names(f)] == [False, False, True]


def test_shapes_do_not_mix_but_broadcast_inputs_do():
    a, b = sym.Variable("a"), sym.Variable("b")
    f = fuse(program(sym.relu(sym.broadcast_add(a, sym.tanh(b))), {}, a=(3, 4), b=(1, 4)))
    assert len(f.steps) == 2 and len(f.steps[1].operators) == 2


def test_forward_and_backward_are_not_mixed():
    a = sym.Variable("a")
    f = fuse(program(sym.exp(sym.tanh(a)), {"a": "write"}, a=(3,)))
    assert len(f.steps) == 2 and f.n_forward == 1 and fused_operators(f) == 4


def test_sums_of_gradients_fuse_into_one_write():
    a = sym.Variable("a")
    f = fuse(program(sym.tanh(a) * a + sym.exp(a), {"a": "write"}, a=(3,)))
    assert len(f.steps) == 2


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks())
def test_fused_equals_unfused_and_planned_equals_unplanned(network):
    symbol, shapes = network
    args = values(shapes, 3)
    plain = run(symbol, args, fuse=False, plan=False)
    for how in ({"fuse": True, "plan": True}, {"fuse": False, "plan": True}, {"mirror": True}):
        for want, got in zip(plain, run(symbol, args, **how)):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)  # random programs: cancellation leaves absolute errors


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks())
def test_fused_equals_numpy(network):
    """Outputs against float64 node by node; gradients against differences of those along a random direction."""
    symbol, shapes = network
    args = values(shapes, 4)
    wanted = numpy_outputs(symbol, args)
    got = run(symbol, args)
    for g, w in zip(got, wanted):
        np.testing.assert_allclose(g, w, rtol=2e-3, atol=2e-3)  # long chains, where cancellation leaves absolute errors
    heads = [np.cos(np.arange(o.size)).reshape(o.shape) for o in wanted]
    names = symbol.list_arguments()
    rng = np.random.default_rng(1)
    direction = {k: rng.normal(size=v.shape) for k, v in args.items()}

    def at(step):
        outs = numpy_outputs(symbol, {k: v + step * direction[k] for k, v in args.items()})
        return sum((o * h).sum() for o, h in zip(outs, heads))

    slopes = [(at(e) - at(-e)) / (2 * e) for e in (1e-6, 1e-5)]
    found = sum((g * direction[n]).sum() for n, g in zip(names, got[len(wanted):]))
    if abs(slopes[0] - slopes[1]) < 1e-3 * max(1, abs(slopes[0])):  # no kink of relu in between
        assert abs(found - slopes[0]) < 2e-2 * max(1.0, abs(slopes[0]), sum(np.abs(g).sum() for g in got[len(wanted):]))


@pytest.mark.parametrize("code", ["numpy", "c"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_fused_equals_unfused_to_the_bit_forward(dtype, code, ctx, rng, cpu_code):
    cpu_code(code)  # the last bits of an exponential in C are not NumPy's
    a, b = sym.Variable("a"), sym.Variable("b")
    y = sym.tanh(sym.relu(a * b + 1) * a - 0.3)
    args = {k: rng.normal(size=(5, 7)).astype(dtype) for k in "ab"}
    assert (run(y, args, ctx, fuse=True)[0] == run(y, args, ctx, fuse=False)[0]).all()


def test_an_output_that_is_an_input_is_not_overwritten_by_its_neighbour():
    """The derivative of a - b is (dy, -dy): -dy must not take dy's place before dy is copied."""
    a = sym.Variable("a")
    got = run(a + (a - a), {"a": np.ones((1, 2), "float32")}, fuse=False)
    np.testing.assert_allclose(got[1], np.cos(np.arange(2))[None], rtol=1e-6)  # closer than the table


def test_sums_end_a_group_and_their_broadcast_derivatives_begin_one(ctx, rng):
    a = sym.Variable("a")
    y = sym.sum(sym.tanh(a * a), axis=1)
    f = fuse(program(y, {"a": "write"}, a=(3, 4)))
    assert [len(s.operators) for s in f.steps[:f.n_forward]] == [3] and len(f.steps[f.n_forward].operators) >= 3
    args = {"a": rng.normal(size=(300, 400)).astype("float32")}
    for got, want in zip(run(y, args, ctx), run(y, args, ctx, fuse=False)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)  # sums in another order: cancellation leaves absolute errors


def test_a_reduction_is_not_read_in_its_own_kernel():
    a = sym.Variable("a")
    f = fuse(program(sym.broadcast_mul(a, sym.sum(sym.exp(a), axis=0, keepdims=True)), {}, a=(3, 4)))
    assert names(f) == ["fused(exp+sum)", "broadcast_mul"]


ROWS = {
    "softmax": lambda a, b: sym.softmax(a * 2 + b) * b,
    "log_softmax": lambda a, b: sym.sum(sym.log_softmax(a + b, temperature=2.0) * b, axis=1),
    "layer norm": lambda a, b: sym.relu(sym.LayerNorm(a + b, sym.Variable("gamma"), sym.Variable("beta"))) * b,
    "mean": lambda a, b: sym.broadcast_sub(a * b, sym.mean(a * b, axis=-1, keepdims=True)),
    "norm": lambda a, b: sym.broadcast_div(a * b, sym.norm(a * b, axis=1, keepdims=True)),
    "max": lambda a, b: sym.broadcast_sub(a * b, sym.max(a * b, axis=1, keepdims=True)),
    "the same all along a row": lambda a, b: sym.sum(sym.log_softmax(a * b), axis=1),
    "and summed": lambda a, b: sym.sum(sym.broadcast_mul(sym.ones_like(a), sym.mean(a * b, axis=1, keepdims=True))),
    "where": lambda a, b: sym.where(a > b, a * 2, b * a) + a,
    "mean of all": lambda a, b: sym.mean(sym.square(a - b)),
    "norm of columns": lambda a, b: sym.norm(a * b, axis=0),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_fuse_whole_forward_and_backward(name, ctx, rng):
    """One kernel in each pass, with the results of single operators."""
    y = ROWS[name](sym.Variable("a"), sym.Variable("b"))
    shapes = {n: s for n, s in {"a": (5, 7), "b": (5, 7), "gamma": (7,), "beta": (7,)}.items() if n in y.list_arguments()}
    f = fuse(program(y, dict.fromkeys(shapes, "write"), **shapes))
    assert (f.n_forward, len(f.steps)) == (1, 2), names(f)
    args = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    for got, want in zip(run(y, args, ctx), run(y, args, ctx, fuse=False)):
        assert_close(got, want)


@pytest.mark.parametrize("shape, axis", [((3, 1), 1), ((3, 1), -1), ((1, 4), 0), ((2, 1, 3), 1), ((1, 1), None), ((1,), 0),
                                         ((2, 3, 1, 1), (2, 3)), ((1, 5), 1)])
def test_a_reduction_of_one_element_still_applies_its_last_step(shape, axis, ctx, rng):
    """A root, a mean, a user's own: the last step of a reduction applies to one element too, forward and backward."""
    mx.reduction(lambda x: x * x, name="_test_log_of_squares", replace=True, combine="add",
                 finish=lambda t, n: mx.lang.log(t + 1))
    folds = {"norm": (sym.norm, lambda v: np.sqrt((v * v).sum(axis))), "mean": (sym.mean, lambda v: v.mean(axis)),
             "own": (sym._test_log_of_squares, lambda v: np.log((v * v).sum(axis) + 1))}
    args = {"a": rng.normal(size=shape)}
    for fold, oracle in folds.values():
        y = fold(sym.Variable("a") * 3, axis=axis) * 1.0
        got = run(y, args, ctx)
        assert_close(got[0], np.reshape(oracle(args["a"] * 3), got[0].shape))
        for one, other in zip(got, run(y, args, ctx, fuse=False)):
            assert_close(one, other)


def test_a_value_per_row_behind_a_product_is_kept_as_it_is(rng):
    """The group becomes the epilogue of the product, and backward reads its value per row."""
    x = sym.tanh(sym.FullyConnected(sym.Variable("a"), num_hidden=2, name="fc"))
    y = sym.broadcast_add(sym.Variable("b"), sym.max(x, axis=-1, keepdims=True))
    args = {n: rng.normal(size=s).astype("float32") for n, s in
            {"a": (3, 2), "fc_weight": (2, 2), "fc_bias": (2,), "b": (3, 2)}.items()}
    for got, want in zip(run(y, args), run(y, args, fuse=False)):
        assert_close(got, want)


def test_an_epilogue_of_which_not_everything_is_wanted(rng):
    """LayerNorm's derivative follows the product's, and the derivative by beta is not wanted."""
    x = sym.LayerNorm(sym.Variable("a"), sym.Variable("gamma"), sym.Variable("beta"))
    y = sym.FullyConnected(x, num_hidden=3, no_bias=True, name="fc")
    shapes = {"a": (2, 4), "gamma": (4,), "beta": (4,), "fc_weight": (3, 4)}
    args = {n: mx.nd.array(rng.normal(size=s)) for n, s in shapes.items()}
    found = []
    for fused in (True, False):
        with options(fuse=fused):
            ex = y.bind(mx.cpu(), args, {"a": mx.nd.zeros((2, 4))})
        ex.forward(is_train=True)
        ex.backward(mx.nd.ones((2, 3)))
        found.append(ex.grad_dict["a"].asnumpy())
    assert_close(*found)


@pytest.mark.parametrize("name", ROWS)
def test_rows_in_half_precision(name, rng):
    y = ROWS[name](sym.Variable("a"), sym.Variable("b"))
    shapes = {n: s for n, s in {"a": (4, 6), "b": (4, 6), "gamma": (6,), "beta": (6,)}.items() if n in y.list_arguments()}
    args = {n: rng.normal(size=s).astype("float16") for n, s in shapes.items()}
    for got, want in zip(run(y, args), run(y, args, fuse=False)):
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)  # fused code rounds to float16 less often


def test_a_row_too_long_for_one_kernel_stays_apart():
    f = fuse(program(sym.softmax(sym.tanh(sym.Variable("a"))), {}, a=(1, LONGEST_ROW + 1)))
    assert names(f) == ["tanh", "softmax"]


def test_a_value_read_in_another_shape_is_not_read_inside():
    """(3,) per row is not (3,) per column."""
    a = sym.Variable("a")
    y = sym.broadcast_mul(a, sym.sum(a * a, axis=1))
    args = {"a": np.arange(9, dtype="float32").reshape(3, 3)}
    for got, want in zip(run(y, args), run(y, args, fuse=False)):
        np.testing.assert_allclose(got, want, rtol=1e-6)  # closer than the table


def test_equal_sizes_in_other_shapes_keep_their_shape():
    """(3,) and (3, 1) hold the same elements, and must not broadcast to (3, 3)."""
    a = sym.Variable("a")
    y = sym.sum(sym.tanh(a), axis=1)
    args = {"a": np.arange(3, dtype="float32").reshape(3, 1)}
    got = run(y, args)
    np.testing.assert_allclose(got[0], np.tanh(args["a"][:, 0]), rtol=1e-6)  # closer than the table
    np.testing.assert_allclose(got[1][:, 0], np.cos(np.arange(3)) * (1 - np.tanh(args["a"][:, 0]) ** 2), rtol=1e-5)


def test_batch_norm_is_split_only_where_another_step_joins_its_final_part():
    a = sym.Variable("a")
    y = sym.Activation(sym.BatchNorm(a, name="bn"), act_type="relu")
    f = fuse(program(y, {}, a=(3, 4, 2)))
    assert names(f) == ["BatchNorm", "fused(_normalise+Activation)"] and f.steps[0].reqs[0] == 0
    f = fuse(program(sym.dot(sym.BatchNorm(a, name="bn"), a), {}, a=(3, 3)))
    assert names(f) == ["BatchNorm", "dot"] and f.steps[0].reqs[0] == 1


@pytest.mark.parametrize("shape, axis", [((4, 3, 5, 2), 1), ((6, 5), -1), ((2, 3, 4), 0)])
@pytest.mark.parametrize("fix_gamma", [True, False])
def test_split_batch_norm_agrees_to_the_bit(shape, axis, fix_gamma, rng):
    y = sym.Activation(sym.BatchNorm(sym.Variable("a"), axis=axis, fix_gamma=fix_gamma, name="bn"), act_type="relu")
    args = {n: rng.normal(size=s).astype("float32") for n, s in zip(y.list_arguments(), y.infer_shape(a=shape)[0])}
    for got, want in zip(run(y, args), run(y, args, fuse=False)):
        assert (got == want).all()
