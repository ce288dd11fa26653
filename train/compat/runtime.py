"""`mx.runtime`: the features of this build."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

from ... import engine
from ...errors import ParameterError


class Feature(NamedTuple):
    """A feature: its name in capitals, and enabled, True if it is available."""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


def feature_list() -> list[Feature]:
    """Return MXNet's features, and TRITON. Those of MXNet's C++ code are not enabled."""
    gpu = engine.num_gpus() > 0 and engine.cuda.is_real()
    enabled = {
        "CUDA": gpu, "CUDNN": False, "NCCL": False, "CUDA_RTC": False, "TENSORRT": False, "CPU_SSE": False, "CPU_AVX": False,
        "OPENMP": False, "BLAS_OPEN": False, "BLAS_MKL": False, "LAPACK": True, "MKLDNN": False,
        "OPENCV": importlib.util.find_spec("cv2") is not None, "CAFFE": False, "DIST_KVSTORE": False,
        "INT64_TENSOR_SIZE": True, "SIGNAL_HANDLER": True, "DEBUG": False, "TVM_OP": False, "TRITON": gpu,
    }
    return [Feature(name, on) for name, on in enabled.items()]


class Features(dict):
    """All features, {name: Feature}."""

    def __init__(self) -> None:
        super().__init__((f.name, f) for f in feature_list())

    def is_enabled(self, feature_name: str) -> bool:
        """Return True if a feature is enabled. Raises ParameterError for an unknown name."""
        name = feature_name.upper()
        if name not in self:
            raise ParameterError(f"Features.is_enabled: no feature is called {feature_name!r}. Known: {', '.join(self)}.")
        return self[name].enabled

    def __repr__(self) -> str:
        return str(list(self.values()))
