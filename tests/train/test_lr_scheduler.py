"""Schedules. Oracle: MXNet 1.9.1's rates, update by update (golden)."""

import json
from pathlib import Path

import pytest
from tritium.errors import ParameterError
from tritium.train import lr_scheduler

CASES = json.loads((Path(__file__).parents[1] / "golden/optimizers/schedulers.json").read_text())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gives_mxnets_rates(case):
    schedule = getattr(lr_scheduler, case["class"])(**case["kwargs"])
    assert [schedule(i) for i in range(len(case["lr"]))] == pytest.approx(case["lr"], rel=1e-12)


def test_rebase_moves_the_whole_schedule():
    schedule = lr_scheduler.PolyScheduler(max_update=10, base_lr=0.4, pwr=1, warmup_steps=2)
    schedule.rebase(0.1)
    assert [schedule(i) for i in (0, 1, 2, 6, 10)] == pytest.approx([0, 0.05, 0.1, 0.05, 0])


@pytest.mark.parametrize(
    "name, kwargs, text",
    [
        ("FactorScheduler", {"step": 0}, "FactorScheduler: step=0 must be at least 1 update."),
        ("FactorScheduler", {"step": 1, "factor": 2}, "FactorScheduler: factor=2 would raise the learning rate."),
        ("MultiFactorScheduler", {"step": [3, 3]}, r"MultiFactorScheduler: step=\[3, 3\] must be rising"),
        ("MultiFactorScheduler", {"step": []}, r"step=\[\] must be rising"),
        ("PolyScheduler", {"max_update": 0}, "PolyScheduler: max_update=0 is not a number of updates >= 1."),
        ("CosineScheduler", {"max_update": 3, "warmup_steps": 5}, "the warm-up takes all of the updates"),
        ("CosineScheduler", {"max_update": 3, "warmup_mode": "x"}, "warmup_mode='x' is not one of linear, constant."),
        ("PolyScheduler", {"max_update": 3, "base_lr": 0.1, "warmup_begin_lr": 1}, "the warm-up would fall"),
    ],
)
def test_errors_say_what_is_wrong(name, kwargs, text):
    with pytest.raises(ParameterError, match=text):
        getattr(lr_scheduler, name)(**kwargs)
