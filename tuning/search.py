"""Search: successive halving over interleaved rounds. It decides who is timed next and who is out; a function that times
one configuration, and a clock, are handed in.

Interleaved: a round times every configuration still in once, so that a machine that slows down slows all alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..kernels.configs.key import Config

#: (rounds, share of the configurations that go on), stage by stage: 3 of all, 20 of a quarter, 100 of the last four.
STAGES = ((3, 1.0), (20, 0.25), (100, 0.0))
FINALISTS = 4
GAIN = 0.01  # less than this between two stages, and the leader the same: enough


@dataclass
class Candidate:
    """A configuration and what was seen of it.

    seconds: one number per round. stage: how far it came. failed: why it is out for good.
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
    """Raised by the timing function: this configuration cannot run. Says why."""


class OutOfTime(Exception):
    """Raised by the timing function: the run is over. It says nothing of the configuration."""


def successive_halving(configs: Sequence[Config], measure: Callable[[Config], float], *, clock: Callable[[], float], until: float,
          stages: Sequence[tuple[int, float]] = STAGES, tell: Callable[[Candidate], None] = lambda c: None) -> list[Candidate]:
    """Every configuration with its times: those that came furthest first, and of them the fastest; failed ones last.

    Who was dropped early is not compared with who stayed: few rounds flatter, and other rounds are another time.

    configs:  the first is the default, which stays to the end, to be compared with.
    measure:  seconds of one run; raises Failed, or OutOfTime, which ends the search.
    until:    when clock() reaches it no further round begins, except that the first round is completed for all that
              were begun.
    tell:     called with each candidate after each of its runs.
    """
    everyone = [Candidate(c) for c in configs]
    alive = list(everyone)
    leader, before = None, float("inf")
    for rounds, share in stages:
        if share < 1.0:
            alive = _survivors(alive, max(FINALISTS, round(len(everyone) * share)))
        if len(alive) < 2 and rounds > 3:
            break
        for candidate in alive:
            candidate.stage += 1
        for _ in range(rounds):
            if clock() >= until:
                return _sorted(everyone)
            for candidate in alive:
                if not candidate.failed:
                    if clock() >= until and candidate.seconds:
                        return _sorted(everyone)
                    try:
                        _time(candidate, measure)
                    except OutOfTime:
                        return _sorted(everyone)
                    tell(candidate)
            alive = [c for c in alive if not c.failed]
            if rounds > 3 and _settled(alive):
                return _sorted(everyone)
        best = min(alive, key=lambda c: c.median, default=None)
        if best is None:
            break
        if rounds > 3 and best is leader and before - best.median < GAIN * before:
            break
        leader, before = best, best.median
    return _sorted(everyone)


def _time(candidate: Candidate, measure: Callable[[Config], float]) -> None:
    try:
        candidate.seconds.append(measure(candidate.config))
    except Failed as e:
        candidate.failed = str(e)


def _survivors(alive: Sequence[Candidate], n: int) -> list[Candidate]:
    kept = sorted(alive, key=lambda c: c.median)[:n]
    return kept if alive and alive[0] in kept else [*alive[:1], *kept]


def _settled(alive: Sequence[Candidate]) -> bool:
    """Whether the fastest is apart from all others by more than the errors of both."""
    if len(alive) < 2 or min(len(c.seconds) for c in alive) < 8:
        return False
    best, *others = sorted(alive, key=lambda c: c.median)
    return all(best.median + best.error < o.median - o.error for o in others)


def _sorted(everyone: Sequence[Candidate]) -> list[Candidate]:
    return sorted(everyone, key=lambda c: (bool(c.failed), -c.stage, c.median))
