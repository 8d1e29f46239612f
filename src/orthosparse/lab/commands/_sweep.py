"""A sweep as it is asked for, and what is said when it ends."""

from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import typer

from orthosparse.lab.commands._options import counted, print_json, whole_numbers
from orthosparse.lab.names import check_name

_NAMED = 4  # devices that a message names


def pairs_of(item: Any, seeds: list[int] | None, *, smoke: bool, **changes: Any) -> list[Any]:
    """Return the pairs of an item, seed by seed; of a tiny version, those of its first seed alone.

    Args:
        changes: fields of the recipe (epochs, precision) that every training gets; None leaves each its own.
    """
    from orthosparse.lab.sweep.pairs import Pair

    asked = {name: value for name, value in changes.items() if value is not None}
    experiments = [_changed(each, asked) for each in item.experiments(smoke=smoke)]
    own = item.SEEDS[:1] if smoke else item.SEEDS
    return [Pair(experiment, seed) for seed in seeds or own for experiment in experiments]


def asked_pairs(
    items: Sequence[str], seeds: str | None, only: list[str] | None, *, smoke: bool = False, **changes: Any
) -> list[Any]:
    """Return the pairs of items that pass the filters; see `pairs_of`.

    Raises:
        ValueError: an unknown item, seeds that are none, filters that nothing passes, changes where nothing is trained.
    """
    from orthosparse.lab.paper import ITEMS
    from orthosparse.registry import lookup

    chosen = [lookup(ITEMS, name, "item") for name in items]
    asked = None if seeds is None else whole_numbers(seeds)
    pairs = [pair for item in chosen for pair in pairs_of(item, asked, smoke=smoke, **changes)]
    pairs = only_those(pairs, only) if only else pairs
    check_changes(pairs, **changes)
    return pairs


def check_changes(pairs: list[Any], **changes: Any) -> None:
    """Raise a ValueError that names what is asked for of trainings, where there are none."""
    from orthosparse.lab.experiments.training import Training

    asked = [name for name, value in changes.items() if value is not None]
    if asked and pairs and not any(isinstance(pair.experiment, Training) for pair in pairs):
        raise ValueError(f"{asked[0]}: expected an item with trainings; these experiments train nothing")


def _changed(experiment: Any, asked: dict[str, Any]) -> Any:
    """Return a training with what is asked for, and anything else as it is."""
    from dataclasses import replace

    from orthosparse.lab.experiments.training import Training

    return replace(experiment, **asked) if isinstance(experiment, Training) else experiment


def only_those(pairs: list[Any], filters: list[str]) -> list[Any]:
    """Return the pairs whose experiments pass the filters."""
    from orthosparse.lab.experiments.selection import selected

    passing = set(selected(list(dict.fromkeys(pair.experiment for pair in pairs)), filters))
    return [pair for pair in pairs if pair.experiment in passing]


def without_data(pairs: Iterable[Any], root: Path) -> dict[Any, Any]:
    """Return the pairs whose data set is not below `root`, with outcomes that name the command that gets it."""
    from orthosparse.lab.data.sources import absent
    from orthosparse.lab.sweep.pairs import Outcome

    why = cache(partial(absent, root=root))
    reads = {pair: pair.experiment.reads() for pair in pairs}
    return {
        pair: Outcome(pair, error=f"FileNotFoundError: {why(name)}")
        for pair, name in reads.items()
        if name is not None and why(name) is not None
    }


def estimates_of(rows: Iterable[Any], name: str) -> Any:
    """Return what the rows of the device called `name` tell of times."""
    from orthosparse.lab.sweep.estimates import Estimates

    estimates = Estimates()
    estimates.learn(rows, name)
    return estimates


def device_name(device: str) -> str:
    """Return the name by which rows know a device."""
    from orthosparse.lab.sweep.pairs import origin

    name: str = origin(device)["device"]
    return name


def pairs_of_entry(entry: Any) -> list[Any]:
    """Return the pairs of an entry of the queue."""
    from orthosparse.lab.paper import ITEMS

    pairs = pairs_of(ITEMS[entry.item], list(entry.seeds), smoke=False, precision=entry.precision)
    return only_those(pairs, list(entry.only)) if entry.only else pairs


def warn_of_commit() -> None:
    """Say so where rows will not name a commit that has the code which makes them."""
    from orthosparse.lab.provenance import commit

    found = commit()
    if found is None:
        typer.echo("warning: rows will name no commit, as none is known; set ORTHOSPARSE_COMMIT to it", err=True)
    elif found.endswith("+changes"):
        typer.echo(f"warning: rows will name the commit {found}, as files differ from it", err=True)


