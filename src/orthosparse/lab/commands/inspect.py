"""`orthosparse inspect`: what a sparse start does to a model, before a GPU-week is spent on it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._options import (
    ROOT,
    Distribution,
    Exclude,
    Floor,
    Json,
    Options,
    Root,
    Scheme,
    Seed,
    check_at_least,
    choice,
    matching,
    named_value,
    print_json,
)
from orthosparse.lab.names import completing

_MODEL = "A model of the paper (mlp, resnet32, ...), timm:NAME, or path/to/file.py:function."
_INPUT = "Shape of one input, such as 3x224x224; by default that of the data or of the model."
_DENSE = "Dense weights: conv_orthogonal, delta_orthogonal, orthogonal, or default for the model's own weights."
_MODE = "Batch norms: calibrated (with the statistics of the inputs), eval or train."
_OUTPUT = "Index, key or attribute of the logits, for a model that returns more than them."
_SPECTRUM = "Inputs for the singular values; by default 4, or 1 if the Jacobian is too large to compute in full."
_ROWS, _REMARKS = 60, 8  # layers and warnings that a terminal shows


def inspect(
    model: Annotated[str, typer.Argument(help=_MODEL, autocompletion=completing("model"), callback=matching("model"))],
    density: Annotated[float, typer.Option(help="Fraction of active weights.")] = 0.1,
    distribution: Distribution = "erk",
    scheme: Scheme = "eoi",
    option: Options = None,
    exclude: Exclude = None,
    floor: Floor = "raise",
    gain: Annotated[float, typer.Option(help="Scale of the orthogonal weights.")] = 1.0,
    bias_std: Annotated[float, typer.Option(help="Standard deviation of the biases.")] = 0.0,
    dense_init: Annotated[str, choice("dense_init", _DENSE)] = "conv_orthogonal",
    activation: Annotated[
        str | None, choice("activation", "Activation of a built-in model, instead of its own.")
    ] = None,
    data: Annotated[
        str | None, choice("data", "Data set for the inputs; by default Gaussian noise with random labels.")
    ] = None,
    root: Root = ROOT,
    classes: Annotated[
        int | None, typer.Option(help="Number of classes; by default that of the data or of the model.")
    ] = None,
    input: Annotated[str | None, typer.Option(help=_INPUT)] = None,  # noqa: A002 - the option's name
    output: Annotated[str | None, typer.Option(help=_OUTPUT)] = None,
    samples: Annotated[int, typer.Option(help="Number of inputs for gradients, scores and batch norms.")] = 8,
    spectrum_samples: Annotated[int | None, typer.Option(help=_SPECTRUM)] = None,
    steps: Annotated[int, typer.Option(help="Lanczos steps, if the Jacobian is too large to compute in full.")] = 6,
    mode: Annotated[str, choice("mode", _MODE)] = "calibrated",
    double: Annotated[bool, typer.Option("--double", help="Compute in float64.")] = False,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="The folder for the page.")] = Path("runs/inspect"),
    json: Json = False,
) -> None:
    """Compare sparse starts of a model before any training.

    Measures a dense start, base (the dense weights times a mask) and a scheme: singular values of the input-output
    Jacobian, orthogonality, weights on live paths, gradients. Prints a table and writes one self-contained page.

    \b
    Examples:
      orthosparse inspect mlp --data digits --activation tanh --density 0.1
      orthosparse inspect timm:resnet50 --density 0.1 --distribution erk --scheme eoi
      orthosparse inspect path/to/net.py:build --input 3x64x64 --exclude head --json
    """
    from orthosparse.lab import inspection as parts
    from orthosparse.lab.rendering import console, foot_of, write_page

    check_at_least(1, samples=samples, spectrum_samples=spectrum_samples, steps=steps, classes=classes)
    options = dict(named_value(text) for text in option or ())
    plan = parts.Plan(
        density, distribution, scheme, dense_init, gain, bias_std, floor, tuple(exclude or ()), mode, options
    )
    pick = parts.picker(output)
    target, inputs = _asked(model, data, root, classes, input, activation, samples, seed, pick)
    if double:
        target.model.double()
        inputs = replace(inputs, images=inputs.images.double())
    with console(stderr=True).status("Drawing the dense start") as status:
        found = parts.inspect_model(
            target.model,
            plan,
            inputs,
            output=pick,
            effort=parts.Effort(samples=spectrum_samples, steps=steps),
            seed=seed,
            announce=lambda name: status.update(f"Measuring {name}"),
        )
    advice = parts.advise(target.model)
    lead = (
        f"Density {density:g}, distribution {distribution}, scheme {scheme}; beside it base and the dense start. "
        f"Seen: {inputs.source}."
    )
    foot = foot_of(f"orthosparse inspect {model} --seed {seed}", f"{parts.MODES[mode]}; dense start {dense_init}")
    path = out / f"{re.sub('[^a-zA-Z0-9]+', '-', model).strip('-')}.html"
    write_page(parts.page_of(f"Inspection of {model}", lead, found, advice.text, foot), path)
    if json:
        _print_json(model, inputs.source, advice, found, path)
    else:
        _print_tables(lead, advice, found, path)


def _asked(
    model: str,
    data: str | None,
    root: Path,
    classes: int | None,
    shape: str | None,
    activation: str | None,
    samples: int,
    seed: int,
    pick: Any,
) -> tuple[Any, Any]:
    """Return the model and the inputs that were asked for.

    Raises:
        ValueError: they do not fit each other.
    """
    from orthosparse.lab import inspection as parts
    from orthosparse.lab.data import load
    from orthosparse.randomness import derive, derive_seed

    found = None if data is None else load(data, root)
    in_shape = None if shape is None else parts.parse_shape(shape)
    if found is not None and in_shape not in (None, found.in_shape):
        raise ValueError(f"input: expected {'x'.join(map(str, found.in_shape))}, the shape of {data}; got {shape}")
    target = parts.resolve(
        model,
        in_shape=in_shape if found is None else found.in_shape,
        classes=classes or (None if found is None or ".py:" in model else found.classes),
        activation=activation,
        generator=derive(seed, "inspect", "model"),
    )
    outputs = parts.outputs_of(target, pick)
    if found is not None and outputs < found.classes:
        raise ValueError(f"classes: expected at least {found.classes}, as {data} has; got {outputs}")
    if found is not None:
        return target, parts.from_data(found, samples, seed=derive_seed(seed, "inspect", "data"))
    return target, parts.gaussian(target.in_shape, outputs, samples, generator=derive(seed, "inspect", "data"))


def _print_tables(lead: str, advice: Any, found: list[Any], path: Path) -> None:
    from orthosparse.lab import inspection as parts
    from orthosparse.lab.rendering import console, print_table

    to = console()
    to.print(lead, soft_wrap=True)
    print_table(parts.by_layer(found, most=_ROWS), to)
    print_table(parts.summary(found), to)
    spectrum = found[-1].spectrum
    how = (
        "exact" if spectrum.exact else f"matrix-free, relative error {spectrum.error:.1g}, {spectrum.products} products"
    )
    to.print(f"Singular values: {how}.", soft_wrap=True)
    to.print(advice.text, soft_wrap=True)
    told = parts.remarks(found)
    for line in told[:_REMARKS]:
        to.print(f"warning: {line}", soft_wrap=True)
    if len(told) > _REMARKS:
        to.print(f"warning: {len(told) - _REMARKS} more of this kind on the page")
    to.print(f"Page: {path}", soft_wrap=True)


def _print_json(model: str, source: str, advice: Any, found: list[Any], path: Path) -> None:
    from dataclasses import asdict

    from orthosparse.lab import inspection as parts

    point = None if advice.point is None else asdict(advice.point)
    facts = {
        "model": model,
        "inputs": source,
        "page": str(path),
        "activation": advice.activation,
        "critical_point": point,
    }
    print_json(facts | {"starts": {each.name: parts.plain(each) for each in found}})
