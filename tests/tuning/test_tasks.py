"""The tuning tasks of an operator and their spaces. Oracle: sizes computed by hand."""

import pytest
from support.operator_uses import CONV, CONV_SHAPES, use
from tritium.kernels.cpu.numpy_printer import TILE
from tritium.kernels.op import Req
from tritium.tuning.tasks import space, tasks_of, threads, work_of

HEADS = (2, 4, 512, 64)


def sizes(tasks):
    return {(t.key.template, t.key.size["m"], t.key.size["n"], t.key.size["k"]) for t in tasks}


def both(name, shapes, params, dtype="float16"):
    return [t for b in (False, True) for t in tasks_of(*use(name, shapes, params, dtype, backward=b), "gpu")]


def test_a_convolution_is_three_products_on_a_gpu():
    tasks, positions = both("Convolution", CONV_SHAPES, CONV), 32 * 28 * 28
    assert sizes(tasks) == {("gpu conv forward", positions, 64, 144), ("gpu conv data", positions, 16, 576),
                            ("gpu conv weight", 64, 144, positions)}
    assert all(t.flops == 2.0 * positions * 64 * 144 for t in tasks)
    assert [t.reqs for t in tasks[1:]] == [(Req.WRITE, Req.NULL), (Req.NULL, Req.WRITE)]


def test_a_stride_gives_the_data_gradient_phases_that_share_its_work():
    params = {**CONV, "stride": (2, 2)}
    tasks = tasks_of(*use("Convolution", CONV_SHAPES, params, "float16", backward=True, reqs=[Req.WRITE, Req.NULL]), "gpu")
    assert sizes(tasks) == {("gpu conv data", 32 * 14 * 14, 16, 64 * taps) for taps in (1, 2, 4)}
    whole = 32 * sum(s.nbytes for s in (*tasks[0].ins, tasks[0].outs[0])) // 32
    assert sum(t.nbytes for t in tasks) == pytest.approx(whole, rel=1e-3)


def test_a_phase_of_zeros_alone_is_no_task():
    params = {**CONV, "kernel": (1, 1), "stride": (2, 2), "pad": (0, 0)}
    given = use("Convolution", [(32, 16, 28, 28), (64, 16, 1, 1)], params, "float16", backward=True, reqs=[Req.WRITE, Req.NULL])
    assert sizes(tasks_of(*given, "gpu")) == {("gpu conv data", 32 * 14 * 14, 16, 64)}


def test_a_pointwise_convolution_is_a_plain_product():
    params = {"kernel": (1, 1), "num_filter": 64, "no_bias": True}
    tasks = tasks_of(*use("Convolution", [(8, 32, 16, 16), (64, 32, 1, 1)], params, "float16"), "gpu")
    assert sizes(tasks) == {("gpu gemm", 8 * 16 * 16, 64, 32)}


def test_unwanted_derivatives_are_no_tasks():
    tasks = tasks_of(*use("Convolution", CONV_SHAPES, CONV, "float16", backward=True, reqs=[Req.NULL, Req.WRITE]), "gpu")
    assert [t.key.template for t in tasks] == ["gpu conv weight"]
    assert tasks_of(*use("Convolution", CONV_SHAPES, CONV, backward=True, reqs=[Req.NULL] * 2), "cpu") == []


@pytest.mark.parametrize("name, shapes, params, want", [
    ("dot", [(16, 48), (48, 32)], {}, {(16, 32, 48), (16, 48, 32), (48, 32, 16)}),
    ("FullyConnected", [(16, 48), (32, 48)], {"num_hidden": 32, "no_bias": True}, {(16, 32, 48), (16, 48, 32), (32, 48, 16)})])
