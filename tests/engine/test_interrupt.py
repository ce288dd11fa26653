"""interrupt: Ctrl-C inside a shielded function comes when it has ended; below one that opens, at once."""

import signal

import pytest
from tritium.engine import interrupt


@pytest.fixture(autouse=True)
def handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt.install()
    yield
    signal.signal(signal.SIGINT, before)


@interrupt.shielded
def book(steps, between):
    steps.append("begun")
    between()
    steps.append("ended")


@interrupt.opens
def user(fn):
    fn()


def knock():
    signal.raise_signal(signal.SIGINT)


def outlast():
    while True:  # until the interrupt comes
        pass


def test_a_shielded_function_ends_first():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        book(steps, knock)
        outlast()
    assert steps == ["begun", "ended"]


def test_what_a_shielded_function_opens_to_is_interrupted_at_once():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        book(steps, lambda: user(knock))
    assert steps == ["begun"]


def test_another_handler_is_left_alone():
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    interrupt.install()
    book([], knock)
    assert seen == [signal.SIGINT]
