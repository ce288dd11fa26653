"""`mx.library`: operators from C libraries, which cannot be loaded here."""

from __future__ import annotations

from ...errors import NotAvailableError


def load(path: str, verbose: bool = True) -> None:
    """Raise NotAvailableError: libraries compiled for MXNet's C interface cannot be loaded."""
    raise NotAvailableError(f"library.load: {path} is compiled for MXNet's C interface, which does not exist here. Declare its "
                            f"operators in Python with @mx.simple_op or mx.operator.OperatorProperty: see docs/operators.md.")
