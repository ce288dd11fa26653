"""A GPU's configurations as compile jobs, and the verdict on their builds, without a GPU."""

from types import SimpleNamespace

import pytest
from support.operator_uses import CONV, CONV_SHAPES, use
from tritium.kernels.gpu.compile import build
from tritium.tuning.gpu_candidates import evaluate_build, jobs_of, uses_config
from tritium.tuning.tasks import space, tasks_of

CONFIG = {"BM": 32, "BN": 64, "BK": 32, "num_warps": 8, "num_stages": 2}
KERNEL = {"registers": 64, "shared": 0, "spills": 0, "occupancy": 1.0, "tensor_ops": 4}


def kernel(**change):
    return SimpleNamespace(**{**KERNEL, **change})


@pytest.mark.parametrize("given", [use("dot", [(512, 512), (512, 512)]), use("Convolution", CONV_SHAPES, CONV),
                                   use("Convolution", CONV_SHAPES, CONV, backward=True)], ids=["dot", "conv", "conv backward"])
def test_jobs_have_the_configuration(given):
    for task in tasks_of(*given, "gpu"):
        jobs = jobs_of(task, CONFIG, 90)
        assert jobs and all((j.num_warps, j.num_stages, j.target) == (8, 2, 90) for j in jobs), task.key
        assert all({n: j.constexprs[n] for n in ("BM", "BN", "BK")} == {"BM": 32, "BN": 64, "BK": 32} for j in jobs)
        assert len({j.digest() for c in (CONFIG, {**CONFIG, "BK": 64}) for j in jobs_of(task, c, 90)}) == 2 * len(jobs)


@pytest.mark.parametrize("backward", [False, True])
def test_attentions_kernels_have_the_configuration_each_alone(backward):
    given = use("_contrib_attention", [(2, 4, 512, 64)] * 3, {}, "float16", backward=backward)
    for task in tasks_of(*given, "gpu"):
        config = {"BM": 32, "BN": 256, "num_warps": 16, "num_stages": 4}
        (job,) = jobs_of(task, config, 90)
        assert job.name.startswith(task.key.template[4:].replace(" ", "_")) and uses_config(task, config, 90)
        assert {**job.constexprs, "num_warps": job.num_warps, "num_stages": job.num_stages}.items() >= config.items()
        assert all(uses_config(task, c, 90) for c in space(task))


@pytest.mark.parametrize("name, shapes, params, template, config", [
    ("relu", [(4096, 4096)], {}, "gpu flat", {"BLOCK": 2048, "num_warps": 8}),
    ("broadcast_add", [(4096, 64), (64,)], {}, "gpu flat", {"BLOCK": 512, "num_warps": 2}),
    ("LayerNorm", [(4096, 1000), (1000,), (1000,)], {}, "gpu row", {"BLOCK_ROWS": 4, "num_warps": 16}),
    ("sum", [(4096, 1000)], {"axis": 1}, "gpu fold", {"BLOCK_M": 8, "BLOCK_R": 256, "num_warps": 8}),
    ("sum", [(4096, 1000)], {}, "gpu fold", {"BLOCK_M": 1, "BLOCK_R": 4096, "num_warps": 2})])
def test_generated_kernels_ask_for_their_blocks(name, shapes, params, template, config):
    (task,) = [t for t in tasks_of(*use(name, shapes, params), "gpu") if t.key.template == template]
    assert set(dict(task.default)) == set(config)
    assert uses_config(task, config, 90)
    job = jobs_of(task, config, 90)[0]
    assert {**job.constexprs, "num_warps": job.num_warps}.items() >= config.items()


def test_a_split_sum_asks_for_its_blocks_once():
    templates = [t.key.template for t in tasks_of(*use("sum", [(1 << 24,)]), "gpu")]
    assert templates == ["gpu fold"]


@pytest.mark.parametrize("change, like, wrong", [
    ({}, {}, ""), ({"spills": 3}, {}, "3 instructions spill registers"), ({"occupancy": 0.03}, {}, "occupancy 0.03"),
    ({"tensor_ops": 0}, {}, "no tensor core instruction, which the default has"), ({"tensor_ops": 0}, {"tensor_ops": 0}, "")])
def test_spills_occupancy_and_missing_tensor_cores_reject_a_build(change, like, wrong):
    task = tasks_of(*use("dot", [(512, 512), (512, 512)]), "gpu")[0]
    assert evaluate_build(task, [kernel(**change)], [kernel(**like)])[0] == wrong


def test_a_kernel_is_compiled_and_a_broken_one_gives_the_compilers_message(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITIUM_CACHE_DIR", str(tmp_path))
    task = tasks_of(*use("dot", [(512, 512), (512, 512)]), "gpu")[0]
    good = jobs_of(task, {**CONFIG, "BM": 16, "BN": 16, "BK": 16, "num_warps": 1}, 90)
    bad = jobs_of(task, {**CONFIG, "BM": 17}, 90)
    found = dict(build([*good, *bad], timeout=120))
    assert found[0].registers > 0 and not evaluate_build(task, [found[0]])[1]["spills"]
    assert "does not compile for sm_90" in str(found[len(good)])
