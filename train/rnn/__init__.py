"""`mx.rnn`: recurrent cells that unroll into symbols, batches of sentences, and checkpoints with one array per gate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..callback import every_epochs
from ..checkpoint import load_checkpoint, save_checkpoint
from .cells import BaseRNNCell, GRUCell, LSTMCell, RNNCell, RNNParams, packed
from .conv_cells import BaseConvRNNCell, ConvGRUCell, ConvLSTMCell, ConvRNNCell
from .modifiers import BidirectionalCell, DropoutCell, FusedRNNCell, ModifierCell, ResidualCell, SequentialRNNCell, ZoneoutCell
from .sentences import BucketSentenceIter, encode_sentences

__all__ = [
    "BaseConvRNNCell", "BaseRNNCell", "BidirectionalCell", "BucketSentenceIter", "ConvGRUCell", "ConvLSTMCell", "ConvRNNCell",
    "DropoutCell", "FusedRNNCell", "GRUCell", "LSTMCell", "ModifierCell", "RNNCell", "RNNParams", "ResidualCell",
    "SequentialRNNCell", "ZoneoutCell", "do_rnn_checkpoint", "encode_sentences", "load_rnn_checkpoint", "rnn_unroll",
    "save_rnn_checkpoint",
]


def rnn_unroll(cell: BaseRNNCell, length: int, inputs: Any = None, begin_state: Any = None, input_prefix: str = "",
               layout: str = "NTC") -> tuple[Any, list[Any]]:
    """Call cell.unroll; an older name of MXNet."""
    return cell.unroll(length, inputs, begin_state, layout)


def save_rnn_checkpoint(cells: Any, prefix: str, epoch: int, symbol: Any, arg_params: Any, aux_params: Any) -> None:
    """Write a checkpoint with one array per gate, so that fused and single cells can read each other's checkpoints."""
    save_checkpoint(prefix, epoch, symbol, packed(cells, arg_params, "unpack_weights"), aux_params)


def load_rnn_checkpoint(cells: Any, prefix: str, epoch: int) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Read a checkpoint of save_rnn_checkpoint, with the arrays packed for these cells."""
    symbol, arg, aux = load_checkpoint(prefix, epoch)
    return symbol, packed(cells, arg, "pack_weights"), aux


def do_rnn_checkpoint(cells: Any, prefix: str, period: int = 1) -> Callable[..., None]:
    """Return an epoch callback that calls save_rnn_checkpoint after every `period`th epoch."""
    return every_epochs(period, partial(save_rnn_checkpoint, cells, prefix))
