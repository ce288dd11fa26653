"""Batches of a loader with pin_memory arrive on a GPU while the step before computes there.

torch is a stand-in whose compute streams begin nothing before somebody waits for it. Oracle: the rows of the data set.
"""

import numpy as np
import pytest
import tritium as mx
from support.lagging_devices import busy, slow_kind
from support.lagging_devices import devices as devices
from tritium.context import GPU_MODE
from tritium.engine.gpu import cuda

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="replaces the interpreted GPU")
ROWS = np.random.default_rng(0).normal(size=(12, 5000)).astype("float32")


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2, "thread_pool": True}], ids=["here", "threads"])
def test_a_batch_arrives_while_the_step_before_computes(workers, devices):
    devices(slow_kind("compute"))
    batches = iter(mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(ROWS), 4, pin_memory=True, **workers))
    for i in range(3):
        computes = busy(mx.gpu(0))
        batch = next(batches)
        assert batch.context == mx.cpu_pinned(0)
        there = batch.as_in_context(mx.gpu(0))
        assert np.array_equal(there.asnumpy(), ROWS[4 * i:4 * i + 4])  # waits for the upload
        assert computes == []  # and for nothing else
        cuda.stream(0).record_event().synchronize()
        assert computes == [1]
