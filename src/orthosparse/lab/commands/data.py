"""`orthosparse data`: fetch data sets from their official sources, or verify those already there."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._options import ROOT, Json, by_name, check_folder, listing, print_json
from orthosparse.lab.names import check_name

RESUMES_WITH = ()
_NAMES = typer.Argument(
    metavar="NAME",
    help=listing("data", "Data sets to fetch."),
    **by_name("data"),
)


def data(
    names: Annotated[list[str], _NAMES],
    root: Annotated[Path, typer.Option(help="Folder that holds the data sets.")] = ROOT,
    json: Json = False,
) -> None:
    """Download data sets, or verify those that are already there.

    Checksums are verified, and files that are already there are kept. An interrupted download continues where it
    stopped. The exit code is 1 if a data set could not be fetched.

    \b
    Examples:
      orthosparse data mnist cifar10
      orthosparse data cifar100 --root /datasets --json
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from orthosparse.lab.rendering.terminal import console

    for name in names:
        check_name("data", name)
    check_folder(root.expanduser(), "root")
    text, columns = TextColumn("{task.description}"), (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    to = console(stderr=True)
    with Progress(text, BarColumn(), *columns, console=to, transient=True, disable=not to.is_terminal) as progress:

        def announce(file: str) -> Callable[[int, int | None], None]:
            task = progress.add_task(file, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        found = []
        for name in dict.fromkeys(names):
            found.append(_bring(name, root.expanduser(), announce))
            typer.echo(found[-1].pop("message"), err=json or not found[-1]["complete"])
    if json:
        print_json(found)
    if not all(each["complete"] for each in found):
        raise typer.Exit(1)


def _bring(name: str, root: Path, announce: Callable[[str], Callable[[int, int | None], None]]) -> dict[str, Any]:
    """Fetch or verify one set, and return what came of it, its ``message`` in words."""
    from orthosparse.lab.data.fetching import fetch
    from orthosparse.lab.data.sources import SOURCES

    known = {"name": name, "root": str(root), "complete": True, "fetched": False, "error": None}
    if name not in SOURCES:
        return known | {"message": f"{name}: comes with scikit-learn, nothing to fetch"}
    try:
        fetched = fetch(SOURCES[name], root, announce)
    except (OSError, ValueError) as error:
        return known | {"complete": False, "error": str(error), "message": f"error: {name}: {error}"}
    state = "fetched, verified" if fetched else "already there, verified"
    return known | {"fetched": fetched, "message": f"{name}: {state} in {root}"}
