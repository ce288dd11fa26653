"""Successive halving: the order of timings, dropped candidates, the end. Oracle: simulated machines with known times."""

import itertools

import numpy as np
import pytest
from tritium.tuning.search import Candidate, Failed, successive_halving

CONFIGS = [{"tile": t} for t in range(12)]


class Machine:
    """Times that are known; a clock that moves by them."""

    def __init__(self, seconds, noise=0.0, seed=0):
        self.seconds, self.now, self.order = seconds, 0.0, []
        self.rng, self.noise = np.random.default_rng(seed), noise

    def measure(self, config):
        self.order.append(config["tile"])
        value = self.seconds(config["tile"]) * (1 + self.noise * self.rng.normal())
        self.now += value
        return value

    def clock(self):
        return self.now


def run(machine, until=1e9, configs=CONFIGS, **more):
    return successive_halving(configs, machine.measure, clock=machine.clock, until=until, **more)


@pytest.mark.parametrize("seed", range(10))
def test_the_fastest_is_found_in_noise(seed):
    machine = Machine(lambda t: 1.0 + 0.1 * abs(t - 7), noise=0.03, seed=seed)
    assert run(machine)[0].config == {"tile": 7}


def test_rounds_are_interleaved():
    machine = Machine(lambda t: 1.0 + t)
    run(machine)
    assert machine.order[:24] == [*range(12), *range(12)]


def test_a_slowing_machine_affects_all_candidates_alike():
    count = itertools.count()
    machine = Machine(lambda t: (1.0 + 0.2 * (t != 3)) * (1 + 0.01 * next(count)))
    assert run(machine)[0].config == {"tile": 3}


def test_the_default_is_timed_to_the_end():
    machine = Machine(lambda t: 100.0 - t, noise=0.2)
    ranked = run(machine)
    default = next(c for c in ranked if c.config == {"tile": 0})
    assert len(default.seconds) == len(ranked[0].seconds) > 3
    assert len(next(c for c in ranked if c.config == {"tile": 1}).seconds) == 3


def test_it_ends_once_the_fastest_is_clearly_apart():
    machine = Machine(lambda t: 1.0 if t == 5 else 2.0, noise=0.001)
    assert max(len(c.seconds) for c in run(machine)) < 20


def test_no_round_begins_after_the_time_is_up_and_times_are_kept():
    machine = Machine(lambda t: 1.0)
    ranked = run(machine, until=15.0)
    assert len(machine.order) == 15 and sum(len(c.seconds) for c in ranked) == 15
    assert len(ranked) == 12


def test_a_configuration_that_fails_is_dropped_with_its_reason():
    def measure(config):
        if config["tile"] == 4:
            raise Failed("illegal access")
        return machine.measure(config)

    machine = Machine(lambda t: 1.0 + t)
    ranked = successive_halving(CONFIGS, measure, clock=machine.clock, until=1e9)
    assert ranked[-1].config == {"tile": 4} and ranked[-1].failed == "illegal access" and not ranked[-1].seconds
    assert ranked[0].config == {"tile": 0}


def test_when_all_fail_it_ends():
    def measure(config):
        raise Failed("no")

    assert all(c.failed for c in successive_halving(CONFIGS, measure, clock=lambda: 0.0, until=1.0))


def test_an_interrupt_is_raised_after_times_were_reported():
    seen = {}

    def measure(config):
        if len(seen) == 5:
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(KeyboardInterrupt):
        successive_halving(CONFIGS, measure, clock=lambda: 0.0, until=1.0,
                           on_timing=lambda c: seen.setdefault(c.config["tile"], c))
    assert list(seen) == [0, 1, 2, 3, 4]


def test_median_and_spread():
    c = Candidate({}, [1.0, 2.0, 3.0, 4.0, 100.0])
    assert (c.median, c.spread) == (3.0, 2.0)
    assert (Candidate({}).median, Candidate({}, [1.0]).spread) == (float("inf"), 0.0)
