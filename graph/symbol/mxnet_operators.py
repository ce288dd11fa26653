"""Operators of MXNet's files that are others here: layers of an LSTM with projections, and BatchNorm with a rectifier."""

from __future__ import annotations

from collections.abc import Mapping

from ...kernels import op as ops
from .node import Node

#: What RNN has, and _rnn_projected has not, because it has no choice.
_RNN = {"mode": "lstm", "state_outputs": "True", "lstm_state_clip_nan": "False", "use_sequence_length": "False"}

NORM_AND_RELU = "_contrib_BatchNormWithReLU"


def read(op: str, attrs: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the operator, and its attributes, for those of a file."""
    if op == "RNN" and attrs.get("projection_size", "None") != "None" and attrs.get("mode") == "lstm":
        return "_rnn_projected", {k: v for k, v in attrs.items() if k not in _RNN}
    return op, dict(attrs)


def written(op: str, attrs: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the operator of a file, and its attributes, for those of a node."""
    return ("RNN", {**attrs, **_RNN}) if op == "_rnn_projected" else (op, dict(attrs))


def rectified(norm: Node, name: str) -> Node:
    """Return max(norm, 0), as the node that has the name of both."""
    relu = ops.get("relu")
    return Node(relu, name, relu.parse({}), {}, [(norm, 0)])
