"""At inference on a CPU BatchNorm and a rectifier go into the convolution before them, a depthwise convolution into the 1 × 1 one
behind it, and the first convolution turns its data. Oracle: the same steps in NumPy, unfused."""

import numpy as np
import pytest
import tritium as mx
from tritium.graph.options import options
from tritium.kernels.cpu import c_compile
from tritium.kernels.fusion.pair import PairOp

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")


def norm(x, name):
    return mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-3, name=name)


def convolution(x, filters, kernel, name, stride=1, groups=1, **how):
    return mx.sym.Convolution(x, num_filter=filters, kernel=(kernel, kernel), stride=(stride, stride), pad=(kernel // 2,) * 2,
                              num_group=groups, name=name, **how)


def separable(x, channels, filters, name, stride=1, kernel=3, **how):
    x = mx.sym.relu(norm(convolution(x, channels, kernel, f"{name}_d", stride, channels, **how), f"{name}_dn"))
    return mx.sym.relu(norm(convolution(x, filters, 1, f"{name}_p", no_bias=True), f"{name}_pn"))


def network():
    """Channels that fill no vector, a stride, windows of 5, a bias, a block without a rectifier, a result that is read twice."""
    x = mx.sym.relu(norm(convolution(mx.sym.Variable("data"), 24, 3, "first", 2), "norm"))
    x = separable(x, 24, 40, "a", no_bias=True)
    x = separable(x, 40, 33, "b", stride=2)
    x = separable(x, 33, 64, "c", kernel=5, no_bias=True)
    y = norm(convolution(convolution(x, 64, 3, "e_d", groups=64), 16, 1, "e_p"), "e_n")
    shared = convolution(y, 16, 3, "f_d", groups=16)
    return mx.sym.Group([mx.sym.relu(convolution(shared, 16, 1, "f_p") + shared), y])


def bind(monkeypatch, code, batch, **how):
    monkeypatch.setenv("TRITIUM_CPU_CODE", code)
    with options(**how):
        executor = network().simple_bind(mx.cpu(), "null", data=(batch, 3, 37, 30))
    rng = np.random.default_rng(3)
    for name, array in {**executor.arg_dict, **executor.aux_dict}.items():
        low = 0.5 if name.endswith(("gamma", "var")) else -1
        scale = 1 if array.ndim == 1 else (3 / np.prod(array.shape[1:])) ** 0.5
        array[:] = (rng.uniform(low, 1.5, array.shape) * scale).astype("f")
    return executor


def near(got, want):
    """Some ten layers round differently, and their sums cancel."""
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=3e-6 * np.abs(want).max())


def operators(executor):
    return [s.op for s in executor._main().program.forward]


@pytest.mark.parametrize("batch", [1, 3])
def test_they_compute_what_numpy_computes_apart(monkeypatch, batch):
    wanted = [o.asnumpy() for o in bind(monkeypatch, "numpy", batch, fuse=False, layout=False).forward()]
    executor = bind(monkeypatch, "c", batch)
    got = [o.asnumpy() for o in executor.forward()]
    for g, w in zip(got, wanted):
        near(g, w)
    made = operators(executor)
    # "e" has nothing between its two, and what "f" begins with is read twice; at batch 1 two share their filters among threads
    assert sum(isinstance(op, PairOp) for op in made) == {1: 1, 3: 3}[batch]
    assert not any(op.name in ("transpose", "_scale_shift", "relu") for op in made[:-4])
    assert made[0].name == "_moving_scale" and "_convolution_turning" in made[1].name


@pytest.mark.parametrize("changed", ["a_p_weight", "b_d_bias", "c_dn_gamma", "norm_moving_var", "first_weight"])
def test_a_changed_parameter_or_state_counts_at_once(monkeypatch, changed):
    def results(code, **how):
        executor, made = bind(monkeypatch, code, 2, **how), []
        arrays = {**executor.arg_dict, **executor.aux_dict}
        for step in range(3):  # nothing waits in between
            if step == 1:
                arrays[changed] *= 1.5
            made.append([o.copy() for o in executor.forward()])
        return [o.asnumpy() for outputs in made for o in outputs]

    got = results("c")
    for g, w in zip(got, results("numpy", fuse=False)):
        near(g, w)
    assert not np.array_equal(got[0], got[2]) and np.array_equal(got[2], got[4])


def test_results_have_the_same_bits_in_segments_of_one_step_and_after_others_used_the_memory(monkeypatch):
    whole = [o.asnumpy() for o in bind(monkeypatch, "c", 2).forward()]
    executor = bind(monkeypatch, "c", 2, bulk_infer=1)
    small = executor.reshape(data=(1, 3, 37, 30))
    first = [o.asnumpy() for o in executor.forward()]
    small.arg_dict["data"][:] = 1
    small.forward()
    for outputs in (first, [o.asnumpy() for o in executor.forward()]):
        assert all(np.array_equal(a, b) for a, b in zip(outputs, whole))


def test_with_a_backward_pass_nothing_is_turned_or_paired(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    executor = network().simple_bind(mx.cpu(), "write", data=(2, 3, 37, 30))
    executor.forward(is_train=True)
    assert not any(isinstance(op, PairOp) or "turning" in op.name for op in operators(executor))


def test_not_a_number_and_infinity_pass_the_rectifier(monkeypatch):
    executor = bind(monkeypatch, "c", 1)
    executor.arg_dict["data"][0, 0, 0, 0] = np.nan
    assert np.isnan(executor.forward()[0].asnumpy()).any()
