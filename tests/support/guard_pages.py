"""Arrays that end at an unreadable page, and children that touch them: an access beyond an array is a crash."""

import ctypes
import faulthandler
import mmap
import os
import warnings

import numpy as np

_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(a):
    """A copy of a whose last byte is the last before an unreadable page."""
    page = mmap.PAGESIZE
    size = -(-max(a.nbytes, 1) // page) * page
    start = _libc.mmap(None, size + page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert _libc.mprotect(start + size, page, 0) == 0
    memory = (ctypes.c_byte * a.nbytes).from_address(start + size - a.nbytes)
    copy = np.frombuffer(memory, a.dtype).reshape(a.shape)
    copy[...] = a
    return copy


def dies_of(function):
    """The signal that function dies of in a child process; 0 if it returns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads; the child computes and exits
        child = os.fork()
    if child == 0:
        faulthandler.disable()
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)
