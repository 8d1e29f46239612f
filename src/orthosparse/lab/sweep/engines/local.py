"""Local: pairs one after the other in this process, or side by side in processes of this machine."""

from collections.abc import Generator, Iterable, Iterator
from functools import partial

from orthosparse.lab.signals import Interrupt, raise_interrupt
from orthosparse.lab.sweep.bundles import Bundle
from orthosparse.lab.sweep.engines._outcome import Outcome, Perform, Report, attempt, attempt_together
from orthosparse.lab.sweep.engines._workers import Workers
from orthosparse.lab.sweep.pairs import Pair

RETRIES = 2


def local(
    pairs: Iterable[Pair | Bundle],
    perform: Perform,
    *,
    report: Report,
    jobs: int | None = None,
    address: str | None = None,
    gpus: float | None = None,
) -> Generator[Outcome, None, None]:
    """Yield the outcome of each pair as it comes, from `jobs` processes; without a number, from this one.

    Alone among the engines, and without other processes, it also runs bundles.

    Raises:
        ValueError: an address or a share of a GPU, which belong to a cluster.
        TypeError: a bundle for several processes.
    """
    if address is not None or gpus is not None:
        raise ValueError("engine: local takes no address and no share of a GPU; take --engine ray")
    if jobs is None or jobs == 1:
        return _here(pairs, perform, report)
    return _beside(pairs, perform, report, jobs)


def _here(pairs: Iterable[Pair | Bundle], perform: Perform, report: Report) -> Generator[Outcome, None, None]:
    for unit in pairs:
        if isinstance(unit, Bundle):
            yield from attempt_together(unit, report)
        else:
            yield attempt(perform, unit, partial(report, unit))


def _single(units: Iterable[Pair | Bundle]) -> Iterator[Pair]:
    for unit in units:
        if isinstance(unit, Bundle):
            raise TypeError("pairs: bundles run in one process, without jobs")
        yield unit


def _beside(
    pairs: Iterable[Pair | Bundle], perform: Perform, report: Report, jobs: int
) -> Generator[Outcome, None, None]:
    source = _single(pairs)
    again: list[Pair] = []  # whose process died
    deaths: dict[Pair, int] = {}
    # Workers within: they have their time to save before a signal acts as usual again.
    with Interrupt(raise_interrupt), Workers(perform, jobs) as workers:
        while True:
            while workers.free and (pair := again.pop() if again else next(source, None)) is not None:
                workers.give(pair)
            if not workers.busy:
                return
            for pair, message in workers.messages():
                if isinstance(message, Outcome):
                    yield message
                elif message is not None:
                    report(pair, *message)
                elif deaths.setdefault(pair, 0) < RETRIES:
                    deaths[pair] += 1
                    again.append(pair)
                else:
                    yield Outcome(pair, error=f"RuntimeError: its process died {RETRIES + 1} times")
