"""A store of a user's own, with MXNet's interface KVStoreBase: broadcast and pushpull, and nothing else."""

import numpy as np
import pytest
import tritium as mx


@pytest.fixture
def store():
    class Summing(mx.kv.KVStoreBase):
        def __init__(self):
            self.calls = []

        @staticmethod
        def is_capable(capability):
            return False

        def broadcast(self, key, value, out, priority=0):
            self.calls.append(("broadcast", key, priority))
            for o in out:
                value.copyto(o)

        def pushpull(self, key, value, out=None, priority=0):
            self.calls.append(("pushpull", key, priority))
            total = sum(v.as_in_context(mx.cpu()) for v in value)
            for o in value if out is None else out:
                total.copyto(o)

    mx.kv.KVStoreBase.register(Summing)
    yield mx.kv.create("summing")
    del mx.kv.KVStoreBase.kv_registry["summing"]


def test_module_trains_with_it(store):
    net = mx.sym.LinearRegressionOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="fc"), name="softmax")
    batches = mx.io.NDArrayIter(np.ones((4, 2)), np.ones(4), 4)
    weights = []
    for kvstore in (store, "device"):
        module = mx.mod.Module(net, context=[mx.cpu(0), mx.cpu(1)])
        batches.reset()
        module.fit(batches, num_epoch=1, kvstore=kvstore, initializer=mx.init.One())
        weights.append(module.get_params()[0]["fc_weight"].asnumpy())
        if kvstore is store:
            assert module._kvstore is store and module._update_on_kvstore is False and module._updater is not None
    assert store.calls == [("broadcast", "fc_weight", 0), ("broadcast", "fc_bias", -1), ("pushpull", "fc_weight", 0),
                           ("pushpull", "fc_bias", -1)]
    assert (weights[0] == weights[1]).all()
