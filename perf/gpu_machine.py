"""Where the cases of gpu_suite.py run and how they are timed: a GPU, or for --smoke the interpreter, which times nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common
import numpy as np
from tritium.dtype import bfloat16

#: How far a result may be from float64 arithmetic, as the length of the difference over that of the result, by dtype. (The
#: largest difference of one element says little behind a rectifier, where values near zero may fall on either side.)
WORST = {"float32": 2e-3, "bfloat16": 4e-2}


class Dead(Exception):
    """The GPU answers this process no more: a kernel wrote or read where nothing is."""


class Report:
    """The lines so far, printed and written to a file after each one, so that a crash loses none."""

    def __init__(self, out: Path | None = None, lines: Iterable[dict[str, Any]] = ()):
        self.lines = list(lines)
        self.out = out
        if out:
            out.parent.mkdir(parents=True, exist_ok=True)

    def add(self, line: dict[str, Any]) -> None:
        """One more line."""
        self.lines.append(line)
        common.say(line)
        if self.out:
            partly = self.out.with_suffix(".part")
            partly.write_text("[\n" + ",\n".join(map(json.dumps, self.lines)) + "\n]\n")
            partly.replace(self.out)


class Machine:
    """Tensors on device: "cuda", or "cpu" where kernels are interpreted (smoke) or launches only recorded.

    scale: sizes are divided by it. seconds: after so many, nothing more begins. copy: bytes per second of a copy, by dtype.
    recording: launches are only recorded; slow preparations may be skipped. next: the first case that was left out for want of
    time. announces: print the number of each case that begins, for the process that started this one.
    """

    def __init__(self, torch: Any, device: str, scale: int = 1, *, smoke: bool = False, rounds: int = 5,
                 seconds: float = math.inf, copy: dict[str, float] | None = None, report: Report | None = None,
                 announces: bool = False):
        self.torch, self.device, self.scale, self.smoke, self.rounds = torch, device, scale, smoke, rounds
        self.run = SimpleNamespace(stream=None, workspace=self._space, parallel=None)
        self.report = report or Report()
        self.copy = copy or {}
        self.recording, self.announces = False, announces
        self.next: int | None = None
        self.until = time.monotonic() + seconds

    def _space(self, shape: Any, dtype: Any) -> Any:
        return self.torch.empty(tuple(map(int, shape)), device=self.device, dtype=self.dtype(dtype))

    def dtype(self, dtype: Any) -> Any:
        """torch's dtype of NumPy's, or of a name."""
        name = "bfloat16" if dtype == bfloat16 else dtype if isinstance(dtype, str) else np.dtype(dtype).name
        return getattr(self.torch, name)

    def randn(self, *shape: int, dtype: Any = "float32") -> Any:
        return self.torch.randn(*shape, device=self.device).to(self.dtype(dtype))

    def empty(self, *shape: int, dtype: Any = "float32") -> Any:
        return self.torch.empty(*shape, device=self.device, dtype=self.dtype(dtype))

    def size(self, n: int) -> int:
        """n, smaller where the machine is."""
        return max(1, n // self.scale)

    def begins(self, section: str, at: int) -> bool:
        """Return whether the at-th case of a section may begin. If there is no time for it, a line says so."""
        if time.monotonic() > self.until:
            self.next = at
            self.say(section, left_out="the time ran out")
            return False
        if self.announces:
            print(json.dumps({"begins": at}), flush=True)
        return True

    def turns(self, section: str, cases: Iterable[Any], first: int) -> Iterator[Any]:
        """The cases of a section from the first-th on, while there is time."""
        for at, case in enumerate(cases):
            if at >= first:
                if not self.begins(section, at):
                    return
                yield case

    def check_alive(self) -> None:
        """Raise Dead where the GPU answers no more."""
        if not self.smoke:
            try:
                self.torch.cuda.synchronize()
            except Exception:
                raise Dead from None

    def say(self, bench: str, **fields: Any) -> None:
        """A line of the report. A smoke test's are marked, and hold no time."""
        line = {"bench": bench, **({"smoke": True} if self.smoke else {}), **fields}
        if self.smoke:
            line = {k: v for k, v in line.items() if not k.endswith(("_s", "_per_s")) and not k.startswith("of_")}
        self.report.add(line)

    def seconds(self, work: Callable[[], Any], rounds: int = 1, calls: int = 20) -> list[float]:
        """Seconds per call by the GPU's own clock, one number a round; of a smoke test, one call and no number."""
        if self.smoke:
            work()
            return [float("nan")] * rounds
        cuda = self.torch.cuda
        for _ in range(3):
            work()
        found = []
        for _ in range(rounds):
            start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            start.record()
            for _ in range(calls):
                work()
            stop.record()
            cuda.synchronize()
            found.append(start.elapsed_time(stop) / 1e3 / calls)
        return found

    def compare(self, name: str, work: Callable[[], Any], peers: dict[str, Callable[[], Any] | None], exact: Callable[[], Any],
                amount: float, unit: str, *, at_least: dict[str, float] | None = None, dtype: str = "") -> None:
        """One case: values against float64 first, then its times and each peer's in turn, so that all meet the same clocks.

        peers: {name: function}; "copy" is a copy of as many bytes, timed before. at_least: {peer: ratio that is asked for}.
        """
        try:
            with self.torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):  # it would try all in float64
                got, want = work().double(), exact().double()
            apart, scale = got - want, want.abs().max().clamp_min(1e-30)
            largest, difference = (apart.abs().max() / scale).item(), (apart.norm() / want.norm().clamp_min(1e-30)).item()
            right = difference < WORST.get(dtype, WORST["float32"])
            del got, want, apart
            times: dict[str, list[float]] = {"": [], **{n: [] for n, p in peers.items() if p is not None}}
            for _ in range(self.rounds):
                for n, found in times.items():
                    found += self.seconds(peers[n] if n else work)
        except Exception as e:  # one kernel that fails is a line of the report, not its end
            self.say(name, dtype=dtype, error=f"{type(e).__name__}: {e}"[:500])
            if self.smoke:
                raise
            self.check_alive()
            return
        median, spread = common.median_and_spread(times.pop(""))
        ratios = {n: round(common.median_and_spread(t)[0] / median, 3) for n, t in times.items()}
        if unit == "byte" and dtype in self.copy:
            ratios["copy"] = round(amount / median / self.copy[dtype], 3)
        asked = {n: r for n, r in (at_least or {}).items() if n in ratios}
        self.say(name, dtype=dtype, **{unit: amount}, median_s=median, iqr_s=spread, **{f"{unit}_per_s": amount / median},
                 **{f"of_{n}": r for n, r in ratios.items()}, difference=difference, largest_difference=largest, right=right,
                 **({"asked": asked, "met": right and all(ratios[n] >= r for n, r in asked.items())}
                    if asked and not self.smoke else {}))
