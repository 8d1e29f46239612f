"""Options that several commands read the same way."""

import json
from typing import Any


def named_value(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``NAME=VALUE``; the value is JSON where it can be, else text.

    Example:
        >>> named_value("iterations=100"), named_value("tap=random")
        (('iterations', 100), ('tap', 'random'))
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"option: expected NAME=VALUE; got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
