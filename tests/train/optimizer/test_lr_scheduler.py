"""Learning-rate schedulers. Oracle: the rates of MXNet 1.9.1, update by update (golden)."""

import json
from pathlib import Path

import pytest
from tritium.errors import ParameterError
from tritium.train.optimizer import lr_scheduler

CASES = json.loads((Path(__file__).parents[2] / "golden/optimizers/schedulers.json").read_text())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_learning_rates_equal_those_of_mxnet(case):
    schedule = getattr(lr_scheduler, case["class"])(**case["kwargs"])
    assert [schedule(i) for i in range(len(case["lr"]))] == pytest.approx(case["lr"], rel=1e-12)


def test_changes_are_logged_with_the_messages_of_mxnet(caplog):
    with caplog.at_level("INFO"):
        schedule = lr_scheduler.FactorScheduler(3, 0.5, stop_factor_lr=0.2, base_lr=1)
        assert [schedule(i) for i in range(8, 12)] == [0.25, 0.25, 0.2, 0.2]
        schedule = lr_scheduler.MultiFactorScheduler([2], 0.5, base_lr=1)
        assert [schedule(i) for i in range(5)] == [1, 1, 1, 0.5, 0.5]
    assert [r.getMessage() for r in caplog.records] == [
        "Update[8]: Change learning rate to 5.00000e-01", "Update[8]: Change learning rate to 2.50000e-01",
        "Update[10]: now learning rate arrived at 2.00000e-01, will not change in the future",
        "Update[3]: Change learning rate to 5.00000e-01"]


def test_after_its_last_update_a_schedule_keeps_the_rate_of_the_update_before():
    for kind in (lr_scheduler.PolyScheduler, lr_scheduler.CosineScheduler):
        schedule = kind(max_update=10, base_lr=0.4, final_lr=0.1)
        assert schedule(11) == 0.4  # resumed too late: as MXNet
        assert [schedule(i) for i in (10, 11, 20)] == pytest.approx([0.1, 0.1, 0.1])


@pytest.mark.parametrize(
    "name, kwargs, text",
    [
        ("FactorScheduler", {"step": 0}, "FactorScheduler: step=0 must be at least 1 update."),
        ("FactorScheduler", {"step": 1, "factor": 2}, "FactorScheduler: factor=2 would raise the learning rate."),
        ("MultiFactorScheduler", {"step": [3, 3]}, r"MultiFactorScheduler: step=\[3, 3\] must be rising"),
        ("MultiFactorScheduler", {"step": []}, r"step=\[\] must be rising"),
        ("PolyScheduler", {"max_update": 0}, "PolyScheduler: max_update=0 is not an integer >= 1."),
        ("CosineScheduler", {"max_update": 3, "warmup_mode": "x"}, "warmup_mode='x' is not one of 'linear', 'constant'."),
        ("PolyScheduler", {"max_update": 3, "base_lr": 0.1, "warmup_begin_lr": 1}, "the rate would fall during the warm-up"),
    ],
)
def test_errors(name, kwargs, text):
    with pytest.raises(ParameterError, match=text):
        getattr(lr_scheduler, name)(**kwargs)
