"""`orthosparse together`: networks of one shape from many starts and seeds, trained in one stack."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._options import (
    ROOT,
    Device,
    Json,
    Root,
    by_name,
    check_effects,
    check_results,
    choice,
    folder_name,
    given_of,
    named_value,
    print_json,
    whole_numbers,
    with_fields,
)

RESUMES_WITH = ("--resume",)
STORE = "results.sqlite"
_SIZED = ("cnn1000", "mlp", "mlp1000")  # models that come in any depth and width
_STARTS = ["erk/base", "erk/ai,iterations=1000", "erk/eoi", "dense"]
_MODEL = "Model: mlp1000, cnn1000, mlp, resnet32, resnet56, resnet110 or vgg16c."
_START = "dense, or DISTRIBUTION/SCHEME[,NAME=VALUE...]; dynamic=rigl or dynamic=set moves the masks. May be repeated."
_MOVES = ("dynamic", "every", "fraction", "until")  # values that are not the distribution's or the scheme's
_OF_STARTS = {"distribution", "scheme", "options", *_MOVES}  # fields of a run that the starts say


@with_fields(without=_OF_STARTS)
def together(
    model: Annotated[str, typer.Option(help=_MODEL, **by_name("model"))] = "mlp1000",
    data: Annotated[str, choice("data", "Data set.")] = "mnist",
    density: Annotated[float, typer.Option(help="Density of the sparse networks.")] = 0.125,
    start: Annotated[list[str] | None, typer.Option(help=_START, show_default=", ".join(_STARTS))] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 1,2,3; every start is trained with each.")] = "1",
    depth: Annotated[int | None, typer.Option(help="Number of layers, instead of the model's.")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the layers, instead of the model's.")] = None,
    root: Root = ROOT,
    device: Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for starts, checkpoints and rows; by default runs/NAME.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    json: Json = False,
    **given: Any,
) -> None:
    """Train networks of the same shape from several starts and seeds in one stack, and compare them.

    On a GPU, 45 perceptrons of 1000 layers take only a few times as long as one. Each network has the same start, masks
    and order of samples as if it were trained alone, and one that diverges does not affect the others. The rows, with
    the validation accuracy after every epoch (with --no-validation the test accuracy), go to results.sqlite in --out, a
    store like that of `orthosparse paper run`.

    \b
    Examples:
      orthosparse together --root data
      orthosparse together --root data --start uniform/base --start uniform/eoi --seeds 1,2,3 --epochs 20
      orthosparse together --model cnn1000 --data cifar10 --root data --precision bf16 --depth 300
      orthosparse together --model resnet32 --data cifar10 --root data --density 0.1 --precision bf16
      orthosparse together --root data --start erk/base,dynamic=rigl --start erk/eoi,dynamic=rigl,every=400
      orthosparse together --data digits --depth 100 --width 32 --epochs 10 --lr 0.01
    """

    from functools import partial

    from orthosparse.lab.sweep.display import Display
    from orthosparse.lab.sweep.pairs import Pair, Task, perform_stack
    from orthosparse.lab.sweep.store import Store
    from orthosparse.lab.training.devices import device_of
    from orthosparse.lab.training.starts import check_starts

    shape = {name: value for name, value in {"depth": depth, "width": width}.items() if value is not None}
    if shape and model not in _SIZED:
        raise ValueError(f"{next(iter(shape))}: expected one of the models {', '.join(_SIZED)} with it; got {model}")
    shared = given_of(given)
    if twice := shape.keys() & shared["model_options"].keys():
        raise ValueError(f"{min(twice)}: expected it once; got it as an option of the model too")
    shared |= {"model": model, "data": data, "model_options": shared["model_options"] | shape}
    asked, numbers = start or _STARTS, whole_numbers(seeds)
    runs = [(_training(text, density, shared), seed) for text in asked for seed in numbers]
    check_effects(given, runs[0][0].recipe)
    pairs = [Pair(*run) for run in runs]
    folder = out or Path("runs") / _name(model, shape, data, density, numbers)
    check_results(folder)
    if (folder / STORE).exists() and not resume:
        raise ValueError(f"out: {folder} holds a run already; resume it (--resume) or choose another folder")
    rows = _kept(folder, pairs)
    if rows is None:
        if not resume:
            check_starts(runs, root, device_of(device))
        task = Task(tuple(pairs), tuple(pairs), stacked=True)
        with Display(quiet=json) as display:
            display.begin(len(pairs), 0)
            display.start(task)
            report = partial(display.report, task)
            rows = perform_stack(pairs, report, root=root, out=folder, device=device, resume=resume)
    made = [row for row in rows if not isinstance(row, Exception)]
    store = Store(folder / STORE)
    for row in made:
        store.append(row)
    if json:
        print_json(made)
    else:
        typer.echo("\n".join([*_table(asked, rows), f"rows in {folder / STORE}"]))
    failed: dict[str, list[str]] = defaultdict(list)
    for (text, seed), row in zip(product(asked, numbers), rows, strict=True):
        if problem := _problem(row):
            failed[problem].append(f"{text} seed {seed}")
    for problem, names in failed.items():
        typer.echo(f"error: {', '.join(names)}: {problem}", err=True)
    if failed:
        raise typer.Exit(1)


def _training(text: str, density: float, shared: dict[str, Any]) -> Any:
    """Return the training of one start."""
    from orthosparse.lab.experiments.training import Training

    name, *options = text.split(",")
    if name == "dense" and not options:
        return Training(**shared)
    distribution, slash, scheme = name.partition("/")
    if not slash:
        raise ValueError(f"start: expected dense or DISTRIBUTION/SCHEME, such as erk/eoi; got {text!r}")
    own = dict(named_value(option) for option in options)
    moves = {name: own.pop(name) for name in _MOVES if name in own}
    if moves and "dynamic" not in moves:
        raise ValueError(f"start: expected dynamic=rigl or dynamic=set with {next(iter(moves))}; got {text!r}")
    start: dict[str, Any] = {"density": density, "distribution": distribution, "scheme": scheme, "options": own}
    return Training(**shared, **start, **moves)


def _name(model: str, shape: dict[str, int], data: str, density: float, seeds: Sequence[int]) -> str:
    sizes = [f"{name}{value}" for name, value in shape.items()]
    named = ["together", model, *sizes, data, f"{density:g}", f"seeds{','.join(map(str, seeds))}"]
    return folder_name("-".join(named))


def _kept(folder: Path, pairs: Sequence[Any]) -> list[Any] | None:
    """Return the rows of a run that is done, in the order of the pairs; None where one of them has none."""
    from orthosparse.lab.sweep.store import rows_in

    found = {(row["key"], row["seed"]): row for row in rows_in(folder / STORE)}
    return [found[pair.name] for pair in pairs] if all(pair.name in found for pair in pairs) else None


def _problem(row: Any) -> str | None:
    """Return why a network has no test accuracy, or None where it has one."""
    if isinstance(row, Exception):
        return str(row)
    return row["metrics"]["warnings"] if row["metrics"]["diverged"] else None


def _table(names: Sequence[str], rows: Sequence[Any]) -> list[str]:
    """Return a line for each start: its density, and its test accuracy, mean and deviation over the seeds."""
    wide, seeds = max(map(len, [*names, "start"])), len(rows) // len(names)
    lines = [f"{'start':{wide}}  density  test accuracy"]
    for index, name in enumerate(names):
        group = rows[index * seeds : (index + 1) * seeds]
        metrics = [row["metrics"] for row in group if _problem(row) is None]
        if not metrics:
            lines.append(f"{name:{wide}}        -  none")
            continue
        found = [100 * each["test_accuracy"] for each in metrics]
        spread = f" ({stdev(found):.2f})" if len(found) > 1 else ""
        lost = f", {len(group) - len(found)} of {len(group)} without" if len(found) < len(group) else ""
        lines.append(f"{name:{wide}}  {metrics[0]['density']:7.4f}  {fmean(found):.2f} %{spread}{lost}")
    return lines