def test_products_and_their_derivatives(name, shapes, params, want):
    assert {(m, n, k) for _, m, n, k in sizes(both(name, shapes, params))} == want
    cpu = [t for b in (False, True) for t in tasks_of(*use(name, [[20 * n for n in s] for s in shapes],
           {**params, **({"num_hidden": 640} if params else {})}, backward=b), "cpu")]
    assert {(m // 20, n // 20, k // 20) for _, m, n, k in sizes(cpu)} == want


@pytest.mark.parametrize("dtype, k, align", [("float32", 64, 16), ("float16", 63, 2), ("float16", 8, 16), ("float64", 3, 8)])
def test_alignment_is_that_of_the_rows(dtype, k, align):
    assert tasks_of(*use("dot", [(64, k), (k, 64)], dtype=dtype), "gpu")[0].key.align == align


def test_generated_kernels_have_tiles_on_a_cpu_and_blocks_on_a_gpu():
    given = use("relu", [(64, 1000)])
    cpu, gpu = tasks_of(*given, "cpu"), tasks_of(*given, "gpu")
    assert [t.key.template for t in (*cpu, *gpu)] == ["cpu tile", "gpu flat"]
    assert dict(cpu[0].default) == {"tile": 2 * TILE, "threads": 0} and dict(gpu[0].default) == {"BLOCK": 1024, "num_warps": 4}


@pytest.mark.parametrize("name, shapes, params", [("relu", [(3, 5)], {}), ("relu", [(0, 5)], {}),
                                                  ("Flatten", [(64, 100, 100)], {}), ("dot", [(4, 4), (4, 4)], {}),
                                                  ("transpose", [(400, 400)], {})])
def test_uses_without_a_choice_give_no_task(name, shapes, params):
    assert tasks_of(*use(name, shapes, params), "cpu") == []


@pytest.mark.parametrize("target", ["cpu", "gpu"])
@pytest.mark.parametrize("name, shapes, params", [("dot", [(512, 512), (512, 512)], {}), ("Convolution", CONV_SHAPES, CONV),
                                                  ("relu", [(64, 1000)], {}), ("_contrib_attention", [HEADS] * 3, {})])
def test_a_space_has_the_default_first_and_each_configuration_once(name, shapes, params, target):
    for task in tasks_of(*use(name, shapes, params), target):  # attention has none on a CPU
        every = space(task)
        assert every[0] == dict(task.default) and len({tuple(sorted(c.items())) for c in every}) == len(every) > 10
        assert all(set(c) == set(every[0]) for c in every)


def test_thread_counts_are_below_the_number_of_processors():
    assert threads()[0] == 0 and all(t < len(threads()) * 64 for t in threads())


def test_work_counts_operations_and_bytes():
    assert work_of(*use("dot", [(10, 30), (30, 20)])) == (2.0 * 10 * 20 * 30, 4 * (300 + 600 + 200))
    assert work_of(*use("relu", [(64, 1000)])) == (64_000.0, 2 * 256_000)


@pytest.mark.parametrize("name, shapes, params", [("dot", [(4096, 4096), (4096, 4096)], {}), ("Convolution", CONV_SHAPES, CONV),
                                                  ("relu", [(64, 1000)], {}), ("softmax", [(64, 1000)], {}),
                                                  ("sum", [(64, 1000)], {"axis": 1}), ("_contrib_attention", [HEADS] * 3, {})])
def test_a_gpus_space_has_about_thirty_configurations_of_a_template(name, shapes, params):
    for task in both(name, shapes, params):
        by_template = {}
        for config in space(task)[1:]:
            by_template.setdefault((config.get("template", 0), config.get("splits", 1) > 1), []).append(config)
        assert all(len(picked) <= 40 for picked in by_template.values()) and max(map(len, by_template.values())) >= 20


def test_attention_is_three_kernels_on_a_gpu():
    tasks, product = both("_contrib_attention", [HEADS, HEADS, (2, 4, 512, 32)], {}), 2.0 * 8 * 512 * 512
    assert [(t.key.template, t.flops / product, t.reqs) for t in tasks] == [
        ("gpu attention forward", 64 + 32, (Req.WRITE,) * 2),
        ("gpu attention query", 64 + 32 + 64, (Req.WRITE, Req.NULL, Req.NULL)),
        ("gpu attention key", 64 + 32 + 32 + 64, (Req.NULL, Req.WRITE, Req.WRITE))]
    causal = both("_contrib_attention", [HEADS, HEADS, (2, 4, 512, 32)], {"causal": True})
    assert [2 * t.flops for t in causal] == [t.flops for t in tasks] and {t.key.layout for t in causal} == {"causal"}


def test_derivatives_of_attention_that_are_not_wanted_are_no_tasks():
    def templates(name, shapes, params, reqs):
        given = use(name, shapes, params, "float16", backward=True, reqs=reqs)
        return [t.key.template.rsplit(" ", 1)[1] for t in tasks_of(*given, "gpu")]

    null, write = Req.NULL, Req.WRITE
    assert templates("_contrib_attention", [HEADS] * 3, {}, [write, null, null]) == ["query"]
    assert templates("_contrib_attention", [HEADS] * 3, {}, [null, null, write]) == ["key"]
    assert templates("_attention_encdec", [(512, 2, 256), (512, 2, 512)], {"heads": 4}, [null, write]) == ["key"]
    assert templates("_attention_selfatt", [(512, 2, 768)], {"heads": 4}, [write]) == ["query", "key"]
