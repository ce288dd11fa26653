"""storage: alignment, classes, the pool's sums, lifetimes, errors. Oracle: counting by hand."""

import gc
import os
import random
import subprocess
import sys
import threading

import numpy as np
import pytest
from tritium.context import Context, cpu, gpu
from tritium.dtype import DTYPES
from tritium.engine.gpu import transfer
from tritium.engine.memory import storage
from tritium.errors import ContextError, EngineError, OutOfMemoryError

_fresh = iter(range(100, 10_000))


@pytest.fixture
def own():
    """A CPU context whose pool no other test uses."""
    return cpu(next(_fresh))


def test_a_dropped_block_is_pooled_and_reused(own):
    b = storage.alloc(1000, own)
    address = b.memory.ctypes.data
    assert (b.nbytes, b.ctx, b.memory.shape, b.memory.dtype) == (1000, own, (1000,), np.uint8)
    assert storage.stats(own) == (1024, 0, 1024)
    del b
    assert storage.stats(own) == (0, 1024, 1024)
    b = storage.alloc(900, own)
    assert b.memory.ctypes.data == address and storage.stats(own) == (1024, 0, 1024)
    storage.free(b)
    assert storage.stats(own) == (0, 1024, 1024)
    assert storage.release_all(own) == 1024 and storage.stats(own) == (0, 0, 1024)


def test_the_next_block_of_its_size_gets_the_bytes_that_were_returned(own):
    b, other = storage.alloc(1000, own), storage.alloc(2000, own)
    address = b.address
    assert address % 64 == 0 and b.memory.ctypes.data == address
    b.memory[:] = 1
    del b
    third = storage.alloc(2000, own)  # of another size
    b = storage.alloc(900, own)
    assert b.address == address and other.address != third.address
    assert storage.stats(own) == (1024 + 2 * 2048, 0, 1024 + 2 * 2048)
    del b, other, third
    assert storage.stats(own) == (0, 1024 + 2 * 2048, 1024 + 2 * 2048)


def test_an_array_on_a_block_keeps_its_bytes_when_the_block_is_gone(own):
    b = storage.alloc(100, own)
    address, part = b.address, b.memory[10:]
    del b
    assert storage.alloc(100, own).address != address
    del part
    assert storage.alloc(100, own).address == address


def test_bytes_return_without_a_word_when_the_interpreter_ends_and_the_modules_names_are_gone(own, monkeypatch):
    said = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: said.append(what.exc_value))
    block = storage.alloc(100, own)
    part = block.memory[:]
    del block
    with monkeypatch.context() as m:
        m.setattr(storage, "_LARGE", None)
        m.setattr(storage, "_WAITING", None)
        del part
    assert said == [] and storage.stats(own).in_use == 0


def test_a_view_keeps_the_bytes(own):
    b = storage.alloc(64, own)
    part = storage.view(b, 16, (2, 4), "float32")[1:]
    part[:] = 7
    storage.free(b)
    with pytest.raises(EngineError, match="was freed"):
        storage.view(b, 0, (1,), "uint8")
    del b
    assert storage.stats(own).in_use == 64
    other = storage.alloc(64, own)
    other.memory[:] = 0
    assert (part == 7).all()
    del part
    assert storage.stats(own) == (64, 64, 128)


def test_gpu_views_keep_the_bytes():
    ctx = gpu()
    gc.collect()  # garbage of other tests in cycles
    before = storage.stats(ctx).in_use
    t = storage.view(storage.alloc(1 << 20, ctx), 256, (4, 8), "bfloat16")[1]
    assert storage.stats(ctx).in_use == before + (1 << 20)
    del t
    assert storage.stats(ctx).in_use == before


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1000, 4097, 1 << 20])
def test_alignment(nbytes, own):
    for _ in range(5):
        assert storage.alloc(nbytes, own).memory.ctypes.data % 64 == 0
        assert storage.alloc(nbytes, gpu()).memory.data_ptr() % 256 == 0 or not nbytes


