"""group2ctxs of modules: the placement does not change results. Oracle: the same module on one context."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import ContextError, ParameterError
from tritium.train.module.executor_group import placements

X = np.random.default_rng(0).normal(size=(24, 5)).astype("f4")
Y = X[:, :3].argmax(axis=1).astype("f4")
PLACES = {"first": mx.cpu(0), "second": mx.cpu(1)}
SGD = {"optimizer": "sgd", "optimizer_params": {"learning_rate": 0.3, "momentum": 0.9}}


def network():
    with mx.AttrScope(ctx_group="first"):
        x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
        x = mx.sym.Activation(mx.sym.BatchNorm(x, name="bn"), act_type="tanh", name="act")
    with mx.AttrScope(ctx_group="second"):
        return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc2"), name="softmax")


def ready(group2ctxs=None, context=None, bind=None, **fit):
    module = mx.mod.Module(network(), context=context, group2ctxs=group2ctxs)
    batches = mx.io.NDArrayIter(X, Y, 8)
    module.bind(batches.provide_data, batches.provide_label, **(bind or {}))
    mx.random.seed(0)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(**{**SGD, **fit})
    return module, batches


def train(module, batches, epochs=3):
    for _ in range(epochs):
        batches.reset()
        for batch in batches:
            module.forward_backward(batch)
            module.update()


def numbers(module):
    return {k: v.asnumpy() for part in module.get_params() for k, v in part.items()}


def same(a, b):
    assert set(a) == set(b)
    for name, value in a.items():
        np.testing.assert_allclose(b[name], value, atol=1e-5, err_msg=name)  # a name for each array


def test_two_groups_give_the_weights_of_one_context():
    one, two = ready(), ready(PLACES)
    before = numbers(one[0])
    for module, batches in (one, two):
        train(module, batches)
    same(numbers(one[0]), numbers(two[0]))
    assert np.abs(numbers(one[0])["fc2_weight"] - before["fc2_weight"]).max() > 0.01  # the weights did change
    placed = two[0]._exec_group.execs[0]
    assert placed.arg_dict["fc1_weight"].context == mx.cpu(0) and placed.aux_dict["bn_moving_mean"].context == mx.cpu(0)
    assert placed.arg_dict["fc2_weight"].context == placed.grad_dict["fc2_weight"].context == mx.cpu(1)


@pytest.mark.parametrize("given", [
    {"first": [mx.cpu(0), mx.cpu(1)], "second": [mx.cpu(2), mx.cpu(3)]},
    [{"first": mx.cpu(0), "second": mx.cpu(2)}, {"first": mx.cpu(1), "second": mx.cpu(3)}]], ids=["dict", "list"])
@pytest.mark.parametrize("kvstore", ["local", "device"])
def test_data_and_model_parallelism_together(given, kvstore):
    """Two contexts split the batch, and each has a second context for the upper layers."""
    contexts = [mx.cpu(0), mx.cpu(1)]
    plain, placed = ready(None, contexts, kvstore=kvstore), ready(given, contexts, kvstore=kvstore)
    for module, batches in (plain, placed):
        train(module, batches)
    same(numbers(plain[0]), numbers(placed[0]))
    assert [e.arg_dict["fc2_weight"].context.device_id for e in placed[0]._exec_group.execs] == [2, 3]
    assert [e.arg_dict["fc1_weight"].context.device_id for e in placed[0]._exec_group.execs] == [0, 1]


def test_input_gradients_and_another_batch_size():
    (one, batches), (two, _) = ready(bind={"inputs_need_grad": True}), ready(PLACES, bind={"inputs_need_grad": True})
    other = mx.io.DataBatch([mx.nd.array(X[:5])], [mx.nd.array(Y[:5])])
    for batch in (next(batches), other):
        for module in (one, two):
            module.forward_backward(batch)
        for got, want in zip([*two.get_outputs(), *two.get_input_grads()], [*one.get_outputs(), *one.get_input_grads()]):
            assert_close(got, want)
    assert two._exec_group.execs[0].arg_dict["fc2_weight"].context == mx.cpu(1)


def test_training_continues_from_a_checkpoint(tmp_path):
    """A checkpoint with groups, loaded with and without groups: the next steps are the same."""
    module, batches = ready(PLACES)
    train(module, batches, 1)
    module.save_checkpoint(str(tmp_path / "net"), 1, save_optimizer_states=True)
    train(module, batches, 1)
    for places in (PLACES, None):
        again = mx.mod.Module.load(str(tmp_path / "net"), 1, load_optimizer_states=True, group2ctxs=places)
        again.bind(batches.provide_data, batches.provide_label)
        again.init_optimizer(**SGD)
        train(again, batches, 1)
        same(numbers(module), numbers(again))


def buckets(length):
    with mx.AttrScope(ctx_group="first"):
        x = mx.sym.Reshape(mx.sym.Variable("data"), shape=(-1, 3))
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=5, name="fc"), act_type="tanh")
    with mx.AttrScope(ctx_group="second"):
        x = mx.sym.mean(mx.sym.Reshape(x, shape=(-1, length, 5)), axis=1)
        x = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=2, name="out"), name="softmax")
    return x, ("data",), ("softmax_label",)


def test_buckets_with_groups_share_arrays():
    def trained(places):
        rng = np.random.default_rng(1)
        module = mx.mod.BucketingModule(buckets, 6, group2ctxs=places)
        module.bind([("data", (4, 6, 3))], [("softmax_label", (4,))])
        mx.random.seed(0)
        module.init_params(mx.init.Xavier())
        module.init_optimizer(**SGD)
        for length in (2, 6, 3, 2):
            data, label = rng.normal(size=(4, length, 3)).astype("f4"), rng.integers(0, 2, 4).astype("f4")
            module.forward_backward(mx.io.DataBatch(
                [mx.nd.array(data)], [mx.nd.array(label)], bucket_key=length,
                provide_data=[mx.io.DataDesc("data", data.shape)], provide_label=[mx.io.DataDesc("softmax_label", (4,))]))
            module.update()
        return module

    one, two = trained(None), trained(PLACES)
    same(numbers(one), numbers(two))
    first, *others = (m._exec_group.execs[0] for m in two._buckets.values())
    assert len(others) == 2 and first.arg_dict["out_weight"].context == mx.cpu(1)
    assert all(e.arg_dict["out_weight"] is first.arg_dict["out_weight"] for e in others)


def test_an_unknown_group_is_refused_by_bind():
    module = mx.mod.Module(network(), group2ctxs={"first": mx.cpu(0), "sceond": mx.cpu(1)})
    with pytest.raises(ContextError, match=r"fc2.* is in ctx_group 'second', which group2ctx .*Known: first, sceond"):
        module.bind([("data", (4, 5))], [("softmax_label", (4,))])


@pytest.mark.parametrize("group2ctxs, text", [
    ({"first": [mx.cpu(0)] * 3}, r"group 'first' has \[cpu.*\]. Give one context, or a list of 2"),
    ({"first": "cpu"}, r"group 'first' has 'cpu', which is not a Context"),
    ([{"first": mx.cpu(0)}], r"or a list of 2 of them"),
    ([{"first": mx.cpu(0)}, {"first": 1}], r"group 'first' has 1, which is not a Context"),
])
def test_group2ctxs_of_another_form_are_refused(group2ctxs, text):
    with pytest.raises(ParameterError, match=text):
        mx.mod.Module(network(), context=[mx.cpu(0), mx.cpu(1)], group2ctxs=group2ctxs)


def test_one_context_is_used_for_all_contexts_of_the_module():
    want = [{"a": mx.cpu(3)}] * 2
    assert placements({"a": mx.cpu(3)}, 2) == placements({"a": [mx.cpu(3)]}, 2) == placements(want, 2) == want
    assert placements(None, 2) == [{}, {}]
