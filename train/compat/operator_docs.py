"""`mx.symbol_doc`, `mx.ndarray_doc`: bases of classes that hold text for an operator's documentation in MXNet.

Here an operator's documentation is the docstring of its declaration.
"""

from __future__ import annotations

from typing import Any


class SymbolDoc:
    """Base of MXNet's classes of examples of an operator of mx.sym."""

    @staticmethod
    def get_output_shape(sym: Any, **input_shapes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the outputs of sym by name, from the shapes of its inputs."""
        return dict(zip(sym.list_outputs(), sym.infer_shape(**input_shapes)[1]))


class NDArrayDoc:
    """Base of MXNet's classes of examples of an operator of mx.nd."""