def warn_of_device(rows: Sequence[Any], name: str) -> None:
    """Say what a ~ means: networks of which none of the rows was measured on the device called `name`."""
    from orthosparse.registry import listed

    devices = sorted({row["device"] for row in rows} - {name})
    others = f"; there are rows of {listed(devices, _NAMED)}" if devices else ""
    typer.echo(f"~ marks what was not measured on {name} yet: its minutes may be far off{others}", err=True)


def check_times(items: list[str] | None, minutes: float | None, budget: str | None, engine: str) -> None:
    """Raise a ValueError where nothing is asked for, or a time that is none."""
    if not items and minutes is None:
        raise ValueError("item: expected at least one, or --minutes for the next ones of `paper queue`; got none")
    if minutes is not None and (not 0 < minutes < float("inf") or budget is not None or engine != "local"):
        raise ValueError(f"minutes: expected more than 0, with --engine local and without --budget; got {minutes:g}")
    if budget is not None:
        from orthosparse.lab.sweep.budget import seconds_of

        seconds_of(budget)


def check_queued(**asked: Any) -> None:
    """Raise a ValueError that names an option which the entries of the queue set themselves."""
    for name, value in asked.items():
        if value:
            raise ValueError(f"{name}: expected items to run; what `paper queue` lists has its own")


def check_engine(engine: str, device: str, address: str | None, gpus: float | None, precision: str | None) -> None:
    """Raise a ValueError where an engine cannot run what is asked for."""
    from orthosparse.lab.training.devices import device_of

    if precision is not None:
        check_name("precision", precision)
    if engine == "local":
        device_of(device)
    if engine == "local" and (address is not None or gpus is not None):
        raise ValueError("engine: local takes no address and no share of a GPU; take --engine ray")


def queued_pairs() -> list[tuple[list[Any], int | None]]:
    """Return the pairs of each entry of the queue, and how many of them train together."""
    from orthosparse.lab.paper.queue import QUEUE

    return [(pairs_of_entry(entry), entry.together) for entry in QUEUE]


def limit_of(budget: str, kept: Any, device: str) -> Any:
    """Return the budget of a time such as 25m."""
    from orthosparse.lab.sweep.budget import Budget, seconds_of

    return Budget(seconds_of(budget), estimates_of(kept.rows(), device_name(device)))


def conclude(summary: Any, store: Any, *, json: bool = False) -> None:
    """Say what a sweep did, each error once; fail if a pair did."""
    if json:
        print_json(
            {
                "run": len(summary.done),
                "had": summary.had,
                "elsewhere": summary.elsewhere,
                "postponed": [str(pair) for pair in summary.postponed],
                "failed": [{"pair": str(outcome.pair), "error": outcome.error} for outcome in summary.failed],
                "store": str(store.path),
            }
        )
    else:
        typer.echo(_summary_text(summary, store))
    if summary.failed:
        _complain(summary, store)
        raise typer.Exit(1)


def conclude_starts(found: Any, store: Any, *, json: bool = False) -> None:
    """Say which starts were made, and each problem; fail if there was one."""
    from dataclasses import asdict

    if json:
        print_json({**asdict(found), "folders": list(map(str, found.folders)), "alone": list(map(str, found.alone))})
    else:
        stacks = counted(len(found.folders), "stack")
        alone = f"; none is kept of {counted(len(found.alone), 'pair')} outside of stacks" if found.alone else ""
        typer.echo(f"{counted(found.starts, 'start')} of {stacks} in {store.runs}{alone}")
    for problem in found.problems:
        typer.echo(f"error: {problem}", err=True)
    if found.problems:
        raise typer.Exit(1)


def _summary_text(summary: Any, store: Any) -> str:
    parts = [f"{counted(len(summary.done), 'pair')} run", f"{summary.had} had a row"]
    parts += [f"{summary.elsewhere} run elsewhere"] if summary.elsewhere else []
    parts += [f"{len(summary.postponed)} left for want of time"] if summary.postponed else []
    parts += [f"{len(summary.failed)} failed"] if summary.failed else []
    return f"{', '.join(parts)}; rows in {store.path}"


def _complain(summary: Any, store: Any) -> None:
    """Tell each error once, and keep the traces."""
    errors = {outcome.error: outcome for outcome in reversed(summary.failed)}
    for error, outcome in errors.items():
        count = sum(failed.error == error for failed in summary.failed)
        pairs = str(outcome.pair) if count == 1 else f"{count} pairs, such as {outcome.pair}"
        typer.echo(f"error: {pairs}: {error}{_logged(outcome, store)}", err=True)


def _logged(outcome: Any, store: Any) -> str:
    """Write where an error came from to a file, and return where that is; nothing for one that no run has raised."""
    if not outcome.trace:
        return ""
    log = store.runs / f"{outcome.pair.folder}.failed.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{outcome.pair}\n\n{outcome.trace}", encoding="utf-8")
    return f" (see {log})"
