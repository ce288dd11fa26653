"""Names and attributes of scopes, equal to those of MXNet 1.9.1."""

import threading

import pytest
from tritium.errors import GraphError
from tritium.graph import AttrScope, NameManager, Prefix
from tritium.graph.symbol import namespace as sym


def test_names_are_operator_and_number():
    a = sym.Variable("a")
    names = [sym.FullyConnected(a, num_hidden=1).name, sym.FullyConnected(a, num_hidden=1).name, (a + a).name, (a + 1).name,
             (1 - a).name, (a * a).name, (-a).name, (2 / a).name, (a**2).name, (2**a).name, (a > 1).name,
             (a == sym.Variable("b")).name, abs(a).name]
    assert names == ["fullyconnected0", "fullyconnected1", "_plus0", "_plusscalar0", "_rminusscalar0", "_mul0", "_mulscalar0",
                     "_rdivscalar0", "_powerscalar0", "_rpower_scalar0", "_greater_scalar0", "_equal0", "abs0"]


def test_a_prefix_applies_to_nodes_but_not_to_variables():
    with Prefix("net_"):
        y = sym.FullyConnected(sym.Variable("k"), num_hidden=1)
    assert y.list_arguments() == ["k", "net_fullyconnected0_weight", "net_fullyconnected0_bias"]


def test_a_manager_counts_afresh_and_the_outer_one_goes_on():
    a = sym.Variable("a")
    assert (a + a).name == "_plus0"
    with NameManager():
        assert (a + a).name == "_plus0"
    assert (a + a).name == "_plus1"


def test_threads_have_their_own_stack():
    found = []
    with Prefix("outer_"):
        t = threading.Thread(target=lambda: found.append(sym.relu(sym.Variable("a")).name))
        t.start()
        t.join()
    assert found == ["relu0"]


def test_attributes_of_a_scope():
    with AttrScope(ctx_group="dev1"), AttrScope(__lr_mult__="3"):
        z = sym.Variable("z")
        y = sym.relu(z)
    assert z.attr("ctx_group") == "dev1" and y.attr("__lr_mult__") == "3" and y.attr("lr_mult") == "3"
    assert sym.Variable("w").list_attr() == {}


def test_scope_values_are_strings():
    with pytest.raises(GraphError, match=r"AttrScope: lr_mult=2 is not a string. Write lr_mult='2'."):
        AttrScope(lr_mult=2)


def test_names_of_random_operators_leave_out_their_prefix_where_it_is_a_word():
    """As MXNet 1.9.1 names them."""
    a = sym.Variable("a")
    made = [sym.random.uniform_like(a), sym.random.gamma_like(a), sym.random.shuffle(a), sym.random.normal()]
    assert [s.name for s in made] == ["uniform_like0", "gamma_like0", "_shuffle0", "_random_normal0"]
