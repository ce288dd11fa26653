"""`mx.registry`: functions that register classes by name, and create instances from names, JSON or dictionaries."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

from ...errors import ParameterError
from .. import initializer, metric
from .. import optimizer as opt
from ..metric import base as metric_base
from ..optimizer import base as optimizer_base
from ..registry import Registry

__all__ = ["get_alias_func", "get_create_func", "get_register_func", "get_registry"]

_registries: dict[type, Registry] = {
    opt.Optimizer: optimizer_base.registry, metric.EvalMetric: metric_base.registry,
    initializer.Initializer: initializer.registry}


def _registry_of(base_class: type, nickname: str) -> Registry:
    return _registries.setdefault(base_class, Registry(nickname))


def get_registry(base_class: type) -> dict[str, type]:
    """Return the registered classes derived from base_class, by lower-case names."""
    registry = _registry_of(base_class, base_class.__name__)
    return {name: registry.find(name) for name in registry.names()}


def get_register_func(base_class: type, nickname: str) -> Callable[..., type]:
    """Return `register(klass, name=None)`, a decorator that registers a class derived from base_class.

    nickname: the kind of class, used in messages.
    """
    registry = _registry_of(base_class, nickname)

    def register(klass: type, name: str | None = None) -> type:
        """Register a class by name, by default its own in small letters, and return it. The last one of a name counts.

        Raises: ParameterError for a class that is not derived from the base of the registry.
        """
        if not (isinstance(klass, type) and issubclass(klass, base_class)):
            raise ParameterError(f"registry: {klass!r} is not a class derived from {base_class.__name__}.")
        name = (name or klass.__name__).lower()
        if name in registry.names():
            warnings.warn(f"registry: {nickname} {name!r} was {registry.find(name).__qualname__}, and is {klass.__qualname__} "
                          f"now.", stacklevel=2)
        registry.add(name, klass)
        return klass

    return register


def get_alias_func(base_class: type, nickname: str) -> Callable[..., Callable[[type], type]]:
    """Return `alias(*names)`, which returns a decorator that registers a class by these names."""
    register = get_register_func(base_class, nickname)

    def alias(*names: str) -> Callable[[type], type]:
        def decorate(klass: type) -> type:
            for name in names:
                register(klass, name)
            return klass

        return decorate

    return alias


def get_create_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """Return `create(name, *args, **kwargs)`, which returns an instance of a registered class.

    name: also an instance, which is returned as it is; a dictionary {nickname: name, ...arguments}; or JSON, either of such a
          dictionary or of a list [name, {...arguments}].
    """
    registry = _registry_of(base_class, nickname)

    def create(*args: Any, **kwargs: Any) -> Any:
        name, *rest = args if args else (kwargs.pop(nickname, None),)
        if isinstance(name, base_class):
            if rest or kwargs:
                raise ParameterError(f"{nickname}.create: {name!r} is an instance already, so no other arguments can be given.")
            return name
        if isinstance(name, dict):
            return create(**name)
        if not isinstance(name, str):
            raise ParameterError(f"{nickname}.create: {name!r} is neither a name nor an instance of {base_class.__name__}.")
        if name.startswith(("[", "{")):
            config = json.loads(name)
            return create(**config) if isinstance(config, dict) else create(config[0], **config[1])
        return registry.create(name, *rest, **kwargs)

    return create
