"""Prepared operators of a synchronous function: the order, the errors and the cost of push_sync."""

import pytest
from tritium.context import cpu


def test_a_prepared_synchronous_function_runs_at_every_push_in_order(engine):
    v, w, log = engine.new_variable(), engine.new_variable(), []
    opr = engine.new_operator(lambda run: log.append(("prepared", run.ctx)), [w], [v], synchronous=True)
    for i in range(50):
        engine.push(opr, cpu(i % 2))
        engine.push_sync(lambda run, i=i: log.append(("pushed", i)), cpu(), [v], [w])
    engine.wait_for_var(w)
    assert log == [entry for i in range(50) for entry in (("prepared", cpu(i % 2)), ("pushed", i))]


def test_the_error_of_a_prepared_synchronous_function_names_it_and_the_line_that_pushed_it(engine):
    v, ran = engine.new_variable(), []
    opr = engine.new_operator(lambda run: [][1], [], [v], name="broken", synchronous=True)
    engine.push(opr, cpu())  # the line
    engine.push_sync(lambda run: ran.append(1), cpu(), [v], [])
    with pytest.raises(IndexError, match=r"^broken: list index out of range \(pushed at .*test_prepared.py:20\)"):
        engine.wait_for_var(v)
    assert not ran


def test_a_prepared_synchronous_function_is_merged_by_a_bulk(engine):
    v, names = engine.new_variable(), []
    opr = engine.new_operator(lambda run: names.append(1), [], [v], synchronous=True)
    asynchronous = engine.new_operator(lambda run, on_complete: (names.append(2), on_complete()), [], [v])
    with engine.bulk(4):
        engine.push(opr, cpu())
        engine.push(opr, cpu())
        assert not names  # both are kept: neither ran, not even on the serial engine
        engine.push(asynchronous, cpu())
    engine.wait_for_var(v)
    assert names == [1, 1, 2]
