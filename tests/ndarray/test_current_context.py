"""`with ctx:` in threads: one Context object may be entered by several at once."""

import threading

import pytest
import tritium as mx


def test_threads_enter_and_leave_one_context_in_any_order():
    ctx, entered, failed = mx.cpu(1), threading.Barrier(2), []

    def use(other):
        try:
            with ctx:
                entered.wait()
                with other:
                    entered.wait()
                    assert mx.current_context() == other
                assert mx.current_context() == ctx
            assert mx.current_context() == mx.cpu(0)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=use, args=(mx.cpu(i),)) for i in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_an_error_leaves_the_context():
    with pytest.raises(KeyError), mx.cpu(1):
        with mx.cpu(2):
            raise KeyError
    assert mx.current_context() == mx.cpu(0)


def test_programs_may_set_attributes():
    ctx = mx.cpu(0)
    ctx.note = "mine"
    assert ctx.note == "mine" and ctx == mx.cpu(0)
