"""`mx.rnn`: recurrent cells that unroll into symbols, batches of sentences, and checkpoints of single gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..checkpoint import load_checkpoint, save_checkpoint
from .cells import BaseRNNCell, GRUCell, LSTMCell, RNNCell, RNNParams
from .conv_cells import BaseConvRNNCell, ConvGRUCell, ConvLSTMCell, ConvRNNCell
from .modifiers import (
    BidirectionalCell,
    DropoutCell,
    FusedRNNCell,
    ModifierCell,
    ResidualCell,
    SequentialRNNCell,
    ZoneoutCell,
)
from .sentences import BucketSentenceIter, encode_sentences, packed

__all__ = [
    "BaseConvRNNCell", "BaseRNNCell", "BidirectionalCell", "BucketSentenceIter", "ConvGRUCell", "ConvLSTMCell", "ConvRNNCell",
    "DropoutCell", "FusedRNNCell", "GRUCell", "LSTMCell", "ModifierCell", "RNNCell", "RNNParams", "ResidualCell",
    "SequentialRNNCell", "ZoneoutCell", "do_rnn_checkpoint", "encode_sentences", "load_rnn_checkpoint", "rnn_unroll",
    "save_rnn_checkpoint",
]


def rnn_unroll(cell: BaseRNNCell, length: int, inputs: Any = None, begin_state: Any = None, input_prefix: str = "",
               layout: str = "NTC") -> tuple[Any, list[Any]]:
    """cell.unroll, under its older name."""
    return cell.unroll(length, inputs, begin_state, layout)


def save_rnn_checkpoint(cells: Any, prefix: str, epoch: int, symbol: Any, arg_params: Any, aux_params: Any) -> None:
    """save_checkpoint, with the weights of the cells gate by gate, so that fused and single cells read each other's."""
    save_checkpoint(prefix, epoch, symbol, packed(cells, arg_params, "unpack_weights"), aux_params)


def load_rnn_checkpoint(cells: Any, prefix: str, epoch: int) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """load_checkpoint of what save_rnn_checkpoint wrote, packed as the cells have it."""
    symbol, arg, aux = load_checkpoint(prefix, epoch)
    return symbol, packed(cells, arg, "pack_weights"), aux


def do_rnn_checkpoint(cells: Any, prefix: str, period: int = 1) -> Callable[..., None]:
    """An epoch callback that calls save_rnn_checkpoint after every `period`th epoch."""
    period = max(1, int(period))

    def callback(epoch: int, symbol: Any = None, arg_params: Any = None, aux_params: Any = None) -> None:
        if (epoch + 1) % period == 0:
            save_rnn_checkpoint(cells, prefix, epoch + 1, symbol, arg_params, aux_params)

    return callback
