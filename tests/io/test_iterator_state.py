"""Invalid iterator states: each check refuses them with a readable error."""

import pytest
from tritium.errors import ParameterError
from tritium.io.iterator_state import check_keys, integer_pairs, integers, state_of


@pytest.mark.parametrize("state", [None, 3, [], "epoch", {}, {"epoch": 1}, {"epoch": 1, "batch": 2, "more": 3}])
def test_states_with_other_keys_are_refused(state):
    with pytest.raises(ParameterError, match=r"^It\.load_state_dict: this is not a state of It: it must hold epoch, batch\.$"):
        check_keys("It", state, ("epoch", "batch"))


@pytest.mark.parametrize("value", [None, "3", 1.0, float("nan"), True, [1]])
def test_values_that_are_not_integers_are_refused(value):
    with pytest.raises(ParameterError, match=r"It\.load_state_dict: batch .* is not an integer"):
        integers("It", {"epoch": 1, "batch": value}, "epoch", "batch")
    assert integers("It", {"epoch": 1, "batch": -2}, "epoch", "batch") == [1, -2]


@pytest.mark.parametrize("value", [None, 3, {}, [1], [[1]], [[1, 2, 3]], [[1, "2"]], [[[1], 2]], [[None, 2]], [[1, True]]])
def test_values_that_are_not_pairs_are_refused(value):
    with pytest.raises(ParameterError, match=r"It\.load_state_dict: rest .* is not a list of pairs"):
        integer_pairs("It", {"rest": value}, "rest")
    assert integer_pairs("It", {"rest": [["a", 1], (2, 3)]}, "rest") == [("a", 1), (2, 3)]


def test_an_iterator_without_a_state_is_named():
    with pytest.raises(ParameterError, match=r"Outer\.state_dict: the inner iterator, a list, has no state_dict"):
        state_of([], "Outer")
