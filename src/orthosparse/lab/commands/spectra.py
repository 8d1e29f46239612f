"""`orthosparse spectra`: the paper's figure of singular values, as rows and as a picture."""

from pathlib import Path
from typing import Annotated

import typer

_COMPAT = "paper-code: scores as the paper's released code computes them."


def spectra(
    root: Annotated[Path, typer.Option(help="The folder that holds MNIST.")] = Path("data"),
    out: Annotated[Path, typer.Option(help="Where rows and pictures go.")] = Path("runs/spectra"),
    seeds: Annotated[str, typer.Option(help="One or more, with commas between them.")] = "1",
    ai_iterations: Annotated[int, typer.Option(help="Of AI's descent; the paper has 10000.")] = 1000,
    compat: Annotated[str | None, typer.Option(help=_COMPAT)] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many points: a trial.")] = None,
) -> None:
    """Reproduce the figure of section 5.1: singular values at the start against density, for a 7 x 100 MLP on MNIST.

    648 points a seed, a few minutes on two cores. Rows that --out already has are not computed again, so the same
    command goes on where it was stopped.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from orthosparse.lab.data import load
    from orthosparse.lab.rendering import console
    from orthosparse.lab.spectra import experiments, render, run
    from orthosparse.lab.threads import one_thread

    chosen = _numbers(seeds)
    asked = experiments(ai_iterations=ai_iterations, compat=compat)[:limit]
    data, to = load("mnist", root), console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=to, transient=True, disable=not to.is_terminal)
    with one_thread(), bar as progress:
        task = progress.add_task("points", total=len(asked) * len(chosen))
        rows = run(
            asked,
            data,
            out / "singular_values.jsonl",
            seeds=chosen,
            announce=lambda done: progress.update(task, completed=done),
        )
    for ending in ("png", "svg"):
        render(rows, out / f"singular_values.{ending}")
    typer.echo(f"{len(rows)} rows in {out / 'singular_values.jsonl'}; pictures beside them (.png, .svg)")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"seeds: expected integers with commas between them; got {text!r}") from error
