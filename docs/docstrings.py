"""Docstrings as the reference shows them: examples as code, and no reStructuredText colons."""

import re
from typing import Any

import griffe


class Readable(griffe.Extension):
    """Turn ``Example:`` into the section that is rendered as code, and ``signature::`` into ``signature:``."""

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        """Rewrite the docstring of one module, class or function."""
        del rest
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
