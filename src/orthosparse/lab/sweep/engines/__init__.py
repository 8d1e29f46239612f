"""Engines: where tasks run. The same rows come out of all of them.

Every member has one signature, and gives a context manager; leaving its block ends what is still running::

    with name(perform, report=report, jobs=None, address=None, gpus=None) as engine:
        engine.has_room     # whether a task can be started
        engine.start(task)
        engine.running      # how many tasks run
        engine.wait()       # tasks that are done, and their outcomes; after a while none

``perform(task, progress)`` returns rows; it and the tasks are pickled where an engine has processes. ``report(task,
fraction, words)`` is called with the progress of each. A task whose process dies is run again, twice at most;
an error in a task ends that task alone.
"""

from collections.abc import Callable
from typing import Any

from orthosparse.lazy import LazyTable

__all__ = ["ENGINES"]

ENGINES: LazyTable[Callable[..., Any]] = LazyTable(
    {"local": "orthosparse.lab.sweep.engines.local:local", "ray": "orthosparse.lab.sweep.engines.ray:ray"}
)
