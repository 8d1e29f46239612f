"""Engines: where pairs are run. The same rows come out of all of them.

Every member has one signature::

    name(pairs, perform, *, report, jobs=None, address=None, gpus=None) -> Generator of Outcome

`pairs` is asked for the next one only when there is room to run it, so that whoever makes them can decide late. Bundles
of pairs among them (see `bundles`) are for the local engine alone.
``perform(pair, progress)`` returns a row; it and the pairs are pickled where an engine has processes. ``report(pair,
fraction, words)`` is told how far each has come. A pair whose process dies is run again, twice at most; an error in a
pair ends that pair alone. Closing the iterator ends the work.
"""

from collections.abc import Callable, Generator

from orthosparse.lab.sweep.engines._outcome import Outcome, Perform, Report
from orthosparse.lab.sweep.engines.local import local
from orthosparse.lab.sweep.engines.ray import ray

__all__ = ["ENGINES", "Outcome", "Perform", "Report"]

ENGINES: dict[str, Callable[..., Generator[Outcome, None, None]]] = {"local": local, "ray": ray}
