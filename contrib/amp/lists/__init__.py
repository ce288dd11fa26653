"""MXNet's operator lists for mixed precision: which operators are computed in which dtype."""

from . import symbol_bf16 as symbol_bf16
from . import symbol_fp16 as symbol_fp16
