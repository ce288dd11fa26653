"""Fixtures of every test: `ctx` is the CPU and the (interpreted) GPU; `rng` is seeded by the test's name, and so is whatever
draws from a generator of the process."""

import gc
import os
import random
import signal
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("TRITIUM_GPU", "interpret")
# a shell starts its background jobs deaf to Ctrl-C, and Python keeps it so; tests send it, to themselves and to children
signal.signal(signal.SIGINT, signal.default_int_handler)

import tritium as mx
from support.plan_checker import check_plan
from tritium.engine.profiler import api as profiler
from tritium.graph import options
from tritium.kernels import op

#: How long an example takes, or its making, depends on what else the machine does. Examples are the same in every run, so that
#: what fails is what was changed; `make nightly` draws others each time (--hypothesis-profile=anew).
settings.register_profile("anew", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("anew"), derandomize=True)
settings.load_profile("same")


@pytest.fixture(scope="module", autouse=True)
def _garbage_collections_skip_what_earlier_modules_left():
    """Collected tests, and kernels that earlier modules compiled, are nothing that the collections of a test need look at."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["cpu", "gpu"])
def ctx(request):
    """cpu(0), and gpu(0) through Triton's interpreter (or a real one, with TRITIUM_GPU=cuda)."""
    if request.param == "gpu" and mx.context.GPU_MODE == "off":
        pytest.skip("TRITIUM_GPU=off")
    return mx.Context(request.param, 0)


@pytest.fixture
def rng(request):
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


@pytest.fixture
def cpu_code(monkeypatch):
    """A function that sets TRITIUM_CPU_CODE, and forgets the kernels that were made under another setting."""
    def use(mode):
        monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
        op._compiled.clear()

    yield use
    op._compiled.clear()


@pytest.fixture(autouse=True)
def _the_same_numbers_in_any_order(request):
    """Seed every generator by the test's name: random numbers do not depend on the tests that ran before in this process."""
    seed = zlib.crc32(request.node.name.encode())
    random.seed(seed)
    np.random.seed(seed)
    mx.random.seed(seed)


@pytest.fixture(autouse=True)
def _the_profiler_has_its_defaults():
    """Settings that a test before this one made are gone."""
    profiler.set_config(**profiler._DEFAULTS)


@pytest.fixture(autouse=True)
def _every_plan_is_checked():
    """The memory plan of every graph that any test binds goes through the independent checker."""
    with options(checks=(check_plan,)):
        yield
