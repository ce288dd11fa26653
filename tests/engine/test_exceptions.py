"""Exceptions of any kind: frozen, mute, outside of Exception, raised again. The wait raises each, and the engine lives."""

import contextlib
import dataclasses
import re
import traceback

import pytest
from tritium.context import cpu, gpu
from tritium.errors import EngineError


def fail(run):
    raise ValueError("too hot")


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Its attributes cannot be set."""

    code: int


class Mute(Exception):
    """All its methods raise."""

    def __str__(self):
        raise ArithmeticError("no text")

    __repr__ = __str__

    def __setattr__(self, name, value):
        raise ArithmeticError("no attributes")

    @property
    def args(self):
        raise ArithmeticError("no arguments")

    def add_note(self, note):
        raise ArithmeticError("no notes")


class Shouts(str):
    def startswith(self, *args):
        raise ArithmeticError("no start")

    def __format__(self, spec):
        raise ArithmeticError("no format")


class Outside(BaseException):
    """No Exception."""


KINDS = [lambda: Frozen(7), Mute, lambda: ValueError(Shouts("x")), lambda: KeyError("k"), StopIteration, GeneratorExit, Outside,
         lambda: SystemExit(3), lambda: UnicodeDecodeError("ascii", b"x", 0, 1, "why"),
         lambda: ExceptionGroup("g", [ValueError()])]


@pytest.mark.parametrize("how", ["sync", "inline", "raises", "completes", "bulk", "gpu"])
@pytest.mark.parametrize("make", KINDS)
def test_any_exception_is_raised_by_the_wait_and_the_engine_goes_on(engine, make, how):
    error, v, w, ran = make(), engine.new_variable(), engine.new_variable(), []

    def fn(run, on_complete=None):
        if how == "completes":
            on_complete(error)
        else:
            raise error
    if how in ("raises", "completes"):
        engine.push_async(fn, cpu(), [], [v], name="oven")
    elif how == "bulk":
        with engine.bulk(3):
            engine.push_sync(fn, cpu(), [], [v], name="oven")
            engine.push_sync(lambda run: None, cpu(), [], [w])
    else:
        engine.push_sync(fn, gpu(0) if how == "gpu" else cpu(), [], [v], prop="inline" if how != "sync" else None, name="oven")
    engine.push_sync(lambda run: ran.append(0), cpu(), [v], [w])
    for var in (w, v):
        with pytest.raises(type(error)) as e:
            engine.wait_for_var(var)
        assert e.value is error
    engine.wait_for_all()
    engine.push_sync(lambda run: ran.append(1), cpu(), [], [v])
    engine.wait_for_var(v)
    assert ran == [1]


def test_an_error_that_cannot_be_changed_names_the_operator_in_a_note(engine):
    v = engine.new_variable()

    def fn(run):
        raise Frozen(7)
    engine.push_sync(fn, cpu(), [], [v], name="oven")
    with pytest.raises(Frozen) as e:
        engine.wait_for_var(v)
    assert e.value.code == 7 and re.match(r"in operator oven, pushed at .*test_exceptions\.py:\d+", e.value.__notes__[0])


def test_a_frozen_exception_leaves_a_bulk_unchanged(engine):
    error = Frozen(7)
    with pytest.raises(Frozen) as e:
        with engine.bulk(3):
            raise error
    assert e.value is error


def test_on_complete_accepts_any_object_as_error(engine):
    class Wordless:
        __str__ = Mute.__str__
    v = engine.new_variable()
    engine.push_async(lambda run, on_complete: on_complete(Wordless()), cpu(), [], [v], name="load")
    with pytest.raises(EngineError, match=r"load: failed: Wordless \(its text cannot be formed\)"):
        engine.wait_for_var(v)


def frames(error):
    tb, n = error.__traceback__, 0
    while tb is not None:
        tb, n = tb.tb_next, n + 1
    return n


@pytest.mark.parametrize("make", [lambda: ValueError("too hot"), lambda: OSError(2, "No such file"), lambda: Frozen(7)])
@pytest.mark.parametrize("how", ["sync", "inline", "completes", "bulk", "in a generator"])
def test_an_exception_object_raised_many_times_does_not_grow(engine, make, how):
    error, v, sizes = make(), engine.new_variable(), []

    def fn(run, on_complete=None):
        if on_complete is not None:
            on_complete(error)
        else:
            raise error

    def wait():
        yield engine.wait_for_var(v)
    for i in range(30):
        if how == "completes":
            engine.push_async(fn, cpu(), [], [v], name=f"op{i % 10}")
        else:
            with engine.bulk(3) if how == "bulk" else contextlib.nullcontext():
                engine.push_sync(fn, cpu(), [], [v], prop="inline" if how == "inline" else None, name=f"op{i % 10}")
        with pytest.raises(type(error)) as e:
            next(wait()) if how == "in a generator" else engine.wait_for_var(v)
        assert f"op{i % 10}" in "".join([str(e.value.args), *getattr(e.value, "__notes__", [])])
        sizes.append((frames(error), len(str(error)), len(getattr(error, "__notes__", ()))))
    assert max(sizes[10:]) == max(sizes[20:]) and sizes[-1][0] < 60 and sizes[-1][2] <= 1
    assert how == "completes" or (sizes[-1][1] == sizes[0][1] and "op8" not in str(error))
    assert make().args == (error.args if not isinstance(error, ValueError) else ("too hot",))


def test_an_error_that_poisons_many_variables_does_not_grow(engine):
    vs, sizes = [engine.new_variable() for _ in range(20)], []
    engine.push_sync(fail, cpu(), [], vs, name="oven")
    for v in vs:
        with pytest.raises(ValueError, match=r"^oven: too hot \(pushed at [^()]*\)$") as e:
            engine.wait_for_var(v)
        sizes.append(frames(e.value))
    assert len(set(sizes)) == 1


def test_an_error_of_a_wait_inside_a_function_names_both_operators(engine):
    inner, outer = engine.new_variable(), engine.new_variable()

    def waits(run):
        engine.wait_for_var(inner)
    engine.push_sync(fail, cpu(), [], [inner], name="oven")
    engine.push_sync(waits, cpu(), [], [outer], name="bread")
    with pytest.raises(ValueError, match=r"^bread: oven: too hot \(pushed at .*\) \(pushed at .*\)$") as e:
        engine.wait_for_var(outer)
    assert "fail" in [f.name for f in traceback.extract_tb(e.value.__traceback__)]
