"""Parameter: one weight on several contexts, initialized at once or when its shape is known."""

import copy
import pickle

import numpy as np
import pytest
import tritium as mx
from tritium.errors import BlockError
from tritium.gluon import Constant, DeferredInitializationError, Parameter


def made(**given):
    p = Parameter("fc_weight", shape=(2, 3), **given)
    p.initialize(mx.init.One())
    return p


def test_a_parameter_has_an_array_and_a_gradient_on_each_context():
    p = Parameter("fc_weight", shape=(2, 3), init="ones")
    p.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    assert p.list_ctx() == [mx.cpu(0), mx.cpu(1)] and p.data(mx.cpu(1)).context == mx.cpu(1)
    assert [a.shape for a in p.list_data()] == [(2, 3)] * 2 == [g.shape for g in p.list_grad()]
    assert p.data().context == mx.cpu(0)  # that of the current context
    assert p.data(mx.cpu_pinned(1)).context == mx.cpu(1)  # pinned memory is the host's, as in MXNet
    with pytest.raises(mx.MXNetError, match=r"was not initialized on context cpu\(2\). It was only initialized on"):
        p.data(mx.cpu(2))


def test_the_shape_is_completed_once():
    p = Parameter("fc_weight", shape=(2, 0), allow_deferred_init=True)
    p.initialize(mx.init.Constant(3))
    with pytest.raises(DeferredInitializationError, match="initialization was deferred"):
        p.data()
    assert p.list_ctx() == [mx.cpu(0)]
    p.shape = (2, 4)
    p._finish_deferred_init()
    assert p.data().asnumpy().tolist() == [[3] * 4] * 2
    with pytest.raises(BlockError, match=r"expected shape \(2, 5\) is incompatible with given shape \(2, 4\)"):
        p.shape = (2, 5)


def test_what_cannot_be_initialized_says_so():
    with pytest.raises(mx.MXNetError, match="Parameter 'q' has not been initialized"):
        Parameter("q").data()
    with pytest.raises(ValueError, match=r"Cannot initialize Parameter 'q' because it has invalid shape: \(0,\)"):
        Parameter("q", shape=(0,)).initialize()
    with pytest.raises(AssertionError, match="Parameter 'q' has not been initialized"):
        Parameter("q").set_data(mx.nd.ones((2,)))
    with pytest.raises(AssertionError, match="grad_req must be one of"):
        Parameter("q", grad_req="foo")
    with pytest.raises(ValueError, match="stype='foo' is not one of"):
        Parameter("q", stype="foo")
    with pytest.warns(UserWarning, match="Parameter 'fc_weight' is already initialized, ignoring"):
        made().initialize()


def test_set_data_before_the_shape_is_known_is_kept():
    p = Parameter("fc_weight", shape=(0, 0), allow_deferred_init=True)
    p.initialize()
    p.set_data(mx.nd.ones((2, 2)) * 7)
    p._finish_deferred_init()
    assert p.data().asnumpy().tolist() == [[7, 7], [7, 7]]


@pytest.mark.parametrize(("req", "want"), [("write", 2), ("add", 4)])
def test_grad_req(req, want):
    p = made(grad_req=req)
    for _ in range(2):
        with mx.autograd.record():
            y = (p.data() * 2).sum()
        y.backward()
    assert (p.grad().asnumpy() == want).all()
    p.zero_grad()
    assert not p.grad().asnumpy().any()
    p.grad_req = "null"
    assert p._grad is None
    with pytest.raises(mx.MXNetError, match="Cannot get gradient array for Parameter 'fc_weight' because grad_req='null'"):
        p.grad()
    assert Parameter("mean", differentiable=False).grad_req == "null"


def test_cast_and_reset_ctx_keep_values_and_gradients():
    p = made()
    p.cast("float64")
    assert p.data().dtype == np.float64 == p.grad().dtype and p.dtype == "float64"
    p.reset_ctx([mx.cpu(1), mx.cpu(2)])
    assert p.list_ctx() == [mx.cpu(1), mx.cpu(2)]
    with mx.autograd.record():
        y = p.data(mx.cpu(2)).sum()
    y.backward()
    assert p.grad(mx.cpu(2)).asnumpy().tolist() == [[1] * 3] * 2
    with pytest.raises(BlockError, match="Cannot reset context for Parameter 'q'"):
        Parameter("q").reset_ctx(mx.cpu())


