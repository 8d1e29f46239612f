"""Text files of rows as they are asked for, and what is said when they are merged."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from orthosparse.lab.commands._options import counted, print_json

_RESULTS = Path("results")
_NAMED = 4  # differences between two rows that a message names


def files_of(paths: Sequence[Path] | None) -> list[Path]:
    """Return the files among paths, then the text files of rows in the folders among them; None is `results`.

    Raises:
        ValueError: a path that does not exist.
    """
    for path in paths or ():
        if not path.exists():
            raise ValueError(f"files: expected files or folders; there is none at {path}")
    folders = [_RESULTS] if paths is None else [path for path in paths if path.is_dir()]
    files = [path for path in paths or () if path not in folders]
    return files + [file for folder in folders for file in sorted(folder.glob("*.jsonl"))]


def conclude_merge(merged: Any, files: Sequence[Path], exported: Mapping[Path, int], *, json: bool = False) -> None:
    """Say what a merge and an export did, with differences and problems; fail if something could not be read."""
    from dataclasses import asdict

    if json:
        written = {str(file): count for file, count in exported.items()}
        print_json({"files": [str(file) for file in files], **asdict(merged), "exported": written})
    else:
        typer.echo(f"{counted(len(files), 'file')}: {counted(merged.added, 'row')} added, {merged.known} known already")
        for file, count in exported.items():
            typer.echo(f"{counted(count, 'row')} in {file}")
    if merged.problems:
        raise typer.Exit(1)


def say_what_differs(merged: Any) -> None:
    """Say which rows were not added: those that differ from the store's, and those that could not be read."""
    from orthosparse.registry import listed

    for key, seed, parts in merged.differing:
        named = listed(parts, _NAMED)
        typer.echo(
            f"kept the store's row of {key} seed {seed}; the other one differs (stored, given): {named}", err=True
        )
    for problem in merged.problems:
        typer.echo(problem, err=True)
