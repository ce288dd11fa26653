"""Handle: what stands for one thing of this process. To copy it gives no second thing."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from ..errors import EngineError

_H = TypeVar("_H", bound="Handle")


class Handle:
    """`copy.copy` and `copy.deepcopy` give the handle itself, also inside what is copied; it cannot be pickled."""

    __slots__ = ()

    def __copy__(self: _H) -> _H:
        return self

    def __deepcopy__(self: _H, memo: Any) -> _H:
        return self

    def __reduce__(self) -> NoReturn:
        raise EngineError(f"pickle: {type(self).__name__} means something in this process only. Send what it stands for.")
