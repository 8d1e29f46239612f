"""`orthosparse data`: fetch data sets from their official sources, or verify those already there."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

_HELP = "Any of mnist, fashion_mnist, cifar10, cifar100, tiny_imagenet, imagenet."


def data(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help=_HELP)],
    root: Annotated[Path, typer.Option(help="The folder under which they lie or are put.")] = Path("data"),
) -> None:
    """Fetch data sets with their checksums; what is already there is verified and kept."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from orthosparse.lab.data import DATA
    from orthosparse.registry import lookup

    for name in names:
        lookup(DATA, name, "data")
    text, rest = TextColumn("{task.description}"), (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(text, BarColumn(), *rest, console=Console(stderr=True), transient=True) as progress:

        def announce(file: str) -> Callable[[int, int | None], None]:
            task = progress.add_task(file, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        done = [_bring(name, root.expanduser(), announce) for name in dict.fromkeys(names)]
    if not all(done):
        raise typer.Exit(1)


def _bring(name: str, root: Path, announce: Callable[[str], Callable[[int, int | None], None]]) -> bool:
    """Fetch or verify one set, say what came of it, and return whether it is complete."""
    from orthosparse.lab.data.fetching import fetch
    from orthosparse.lab.data.sources import SOURCES

    if name not in SOURCES:
        typer.echo(f"{name}: comes with scikit-learn, nothing to fetch")
        return True
    try:
        fetched = fetch(SOURCES[name], root, announce)
    except (OSError, ValueError) as error:
        typer.echo(f"error: {name}: {error}", err=True)
        return False
    typer.echo(f"{name}: {'fetched, verified' if fetched else 'already there, verified'} in {root}")
    return True
