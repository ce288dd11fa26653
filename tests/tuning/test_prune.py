"""Pruning and its reasons. Oracle: arithmetic by hand, and brute force over the divisions of a kernel's work."""

import re
from collections import Counter

import pytest
from support.operator_uses import CONV, CONV_SHAPES, use
from tritium.kernels.configs.gpu_device import LIMITS, limits_of
from tritium.kernels.configs.key import key
from tritium.kernels.ops.linalg.gemm import cut
from tritium.tuning.gpu_candidates import uses_config
from tritium.tuning.prune import REASONS, estimate, product_reason, prune, template_reason
from tritium.tuning.tasks import space, tasks_of

GOOD = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3}
WEIGHT = key("gpu conv weight", "float16", "last", 16, m=256, n=2304, k=6272, taps=9, step=1, groups=1)
LARGE = key("gpu gemm", "float16", "nn", 16, batch=1, m=4096, n=4096, k=4096)


def task(name="dot", shapes=((4096, 4096), (4096, 4096)), params=None, dtype="float16", target="gpu"):
    return tasks_of(*use(name, [tuple(s) for s in shapes], params, dtype), target)[0]


def test_a_good_configuration_is_kept():
    assert product_reason(LARGE, GOOD, LIMITS[90]) is None
    assert product_reason(WEIGHT, GOOD, LIMITS[90]) is None, "36 tiles, but their sums in 8 parts"


def test_kept_configurations_of_a_weight_gradient_are_used():
    given = use("Convolution", [(32, 256, 14, 14), (256, 256, 3, 3)], {**CONV, "num_filter": 256}, "float16", backward=True)
    (weight,) = [t for t in tasks_of(*given, "gpu") if t.key.template == "gpu conv weight"]
    kept, pruned = prune(weight, space(weight))
    assert len(kept) > 10 and all(uses_config(weight, c, 90) for c in kept)
    ignored = {p.reason for p in pruned if not uses_config(weight, p.config, 90)}
    assert ignored <= {"registers", "shared memory", "same as another"}


@pytest.mark.parametrize("k, change, reason, text", [
    (LARGE, {"BM": 256, "BN": 256, "num_warps": 4}, "registers", "512 registers per thread for sums alone, 160"),
    (LARGE, {"BM": 32, "BN": 32}, "registers", "4 sums per thread"),
    (LARGE, {"BM": 256, "BK": 128, "num_stages": 3}, "shared memory", "294912 bytes for 3 stages, 232448"),
    (key("gpu gemm", "float16", "nn", 16, batch=1, m=4096, n=20, k=4096), {}, "same as another", "BN=128 for 20"),
    (LARGE, {"BK": 8}, "alignment", "16 bytes in a tile, 32"),
    (key("gpu gemm", "float16", "nn", 2, batch=1, m=4096, n=4096, k=4095), {"num_stages": 4}, "alignment",
     "multiples of 2 bytes"),
    (key("gpu gemm", "float16", "nn", 16, batch=1, m=4096, n=4096, k=128), {}, "same as another",
     "2 iterations of the loop: 3 stages"),
    (key("gpu gemm", "float16", "nn", 16, batch=1, m=512, n=512, k=4096), {}, "waves", "16 tiles for 132"),
    (LARGE, {"template": 2}, "same as another", "specialised warps come in fours"),
    (key("gpu gemm", "float16", "nn", 4, batch=1, m=4096, n=4096, k=4096), {"template": 1}, "alignment", "TMA needs rows"),
    (LARGE, {"splits": 2}, "waves", "1024 tiles fill 132"),
    (key("gpu gemm", "float16", "nn", 16, batch=1, m=256, n=256, k=512), {"splits": 4, "num_stages": 2}, "waves",
     "4 parts of 2 iterations"),
    (key("gpu gemm", "float16", "nn", 16, batch=1, m=1152, n=2048, k=4096), {}, "waves", r"1\.09 waves: the last leaves 45%"),
])
def test_each_reason_has_its_numbers(k, change, reason, text):
    found = product_reason(k, {**GOOD, **change}, LIMITS[90])
    assert found is not None and found[0] == reason and re.search(text, found[1]), found


def attention(what, size=64, value=64, m=2048, n=2048):
    return key(f"gpu attention {what}", "float16", "whole", 16, heads=128, m=m, n=n, size=size, value=value)


