"""`orthosparse deploy`: a trained network in its fastest form for inference, as files and on a page."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._options import (
    Device,
    Json,
    by_name,
    check_at_least,
    check_results,
    choice,
    counted,
    print_json,
)

_CHECKPOINT = "Folder of a training run, a state dict (.pt, .safetensors), or a file that save_compact wrote."
_MODEL = (
    "Model of the paper (mlp, resnet32, ...), timm:NAME or path/to/file.py:function; not needed for a training run."
)
_EXAMPLE = "Shape of the input, batch size first, such as 1x3x224x224 or tokens:8x128."
_TOLERANCE = "Largest difference of the outputs, as a fraction of the largest output; by default 1e-4 in float32."
_COMPILE = "Try torch.compile too, which takes a minute or more."
_PAGE = "deployed.html"


def deploy(
    checkpoint: Annotated[Path, typer.Argument(help=_CHECKPOINT)],
    example: Annotated[str, typer.Option(help=_EXAMPLE)],
    model: Annotated[str | None, typer.Option(help=_MODEL, **by_name("model"))] = None,
    classes: Annotated[
        int | None, typer.Option(help="Number of classes; by default that of the run or the model.")
    ] = None,
    activation: Annotated[
        str | None, choice("activation", "Activation of a built-in model, instead of its own.")
    ] = None,
    device: Device = "cpu",
    threads: Annotated[int | None, typer.Option(help="Number of CPU threads to run on; by default all.")] = None,
    tolerance: Annotated[float | None, typer.Option(help=_TOLERANCE)] = None,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help=_COMPILE)] = True,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write an ONNX model too; it is dense, and gains nothing from zeros.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the files and the page.")] = Path("runs/deploy"),
    json: Json = False,
) -> None:
    """Make a trained sparse network as fast as this machine can run it.

    Folds batch norms, removes dead units, times each layer in every form on inputs of the example's shape, and uses the
    fastest. Writes deployed.pt2 (the program, for torch.export.load), model.safetensors (the trained weights in a small
    file, for load_compact and for this command on another machine), a page and, with --onnx, model.onnx.

    \b
    Examples:
      orthosparse deploy runs/mine --example 1x3x32x32 --threads 1
      orthosparse deploy vit.safetensors --model timm:vit_small_patch16_224 --example 1x3x224x224 --out ship
      orthosparse deploy weights.pt --model path/to/net.py:build --example 8x1x28x28 --onnx --json
    """
    from orthosparse.lab.deployment.checkpoints import load_weights
    from orthosparse.lab.deployment.page import page_of
    from orthosparse.lab.deployment.shipping import ship, write
    from orthosparse.lab.rendering.foot import foot_of
    from orthosparse.lab.rendering.html import write_page
    from orthosparse.lab.training.devices import device_of

    check_at_least(1, threads=threads, classes=classes)
    check_results(out)
    where = str(device_of(device))
    name, network, inputs = _asked(checkpoint, model, example, classes, activation)
    load_weights(network, checkpoint)
    options = {"device": where, "threads": threads, "tolerance": tolerance, "compile": compiled}
    shipment = ship(network, inputs, onnx=onnx, progress=_progress, **options)
    files = write(shipment, out)
    on = f"{where}, {counted(threads, 'thread')}" if threads else where
    lead = f"Weights of {checkpoint}, timed on an input of {example} ({on})."
    foot = foot_of(f"orthosparse deploy {checkpoint} --model {name} --example {example}")
    write_page(page_of(f"Deployment of {name}", lead, shipment.table, files, foot), out / _PAGE)
    written = [str(out / each) for each in (*files, _PAGE)]
    if json:
        print_json({"model": name, "example": list(inputs.shape), "files": written, **shipment.table.to_dict()})
    else:
        _print(lead, shipment.table, written)


def _asked(
    checkpoint: Path, model: str | None, example: str, classes: int | None, activation: str | None
) -> tuple[str, Any, Any]:
    """Return the name of the network, the network before its weights are loaded, and the inputs.

    Raises:
        ValueError: there is none of that name, or it does not take such inputs.
        FileNotFoundError: no checkpoint.
    """
    from functools import partial

    import torch

    from orthosparse.lab.deployment.checkpoints import check_there, classes_in, run_in
    from orthosparse.lab.inspection.targets import parse_input, resolve
    from orthosparse.lab.models import build
    from orthosparse.randomness import derive

    check_there(checkpoint)
    (batch, *sides), tokens = parse_input(example, "example")
    in_shape: Any = tuple(sides)  # build says what is wrong with it
    generator = derive(0, "deploy")
    run = run_in(checkpoint) if model is None else None
    if model is None and run is None:
        raise ValueError(f"model: expected one, as {checkpoint} is not the folder of a run; got none")
    if run is not None:
        options = {"activation": activation or run["activation"], **run["model_options"]}
        network = partial(build, run["model"], in_shape=in_shape, generator=generator, **options)
        number = classes or classes_in(checkpoint, network(classes=10)) or 10
        return run["model"], network(classes=number), torch.randn(batch, *sides, generator=generator)
    assert model is not None, "one of the two is there"
    target = resolve(
        model, in_shape=in_shape, tokens=tokens, classes=classes, activation=activation, generator=generator
    )
    if tokens:
        return model, target.model, torch.randint(target.vocabulary, (batch, *sides), generator=generator)
    return model, target.model, torch.randn(batch, *sides, generator=generator)


def _progress(what: str, done: int, total: int) -> None:
    """Rewrite one line on a terminal; elsewhere say nothing."""
    if sys.stderr.isatty():
        typer.echo(f"\r\x1b[K{f'{what}: {done} of {total}' if done < total else ''}", nl=False, err=True)


def _print(lead: str, table: Any, written: list[str]) -> None:
    from orthosparse.lab.deployment.page import tables_of
    from orthosparse.lab.rendering.terminal import console, print_table

    to, (layers, network) = console(), tables_of(table)
    to.print(lead, soft_wrap=True)
    print_table(layers, to, widest=40)
    print_table(network, to)
    removed = sum(table.removed.values())
    to.print(
        f"{table.chosen}: {table.ratio:.2f} times as fast as the fastest form of the given network; {table.live:,} of "
        f"{table.weights:,} weights are not zero, dead units removed: {removed:,}, outputs within {table.error:.1e}.",
        soft_wrap=True,
    )
    for line in (*table.notes, f"Written: {', '.join(written)}"):
        to.print(line, soft_wrap=True)
