"""mx.base: helpers that scripts import; model and executor_manager: functions of older training loops."""

import array

import numpy as np
import tritium as mx


def test_null_stands_for_a_parameter_that_is_not_given():
    null = mx.base._Null
    x = mx.nd.ones((2, 3))
    assert repr(null) == "_Null" and not null
    assert mx.nd.sum(x, axis=null).shape == (1,) and mx.nd.sum(x, axis=0, keepdims=null).shape == (3,)
    assert mx.sym.sum(mx.sym.var("x"), axis=null, keepdims=True).list_attr() == {"keepdims": "True"}


def test_c_arrays_share_or_hold_values():
    values = array.array("i", [1, 2, 3])
    shared = mx.base.c_array_buf(mx.base.mx_int, values)
    shared[0] = 7
    assert values[0] == 7 and list(mx.base.c_array(mx.base.mx_uint, [4, 5])) == [4, 5]
    x = mx.nd.ones(2)
    assert mx.base.c_handle_array([x])[0] == x.handle.value


def test_build_param_doc():
    text = mx.base.build_param_doc(["a", "b", "a"], ["int", "float", "int"], ["number", "", "again"])
    assert text == "Parameters\n----------\na : int\n    number\nb : float\n"


def test_outputs_of_several_contexts_are_merged():
    parts = [[mx.nd.ones((1, 2)), mx.nd.zeros((1, 2), mx.cpu(1))], [mx.nd.ones((2, 1)), mx.nd.zeros((2, 2), mx.cpu(1))]]
    first, second = mx.executor_manager._merge_multi_context(parts, [0, 1])
    assert first.asnumpy().tolist() == [[1, 1], [0, 0]] and second.shape == (2, 3)
    store, on_store = mx.model._create_sparse_kvstore("local")
    assert on_store and store.type == "local" and mx.model._create_sparse_kvstore(store)[0] is store


def test_the_table_of_dtypes_has_mxnets_numbers():
    from tritium.ndarray import ndarray as names

    assert names._DTYPE_NP_TO_MX[np.float32] == 0 and names._DTYPE_MX_TO_NP[6] is np.int64 and names.array is mx.nd.array