@pytest.mark.parametrize("k, change, reason, text", [
    (attention("forward"), {"BN": 128, "num_warps": 4}, "registers", "192 registers per thread for sums and scores, 160"),
    (attention("key", 128, 128), {}, "registers", "192 registers"),  # 128 · 256 sums and 2 · 64 · 128 scores by 256 threads
    (attention("forward"), {"BM": 32, "BN": 32, "num_warps": 16}, "registers", "6 sums and scores per thread"),
    (attention("forward", 128, 128), {"BM": 256, "num_warps": 16, "num_stages": 6}, "shared memory", "327680 bytes for 6 stages"),
    (attention("key", m=30), {"BM": 64}, "same as another", "BM=64 for 30"),
    (attention("forward", n=128), {"num_stages": 3}, "same as another", "2 rounds of the loop: 3 stages"),
])
def test_each_reason_of_attention_has_its_numbers(k, change, reason, text):
    tile = {"BM": 128, "BN": 64, "num_warps": 8, "num_stages": 2}
    if k.template.endswith("key"):
        tile |= {"BM": 64, "BN": 128}
    found = template_reason(k, {**tile, **change}, LIMITS[90])
    assert found is not None and found[0] == reason and re.search(text, found[1]), found


@pytest.mark.parametrize("size", [64, 128])
def test_of_attention_some_configurations_are_tried_the_nearest_to_the_default_first(size):
    for backward in (False, True):
        for t in tasks_of(*use("_contrib_attention", [(8, 16, 2048, size)] * 3, {}, "float16", backward=backward), "gpu"):
            kept, pruned = prune(t, space(t))
            assert 8 < len(kept) <= 31 and kept[0] == dict(t.default) and {p.reason for p in pruned} <= set(REASONS)
            assert sum(kept[1][n] != v for n, v in kept[0].items()) == 1


def test_a_part_of_the_space_is_pruned_before_anything_is_compiled():
    every = space(task())
    kept, pruned = prune(task(), every)
    assert len(kept) + len(pruned) == len(every) and len(kept) <= 60
    assert pruned
    assert kept[0] == every[0], "the default stays, first"
    assert {p.reason for p in pruned} <= set(REASONS) and all(p.why for p in pruned)


def test_the_ranking_prefers_larger_tiles_for_large_products_and_small_ones_for_small():
    large = prune(task(), space(task()))[0][1]
    small_task = task(shapes=((32, 2048), (2048, 1000)))
    small = prune(small_task, space(small_task))[0][1]
    assert large["BM"] * large["BN"] >= 128 * 128 > small["BM"] * small["BN"]


def test_the_model_never_expects_less_than_the_limits_allow():
    t = task()
    for config in space(t)[:200]:
        assert estimate(t, config, 90) >= max(t.flops / LIMITS[90].flops["float16"], t.nbytes / LIMITS[90].bytes_per_s)


def test_smaller_machines_prune_more():
    assert len(prune(task(), space(task()), 80)[0]) < len(prune(task(), space(task()), 90)[0])
    assert limits_of(86) is LIMITS[80] and limits_of(75) is LIMITS[80] and limits_of(120) is LIMITS[100]


@pytest.mark.parametrize("name, shapes, params", [("dot", [(64, 64), (64, 1024)], {}), ("Convolution", CONV_SHAPES, CONV),
                                                  ("relu", [(64, 1000)], {}), ("softmax", [(64, 1000)], {})])
def test_on_a_cpu_only_equal_programs_are_pruned(name, shapes, params):
    for t in tasks_of(*use(name, shapes, params), "cpu"):
        kept, pruned = prune(t, space(t))
        assert len(kept) + len(pruned) == len(space(t))
        assert set(Counter(p.reason for p in pruned)) <= {"same as another", "cache"}


def test_equal_divisions_of_the_work_are_tried_once():
    t = tasks_of(*use("dot", [(256, 256), (256, 256)]), "cpu")[0]  # 2^24 multiplications
    kept, pruned = prune(t, space(t))
    cuts = [(cut(1 << 24, c["piece"]), c["threads"]) for c in kept]
    assert len(set(cuts)) == len(cuts) and sum(pieces == 1 for pieces, _ in cuts) <= 1  # one piece: whatever the threads
    assert {pieces for pieces, _ in cuts} == {cut(1 << 24, c["piece"]) for c in space(t)}
    assert pruned and {p.reason for p in pruned} == {"same as another"}


@pytest.mark.parametrize("config, reason", [
    ({"BLOCK": 256, "num_warps": 8}, "alignment"), ({"BLOCK": 8192, "num_warps": 1}, "registers"),
    ({"BLOCK": 8192, "num_warps": 8}, None)])
def test_reasons_of_elementwise_kernels(config, reason):
    t = tasks_of(*use("relu", [(32, 64, 56, 56)]), "gpu")[0]
    found = {tuple(p.config.items()): p.reason for p in prune(t, space(t))[1]}
    assert found.get(tuple(config.items())) == reason
