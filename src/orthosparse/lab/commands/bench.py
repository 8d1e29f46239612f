"""`orthosparse bench`: measurements of speed and exactness, side by side in one run."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._options import (
    ROOT,
    Device,
    Json,
    by_name,
    check_results,
    choice,
    group,
    listing,
    print_json,
)
from orthosparse.lab.names import check_name
from orthosparse.registry import lookup

_ROWS = "File for the rows, one JSON object per line."
_ROOT = f"Folder that holds CIFAR-10; by default {ROOT}, or random images if it is not there."
bench = group(
    "Measure the library on this machine: the sampler, training, and compact layers.",
    "orthosparse bench sampler --quick",
    "orthosparse bench training --root data --json",
    "orthosparse bench compact --out rows.jsonl",
)


@bench.command()
def sampler(
    checks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CHECK",
            help=listing("check", "What to measure; by default all."),
            **by_name("check"),
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use smaller sizes, which take a few seconds.")] = False,
    out: Annotated[Path | None, typer.Option(help=_ROWS)] = None,
    json: Json = False,
) -> None:
    """Measure how exact and how fast the sampler is.

    Measures exactness, the time compared with drawing plain random numbers, how it grows with the size, and
    Observation 1 of the paper.

    \b
    Examples:
      orthosparse bench sampler
      orthosparse bench sampler speed --quick --json
    """
    from dataclasses import asdict

    from orthosparse.givens import has_kernel
    from orthosparse.lab.bench.sampler import CHECKS, line, run

    for check in checks or ():
        lookup(CHECKS, check, "checks")
    _check_file(out)
    typer.echo(f"The sampler's kernel is {'built.' if has_kernel() else 'not built: its rows are missing.'}", err=json)
    rows = []
    for row in run(checks or tuple(CHECKS), quick=quick):
        typer.echo(line(row), err=json)
        rows.append(asdict(row))
    _keep(rows, out, json)


@bench.command()
def training(
    root: Annotated[Path | None, typer.Option(help=_ROOT)] = None,
    models: Annotated[list[str] | None, choice("model", "Models to train; by default resnet32 and resnet110.")] = None,
    precision: Annotated[str, choice("precision", "Precision of the training.")] = "tf32",
    device: Device = "auto",
    repeats: Annotated[int, typer.Option(min=1, help="Number of epochs to time for each variant.")] = 3,
    steps: Annotated[int, typer.Option(min=0, help="Number of steps to time in an epoch; 0 for all.")] = 0,
    out: Annotated[Path | None, typer.Option(help=_ROWS)] = None,
    json: Json = False,
) -> None:
    """Measure how fast training is.

    Compares a plain PyTorch loop with the loop of `orthosparse train`, on the dense and on the masked network.

    \b
    Examples:
      orthosparse bench training --root data
      orthosparse bench training --models resnet32 --steps 20 --repeats 1 --device cpu --json
    """
    from orthosparse.lab.bench.training import MODELS, Setting, measure, table
    from orthosparse.lab.data.sources import absent

    check_name("precision", precision)
    for model in models or ():
        check_name("recipe", model)
    _check_file(out)
    if root is None and (why := absent("cifar10", ROOT)) is None:
        root = ROOT
    elif root is None:
        typer.echo(f"training on random images, which takes as long ({why})", err=True)
    setting = Setting(models or MODELS, root, precision=precision, device=device, repeats=repeats, steps=steps)
    rows = measure(setting, say=partial(typer.echo, err=True))
    if not json:
        typer.echo(table(setting, rows))
    _keep(rows, out, json)


@bench.command()
def compact(
    checks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CHECK",
            help="What to measure; by default all: blocks, break_even, others (on a GPU); entries, entries_forward, "
            "entries_break_even, training_step, convolutions, convolutions_step (on a CPU).",
            **by_name("compact_check"),
        ),
    ] = None,
    device: Device = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure one small case of each, which takes a few seconds.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help=_ROWS)] = None,
    json: Json = False,
) -> None:
    """Measure how much faster layers are when they hold only their active weights.

    Compares blocks on a GPU with dense products and with kernels of other libraries, and single entries with dense
    products on one thread of the CPU, and finds the density at which each breaks even. Both times of a ratio are
    measured in the same run.

    \b
    Examples:
      orthosparse bench compact
      orthosparse bench compact entries training_step --json
    """
    from dataclasses import asdict

    from orthosparse.lab.bench.compact import CHECKS, line, run
    from orthosparse.lab.provenance import provenance
    from orthosparse.lab.training.devices import launch

    for check in checks or ():
        lookup(CHECKS, check, "checks")
    _check_file(out)
    where = launch(device=device).device
    if where.type != "cuda" and not quick:
        typer.echo("No GPU: the rows of blocks are missing.", err=json)
    rows: list[dict[str, Any]] = []
    for row in run(checks or tuple(CHECKS), device=where, quick=quick):
        rows.append({**asdict(row), "verdict": row.verdict, **provenance(where)})
        _keep(rows, out, json=False)  # as they come: a kernel that crashes loses none
        if row.check != "configs":
            typer.echo(line(row), err=json)
    _keep(rows, out, json)


def _check_file(out: Path | None) -> None:
    """Raise a ValueError if the rows cannot be written, before they are measured."""
    if out is None:
        return
    check_results(out.parent)
    if out.is_dir():
        raise ValueError(f"out: expected a file; {out} is a folder")


def _keep(rows: list[dict[str, Any]], out: Path | None, json: bool) -> None:
    """Write the rows to a file, or print them, as asked."""
    if out is not None:
        from json import dumps

        from orthosparse.files import write_atomically

        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, "".join(f"{dumps(row)}\n" for row in rows).encode())
    if json:
        print_json(rows)