def test_reduce_is_the_mean_over_contexts():
    p = Parameter("w", shape=(2,))
    p.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    p.list_data()[0][:], p.list_data()[1][:] = 1, 3
    assert p._reduce().asnumpy().tolist() == [2, 2]


def test_the_variable_has_what_a_symbol_file_says_of_it():
    p = Parameter("w", shape=(2, 0), lr_mult=2, wd_mult=0.5, init="zeros", allow_deferred_init=True)
    assert p.var() is p.var()
    assert p.var().attr_dict()["w"] == {
        "__dtype__": "0", "__init__": "zeros", "__lr_mult__": "2", "__shape__": "(2, 0)", "__storage_type__": "0",
        "__wd_mult__": "0.5", "lr_mult": "2", "wd_mult": "0.5"}


def test_a_constant_is_not_learned():
    c = Constant("k", [[1, 2], [3, 4]])
    c.initialize()
    assert repr(c).startswith("Constant k (shape=(2, 2)") and c.data().asnumpy().tolist() == [[1, 2], [3, 4]]
    with pytest.warns(UserWarning, match="does not support grad_req other than 'null'"):
        c.grad_req = "write"
    assert c.grad_req == "null"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_a_copy_is_trained_by_itself(copied):
    p = made()
    q = copied(p)
    q.set_data(p.data() * 5)
    with mx.autograd.record():
        y = (q.data() * q.data()).sum()
    y.backward()
    assert (q.grad().asnumpy() == 10).all() and not p.grad().asnumpy().any() and (p.data().asnumpy() == 1).all()


def test_loading_checks_shape_and_dtype():
    p = made()
    with pytest.raises(AssertionError, match=r"Failed loading Parameter 'fc_weight' from saved params: shape "
                                             r"incompatible expected \(2, 3\) vs saved \(3, 2\)"):
        p._load_init(mx.nd.ones((3, 2)), None)
    half = mx.nd.ones((2, 3), dtype="float16") * 2
    with pytest.raises(AssertionError, match=r"dtype incompatible expected float32 vs saved float16. Set cast_dtype=True"):
        p._load_init(half, None)
    p._load_init(half, None, cast_dtype=True)
    assert p.data().dtype == np.float32 and (p.data().asnumpy() == 2).all()
    p._load_init(half, None, cast_dtype=True, dtype_source="saved")
    assert p.data().dtype == np.float16
    with pytest.raises(AssertionError, match=r"on \[cpu\(1\)\] because it was previously initialized on \[cpu\(0\)\]"):
        p._load_init(half, mx.cpu(1))


def test_row_sparse_data_needs_a_trainer():
    p = made(stype="row_sparse", grad_stype="row_sparse")
    with pytest.raises(mx.MXNetError, match=r"via data\(\) because its storage type is row_sparse"):
        p.data()
    with pytest.raises(mx.MXNetError, match="when no Trainer is created with it"):
        p.row_sparse_data(mx.nd.array([0]))
    with pytest.raises(mx.MXNetError, match=r"Use data\(\)"):
        made().row_sparse_data(mx.nd.array([0]))


def test_a_state_that_changes_between_recorded_operators():
    p = Parameter("u", shape=(1,), init="ones")
    p.initialize()
    x = mx.nd.array([2.0])
    x.attach_grad()
    for k in (1, 3, 9):  # as in a power iteration
        with mx.autograd.record():
            y = x * p.data()
            with mx.autograd.pause():
                p.set_data(p.data() * 3)
            z = (y * p.data()).sum()
        z.backward()
        assert x.grad.asscalar() == 3 * k * k and p.grad().asscalar() == 2 * 3 * k + 2 * k
    assert p.data().asscalar() == 27


def test_unknown_sizes_read_as_minus_one_under_np_shape():
    p = Parameter("p", shape=(2, 0), allow_deferred_init=True)
    assert p.shape == (2, 0)
    with mx.util.np_shape(True):
        assert p.shape == (2, -1)


def test_the_table_of_contexts():
    p = Parameter("p", shape=(1,))
    p.initialize(ctx=[mx.cpu(2), mx.cpu(0)])
    assert p._ctx_map == [[], [1, None, 0]]  # MXNet's cpu has the odd device type 1
