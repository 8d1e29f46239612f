"""`orthosparse train`: one network, one seed, one result row."""

from pathlib import Path
from typing import Annotated, Any

import typer


def train(
    model: Annotated[str, typer.Option(help="A model of the paper (mlp, resnet32, ...) or timm:NAME.")],
    data: Annotated[str, typer.Option(help="A data set: digits, mnist, cifar10, ...")],
    root: Annotated[Path | None, typer.Option(help="The folder that holds the data.")] = None,
    density: Annotated[float, typer.Option(help="Fraction of active weights; 1 trains the dense network.")] = 1.0,
    distribution: Annotated[str, typer.Option(help="How many weights each layer keeps.")] = "erk",
    scheme: Annotated[str, typer.Option(help="Which weights, and with what values.")] = "eoi",
    option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the distribution or the scheme.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="A layer (name or glob) that stays dense.")] = None,
    floor: Annotated[str, typer.Option(help="Layers below their floor: raise, partial or error.")] = "raise",
    score_batches: Annotated[int, typer.Option(help="Training batches for a distribution that looks at data.")] = 1,
    activation: Annotated[str | None, typer.Option(help="relu, tanh, ...; the model's own by default.")] = None,
    seed: Annotated[int, typer.Option(help="Everything that is drawn follows from it.")] = 1,
    recipe: Annotated[str | None, typer.Option(help="The model whose recipe is taken; by default the model's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the recipe's.")] = None,
    batch: Annotated[int | None, typer.Option(help="Instead of the recipe's; over all processes.")] = None,
    lr: Annotated[float | None, typer.Option(help="Instead of the recipe's.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Instead of the recipe's.")] = None,
    schedule: Annotated[str | None, typer.Option(help="steps, cosine or constant.")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Parts into which a batch is cut to save memory.")] = None,
    dense_init: Annotated[str | None, typer.Option(help="The dense start.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, tf32, bf16 or fp64.")] = None,
    dynamic: Annotated[str | None, typer.Option(help="Let the masks move: set or rigl.")] = None,
    every: Annotated[int, typer.Option(help="Steps between two moves of the masks.")] = 800,
    fraction: Annotated[float, typer.Option(help="Of the active weights, moved at first.")] = 0.5,
    until: Annotated[float | None, typer.Option(help="Part of the training after which the masks rest.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:INDEX.")] = "auto",
    devices: Annotated[int, typer.Option(help="Processes, one a device (under torchrun: its own).")] = 1,
    strategy: Annotated[str, typer.Option(help="auto, ddp or fsdp.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Checkpoints, logs and result; runs/... by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    checkpoint_steps: Annotated[int, typer.Option(help="Steps between checkpoints; 0: by time alone.")] = 0,
    checkpoint_seconds: Annotated[float, typer.Option(help="The age at which a checkpoint is replaced.")] = 60.0,
    log: Annotated[list[str] | None, typer.Option(help="csv, tensorboard, wandb; the first two by default.")] = None,
    graph: Annotated[bool | None, typer.Option(help="Capture a step as a CUDA graph; on one GPU by default.")] = None,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Repeatable algorithms on a GPU.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No bar, no lines for the epochs.")] = False,
) -> None:
    """Train a network from a sparse or dense start and test it after the last epoch.

    The recipe is the paper's for that model; what is given here changes it. The result row, one line of JSON, goes to
    result.jsonl in --out. A run that was killed goes on with the same command and --resume.

    orthosparse train --model resnet32 --data cifar10 --root DIR --density 0.1
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
        options=dict(_option(text) for text in option or ()),
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
        deterministic=deterministic,
        device=device,
        devices=devices,
        strategy=strategy,
    )
    if is_first_rank():
        typer.echo(f"test accuracy {100 * row['test_accuracy']:.2f} % at density {row['density']:.4f}; row in {folder}")
    leave()


def _progress() -> Any:
    from orthosparse.lab.training import Progress

    return Progress()


def _name(config: Any, seed: int) -> str:
    start = "dense" if config.density == 1 else f"{config.distribution}-{config.scheme}-{config.density:g}"
    moving = f"-{config.dynamic}" if config.dynamic else ""
    return f"{config.model.replace(':', '-')}-{config.data}-{start}{moving}-seed{seed}"


def _option(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``NAME=VALUE``; the value is JSON where it can be, else text."""
    import json

    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"option: expected NAME=VALUE; got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
