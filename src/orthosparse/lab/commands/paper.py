"""`orthosparse paper`: list, run and report the tables and figures of the paper, and merge results."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._options import Device, Json, Root, group, print_json, whole_numbers
from orthosparse.lab.commands._sweep import budget_of, check_changes, conclude, only_those, pairs_of
from orthosparse.lab.names import check_name, completing

RESUMES_WITH = ()  # what an interrupted command needs beside itself to go on: nothing
_STORE = Path("runs/paper/results.sqlite")
_RESULTS = Path("results")
_NAMED = 4  # differences between two rows that a message names

paper = group(
    "List, run and render the tables and figures of the paper.",
    "orthosparse paper list",
    "orthosparse paper run contemporary --only model=resnet32 --root data --budget 2h",
    "orthosparse paper report --out report.html",
)

_FORMAT = typer.Option("--format", help="html, md, csv or tex.", autocompletion=completing("format"))
_ONLY = (
    "FIELD=VALUE, or words of an experiment, globs allowed; filters of one field are alternatives, fields add up. "
    "One that fits nothing is answered with the fields and values there are."
)
Stored = Annotated[Path, typer.Option("--store", help="The file that holds the rows.")]


@paper.command("list")
def list_(store: Stored = _STORE, json: Json = False) -> None:
    """Name every item, and say how much of it has rows.

    A pair is an experiment and a seed; each has one row. Rows that differ in epochs or precision alone, or have further
    seeds, are counted as other rows.

    \b
    Examples:
      orthosparse paper list
      orthosparse paper list --json
    """
    from orthosparse.lab.paper import ITEMS
    from orthosparse.lab.sweep.store import Store

    names = Store(store).names() if store.exists() else set()
    found = [_status(name, item, names) for name, item in ITEMS.items()]
    if json:
        print_json(found)
    else:
        _print_list(found)


def _status(name: str, item: Any, names: set[tuple[str, int]]) -> dict[str, Any]:
    from orthosparse.lab.paper import family

    pairs = pairs_of(item, None, smoke=False)
    asked = {pair.name for pair in pairs}
    done = len(asked & names)
    families = {family(key) for key, _ in asked}
    others = sum(family(key) in families for key, _ in names - asked)
    status = "complete" if done == len(pairs) else "begun" if done or others else "not yet run"
    status = status if pairs else "nothing to run"
    counts = {"done": done, "pairs": len(pairs), "others": others}
    return {"item": name, **counts, "status": status, "title": item.TITLE}


def _print_list(found: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from orthosparse.lab.rendering import console

    table = Table("item", "pairs", "status", "title", box=None, pad_edge=False)
    for each in found:
        more = f", {each['others']} other row{'s' * (each['others'] > 1)}" * (each["others"] > 0)
        table.add_row(each["item"], f"{each['done']}/{each['pairs']}", each["status"] + more, each["title"])
    console().print(table)


@paper.command()
def run(
    items: Annotated[
        list[str],
        typer.Argument(metavar="ITEM", help="What to run; `paper list` names them.", autocompletion=completing("item")),
    ],
    seeds: Annotated[
        str | None, typer.Option(help="Such as 1,2,3; by default the item's own, with --smoke the first of them.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="FILTER", help=_ONLY)] = None,
    engine: Annotated[str, typer.Option(help="local or ray.", autocompletion=completing("engine"))] = "local",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Pairs at once; by default 1 (local), what fits (ray).")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; by default one is started here.")] = None,
    gpus: Annotated[float | None, typer.Option(help="With ray: the share of a GPU for a pair, such as 0.25.")] = None,
    together: Annotated[
        int | None, typer.Option(min=1, help="Train up to so many networks of one shape (1000 layers) as one.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Such as 25m: start nothing that cannot end in time.")] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Have torch compile networks, see `train`.")] = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of every training, instead of the paper's.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Of every training: fp32, tf32, bf16 or fp64.", autocompletion=completing("precision")),
    ] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="A tiny version, to see that everything works.")] = False,
    root: Root = Path("data"),
    store: Stored = _STORE,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Run what has no row yet; the same command goes on.

    A pair is an experiment and a seed. Killed, stopped or out of time, the command goes on where it was. Runners that
    share a store share the work. Rows of other --epochs or of another --precision are rows of their own; the report
    says so, and compares equals. The exit code is 1 if a pair failed.

    \b
    Examples:
      orthosparse paper run efficiency --seeds 1,2,3 --budget 25m
      orthosparse paper run contemporary --only model=resnet32 --only distribution=erk --root data
      orthosparse paper run contemporary --only '*synflow eoi*' --jobs 2
      orthosparse paper run deep_networks --smoke
      orthosparse paper run deep_networks --only model=mlp1000 --seeds 1,2,3 --together 63 --root data
    """
    from functools import partial

    from orthosparse.lab.experiments import resolved
    from orthosparse.lab.paper import ITEMS
    from orthosparse.lab.sweep.display import Display
    from orthosparse.lab.sweep.engines import ENGINES
    from orthosparse.lab.sweep.perform import perform
    from orthosparse.lab.sweep.runner import run as sweep
    from orthosparse.lab.sweep.store import Store
    from orthosparse.registry import lookup

    chosen = [lookup(ITEMS, item, "item") for item in items]
    started = partial(lookup(ENGINES, engine, "engine"), jobs=jobs, address=address, gpus=gpus)
    asked = None if seeds is None else whole_numbers(seeds)
    if precision is not None:
        check_name("precision", precision)
    if engine == "local":
        resolved(device)
    own = {"epochs": epochs, "precision": precision}
    pairs = [pair for item in chosen for pair in pairs_of(item, asked, smoke=smoke, **own)]
    pairs = only_those(pairs, only) if only else pairs
    check_changes(pairs, **own)
    kept = Store(store)
    places: dict[str, Any] = {"root": root.expanduser().absolute(), "runs": kept.runs.absolute(), "device": device}
    time = None if budget is None else budget_of(budget, kept, device)
    with Display() as display:
        work = partial(perform, **places, compiled=compiled)
        summary = sweep(pairs, kept, started, perform=work, together=together, budget=time, display=display)
    conclude(summary, kept, json=json)


