"""`orthosparse together`: networks of one shape from many starts and seeds, trained as one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._names import completing
from orthosparse.lab.commands._options import Device, Json, named_value, print_json, whole_numbers

RESUMES_WITH = ("--resume",)
ROWS = "rows.jsonl"
_SIZED = ("cnn1000", "mlp", "mlp1000")  # models that come in any depth and width
_STARTS = ["erk/base", "erk/ai,iterations=1000", "erk/eoi", "dense"]
_START = "dense, or DISTRIBUTION/SCHEME[,NAME=VALUE...] (dynamic=rigl or set: masks move); several times for several."
_MOVES = ("dynamic", "every", "fraction", "until")  # values that are not the distribution's or the scheme's


def together(
    model: Annotated[str, typer.Option(help="mlp1000, cnn1000, mlp, resnet32, resnet56 or resnet110.")] = "mlp1000",
    data: Annotated[str, typer.Option(help="A data set.", autocompletion=completing("data"))] = "mnist",
    root: Annotated[Path | None, typer.Option(help="The folder that holds the data.")] = None,
    density: Annotated[float, typer.Option(help="Of the sparse starts.")] = 0.125,
    start: Annotated[list[str] | None, typer.Option(help=_START, show_default=", ".join(_STARTS))] = None,
    seeds: Annotated[str, typer.Option(help="Such as 1,2,3: every start with each of them.")] = "1",
    depth: Annotated[int | None, typer.Option(help="Layers, instead of the model's.")] = None,
    width: Annotated[int | None, typer.Option(help="Of the layers, instead of the model's.")] = None,
    activation: Annotated[
        str | None, typer.Option(help="Instead of the model's.", autocompletion=completing("activation"))
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the recipe's.")] = None,
    lr: Annotated[float | None, typer.Option(help="Instead of the recipe's.")] = None,
    batch: Annotated[int | None, typer.Option(help="Instead of the recipe's.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, tf32, bf16 or fp64.", autocompletion=completing("precision"))
    ] = None,
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Starts, checkpoints and rows; runs/... by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from what is in --out.")] = False,
    json: Json = False,
) -> None:
    """Train networks of one shape from several starts and seeds at once, and compare them.

    On a GPU 45 perceptrons of 1000 layers take a few times as long as one. Each has the start, the masks and the order
    of samples that it would have alone; one that diverges does not disturb the others. A row for each goes to
    rows.jsonl in --out, with the test accuracy after every epoch.

    \b
    Examples:
      orthosparse together --root data
      orthosparse together --root data --start uniform/base --start uniform/eoi --seeds 1,2,3 --epochs 20
      orthosparse together --model cnn1000 --data cifar10 --root data --precision bf16 --depth 300
      orthosparse together --model resnet32 --data cifar10 --root data --density 0.1 --precision bf16
      orthosparse together --root data --start erk/base,dynamic=rigl --start erk/eoi,dynamic=rigl,every=400
      orthosparse together --data digits --depth 100 --width 32 --epochs 10 --lr 0.01
    """
    from orthosparse.lab.training.ensemble import train_ensemble

    shape = {name: value for name, value in {"depth": depth, "width": width}.items() if value is not None}
    if shape and model not in _SIZED:
        raise ValueError(f"{next(iter(shape))}: expected one of the models {', '.join(_SIZED)} with it; got {model}")
    recipe = {"epochs": epochs, "lr": lr, "batch": batch, "precision": precision}
    changes = {name: value for name, value in recipe.items() if value is not None}
    asked = start or _STARTS
    configs = {text: _config(text, density, model, data, changes, shape, activation) for text in asked}
    numbers = whole_numbers(seeds)
    sizes = [f"{name}{value}" for name, value in shape.items()]
    parts = ["together", model, *sizes, data, f"{density:g}", f"seeds{','.join(map(str, numbers))}"]
    folder = out or Path("runs") / "-".join(parts)
    members = [(config, seed) for config in configs.values() for seed in numbers]
    with _shown(quiet=json) as tell:
        ended = train_ensemble(members, root=root, out=folder, resume=resume, curve=True, progress=tell, device=device)
    groups = [ended[place : place + len(numbers)] for place in range(0, len(ended), len(numbers))]
    rows = [{**each.row, "together": each.together} for each in ended if each.row is not None]
    _write(folder / ROWS, rows)
    if json:
        print_json(rows)
    else:
        typer.echo("\n".join([*_table(list(configs), groups), f"rows in {folder / ROWS}"]))
    failed = {str(each.error): None for each in ended if each.error is not None}
    for error in failed:
        typer.echo(f"error: {error}", err=True)
    if failed:
        raise typer.Exit(1)


def _config(
    text: str,
    density: float,
    model: str,
    data: str,
    changes: dict[str, Any],
    shape: dict[str, Any],
    activation: str | None,
) -> Any:
    """Return the configuration of one start."""
    from dataclasses import replace

    from orthosparse.lab.training import TrainConfig, recipe_for

    recipe = replace(recipe_for(model), **changes)
    name, *options = text.split(",")
    if name == "dense" and not options:
        return TrainConfig(model, data, recipe, activation, shape)
    distribution, slash, scheme = name.partition("/")
    if not slash:
        raise ValueError(f"start: expected dense or DISTRIBUTION/SCHEME, such as erk/eoi; got {text!r}")
    own = dict(named_value(option) for option in options)
    moves = {name: own.pop(name) for name in _MOVES if name in own}
    return TrainConfig(model, data, recipe, activation, shape, density, distribution, scheme, options=own, **moves)


@contextmanager
def _shown(*, quiet: bool) -> Iterator[Any]:
    """Yield a function that is told how far it is, and shows it: a bar in a terminal, a line a minute in a log."""
    from functools import partial

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from orthosparse.lab.paced import Paced

    console = Console(stderr=True)
    if quiet:
        yield None
        return
    if not console.is_terminal:
        yield partial(Paced(partial(typer.echo, err=True)), "together")
        return
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda fraction, words: bar.update(task, completed=fraction, description=words)


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    import json

    from orthosparse.lab.files import write_atomically

    lines = [json.dumps(row) + "\n" for row in rows]
    write_atomically(path, "".join(lines).encode())


def _table(names: Sequence[str], groups: Sequence[Sequence[Any]]) -> list[str]:
    """Return a line for each start: its density, and its test accuracy, mean and deviation over the seeds."""
    wide = max(map(len, [*names, "start"]))
    lines = [f"{'start':{wide}}  density  test accuracy"]
    for name, group in zip(names, groups, strict=True):
        rows = [each.row for each in group if each.row is not None]
        if not rows:
            lines.append(f"{name:{wide}}        -  none")
            continue
        found = [100 * row["test_accuracy"] for row in rows]
        spread = f" ({stdev(found):.2f})" if len(found) > 1 else ""
        lost = f", {len(group) - len(rows)} of {len(group)} without" if len(rows) < len(group) else ""
        lines.append(f"{name:{wide}}  {rows[0]['density']:7.4f}  {fmean(found):.2f} %{spread}{lost}")
    return lines
