"""Choices in use: defaults unless asked, the same results with other blocks, nothing silent."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.engine.memory import storage
from tritium.kernels import op as ops
from tritium.kernels.configs import active as active_configs
from tritium.kernels.configs.key import key
from tritium.kernels.cpu.numpy_printer import TILE
from tritium.kernels.op import Req, Spec

F32 = np.dtype("float32")
KEY = key("cpu gemm", "float32", "", batch=1, m=4, n=4, k=4)


class Run:
    """A RunContext that counts the calls of parallel."""

    stream, parts = None, 0

    def parallel(self, fn, n):
        self.parts += n
        for i in range(n):
            fn(i)

    def workspace(self, shape, dtype):
        return storage.array(shape, dtype, mx.cpu())


@pytest.fixture(autouse=True)
def _defaults_afterwards():
    yield
    active_configs.use(None)


def compute(name, params, arrays, backward=False):
    """Outputs of an operator (or of its derivative by all inputs), and the RunContext, with kernels made now."""
    op = ops.get(name)
    p, run = op.parse(params), Run()
    ins = [Spec(a.shape, a.dtype) for a in arrays]
    outs = [Spec(tuple(s), F32) for s in op.infer_shape(p, [a.shape for a in arrays])[1]]
    if backward:
        g = op.gradient_of(p)
        values = {"dy": [np.ones(s.shape, s.dtype) for s in outs], "x": arrays, "y": outs}
        sources = [values[kind][i] for kind, i in g.needs]
        op, ins, outs = g.op, [Spec(a.shape, a.dtype) for a in sources], [ins[i] for i in g.gives]
        arrays = sources
    made = [np.zeros(s.shape, s.dtype) for s in outs]
    op.kernel(p, ins, outs, [Req.WRITE] * len(outs), "cpu", True)(run, arrays, made)
    return made, run


def test_without_being_asked_everything_is_default():
    active_configs.use(None)
    assert not active_configs.active()
    assert active_configs.choice(KEY, {"piece": 3}) == {"piece": 3}


def test_a_lookup_changes_the_names_it_knows_and_only_those():
    active_configs.use(lambda k: {"piece": 5, "unknown": 1} if k == KEY else None)
    assert active_configs.active()
    assert active_configs.choice(KEY, {"piece": 3, "threads": 0}) == {"piece": 5, "threads": 0}
    assert active_configs.choice(key("cpu gemm", "float64"), {"piece": 3}) == {"piece": 3}


def test_a_lookup_is_asked_once_per_key():
    asked = []
    active_configs.use(lambda k: asked.append(k))
    for _ in range(3):
        active_configs.choice(KEY, {"piece": 3})
    assert asked == [KEY]


def test_forced_goes_before_and_ends_with_its_block():
    active_configs.use(lambda k: {"piece": 5})
    with active_configs.forced("cpu gemm", {"piece": 7}):
        assert active_configs.choice(KEY, {"piece": 3}) == {"piece": 7}
    assert active_configs.choice(KEY, {"piece": 3}) == {"piece": 5}


@pytest.mark.parametrize("tile", [4096, 32768, 1 << 20])
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_tiles_do_not_change_elementwise_results(tile, threads, rng):
    x, y = rng.normal(size=(300, 700)).astype("f"), rng.normal(size=(300, 700)).astype("f")
    want = compute("elemwise_mul", {}, [x, y])[0][0]
    with active_configs.forced("cpu tile", {"tile": tile, "threads": threads}):
        got, _ = compute("elemwise_mul", {}, [x, y])
    assert np.array_equal(got[0], want)


@pytest.mark.parametrize("tile", [4096, 1 << 20])
def test_tiles_change_sums_in_their_last_bits_at_most(tile, rng):
    x = rng.normal(size=(300, 700)).astype("f")
    with active_configs.forced("cpu tile", {"tile": tile, "threads": 0}):
        got, _ = compute("sum", {"axis": 1}, [x])
    assert_close(got[0], x.astype("float64").sum(1), scale=10)


@pytest.mark.parametrize("config", [{"cache": 1 << c, "threads": t} for c, t in ((17, 0), (24, 0), (17, 2))])
@pytest.mark.parametrize("backward", [False, True])
def test_block_sizes_do_not_change_a_convolution(config, backward, rng, cpu_code):
    cpu_code("numpy")
    x, w = rng.normal(size=(3, 4, 40, 40)).astype("f"), rng.normal(size=(5, 4, 3, 3)).astype("f")
    params = {"kernel": (3, 3), "num_filter": 5, "no_bias": True, "pad": (1, 1)}
    want, _ = compute("Convolution", params, [x, w], backward)
    with active_configs.forced(f"cpu conv {'backward' if backward else 'forward'}", config):
        got, run = compute("Convolution", params, [x, w], backward)
    for g, w in zip(got, want):
        assert_close(g / np.abs(w).max(), w / np.abs(w).max(), scale=10)  # other blocks add up in another order
    if config["threads"]:
        assert run.parts <= 2


def test_pieces_of_a_product_are_as_chosen(rng):
    a, b = rng.normal(size=(256, 256)), rng.normal(size=(256, 256))
    with active_configs.forced("cpu gemm", {"piece": 1 << 22, "threads": 0}):
        (got,), run = compute("dot", {}, [a, b])
    assert run.parts == 4
    assert_close(got, a @ b, scale=30)


def test_the_tuner_sees_the_keys_that_kernels_ask_for(rng):
    seen = []
    with active_configs.observed(lambda k, d: seen.append((k.template, d))):
        compute("elemwise_mul", {}, [np.ones((200, 200), "f")] * 2)
    assert seen == [("cpu tile", {"tile": 2 * TILE, "threads": 0})]


@pytest.mark.parametrize("threads, n, groups", [(1, 10, 0), (2, 10, 2), (4, 3, 3), (3, 0, 0)])
def test_limited_makes_every_call_once(threads, n, groups):
    run, seen = Run(), []
    active_configs.limited(run.parallel, threads)(seen.append, n)
    assert seen == list(range(n)) and run.parts == groups
    assert active_configs.limited(run.parallel, 0) == run.parallel


@pytest.mark.parametrize("value, active", [(None, "False"), ("0", "False"), ("1", "True")])
def test_the_environment_asks(value, active, tmp_path):
    environment = {n: v for n, v in os.environ.items() if n != "TRITIUM_TUNED"}
    environment["TRITIUM_TUNE_STORE"] = str(tmp_path / "t.sqlite")
    code = ("import os\nfrom tritium.kernels.configs import active as tuned\nfrom tritium.kernels.configs.store import Store\n"
            "Store().close()\nprint(tuned.active())")
    done = subprocess.run([sys.executable, "-c", code], env=environment | ({"TRITIUM_TUNED": value} if value else {}),
                          capture_output=True, text=True, check=True)
    assert done.stdout.strip() == active
