"""The name of a GPU, as its driver gives it: neither torch nor triton is imported for it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from ...context import GPU_MODE
from .store import TuningDevice, installed

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@dataclass(frozen=True)
class Limits:
    """The properties of one device. Sizes in bytes.

    registers, shared, threads, blocks: per multiprocessor; shared_block: per program.
    bytes_per_s, flops, l2_bytes_per_s: what is reached in practice, as published, to rank with and never to report.
    """

    sms: int
    registers: int
    shared: int
    shared_block: int
    threads: int
    blocks: int
    bytes_per_s: float
    l2_bytes_per_s: float
    flops: dict[str, float]


#: By compute capability times ten.
LIMITS = {
    80: Limits(108, 65536, 167936, 166912, 2048, 32, 1.7e12, 4.5e12,
               {"bfloat16": 2.5e14, "float16": 2.5e14, "float32": 1.6e13, "float64": 8e12}),
    90: Limits(132, 65536, 233472, 232448, 2048, 32, 4.3e12, 8e12,
               {"bfloat16": 7.9e14, "float16": 7.9e14, "float32": 5.5e13, "float64": 2.7e13}),
    100: Limits(148, 65536, 233472, 232448, 2048, 32, 7e12, 1.2e13,
                {"bfloat16": 1.6e15, "float16": 1.6e15, "float32": 6.5e13, "float64": 3e13}),
}


def limits_of(target: int) -> Limits:
    """The limits of a compute capability (times ten); of the nearest known one below, else of the lowest."""
    return LIMITS[max((t for t in LIMITS if t <= target), default=min(LIMITS))]


@cache
def gpu_device(number: int = 0) -> TuningDevice | None:
    """Return name, capability and driver of GPU `number`, under which results are stored. None without such a GPU, or
    where TRITIUM_GPU is not "cuda"."""
    if GPU_MODE != "cuda":
        return None
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), number) or cuda.cuDeviceGetName(name, 256, device):
        return None
    numbers = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        numbers.append(value.value)
    driver = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(driver))
    return TuningDevice(name.value.decode(errors="replace"), f"{numbers[0]}.{numbers[1]}",
                  f"CUDA {driver.value // 1000}.{driver.value % 1000 // 10}", f"triton {installed('triton')}")
