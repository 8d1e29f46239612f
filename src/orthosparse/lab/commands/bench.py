"""`orthosparse bench`: measurements of speed and exactness, side by side in one run."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._options import ROOT, Device, Json, by_name, choice, group, listing, print_json
from orthosparse.lab.names import check_name

_ROWS = "A file for the rows, one JSON object a line."
_ROOT = f"The folder that holds CIFAR-10; by default {ROOT}, or made-up pictures where it is not there."
bench = group(
    "Measure the library on this machine: the sampler, training, and layers of active weights alone.",
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
            help=listing("check", "What to measure; all by default."),
            **by_name("check"),
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, a few seconds.")] = False,
    out: Annotated[Path | None, typer.Option(help=_ROWS)] = None,
    json: Json = False,
) -> None:
    """Measure how exact and how fast the sampler is.

    Exactness, time over that of plain random numbers, growth with size, Observation 1.

    \b
    Examples:
      orthosparse bench sampler
      orthosparse bench sampler speed --quick --json
    """
    from dataclasses import asdict

    from orthosparse.givens import has_kernel
    from orthosparse.lab.bench.sampler import CHECKS, line, run

    unknown = [check for check in checks or () if check not in CHECKS]
    if unknown:
        raise ValueError(f"checks: expected any of {', '.join(CHECKS)}; got {', '.join(unknown)}")
    typer.echo(f"The sampler's kernel is {'built.' if has_kernel() else 'not built: its rows are missing.'}", err=json)
    rows = []
    for row in run(checks or tuple(CHECKS), quick=quick):
        typer.echo(line(row), err=json)
        rows.append(asdict(row))
    _keep(rows, out, json)


@bench.command()
def training(
    root: Annotated[Path | None, typer.Option(help=_ROOT)] = None,
    models: Annotated[list[str] | None, choice("model", "resnet32 and resnet110 by default.")] = None,
    precision: Annotated[str, choice("precision", "Of the products.")] = "tf32",
    device: Device = "auto",
    repeats: Annotated[int, typer.Option(min=1, help="Epochs that are timed of each way.")] = 3,
    steps: Annotated[int, typer.Option(min=0, help="Steps of an epoch that are timed; 0 for all.")] = 0,
    out: Annotated[Path | None, typer.Option(help=_ROWS)] = None,
    json: Json = False,
) -> None:
    """Measure how fast training is.

    A plain loop, this one on the dense network, and on the masked one, side by side.

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
    if root is None and (why := absent("cifar10", ROOT)) is None:
        root = ROOT
    elif root is None:
        typer.echo(f"made-up pictures are trained on, which take as long ({why})", err=True)
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
            help="Any of blocks, break_even, others (on a GPU); entries, entries_forward, entries_break_even, "
            "training_step, convolutions, convolutions_step (on a CPU).",
            **by_name("compact_check"),
        ),
    ] = None,
    device: Device = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="One small case of each, a few seconds.")] = False,
    out: Annotated[Path | None, typer.Option(help=_ROWS)] = None,
    json: Json = False,
) -> None:
    """Measure how much faster layers are that hold only their active weights.

    Blocks on a GPU against dense products and other people's kernels, single entries on one thread of the CPU, and the
    density at which each breaks even. Every ratio is of times of the same run.

    \b
    Examples:
      orthosparse bench compact
      orthosparse bench compact entries training_step --json
    """
    from dataclasses import asdict

    from orthosparse.lab.bench.compact import CHECKS, line, run
    from orthosparse.lab.provenance import provenance
    from orthosparse.lab.training.devices import launch

    unknown = [check for check in checks or () if check not in CHECKS]
    if unknown:
        raise ValueError(f"checks: expected any of {', '.join(CHECKS)}; got {', '.join(unknown)}")
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


def _keep(rows: list[dict[str, Any]], out: Path | None, json: bool) -> None:
    """Write the rows to a file, or print them, as asked."""
    if out is not None:
        from json import dumps

        from orthosparse.files import write_atomically

        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, "".join(f"{dumps(row)}\n" for row in rows).encode())
    if json:
        print_json(rows)
