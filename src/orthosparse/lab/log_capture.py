"""Warnings of the library, collected instead of shown."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def captured_warnings() -> Iterator[list[str]]:
    """Collect what the library warns of inside the block, in order.

    Example:
        >>> with captured_warnings() as messages:
        ...     logging.getLogger("orthosparse.sparsify").warning("raised: %s", "fc1")
        >>> messages
        ['raised: fc1']
    """
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("orthosparse")
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield messages
    finally:
        logger.handlers, logger.propagate = before
