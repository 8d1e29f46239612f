"""`orthosparse paper`: list, run and report the tables and figures of the paper, and merge results."""

from pathlib import Path
from typing import Annotated, Any

import typer

_STORE = Path("runs/paper/results.sqlite")
_RESULTS = Path("results")

paper = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="The tables and figures of the paper: list them, run them, render them next to the paper's numbers.",
)

Stored = Annotated[Path, typer.Option("--store", help="The file that holds the rows.")]


@paper.command("list")
def list_(store: Stored = _STORE) -> None:
    """Name every item and say how many of its pairs (experiment, seed) have a row."""
    from rich.console import Console
    from rich.table import Table

    from orthosparse.lab.paper import ITEMS
    from orthosparse.lab.results import Store

    names = Store(store).names() if store.exists() else set()
    table = Table("item", "pairs", "status", "title", box=None, pad_edge=False)
    for name, item in ITEMS.items():
        pairs = _pairs(item, None, smoke=False)
        done = sum(pair.name in names for pair in pairs)
        status = "complete" if done == len(pairs) else "begun" if done else "not yet run"
        status = status if pairs else "nothing to run"
        table.add_row(name, f"{done}/{len(pairs)}", status, item.TITLE)
    Console(width=None if Console().is_terminal else 160).print(table)


@paper.command()
def run(
    items: Annotated[list[str], typer.Argument(metavar="ITEM...", help="What to run; `paper list` names them.")],
    seeds: Annotated[str | None, typer.Option(help="Such as 1,2,3; by default the item's own.")] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Pairs at once; by default 1 (local), what fits (ray).")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; by default one is started here.")] = None,
    gpus: Annotated[float | None, typer.Option(help="With ray: the share of a GPU for a pair, such as 0.25.")] = None,
    budget: Annotated[str | None, typer.Option(help="Such as 25m: start nothing that cannot end in time.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of every training, instead of the paper's.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="A tiny version, to see that everything works.")] = False,
    root: Annotated[Path, typer.Option(help="The folder that holds the data.")] = Path("data"),
    store: Stored = _STORE,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:INDEX.")] = "auto",
) -> None:
    """Run the pairs of items that have no row yet; killed or stopped, the same command goes on.

    Runners that share a store share the work.

    orthosparse paper run efficiency --seeds 1,2,3 --budget 25m
    """
    from functools import partial

    from orthosparse.lab.engines import ENGINES
    from orthosparse.lab.experiments import resolved
    from orthosparse.lab.pairs import perform
    from orthosparse.lab.paper import ITEMS
    from orthosparse.lab.results import Store
    from orthosparse.lab.runner import Display
    from orthosparse.lab.runner import run as sweep
    from orthosparse.registry import lookup

    chosen = [lookup(ITEMS, item, "item") for item in items]
    started = partial(lookup(ENGINES, engine, "engine"), jobs=jobs, address=address, gpus=gpus)
    asked = None if seeds is None else _seeds(seeds)
    if engine == "local":
        resolved(device)
    pairs = [pair for item in chosen for pair in _pairs(item, asked, smoke=smoke, epochs=epochs)]
    kept = Store(store)
    work = partial(perform, root=root.expanduser().absolute(), runs=kept.runs.absolute(), device=device)
    time = None if budget is None else _budget(budget, kept, device)
    with Display() as display:
        summary = sweep(pairs, kept, started, perform=work, budget=time, display=display)
    _conclude(summary, kept)


@paper.command()
def report(
    out: Annotated[Path, typer.Option(help="The file to write.")],
    format: Annotated[str, typer.Option("--format", help="html, md, csv or tex.")] = "html",  # noqa: A002 - its name
    smoke: Annotated[bool, typer.Option("--smoke", help="Of the tiny versions.")] = False,
    store: Stored = _STORE,
) -> None:
    """Write every item with the paper's numbers and ours side by side."""
    from orthosparse.lab.paper.report import write_report
    from orthosparse.lab.results import Store

    if not store.exists():
        raise FileNotFoundError(f"store: {store} is not there; `orthosparse paper run` or `paper merge` makes it")
    rows = Store(store).rows()
    write_report(rows, out, format=format, smoke=smoke)
    typer.echo(f"{len(rows)} rows in {out}")


@paper.command()
def merge(
    files: Annotated[list[Path] | None, typer.Argument(help="Text files of rows; by default results/*.jsonl.")] = None,
    export: Annotated[
        Path | None, typer.Option(help="Then write all rows: to a file, or to a folder with a file for each kind.")
    ] = None,
    store: Stored = _STORE,
) -> None:
    """Add the rows of text files to the store, and write them out again."""
    from orthosparse.lab.results import Store

    kept = Store(store)
    found = sorted(_RESULTS.glob("*.jsonl")) if files is None else files
    merged = kept.merge(found)
    typer.echo(f"{len(found)} files: {merged.added} rows added, {merged.known} known already")
    for key, seed in merged.differing:
        typer.echo(f"kept the store's own row, which differs: {key} seed {seed}", err=True)
    for problem in merged.problems:
        typer.echo(problem, err=True)
    if export is not None:
        _export(kept, export)
    if merged.problems:
        raise typer.Exit(1)


def _export(store: Any, path: Path) -> None:
    if path.suffix == ".jsonl":
        typer.echo(f"{store.export(path)} rows in {path}")
        return
    for kind in sorted({row["kind"] for row in store.rows()}):
        file = path / f"{kind}.jsonl"
        typer.echo(f"{store.export(file, kind)} rows in {file}")


def _pairs(item: Any, seeds: list[int] | None, *, smoke: bool, epochs: int | None = None) -> list[Any]:
    from dataclasses import replace

    from orthosparse.lab.experiments import Training
    from orthosparse.lab.pairs import Pair

    experiments = item.experiments(smoke=smoke)
    if epochs is not None:
        experiments = [replace(each, epochs=epochs) if isinstance(each, Training) else each for each in experiments]
    return [Pair(experiment, seed) for seed in seeds or item.SEEDS for experiment in experiments]


def _seeds(text: str) -> list[int]:
    """Return the seeds of a list like ``1,2,3``.

    Raises:
        ValueError: it is not one.
    """
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise ValueError(f"seeds: expected whole numbers with commas between them, such as 1,2,3; got {text!r}")
    return list(dict.fromkeys(map(int, parts)))


def _budget(text: str, store: Any, device: str) -> Any:
    from orthosparse.lab.pairs import origin
    from orthosparse.lab.runner import Budget, Estimates, seconds_of

    seconds, estimates = seconds_of(text), Estimates()
    estimates.learn(store.rows(), origin(device)["device"])
    return Budget(seconds, estimates)


def _conclude(summary: Any, store: Any) -> None:
    """Say what a sweep did, each error once; fail if a pair did."""
    parts = [f"{len(summary.done)} pairs run", f"{summary.had} had a row"]
    parts += [f"{summary.elsewhere} run elsewhere"] if summary.elsewhere else []
    parts += [f"{len(summary.postponed)} left for want of time"] if summary.postponed else []
    parts += [f"{len(summary.failed)} failed"] if summary.failed else []
    typer.echo(f"{', '.join(parts)}; rows in {store.path}")
    if summary.failed:
        errors = {outcome.error: outcome for outcome in reversed(summary.failed)}
        for error, outcome in errors.items():
            count = sum(failed.error == error for failed in summary.failed)
            log = store.runs / f"{outcome.pair.folder}.failed.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(f"{outcome.pair}\n\n{outcome.trace}")
            typer.echo(f"error: {count} pairs, such as {outcome.pair}: {error} (see {log})", err=True)
        raise typer.Exit(1)