def test_size_classes_hold_the_request_and_waste_at_most_a_quarter():
    sizes = [storage.size_class(n) for n in range(1, 70_000)]
    assert all(s >= n and s % 64 == 0 for n, s in enumerate(sizes, 1))
    assert all(s <= n * 1.25 for n, s in enumerate(sizes, 1) if n > 256)
    assert sizes == sorted(sizes) and all(storage.size_class(s) == s for s in set(sizes))


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_on_both_contexts(dtype, ctx):
    a = storage.array((3, 5), dtype, ctx)
    values = np.arange(15).reshape(3, 5).astype(DTYPES[dtype])
    if ctx.is_gpu:
        transfer.from_host(a, values)
        got = transfer.to_host(a)
    else:
        a[:] = values
        got = a
    assert got.dtype == DTYPES[dtype] and (got == values).all()


def test_views_share_bytes_and_stay_inside(ctx):
    b = storage.alloc(64, ctx)
    a, same = storage.view(b, 0, (4, 4), "float32"), storage.view(b, 16, (4,), "float32")
    a[1] = 3
    assert same.tolist() == [3, 3, 3, 3]
    for offset, shape in ((0, (17,)), (-4, (1,)), (61, (1,)), (0, (1 << 40,))):
        with pytest.raises(EngineError, match=rf"storage\.view: [\d,]+ bytes at offset {offset} do not fit in Block"):
            storage.view(b, offset, shape, "float32")
    assert storage.view(b, 64, (0, 3), "float32").shape == (0, 3)


def test_out_of_memory_names_the_bytes_held_and_the_way_to_need_fewer(own):
    held, pooled = storage.alloc(1 << 20, own), storage.alloc(1 << 10, own)
    del pooled
    with pytest.raises(OutOfMemoryError, match=(
            rf"^storage\.alloc: cpu\({own.device_id}\) cannot supply 1,125,899,906,842,624 bytes: 1,048,576 are in use, "
            r"0 pooled, [\d,]+ available\. Shrink the request by [\d,]+ bytes \(a smaller batch\), drop arrays, "
            r"or give pooled memory back with storage\.release_all")):
        storage.alloc(1 << 50, own)
    assert isinstance(storage.out_of_memory(own, 5, storage.Stats(0, 0, 0), 9), MemoryError)
    del held


@pytest.mark.parametrize("nbytes, ctx, error, text", [
    (-1, cpu(), EngineError, r"storage\.alloc: nbytes is negative: -1"),
    (1, Context("gpu", 3), ContextError, r"gpu\(3\): no such device: 1 GPU here"),
])
def test_wrong_requests_raise(nbytes, ctx, error, text):
    with pytest.raises(error, match=text):
        storage.alloc(nbytes, ctx)


def test_the_pool_keeps_at_most_its_limit():
    code = ("from tritium.engine import storage; from tritium.context import cpu\n"
            "bs = [storage.alloc(1 << 20, cpu()) for _ in range(5)]\ndel bs\nprint(storage.stats(cpu()))")
    run = lambda mb: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250,
                                    env={**os.environ, "TRITIUM_POOL_LIMIT_MB": mb})
    assert run("3").stdout == "Stats(in_use=0, pooled=3145728, peak=5242880)\n"
    assert run("0").stdout == "Stats(in_use=0, pooled=0, peak=5242880)\n"
    assert "TRITIUM_POOL_LIMIT_MB: '-1' is not an integer of at least 0" in run("-1").stderr


def test_statistics_stay_right_with_threads_and_garbage_collection(own):
    class Cycle:
        pass

    def work(seed):
        r = np.random.default_rng(seed)
        kept = []
        for n in r.integers(1, 5000, 400):
            c = Cycle()
            c.me, c.block = c, storage.alloc(int(n), own)
            c.block.memory[:] = seed
            kept.append(storage.alloc(int(n), own))
            kept[-1].memory[:] = seed
            if len(kept) > 20:
                assert (kept.pop(0).memory == seed).all()  # these bytes were given out once
    old = gc.get_threshold()
    gc.set_threshold(20)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        gc.set_threshold(*old)
    gc.collect()
    in_use, pooled, peak = storage.stats(own)
    assert in_use == 0 and pooled > 0 and peak > 0
    assert storage.release_all(own) == pooled


