"""`mx.runtime`: what this build can do."""

from __future__ import annotations

import importlib.util

from ... import engine
from ...errors import ParameterError


class Feature:
    """One ability: its name, and whether it is there."""

    def __init__(self, name: str, enabled: bool):
        self._name, self._enabled = name, bool(enabled)

    @property
    def name(self) -> str:
        """Its name, in capitals."""
        return self._name

    @property
    def enabled(self) -> bool:
        """Whether it is there."""
        return self._enabled

    def __repr__(self) -> str:
        return f"{'✔' if self._enabled else '✖'} {self._name}"


def feature_list() -> list[Feature]:
    """Every ability that MXNet names, as it stands here. What belongs to MXNet's own C++ is not there."""
    gpu = engine.num_gpus() > 0 and engine.cuda.is_real()
    found = {
        "CUDA": gpu, "CUDNN": False, "NCCL": False, "CUDA_RTC": False, "TENSORRT": False, "CPU_SSE": False, "CPU_AVX": False,
        "OPENMP": False, "BLAS_OPEN": False, "BLAS_MKL": False, "LAPACK": True, "MKLDNN": False,
        "OPENCV": importlib.util.find_spec("cv2") is not None, "CAFFE": False, "DIST_KVSTORE": False,
        "INT64_TENSOR_SIZE": True, "SIGNAL_HANDLER": True, "DEBUG": False, "TVM_OP": False, "TRITON": gpu,
    }
    return [Feature(name, on) for name, on in found.items()]


class Features(dict):
    """{name: Feature} of all abilities."""

    def __init__(self) -> None:
        super().__init__((f.name, f) for f in feature_list())

    def is_enabled(self, feature_name: str) -> bool:
        """Whether an ability is there. Raises ParameterError for a name that is none."""
        name = feature_name.upper()
        if name not in self:
            raise ParameterError(f"Features.is_enabled: no feature is called {feature_name!r}. Known: {', '.join(self)}.")
        return self[name].enabled

    def __repr__(self) -> str:
        return str(list(self.values()))
