"""Sparse arrays as inputs of blocks: hybridized or not, also before the shapes of parameters are known."""

import numpy as np
import pytest
import tritium as mx
from tritium.gluon import HybridBlock, nn

DENSE = np.array([[0, 1, 0], [2, 0, 3]], "f")


class Product(HybridBlock):
    """x · weight, which needs no dense x."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(3, 2), init=mx.init.One())

    def hybrid_forward(self, F, x, y, weight):
        return F.sparse.dot(x, weight) + y


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_csr_batch_gives_the_outputs_of_the_dense_one(hybridize):
    for units in (None, 3):
        net = nn.Dense(4, **({"in_units": units} if units else {}))
        net.initialize(mx.init.One())
        if hybridize:
            net.hybridize()
        assert net(mx.nd.array(DENSE).tostype("csr")).asnumpy().tolist() == [[1] * 4, [5] * 4]


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_block_that_multiplies_by_a_sparse_input_learns(hybridize):
    net = Product()
    net.initialize()
    if hybridize:
        net.hybridize()
    with mx.autograd.record():
        y = net(mx.nd.array(DENSE).tostype("csr"), mx.nd.zeros((2, 2)))
    y.backward()
    assert y.asnumpy().tolist() == [[1, 1], [5, 5]] and net.weight.grad().asnumpy().tolist() == [[2, 2], [1, 1], [3, 3]]
