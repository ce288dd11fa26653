"""Executors bound to sparse arrays. Oracle: MXNet 1.9.1, in tests/golden/sparse/graphs.json."""

import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.sparse import record_graphs
from support.helpers import assert_close

STORED = json.loads(Path(record_graphs.__file__).with_name("graphs.json").read_text())


@pytest.fixture(scope="module")
def found():
    return dict(record_graphs.results(mx))


@pytest.mark.parametrize("graph, wanted", STORED, ids=[g for g, _ in STORED])
def test_outputs_have_mxnets_storage_types_and_values(graph, wanted, found):
    assert [s for s, _ in found[graph]] == [s for s, _ in wanted]
    for (_, values), (_, those) in zip(found[graph], wanted):
        assert_close(np.array(values, "float32"), np.array(those, "float32"))


def bound(**more):
    arrays = record_graphs.arrays(mx)
    symbol = mx.sym.dot(mx.sym.var("c", stype="csr"), mx.sym.var("r", stype="row_sparse"))
    given = {n: arrays[n] for n in ("c", "r")}
    return given, symbol.bind(mx.cpu(), given, **more)


def test_each_forward_reads_the_sparse_arguments_anew():
    given, executor = bound()
    assert executor.arg_dict["c"] is given["c"] and executor.arg_arrays[0] is given["c"]
    given["c"][:] = mx.nd.array(np.eye(3)).tostype("csr")
    assert executor.forward()[0].asnumpy().tolist() == given["r"].asnumpy().tolist()
    other = mx.nd.array(2 * np.eye(3)).tostype("csr")
    assert executor.forward(c=other)[0].asnumpy().tolist() == (2 * given["r"].asnumpy()).tolist()
    assert given["c"].asnumpy().tolist() == other.asnumpy().tolist()


@pytest.mark.parametrize("req, times", [("write", 1), ("add", 2)])
def test_gradients_go_to_sparse_arrays(req, times):
    gradient = mx.nd.sparse.zeros("row_sparse", (3, 3))
    given, executor = bound(args_grad={"r": gradient}, grad_req={"c": "null", "r": req})
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward(mx.nd.ones((3, 3)))
    assert executor.grad_dict["r"] is gradient and gradient.stype == "row_sparse"
    assert gradient.asnumpy().tolist() == (times * given["c"].asnumpy().T @ np.ones((3, 3))).tolist()


def test_a_state_must_be_dense():
    net = mx.sym.BatchNorm(mx.sym.var("x"), name="n")
    arrays = {n: mx.nd.ones((2, 3) if n == "x" else (3,)) for n in net.list_arguments()}
    sparse = mx.nd.sparse.zeros("row_sparse", (3,))
    with pytest.raises(mx.MXNetError, match="n_moving_mean is RowSparseNDArray, not an NDArray"):
        net.bind(mx.cpu(), arrays, aux_states={"n_moving_mean": sparse, "n_moving_var": mx.nd.ones(3)})


def test_a_reshaped_executor_keeps_the_sparse_arguments_of_equal_shape():
    given, executor = bound()
    smaller = executor.reshape(c=(2, 3), r=(3, 3))
    assert smaller.arg_dict["r"] is given["r"] and smaller.arg_dict["c"].stype == "default"
    smaller.arg_dict["c"][:] = 1
    assert smaller.forward()[0].asnumpy().tolist() == (np.ones((2, 3)) @ given["r"].asnumpy()).tolist()
