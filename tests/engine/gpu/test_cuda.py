"""cuda: the interpreted GPU. What needs a real one is measured by perf/gpu_suite."""

import subprocess
import sys

import numpy as np
import pytest
from tritium.context import GPU_MODE, gpu
from tritium.dtype import bfloat16
from tritium.engine import ThreadedEngine, num_gpus
from tritium.engine.gpu import cuda, transfer
from tritium.engine.memory import storage
from tritium.errors import ContextError, EngineError

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="the interpreted GPU only")


def test_the_host_sees_the_interpreted_memory_itself():
    t = storage.array((2, 3), bfloat16, gpu())
    transfer.from_host(t, np.full((2, 3), 1.5, bfloat16))
    host = transfer.to_host(t)
    host[1, 2] = -2
    assert t.tolist() == [[1.5, 1.5, 1.5], [1.5, 1.5, -2]]


def test_from_host_checks_shape_and_dtype():
    t = storage.array((2,), "float32", gpu())
    with pytest.raises(EngineError, match=r"cuda\.from_host: shapes differ: tensor \(2,\), values \(3,\)"):
        transfer.from_host(t, np.zeros(3, "float32"))
    with pytest.raises(TypeError):
        transfer.from_host(t, np.zeros(2, "float64"))
    with pytest.raises(EngineError, match="offset 2 is not a multiple of float32's 4 bytes"):
        cuda.view(cuda.alloc(64, 0), 2, (1,), np.dtype("float32"))


def test_functions_get_a_stream_that_records():
    engine, streams = ThreadedEngine(4), []
    for i in range(3):
        engine.push_sync(lambda run, i=i: (run.stream.record(f"k{i}"), streams.append(run.stream)), gpu(), [], [])
    engine.wait_for_all()
    assert len(set(map(id, streams))) == 1 and list(streams[0].calls)[-3:] == ["k0", "k1", "k2"]  # one worker: in order
    with cuda.run_on(streams[0]), cuda.run_on(None):
        streams[0].synchronize()
    engine.stop()


def test_without_torch_the_engine_works_and_a_gpu_says_how_to_get_one():
    code = ("import sys\nsys.modules['torch'] = None\n"
            "import importlib.util as u\nfind = u.find_spec\n"
            "u.find_spec = lambda name, *a: None if name in ('torch', 'triton') else find(name, *a)\n"
            "from tritium.context import cpu, gpu\nfrom tritium import engine\n"
            "engine.storage.alloc(10, cpu())\nprint(engine.num_gpus())\nengine.storage.alloc(1, gpu())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250)
    assert done.stdout == "0\n"
    assert 'gpu(0): no such device: 0 GPUs here. Install the GPU packages with pip install "tritium[gpu]"' in done.stderr


def test_missing_devices_raise():
    assert num_gpus() == 1 and not cuda.is_real()
    for use in (lambda: cuda.alloc(1, 5), lambda: cuda.stream(5)):
        with pytest.raises(ContextError, match=r"gpu\(5\): no such device"):
            use()
