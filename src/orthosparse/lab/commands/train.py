"""`orthosparse train`: one network, one seed, one result row."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._names import completing
from orthosparse.lab.commands._options import (
    Device,
    Distribution,
    Exclude,
    Floor,
    Json,
    Options,
    Scheme,
    Seed,
    named_value,
    print_json,
)

RESUMES_WITH = ("--resume",)
_MODEL = "A model of the paper (mlp, resnet32, ...) or timm:NAME."
_LOG = "csv, tensorboard, wandb; the first two by default."


def train(
    model: Annotated[str, typer.Option(help=_MODEL, autocompletion=completing("model"))],
    data: Annotated[
        str, typer.Option(help="A data set: digits, mnist, cifar10, ...", autocompletion=completing("data"))
    ],
    root: Annotated[Path | None, typer.Option(help="The folder that holds the data.")] = None,
    density: Annotated[float, typer.Option(help="Fraction of active weights; 1 trains the dense network.")] = 1.0,
    distribution: Distribution = "erk",
    scheme: Scheme = "eoi",
    option: Options = None,
    exclude: Exclude = None,
    floor: Floor = "raise",
    score_batches: Annotated[int, typer.Option(help="Training batches for a distribution that looks at data.")] = 1,
    activation: Annotated[
        str | None,
        typer.Option(help="relu, tanh, ...; the model's own by default.", autocompletion=completing("activation")),
    ] = None,
    seed: Seed = 1,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="The model whose recipe is taken; by default the model's.", autocompletion=completing("recipe")
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the recipe's.")] = None,
    batch: Annotated[int | None, typer.Option(help="Instead of the recipe's; over all processes.")] = None,
    lr: Annotated[float | None, typer.Option(help="Instead of the recipe's.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Instead of the recipe's.")] = None,
    schedule: Annotated[
        str | None, typer.Option(help="steps, cosine or constant.", autocompletion=completing("schedule"))
    ] = None,
    accumulate: Annotated[int | None, typer.Option(help="Parts into which a batch is cut to save memory.")] = None,
    dense_init: Annotated[
        str | None, typer.Option(help="The dense start.", autocompletion=completing("dense_init"))
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, tf32, bf16 or fp64.", autocompletion=completing("precision"))
    ] = None,
    dynamic: Annotated[
        str | None, typer.Option(help="Let the masks move: set or rigl.", autocompletion=completing("dynamic"))
    ] = None,
    every: Annotated[int, typer.Option(help="Steps between two moves of the masks.")] = 800,
    fraction: Annotated[float, typer.Option(help="Of the active weights, moved at first.")] = 0.5,
    until: Annotated[float | None, typer.Option(help="Part of the training after which the masks rest.")] = None,
    device: Device = "auto",
    devices: Annotated[int, typer.Option(help="Processes, one a device (under torchrun: its own).")] = 1,
    strategy: Annotated[str, typer.Option(help="auto, ddp or fsdp.", autocompletion=completing("strategy"))] = "auto",
    out: Annotated[Path | None, typer.Option(help="Checkpoints, logs and result; runs/... by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    checkpoint_steps: Annotated[int, typer.Option(help="Steps between checkpoints; 0: by time alone.")] = 0,
    checkpoint_seconds: Annotated[float, typer.Option(help="The age at which a checkpoint is replaced.")] = 60.0,
    log: Annotated[list[str] | None, typer.Option(help=_LOG, autocompletion=completing("log"))] = None,
    graph: Annotated[bool | None, typer.Option(help="Capture a step as a CUDA graph; on one GPU by default.")] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Have torch compile the network: quicker steps, a slow beginning.")
    ] = False,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Repeatable algorithms on a GPU.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No bar, no lines for the epochs.")] = False,
    json: Json = False,
) -> None:
    """Train a network from a sparse or dense start, and test it.

    The recipe is the paper's for that model; what is given here changes it. The result row, one line of JSON, goes to
    result.jsonl in --out (and with --json to stdout). A run that was interrupted or killed goes on with the same
    command and --resume; Ctrl-C waits for the step to end and saves it.

    \b
    Examples:
      orthosparse train --model mlp --data digits --density 0.1 --epochs 5
      orthosparse train --model resnet32 --data cifar10 --root data --density 0.1 --scheme eoi
      orthosparse train --model resnet32 --data cifar10 --root data --density 0.1 --dynamic rigl --resume
      orthosparse train --model timm:resnet18 --recipe resnet50 --data imagenet --root data --devices 8
    """
    from dataclasses import replace

    from orthosparse.lab.training import TrainConfig, recipe_for
    from orthosparse.lab.training import train as run
    from orthosparse.lab.training.devices import is_first_rank, leave

    given = {
        "epochs": epochs,
        "batch": batch,
        "lr": lr,
        "weight_decay": weight_decay,
        "schedule": schedule,
        "accumulate": accumulate,
        "dense_init": dense_init,
        "precision": precision,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    config = TrainConfig(
        model=model,
        data=data,
        recipe=replace(recipe_for(recipe, "recipe") if recipe else recipe_for(model), **changes),
        activation=activation,
        density=density,
        distribution=distribution,
        scheme=scheme,
        floor=floor,
        exclude=tuple(exclude or ()),
        options=dict(named_value(text) for text in option or ()),
        score_batches=score_batches,
        dynamic=dynamic,
        every=every,
        fraction=fraction,
        until=until,
    )
    folder = out or Path("runs") / _name(config, seed)
    row = run(
        config,
        seed=seed,
        root=root,
        out=folder,
        resume=resume,
        logs=log or ["csv", "tensorboard"],
        checkpoint_steps=checkpoint_steps,
        checkpoint_seconds=checkpoint_seconds,
        callbacks=[] if quiet else [_progress()],
        graph=graph,
        compiled=compiled,
        deterministic=deterministic,
        device=device,
        devices=devices,
        strategy=strategy,
    )
    if is_first_rank() and json:
        print_json(row)
    elif is_first_rank():
        typer.echo(f"test accuracy {100 * row['test_accuracy']:.2f} % at density {row['density']:.4f}; row in {folder}")
    leave()


def _progress() -> Any:
    from orthosparse.lab.training import Progress

    return Progress()


def _name(config: Any, seed: int) -> str:
    start = "dense" if config.density == 1 else f"{config.distribution}-{config.scheme}-{config.density:g}"
    moving = f"-{config.dynamic}" if config.dynamic else ""
    return f"{config.model.replace(':', '-')}-{config.data}-{start}{moving}-seed{seed}"
