"""`orthosparse paper`: list, run and report the tables and figures of the paper, and merge results."""

from collections.abc import Sized
from pathlib import Path
from typing import Annotated

import typer

from orthosparse.lab.commands._merging import conclude_merge, files_of, say_what_differs
from orthosparse.lab.commands._options import (
    ROOT,
    Device,
    Json,
    Root,
    by_name,
    choice,
    counted,
    group,
    print_json,
)
from orthosparse.lab.commands._sweep import (
    asked_pairs,
    check_engine,
    check_queued,
    check_times,
    conclude,
    conclude_starts,
    device_name,
    estimates_of,
    limit_of,
    pairs_of_entry,
    queued_pairs,
    warn_of_commit,
    warn_of_device,
    without_data,
)

RESUMES_WITH = ()  # what an interrupted command needs beside itself to go on: nothing
_STORE = Path("runs/paper/results.sqlite")

paper = group(
    "List, run and render the tables and figures of the paper.",
    "orthosparse paper list",
    "orthosparse paper queue",
    "orthosparse paper run contemporary --only model=resnet32 --root data --budget 2h",
    "orthosparse paper report --out report.html",
)

_FORMAT = choice("format", "Format of the file; by default the one that its name ends in, or html.", "--format")
_ONLY = (
    "Run only experiments that match: FIELD=VALUE, or a glob on the experiment's label. Several filters of one field "
    "are alternatives; filters of different fields must all match. If nothing matches, the error lists the fields "
    "and values."
)
Stored = Annotated[Path, typer.Option("--store", help="File that holds the rows.")]


@paper.command("list")
def list_(store: Stored = _STORE, json: Json = False) -> None:
    """List the tables and figures, and how much of each is measured.

    A pair is an experiment and a seed, and has one row of results. Rows that differ only in epochs or precision, or
    that have additional seeds, are counted as other rows. Cells counts the cells of the paper's tables that we have
    measured at the paper's number of epochs.

    \b
    Examples:
      orthosparse paper list
      orthosparse paper list --json
    """
    from orthosparse.lab.paper import ITEMS
    from orthosparse.lab.paper._chapters import chapters_of
    from orthosparse.lab.paper.status import status_of, status_table
    from orthosparse.lab.rendering.terminal import console, print_table
    from orthosparse.lab.sweep.store import rows_in

    rows = rows_in(store)
    found = [status_of(chapter) for chapter in chapters_of(ITEMS, rows)]
    if json:
        print_json(found)
    else:
        print_table(status_table(found), console(), widest=60)
        _say_if_empty(store, rows)


