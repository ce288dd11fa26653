"""Typed parameters with ranges and descriptions: what is accepted, what is refused with which words, and what the docs say."""

from typing import Annotated

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import MXNetError, OperatorError, ParameterError


@mx.simple_op(name="_test_ranged", replace=True)
def ranged(x, *, k: Annotated[int, mx.Range(1, 100), "number of neighbours"], p: mx.Range(0, 1) = 0.5, n: mx.Range(1) = 3,
           weight: Annotated[mx.Scalar, mx.Range(high=2.5), "of all"] = 1.0,
           limits: Annotated[tuple[float, ...], mx.Range(-1, 1)] = (0.0,), other: Annotated[float | None, "in radians"] = None):
    """A formula with parameters of every sort."""
    return x * k * p * n * weight + sum(limits)


def test_values_inside_their_ranges_ends_included(ctx):
    x = mx.nd.ones((2,), ctx)
    assert_close(ranged(x, k=100, p=1, n=1, weight=-3.0, limits=(-1, 1)), [-300, -300])
    assert_close(getattr(mx.nd, "_test_ranged")(x, k="1", p="0.5"), [1.5, 1.5])  # noqa: B009


@pytest.mark.parametrize("given, text", [
    ({"k": 0}, r"_test_ranged: k=0 is out of its range: from 1 to 100\."),
    ({"k": 101}, r"_test_ranged: k=101 is out of its range: from 1 to 100\."),
    ({"k": "101"}, r"_test_ranged: k=101 is out of its range: from 1 to 100\."),
    ({"k": 1, "p": 1.5}, r"_test_ranged: p=1\.5 is out of its range: from 0 to 1\."),
    ({"k": 1, "p": float("nan")}, r"_test_ranged: p=nan is out of its range: from 0 to 1\."),
    ({"k": 1, "n": 0}, r"_test_ranged: n=0 is out of its range: at least 1\."),
    ({"k": 1, "weight": 3}, r"_test_ranged: weight=3\.0 is out of its range: at most 2\.5\."),
    ({"k": 1, "limits": (0, 2)}, r"_test_ranged: limits=\(0\.0, 2\.0\) is out of its range: from -1 to 1\."),
    ({"k": "many"}, r"_test_ranged: k='many' is not an integer\."),
])
def test_values_outside_are_refused_with_their_range(given, text):
    with pytest.raises(ParameterError, match=text):
        ranged(mx.nd.ones((2,)), **given)
    with pytest.raises(ParameterError, match=text):
        getattr(mx.sym, "_test_ranged")(mx.sym.Variable("x"), **given)  # noqa: B009


def test_a_value_in_a_file_of_a_graph_is_checked_too(ctx):
    made = getattr(mx.sym, "_test_ranged")(mx.sym.Variable("x"), k=7)  # noqa: B009
    assert '"k": "7"' in made.tojson()
    with pytest.raises(MXNetError, match=r"k=700 is out of its range: from 1 to 100"):
        mx.sym.load_json(made.tojson().replace('"k": "7"', '"k": "700"')).infer_shape(x=(2,))


def test_descriptions_reach_every_docs_page():
    texts = [ranged.__doc__, getattr(mx.nd, "_test_ranged").__doc__, getattr(mx.sym, "_test_ranged").__doc__]  # noqa: B009
    for text in texts:
        assert text.startswith("A formula with parameters of every sort.")
        for line in ("k: int from 1 to 100, required. number of neighbours", "p: float from 0 to 1, default 0.5.",
                     "n: int at least 1, default 3.", "weight: float at most 2.5, default 1.0. of all",
                     "other: float, default None. in radians"):
            assert line in text.splitlines()
    assert "k, p=0.5" in str(mx.nd.__getattr__("_test_ranged").__signature__).replace("*, ", "")


def test_declarations_that_make_no_sense():
    with pytest.raises(ParameterError, match=r"Range: 2, 1 are not the ends of a range\. Give the smallest number"):
        mx.Range(2, 1)
    with pytest.raises(ParameterError, match=r"Range: None, None are not"):
        mx.Range()
    with pytest.raises(ParameterError, match=r"_test_bad: p=2 is out of its range: from 0 to 1\."):
        @mx.simple_op(name="_test_bad")
        def bad(x, *, p: mx.Range(0, 1) = 2):
            return x * p
    with pytest.raises(OperatorError, match=r"_test_bad: parameter 'p' is no number, and has the range from 0 to 1"):
        @mx.simple_op(name="_test_bad")
        def worse(x, *, p: Annotated[bool, mx.Range(0, 1)] = True):
            return x * p
    with pytest.raises(OperatorError, match=r"_test_bad: parameter 'p' is annotated with 3\. Annotate it with one Range"):
        @mx.simple_op(name="_test_bad")
        def worst(x, *, p: Annotated[float, 3] = 1.0):
            return x * p


def test_a_range_compares_and_prints():
    assert mx.Range(0, 1) == mx.Range(0, 1) != mx.Range(0, 2) and len({mx.Range(0, 1), mx.Range(0, 1)}) == 1
    assert np.float64(0.5) in mx.Range(0, 1) and "a" not in mx.Range(0, 1) and repr(mx.Range(0)) == "Range(0, None)"
