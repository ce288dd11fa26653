"""Successive halving over interleaved rounds. The caller passes the clock and the function that times one configuration.

A round times every remaining configuration once, so that a machine that slows down affects all of them alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..kernels.configs.key import Config

#: (rounds, share of the configurations that remain) of each stage: 3 of all, 20 of a quarter, 100 of the last four.
STAGES = ((3, 1.0), (20, 0.25), (100, 0.0))
FINALISTS = 4
GAIN = 0.01  # if the leader stays the same and gains less than this in a stage, the search ends


@dataclass
class Candidate:
    """A configuration and its times.

    seconds: one number per round. stage: the last stage it took part in. failed: the reason why it cannot run, or "".
    """

    config: Config
    seconds: list[float] = field(default_factory=list)
    stage: int = 0
    failed: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else float("inf")

    @property
    def spread(self) -> float:
        """The distance between the quartiles; 0 for fewer than two rounds."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return high - low

    @property
    def error(self) -> float:
        """About two standard errors of the median."""
        return 2 * 0.93 * self.spread / max(1, len(self.seconds)) ** 0.5


class Failed(Exception):
    """Raised by the timing function, with the reason, if a configuration cannot run."""


class OutOfTime(Exception):
    """Raised by the timing function when the time of the run is over."""


def successive_halving(configs: Sequence[Config], measure: Callable[[Config], float], *, clock: Callable[[], float],
                       until: float, stages: Sequence[tuple[int, float]] = STAGES,
                       on_timing: Callable[[Candidate], None] = lambda c: None) -> list[Candidate]:
    """Time configurations; return them with their times, first those of the latest stage, the fastest first; failed ones last.

    Candidates of different stages are not compared: the minimum of few rounds is too low, and the machine may have changed.

    configs:    the first is the default, which stays to the end for comparison.
    measure:    seconds of one run; raises Failed, or OutOfTime, which ends the search.
    until:      when clock() reaches it, no further round begins, but each candidate is timed at least once in a round that
                has begun.
    on_timing:  called with each candidate after each of its runs.
    """
    candidates = [Candidate(c) for c in configs]
    alive = list(candidates)
    leader, before = None, float("inf")
    for rounds, share in stages:
        if share < 1.0:
            alive = _survivors(alive, max(FINALISTS, round(len(candidates) * share)))
        if len(alive) < 2 and rounds > 3:
            break
        for candidate in alive:
            candidate.stage += 1
        for _ in range(rounds):
            if clock() >= until:
                return _sorted(candidates)
            for candidate in alive:
                if not candidate.failed:
                    if clock() >= until and candidate.seconds:
                        return _sorted(candidates)
                    try:
                        candidate.seconds.append(measure(candidate.config))
                    except Failed as e:
                        candidate.failed = str(e)
                    except OutOfTime:
                        return _sorted(candidates)
                    on_timing(candidate)
            alive = [c for c in alive if not c.failed]
            if rounds > 3 and _settled(alive):
                return _sorted(candidates)
        best = min(alive, key=lambda c: c.median, default=None)
        if best is None:
            break
        if rounds > 3 and best is leader and before - best.median < GAIN * before:
            break
        leader, before = best, best.median
    return _sorted(candidates)


def _survivors(alive: Sequence[Candidate], n: int) -> list[Candidate]:
    kept = sorted(alive, key=lambda c: c.median)[:n]
    return kept if alive and alive[0] in kept else [*alive[:1], *kept]


def _settled(alive: Sequence[Candidate]) -> bool:
    """Return True if the fastest is faster than every other by more than the errors of both."""
    if len(alive) < 2 or min(len(c.seconds) for c in alive) < 8:
        return False
    best, *others = sorted(alive, key=lambda c: c.median)
    return all(best.median + best.error < o.median - o.error for o in others)


def _sorted(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda c: (bool(c.failed), -c.stage, c.median))
