"""Sweeps one after the other in a given time: first what is expected to end in it, then a beginning of the rest."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from orthosparse.lab.signals import stopped_after
from orthosparse.lab.sweep.budget import Budget, Estimates
from orthosparse.lab.sweep.display import Display
from orthosparse.lab.sweep.pairs import Outcome, Pair
from orthosparse.lab.sweep.perform import Perform
from orthosparse.lab.sweep.runner import Summary, run
from orthosparse.lab.sweep.store import Store


class Step(NamedTuple):
    """Pairs of a sweep, and how many networks of the same shape may train in one stack; None trains each alone."""

    pairs: Sequence[Pair]
    together: int | None = None


def run_for(
    seconds: float,
    steps: Sequence[Step],
    store: Store,
    engine: Callable[..., Any],
    *,
    perform: Perform,
    estimates: Estimates,
    display: Display | None = None,
) -> Summary:
    """Run steps in their order until the time is over, stop cleanly, and return what was done.

    What was begun in an earlier call is resumed, and what is expected to end in time is run first. Then the first pair
    that is left is begun all the same: once the time is over it keeps its checkpoint, and the next call resumes it.
    """
    pairs = list(dict.fromkeys(pair for step in steps for pair in step.pairs))
    before, failed = store.names(), dict[tuple[str, int], Outcome]()
    with stopped_after(seconds):
        for budget in (Budget(seconds, estimates, resumes=True), None):
            for step in steps:
                left = [pair for pair in step.pairs if pair.name not in failed]
                found = run(
                    left, store, engine, perform=perform, together=step.together, budget=budget, display=display
                )
                failed |= {outcome.pair.name: outcome for outcome in found.failed}
    names = store.names()
    return Summary(
        had=sum(pair.name in before for pair in pairs),
        done=[pair for pair in pairs if pair.name in names - before],
        failed=list(failed.values()),
        postponed=[pair for pair in pairs if pair.name not in names and pair.name not in failed],
    )
