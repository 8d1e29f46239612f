"""The fields of a frozen dataclass in plain values and in words."""

from collections.abc import Collection
from dataclasses import MISSING, Field, fields
from typing import Any, get_args


def plain_fields(described: Any) -> dict[str, Any]:
    """Return every field of a dataclass in plain values."""
    return {field.name: _plain(field, getattr(described, field.name)) for field in fields(described)}


def changed_fields(described: Any, unread: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields that differ from their defaults, in plain values, without those that nobody reads."""
    plain = plain_fields(described)
    read = [field for field in fields(described) if field.name not in unread]
    return {field.name: plain[field.name] for field in read if plain[field.name] != _default(field)}


def words_of(given: dict[str, Any]) -> list[str]:
    """Return fields in words.

    Example:
        >>> words_of({"model": "mlp", "density": 0.1, "epochs": 3, "options": {"iterations": 20}})
        ['mlp', 'density=0.1', 'epochs=3', 'iterations=20']
    """
    return [_word(name, value) for name, value in given.items()]


def _default(field: Field[Any]) -> Any:
    """Return the plain default of a field; MISSING, which equals nothing, where it has none."""
    if field.default_factory is not MISSING:
        return _plain(field, field.default_factory())
    return field.default if field.default is MISSING else _plain(field, field.default)


def _plain(field: Field[Any], value: Any) -> Any:
    """Return what JSON makes of a value: tuples become lists, and a whole number in a field of floats a float."""
    if isinstance(value, int) and not isinstance(value, bool) and float in (field.type, *get_args(field.type)):
        return float(value)
    return list(value) if isinstance(value, tuple) else value


def _word(name: str, value: Any) -> str:
    """Return a value as people would say it: names alone, and numbers with what they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(f"{inner}={value[inner]}" for inner in sorted(value))
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
