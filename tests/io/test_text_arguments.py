"""accepts_text: text becomes a value of the default's type; other arguments are unchanged."""

import inspect
from typing import Any

import pytest
from tritium.errors import ParameterError
from tritium.io.text_arguments import accepts_text


class Taker:
    @accepts_text
    def __init__(self, path, data_shape, batch_size=1, shuffle=False, scale=1.0, name="data", **more):
        self.got = {**locals(), **more}


make: Any = Taker  # Any, because the parameters are not declared as text


@pytest.mark.parametrize("given, want", [
    ({"data_shape": "(3, 8, 9)"}, (3, 8, 9)), ({"data_shape": "3,8,9"}, (3, 8, 9)), ({"data_shape": [3, 8, 9]}, [3, 8, 9]),
    ({"batch_size": "4"}, 4), ({"shuffle": "True"}, True), ({"shuffle": "0"}, False), ({"shuffle": 1}, 1),
    ({"scale": "0.5"}, 0.5), ({"name": "4"}, "4"), ({"resize": "40"}, 40), ({"rand_crop": "false"}, False),
    ({"mode": "center"}, "center"),
    ({"scales": "(0.1, 1)"}, (0.1, 1)),
])
def test_text_becomes_the_value_that_it_spells(given, want):
    got = make("1", **{"data_shape": (1,), **given}).got
    assert got[next(iter(given))] == want and type(got[next(iter(given))]) is type(want)
    assert got["path"] == "1", "a parameter without a default stays text"


def test_by_position_too():
    got = make("p", "(1, 2)", "3", "true").got
    assert (got["data_shape"], got["batch_size"], got["shuffle"]) == ((1, 2), 3, True)


def test_text_that_does_not_parse_is_refused():
    with pytest.raises(ParameterError, match="Taker: shuffle='perhaps' is not a bool"):
        make("p", (1,), shuffle="perhaps")
    with pytest.raises(TypeError, match="takes from 3 to 7 positional arguments but 8 were given"):
        make(*range(7))


def test_the_signature_stays():
    assert list(inspect.signature(Taker).parameters)[:3] == ["path", "data_shape", "batch_size"]