def test_a_long_run_with_changing_shapes_does_not_grow():
    """Arrays of changing sizes: the pool keeps no more than its limit, and in the end nothing is in use."""
    r, ctx = random.Random(3), cpu(41)
    alive, most = [], 0
    for i in range(20_000):
        alive.append(storage.alloc(r.randint(1, 200_000), ctx))
        if len(alive) > 20:
            alive.pop(r.randrange(20))
        if i == 10_000:
            most = sum(storage.stats(ctx)[:2])
    held = storage.stats(ctx)
    assert held.in_use + held.pooled <= 1.25 * most  # the second half reused the memory of the first
    assert held.in_use <= 1.3 * sum(b.nbytes for b in alive)
    alive.clear()
    assert storage.stats(ctx).in_use == 0
    storage.release_all(ctx)
    assert sum(storage.stats(ctx)[:2]) == 0


def test_a_lazy_block_is_allocated_at_its_first_use(own):
    b = storage.alloc_lazily(1000, own)
    assert storage.stats(own) == (0, 0, 0) and b.taken() is None and b.nbytes == 1000
    storage.view(b, 0, (4,), "float32")[:] = 3
    assert storage.stats(own) == (1024, 0, 1024) and b.taken() is b.memory
    assert storage.view(b, 0, (4,), "float32").tolist() == [3, 3, 3, 3]
    del b
    assert storage.stats(own) == (0, 1024, 1024)
    freed = storage.alloc_lazily(1000, own)
    storage.free(freed)
    with pytest.raises(EngineError, match="was freed"):
        storage.view(freed, 0, (1,), "uint8")
    with pytest.raises(AttributeError, match="Block has no attribute 'size'"):
        freed.size


def test_an_impossible_lazy_block_is_refused_at_once(own):
    with pytest.raises(OutOfMemoryError, match=r"^storage\.alloc: cpu\(\d+\) cannot supply 1,125,899,906,842,624 bytes"):
        storage.alloc_lazily(1 << 50, own)
    with pytest.raises(ContextError, match=r"gpu\(3\): no such device: 1 GPU here"):
        storage.alloc_lazily(1, Context("gpu", 3))


def test_all_pools_together_keep_at_most_a_gigabyte_or_an_eighth(monkeypatch):
    monkeypatch.delenv("TRITIUM_POOL_LIMIT_MB", raising=False)
    assert storage._limit(1 << 40) == 1 << 30
    assert storage._limit(800 << 20) == 100 << 20
    code = ("import resource\nresource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))\n"
            "from tritium.engine import storage; from tritium.context import cpu\n"
            "bs = [storage.alloc(64 << 20, cpu(i % 3)) for i in range(9)]\ndel bs\n"
            "print(sum(storage.stats(cpu(i)).pooled for i in range(3)) >> 20)")
    environment = {k: v for k, v in os.environ.items() if k != "TRITIUM_POOL_LIMIT_MB"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, env=environment)
    assert done.stdout == "256\n", done.stderr


def test_sizes_that_are_not_requested_any_more_are_dropped_first():
    """Two sizes fill the pool; then only one of them is used: it takes the other's place."""
    code = ("from tritium.engine import storage; from tritium.context import cpu\n"
            "mb = lambda n, ctx: storage.alloc(n << 20, ctx)\n"
            "a = [mb(1, cpu(1)) for _ in range(4)]\ndel a\nprint(storage.stats(cpu(1)).pooled >> 20)\n"
            "for _ in range(3):\n    b = [mb(2, cpu()) for _ in range(2)]\n    del b\n"
            "print(storage.stats(cpu(1)).pooled >> 20, storage.stats(cpu()).pooled >> 20)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250,
                          env={**os.environ, "TRITIUM_POOL_LIMIT_MB": "4"})
    assert done.stdout == "4\n0 4\n", done.stderr


def test_a_finalizer_may_allocate_in_the_middle_of_a_request(own):
    """The garbage collector may run it while the pool's lock is held, here at its innermost point."""
    pool = storage._pool_of(own)
    fresh, inside = pool._allocate, []

    def interrupted(size):
        if not inside:
            inside.append(None)
            inside[0] = storage.alloc(300, own)
        return fresh(size)
    pool._allocate = interrupted
    b = storage.alloc(300, own)
    assert b.memory.ctypes.data != inside[0].memory.ctypes.data and storage.stats(own).in_use == 2 * storage.size_class(300)
