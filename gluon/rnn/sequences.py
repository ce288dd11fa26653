"""Sequences of arrays or symbols: one array with a time axis, or a list of steps; padded ones with their valid lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import ndarray
from ...errors import ParameterError, ShapeError
from ...graph.symbol import namespace as symbol
from ...graph.symbol.symbol import Symbol
from ...ndarray import NDArray
from ..parameter import tensor_types


def _as_list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


def _get_begin_state(cell: Any, F: Any, begin_state: Any, inputs: Any, batch_size: int) -> Any:
    """Return begin_state, or zeros on the context of inputs if it is None."""
    if begin_state is not None:
        return begin_state
    if F is not ndarray:
        return cell.begin_state(func=F.zeros, batch_size=batch_size)
    with (inputs if isinstance(inputs, tensor_types) else inputs[0]).context:
        return cell.begin_state(func=F.zeros, batch_size=batch_size)


def _format_sequence(length: int | None, inputs: Any, layout: str, merge: bool | None, in_layout: str | None = None
                     ) -> tuple[Any, int, Any, int]:
    """Return a sequence in the wanted form.

    length:     the number of steps; None: that of inputs.
    inputs:     an array or symbol with a time axis, or a list with one for each step.
    layout:     "NTC" or "TNC", of the result; in_layout: of inputs, if another.
    merge:      True: one array; False: a list; None: as it is.
    Returns:    (sequence, time axis, mx.nd or mx.sym, batch size or 0).
    """
    if inputs is None:
        raise ParameterError("unroll: inputs is None. Give an array, or a list of arrays, one for each step.")
    axis, batch_axis, batch_size = layout.find("T"), layout.find("N"), 0
    in_axis = axis if in_layout is None else in_layout.find("T")
    if isinstance(inputs, Symbol):
        F: Any = symbol
        if merge is False:
            if len(inputs.list_outputs()) != 1:
                raise ParameterError("unroll: inputs is a symbol of several outputs. Give list(inputs), or one with a time axis.")
            inputs = list(F.split(inputs, axis=in_axis, num_outputs=length, squeeze_axis=True))
    elif isinstance(inputs, NDArray):
        F = ndarray
        batch_size = inputs.shape[batch_axis]
        if merge is False:
            steps = inputs.shape[in_axis]
            if length not in (None, steps):
                raise ShapeError(f"unroll: length={length}, but inputs {inputs.shape} has {steps} steps in layout {layout}.")
            inputs = _as_list(ndarray.split(inputs, axis=in_axis, num_outputs=steps, squeeze_axis=True))
    else:
        if length is not None and len(inputs) != length:
            raise ShapeError(f"unroll: length={length}, but inputs is a list of {len(inputs)} steps.")
        F = symbol if isinstance(inputs[0], Symbol) else ndarray
        if F is ndarray:
            batch_size = inputs[0].shape[0]
        if merge is True:
            inputs, in_axis = F.stack(*inputs, axis=axis), axis
    if isinstance(inputs, tensor_types) and axis != in_axis:
        inputs = F.swapaxes(inputs, dim1=axis, dim2=in_axis)
    return inputs, axis, F, batch_size


def _mask_sequence_variable_length(F: Any, data: Any, length: int, valid_length: Any, time_axis: int, merge: bool | None) -> Any:
    """Return a sequence with zeros after the valid length of each row: one array if merge, else a list."""
    if not isinstance(data, tensor_types):
        data = F.stack(*data, axis=time_axis)
    masked = F.SequenceMask(data, sequence_length=valid_length, use_sequence_length=True, axis=time_axis)
    return masked if merge else _as_list(F.split(masked, num_outputs=length, axis=time_axis, squeeze_axis=True))


def _reverse_sequences(sequences: Sequence[Any], unroll_step: int, valid_length: Any = None) -> Any:
    """Return the steps in reverse order; with valid_length, only that many steps of each row are reversed."""
    if valid_length is None:
        return list(reversed(sequences))
    F: Any = symbol if isinstance(sequences[0], Symbol) else ndarray
    turned = F.SequenceReverse(F.stack(*sequences, axis=0), sequence_length=valid_length, use_sequence_length=True)
    if unroll_step > 1 or F is symbol:
        return F.split(turned, axis=0, num_outputs=unroll_step, squeeze_axis=True)
    return [turned[0]]
