"""The configurations that `tritium tune` tries for a GPU, each timed beside the default on one case of its template. For
gpu_suite.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any

import gpu_attention
import gpu_layers
from gpu_layers import Case
from gpu_machine import Machine
from tritium.kernels.configs import active as active_configs
from tritium.kernels.configs.gpu_device import limits_of
from tritium.kernels.configs.key import Config, Key
from tritium.kernels.gpu.record import record
from tritium.kernels.gpu.target import compute_capability
from tritium.tuning.prune import template_reason
from tritium.tuning.session import show
from tritium.tuning.tasks import space

#: Names of cases, without the stride: one of each template.
CHOSEN = ("gemm bfloat16 4096x4096x4096", "conv forward 3x3 128->128 28", "conv data 3x3 128->128 28",
          "conv weight 3x3 256->256 14", "attention forward 8x16x2048x64", "attention backward 8x16x2048x64")
FEW = 1  # configuration of each case of a smoke test


def configurations(m: Machine) -> Iterator[Case]:
    """A case for each configuration that is not rejected; of_default: the default's time over its own."""
    target = 90 if m.device != "cuda" else compute_capability()
    for case in chain(gpu_layers.products(m), gpu_layers.convolutions(m), gpu_attention.attention(m)):
        if not (m.smoke or any(case.name == c or case.name.startswith(c + " /") for c in CHOSEN)):
            continue
        choices: dict[Key, Config] = {}
        with active_configs.observed(choices.setdefault), record(target):
            case.work()
        for key, default in choices.items():
            task: Any = SimpleNamespace(key=key, default=tuple(default.items()))
            tried = [c for c in space(task)[1:] if not template_reason(key, c, limits_of(target))]
            for config in tried[:FEW] if m.smoke else tried:
                yield case._replace(name=f"{case.name}, {key.template}: {show(config)}", peers={"default": case.work},
                                    work=_with(key.template, config, case.work), at_least={})


def _with(template: str, config: Config, work: Callable[[], Any]) -> Callable[[], Any]:
    def forced() -> Any:
        with active_configs.forced(template, config):
            return work()

    return forced