@paper.command()
def report(
    out: Annotated[Path, typer.Option(help="The file to write.")],
    format: Annotated[str, _FORMAT] = "html",  # noqa: A002 - its name
    smoke: Annotated[bool, typer.Option("--smoke", help="Of the tiny versions.")] = False,
    store: Stored = _STORE,
) -> None:
    """Write every item with the paper's numbers and ours side by side.

    \b
    Examples:
      orthosparse paper report --out report.html
      orthosparse paper report --out tables.tex --format tex
    """
    from orthosparse.lab.paper.report import write_report
    from orthosparse.lab.sweep.store import Store

    if not store.exists():
        raise FileNotFoundError(f"store: {store} is not there; `orthosparse paper run` or `paper merge` makes it")
    if out.is_dir():
        raise ValueError(f"out: expected a file; got the folder {out}")
    rows = Store(store).rows()
    write_report(rows, out, format=format, smoke=smoke)
    typer.echo(f"{len(rows)} rows in {out}")


@paper.command()
def merge(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text files of rows, or folders of such; by default results.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Then write all rows: to a file, or to a folder with a file for each kind.")
    ] = None,
    store: Stored = _STORE,
    json: Json = False,
) -> None:
    """Add the rows of text files to the store, and write them out again.

    What is torn or of another version is named and left out; the exit code is 1 then.

    \b
    Examples:
      orthosparse paper merge
      orthosparse paper merge theirs.jsonl --export results
    """
    from dataclasses import asdict

    from orthosparse.lab.sweep.store import Store

    kept = Store(store)
    folders = [_RESULTS] if files is None else [place for place in files if place.is_dir()]
    found = [place for place in files or () if not place.is_dir()]
    found += [file for folder in folders for file in sorted(folder.glob("*.jsonl"))]
    merged = kept.merge(found)
    said = f"{len(found)} files: {merged.added} rows added, {merged.known} known already"
    for key, seed, parts in merged.differing:
        more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
        listed = ", ".join(parts[:_NAMED]) + more
        typer.echo(f"kept the store's own row of {key} seed {seed}; here and there differ: {listed}", err=True)
    for problem in merged.problems:
        typer.echo(problem, err=True)
    exported = {} if export is None else kept.export(export)
    written = {str(file): count for file, count in exported.items()}
    if json:
        print_json({"files": [str(file) for file in found], **asdict(merged), "exported": written})
    else:
        typer.echo("\n".join([said, *(f"{count} rows in {file}" for file, count in written.items())]))
    if merged.problems:
        raise typer.Exit(1)
