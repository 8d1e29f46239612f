"""`orthosparse bench`: measurements of speed and exactness, side by side in one run."""

from pathlib import Path
from typing import Annotated

import typer

bench = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Measure the library on this machine: the sampler, and training.",
)


@bench.command()
def sampler(
    checks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CHECK...]", help="Any of exactness, speed, calls, growth, observation."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, a few seconds.")] = False,
    json: Annotated[Path | None, typer.Option(help="A file for the rows.")] = None,
) -> None:
    """Sample matrices: exactness, time over that of plain random numbers, growth with size, Observation 1."""
    from orthosparse.lab.bench.sampler import CHECKS, show

    unknown = [check for check in checks or () if check not in CHECKS]
    if unknown:
        raise ValueError(f"checks: expected any of {', '.join(CHECKS)}; got {', '.join(unknown)}")
    show(checks or tuple(CHECKS), quick=quick, rows=json)


@bench.command()
def training(
    root: Annotated[Path | None, typer.Option(help="The folder of CIFAR-10; without it pictures are made up.")] = None,
    models: Annotated[list[str] | None, typer.Option(help="resnet32 and resnet110 by default.")] = None,
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16.")] = "tf32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:INDEX.")] = "auto",
    repeats: Annotated[int, typer.Option(min=1, help="Epochs that are timed of each way.")] = 3,
    steps: Annotated[int, typer.Option(min=0, help="Steps of an epoch that are timed; 0 for all.")] = 0,
    json: Annotated[Path | None, typer.Option(help="A file for the rows, one JSON object a line.")] = None,
) -> None:
    """Train an epoch: a plain loop, this one on the dense network, and on the masked one."""
    from orthosparse.lab.bench.training import MODELS, Setting, run

    setting = Setting(models or MODELS, root, precision=precision, device=device, repeats=repeats, steps=steps)
    typer.echo(run(setting, json))