@paper.command()
def queue(
    on: Annotated[
        str | None,
        typer.Option(help="Device to estimate for, as named in its rows, such as 'NVIDIA H200'; by default this one."),
    ] = None,
    store: Stored = _STORE,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """List what to measure next, in order, with estimated minutes.

    Estimates come from rows that were measured on the same device before; a ~ (with --json, "rough": true) marks those
    without such rows. `paper run --minutes` works through this list.

    \b
    Examples:
      orthosparse paper queue
      orthosparse paper queue --on 'NVIDIA H200' --json
    """
    from orthosparse.lab.paper.forecast import forecast_of, forecast_table
    from orthosparse.lab.paper.queue import QUEUE
    from orthosparse.lab.rendering.terminal import console, print_table
    from orthosparse.lab.sweep.store import rows_in

    rows, name = rows_in(store), on or device_name(device)
    steps = [(entry, pairs_of_entry(entry)) for entry in QUEUE]
    found = forecast_of(steps, {(row["key"], row["seed"]) for row in rows}, estimates_of(rows, name))
    if json:
        print_json(found)
        return
    print_table(forecast_table(found), console())
    _say_if_empty(store, rows)
    if any(each["rough"] for each in found):
        warn_of_device(rows, name)


def _say_if_empty(store: Path, rows: Sized, *, err: bool = False) -> None:
    """Tell of committed rows: a new checkout has them in files of text."""
    if not rows:
        hint = "`orthosparse paper merge results` adds those of this repository."
        typer.echo(f"{store} has no rows yet: {hint}", err=err)


@paper.command()
def run(
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ITEM",
            help="Tables or figures to run, see `paper list`; with --minutes, by default those of `paper queue`.",
            **by_name("item"),
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, such as 1,2,3; by default the item's own, or its first one with --smoke.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="FILTER", help=_ONLY)] = None,
    engine: Annotated[str, choice("engine", "Where to run.")] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Pairs to run at the same time; by default 1 (local) or as many as fit (ray)."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster; by default one is started on this machine.")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option(min=0.0, help="With ray, the fraction of a GPU for each pair, such as 0.25.")
    ] = None,
    together: Annotated[
        int | None, typer.Option(min=1, help="Train up to this many networks of the same shape together in one stack.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time limit, such as 25m; starts only what is expected to finish within it.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Run for this many minutes, then stop; the same command continues."),
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile networks outside of stacks with torch.compile, see `train`.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of every training, instead of the paper's.")] = None,
    precision: Annotated[str | None, choice("precision", "Precision of every training.")] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run a tiny version that checks that everything works.")
    ] = False,
    root: Root = ROOT,
    store: Stored = _STORE,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Run every pair that has no row yet.

    A pair is an experiment and a seed. If the command was killed, stopped or ran out of time, the same command
    continues where it was. Several commands that use the same store share the work. Runs with other --epochs or another
    --precision get separate rows, which the report marks and compares only with each other. The exit code is 1 if a
    pair failed.

    \b
    Examples:
      orthosparse paper run efficiency --seeds 1,2,3 --budget 25m
      orthosparse paper run contemporary --only model=resnet32 --only distribution=erk --root data
      orthosparse paper run contemporary --only '*synflow eoi*' --jobs 2
      orthosparse paper run deep_networks --smoke
      orthosparse paper run deep_networks --only model=mlp1000 --seeds 1,2,3 --together 63 --root data
      orthosparse paper run --minutes 9 --root data
    """
    from functools import partial

    from orthosparse.lab.sweep.budget import run_for
    from orthosparse.lab.sweep.display import Display
    from orthosparse.lab.sweep.engines import ENGINES
    from orthosparse.lab.sweep.pairs import perform
    from orthosparse.lab.sweep.runner import run as sweep
    from orthosparse.lab.sweep.store import Store
    from orthosparse.registry import lookup

    changes = {"epochs": epochs, "precision": precision}
    check_times(items, minutes, budget, engine)
    if not items:
        check_queued(seeds=seeds, only=only, together=together, smoke=smoke, **changes)
    start = partial(lookup(ENGINES, engine, "engine"), jobs=jobs, address=address, gpus=gpus)
    check_engine(engine, device, address, gpus, precision)
    steps = [(asked_pairs(items, seeds, only, smoke=smoke, **changes), together)] if items else queued_pairs()
    kept, folder = Store(store), root.expanduser().absolute()
    names = kept.names()
    missing = [pair for pairs, _ in steps for pair in pairs if pair.name not in names]
    lost = {} if address else without_data(missing, folder)  # a cluster has its own
    if len(missing) > len(lost) and not smoke and not address:
        warn_of_commit()
    if not items:
        _say_if_empty(store, names, err=True)
    steps = [([pair for pair in pairs if pair not in lost], size) for pairs, size in steps]
    work = partial(perform, root=folder, runs=kept.runs.absolute(), device=device, compiled=compiled)
    with Display() as display:
        if minutes is None:
            limit = None if budget is None else limit_of(budget, kept, device)
            summary = sweep(steps[0][0], kept, start, perform=work, together=together, budget=limit, display=display)
        else:
            times = estimates_of(kept.rows(), device_name(device))
            summary = run_for(60 * minutes, steps, kept, start, perform=work, estimates=times, display=display)
    summary.failed += lost.values()
    conclude(summary, kept, json=json)


@paper.command()
def prepare(
    items: Annotated[
        list[str], typer.Argument(metavar="ITEM", help="Tables or figures, see `paper list`.", **by_name("item"))
    ],
    together: Annotated[int, typer.Option(min=1, help="As for `paper run`.")],
    seeds: Annotated[str | None, typer.Option(help="As for `paper run`.")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="FILTER", help=_ONLY)] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="As for `paper run`.")] = None,
    precision: Annotated[str | None, choice("precision", "As for `paper run`.")] = None,
    root: Root = ROOT,
    store: Stored = _STORE,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Make the starts of networks that train in one stack, and do not train them.

    Masks and initial weights are then ready for `paper run` with the same options. It may run on another machine, if
    the folder that this command names is copied there, next to the store: a GPU then need not wait for a CPU. The exit
    code is 1 if a start could not be made.

    \b
    Examples:
      orthosparse paper prepare contemporary --only model=resnet32 --seeds 1 --precision bf16 --together 40 --root data
    """
    from orthosparse.lab.sweep.display import Display
    from orthosparse.lab.sweep.preparing import prepare as prepare_starts
    from orthosparse.lab.sweep.store import Store

    check_engine("local", device, None, None, precision)
    pairs = asked_pairs(items, seeds, only, epochs=epochs, precision=precision)
    kept, folder = Store(store), root.expanduser().absolute()
    lost = without_data([pair for pair in pairs if pair.name not in kept.names()], folder)
    with Display() as display:
        there = [pair for pair in pairs if pair not in lost]
        found = prepare_starts(there, kept, together, root=folder, device=device, display=display)
    found.problems += [f"{pair}: {outcome.error}" for pair, outcome in lost.items()]
    conclude_starts(found, kept, json=json)


@paper.command()
def report(
    out: Annotated[Path, typer.Option(help="File to write.")],
    format: Annotated[str | None, _FORMAT] = None,  # noqa: A002 - its name
    smoke: Annotated[bool, typer.Option("--smoke", help="Report the rows of --smoke runs.")] = False,
    store: Stored = _STORE,
) -> None:
    """Write every table and figure with the paper's numbers and ours side by side.

    \b
    Examples:
      orthosparse paper report --out report.html
      orthosparse paper report --out tables.tex
    """
    from orthosparse.lab.paper.report import write_report
    from orthosparse.lab.sweep.store import Store

    if not store.exists():
        raise FileNotFoundError(f"store: {store} does not exist; `orthosparse paper run` or `paper merge` creates it")
    if out.is_dir():
        raise ValueError(f"out: expected a file; got the folder {out}")
    rows = Store(store).rows()
    write_report(rows, out, format=format or out.suffix.removeprefix(".").lower() or "html", smoke=smoke)
    typer.echo(f"{counted(len(rows), 'row')} in {out}")


@paper.command()
def merge(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text files of rows, or folders of such files; by default results.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Then write all rows to this file, or to this folder with one file per kind of row."),
    ] = None,
    store: Stored = _STORE,
    json: Json = False,
) -> None:
    """Add the rows of text files to the store, and export all rows if asked.

    Rows that are damaged or of another version are reported and left out; the exit code is then 1.

    \b
    Examples:
      orthosparse paper merge
      orthosparse paper merge theirs.jsonl --export results
    """
    from orthosparse.lab.sweep.rows import export as write
    from orthosparse.lab.sweep.store import Store

    found = files_of(files)
    kept = Store(store)
    merged = kept.merge(found)
    say_what_differs(merged)
    exported = {} if export is None else write(kept.rows(), export)
    conclude_merge(merged, found, exported, json=json)
