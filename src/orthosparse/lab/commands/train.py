"""`orthosparse train`: one network, one seed, one row."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._options import (
    ROOT,
    Device,
    Json,
    Root,
    Seed,
    check_effects,
    check_results,
    choice,
    folder_name,
    given_of,
    print_json,
    with_fields,
)

RESUMES_WITH = ("--resume",)
STORE = "results.sqlite"
_MOVES = ("every", "fraction", "until")  # what says how masks move
_LOG = "Loggers: csv, tensorboard, wandb; may be repeated. By default the first two."


@with_fields()
def train(
    context: typer.Context,
    root: Root = ROOT,
    seed: Seed = 1,
    device: Device = "auto",
    devices: Annotated[int, typer.Option(help="Number of processes, one per device; ignored under torchrun.")] = 1,
    strategy: Annotated[str, choice("strategy", "How processes share the work.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints, logs and the row; by default runs/NAME.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint in --out.")] = False,
    checkpoint_steps: Annotated[int, typer.Option(help="Steps between checkpoints; 0 for time only.")] = 0,
    checkpoint_seconds: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = 60.0,
    log: Annotated[list[str] | None, choice("log", _LOG)] = None,
    graph: Annotated[bool | None, typer.Option(help="Capture steps as a CUDA graph; by default on one GPU.")] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Use torch.compile: faster steps after a slow start.")
    ] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Use deterministic algorithms on a GPU.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress bar and no line per epoch.")] = False,
    json: Json = False,
    **given: Any,
) -> None:
    """Train a network from a sparse or dense start, and test it.

    Trains by the paper's recipe for the model; options such as --lr replace its values. The row of results goes to
    results.sqlite in --out, a store like that of `orthosparse paper run` (and to stdout with --json). To continue a run
    that was interrupted or killed, give the same command with --resume. Ctrl-C finishes the current step and saves it.

    \b
    Examples:
      orthosparse train --model mlp --data digits --density 0.1 --epochs 5
      orthosparse train --model resnet32 --data cifar10 --root data --density 0.1 --scheme eoi
      orthosparse train --model resnet32 --data cifar10 --root data --density 0.1 --dynamic rigl --resume
      orthosparse train --model timm:resnet18 --recipe resnet50 --data imagenet --root data --devices 8
      orthosparse train --model net.py:build --data mydata.py:load --recipe resnet32 --epochs 20 --density 0.1
    """
    from orthosparse.lab.experiments.training import Training
    from orthosparse.lab.sweep.pairs import Pair, perform_pair
    from orthosparse.lab.sweep.store import Store, rows_in
    from orthosparse.lab.training.callbacks import Progress
    from orthosparse.lab.training.devices import is_first_rank, leave

    training = Training(**given_of(given))
    pair = Pair(training, seed)
    unread = [name for name in sorted(training.unread()) if _is_given(context, name)]
    if unread and not _is_given(context, "density"):
        raise ValueError(f"{unread[0]}: expected --density with it; without one the dense network is trained")
    still = [name for name in _MOVES if _is_given(context, name) and training.dynamic is None]
    if still:
        raise ValueError(f"{still[0]}: expected --dynamic with it; without it the masks do not move")
    check_effects(given, training.recipe)
    folder = out or Path("runs") / _name(pair.experiment, seed)
    check_results(folder)
    rows = rows_in(folder / STORE)
    if rows and not resume:
        raise ValueError(f"out: {folder} holds a run already; resume it (--resume) or choose another folder")
    found = [row for row in rows if (row["key"], row["seed"]) == pair.name]
    if rows and not found:
        raise ValueError(f"resume: expected the run of {folder} ({rows[0]['key']} seed {rows[0]['seed']})")
    row = (
        found[0]
        if found
        else perform_pair(
            pair,
            root=root,
            out=folder,
            device=device,
            resume=resume,
            logs=log or ["csv", "tensorboard"],
            checkpoint_steps=checkpoint_steps,
            checkpoint_seconds=checkpoint_seconds,
            callbacks=[] if quiet else [Progress()],
            graph=graph,
            compiled=compiled,
            deterministic=deterministic,
            devices=devices,
            strategy=strategy,
        )
    )
    if is_first_rank():
        Store(folder / STORE).append(row)
        _tell(row, folder, json=json)
    leave()
    if row["metrics"]["diverged"]:
        raise typer.Exit(1)


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was given, whatever its value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _tell(row: dict[str, Any], folder: Path, *, json: bool) -> None:
    metrics = row["metrics"]
    if metrics.get("warnings"):
        typer.echo(f"warning: {metrics['warnings']}", err=True)
    if json:
        print_json(row)
    elif not metrics["diverged"]:
        accuracy, density = 100 * metrics["test_accuracy"], metrics["density"]
        typer.echo(f"test accuracy {accuracy:.2f} % at density {density:.4f}; row in {folder / STORE}")


def _name(run: Any, seed: int) -> str:
    start = "dense" if run.density == 1 else f"{run.distribution}-{run.scheme}-{run.density:g}"
    moving = f"-{run.dynamic}" if run.dynamic else ""
    model, data = (re.sub("[^a-zA-Z0-9_]+", "-", each.replace(".py:", "-")) for each in (run.model, run.data))
    return folder_name(f"{model.strip('-')}-{data.strip('-')}-{start}{moving}-seed{seed}")
