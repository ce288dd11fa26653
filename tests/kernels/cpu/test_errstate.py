"""no_fp_warnings: no warnings inside, the caller's settings outside, nested calls, every thread."""

import threading
import warnings

import numpy as np
import pytest
from tritium.kernels.cpu.errstate import no_fp_warnings


def overflow():
    return np.float32(3e38) * np.ones(2, "float32") * 10


def test_no_warning_inside_and_the_users_settings_outside():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(no_fp_warnings(overflow)).all()
        with pytest.raises(RuntimeWarning, match="overflow"):
            overflow()


def test_a_call_inside_a_call_and_an_error_leave_it_usable():
    assert np.isinf(no_fp_warnings(lambda: no_fp_warnings(overflow))).all()
    with pytest.raises(ZeroDivisionError):
        no_fp_warnings(lambda: 1 / 0)
    assert np.isinf(no_fp_warnings(overflow)).all()


def test_every_thread_has_its_own():
    found = []
    inside, leave = threading.Event(), threading.Event()

    def hold():
        inside.set()
        leave.wait(10)
        found.append(overflow())

    other = threading.Thread(target=lambda: no_fp_warnings(hold))
    other.start()
    inside.wait(10)
    found.append(no_fp_warnings(overflow))  # while the other thread is in its context
    leave.set()
    other.join()
    assert len(found) == 2 and np.isinf(found).all()
