"""Configurations as data: every parameter of a run stands in its manifest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["check_finite", "to_jsonable"]


def check_finite(config: object, *names: str) -> None:
    """Refuse NaN and infinities, which pass every comparison or fail it silently.

    Raises:
        ValueError: One of the fields is not finite.
    """
    for name in names:
        value = getattr(config, name)
        if not math.isfinite(value):
            raise ValueError(f"{type(config).__name__}.{name} must be finite, got {value}")


def to_jsonable(value: Any) -> Any:
    """Return a configuration as JSON values.

    Frozen dataclasses become objects, field by field; an object that describes itself with
    ``to_json`` is asked to; callables are named, by their class where they have no name.

    Raises:
        TypeError: A value has no JSON form.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    describe = getattr(value, "to_json", None)
    if describe is not None:
        return describe()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [to_jsonable(item) for item in items]
    if callable(value):
        named = value if hasattr(value, "__qualname__") else type(value)
        return f"{named.__module__}:{named.__qualname__}"
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")
