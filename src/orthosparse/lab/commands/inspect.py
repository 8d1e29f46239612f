"""`orthosparse inspect`: what a sparse start does to a model, before a GPU-week is spent on it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
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
    by_name,
    check_at_least,
    check_results,
    choice,
    command_line,
    named_value,
    print_json,
)

_MODEL = "Model of the paper (mlp, resnet32, ...), timm:NAME or path/to/file.py:function."
_INPUT = "Shape of one input: 3x224x224, or tokens:128 for a language model; by default that of the data or the model."
_DENSE = "Dense weights: conv_orthogonal, delta_orthogonal, orthogonal, or default for the model's own weights."
_DATA = "Data set, or path/to/file.py:function, for the inputs; by default noise (or random tokens) and random labels."
_MODE = "Batch norms: calibrated (with the statistics of the inputs), eval or train."
_OUTPUT = "Index, key or attribute of the logits, if the model returns more than these."
_SPECTRUM = (
    "Number of inputs for the singular values; by default 4, or 1 if the Jacobian is too large to compute in full."
)
_ROWS, _REMARKS = 60, 8  # layers and warnings that a terminal shows


def inspect(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help=_MODEL, **by_name("model"))],
    density: Annotated[float, typer.Option(help="Fraction of active weights.")] = 0.1,
    distribution: Distribution = "erk",
    scheme: Scheme = "eoi",
    option: Options = None,
    exclude: Exclude = None,
    floor: Floor = "raise",
    gain: Annotated[float, typer.Option(help="Gain of the orthogonal weights.")] = 1.0,
    bias_std: Annotated[float, typer.Option(help="Standard deviation of the biases.")] = 0.0,
    dense_init: Annotated[str, choice("dense_init", _DENSE)] = "conv_orthogonal",
    activation: Annotated[
        str | None, choice("activation", "Activation of a built-in model, instead of its own.")
    ] = None,
    data: Annotated[str | None, choice("data", _DATA)] = None,
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
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("runs/inspect"),
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
      orthosparse inspect path/to/gpt.py:build --input tokens:128 --density 0.2 --exclude head
    """
    from orthosparse.lab.inspection.activations import advise
    from orthosparse.lab.inspection.measures import Effort, inspect_model
    from orthosparse.lab.inspection.page import page_of
    from orthosparse.lab.inspection.starts import MODES, Plan
    from orthosparse.lab.rendering.foot import foot_of
    from orthosparse.lab.rendering.html import write_page

    check_at_least(1, samples=samples, spectrum_samples=spectrum_samples, steps=steps, classes=classes)
    if spectrum_samples is not None and spectrum_samples > samples:
        raise ValueError(f"spectrum_samples: expected at most the {samples} of --samples; got {spectrum_samples}")
    check_results(out)
    options = dict(named_value(text) for text in option or ())
    plan = Plan(density, distribution, scheme, dense_init, gain, bias_std, floor, tuple(exclude or ()), mode, options)
    target, inputs, head = _asked(model, data, root, classes, input, activation, samples, seed, output)
    if double:
        target.model.double()
        inputs = replace(inputs, x=inputs.x.double() if inputs.x.is_floating_point() else inputs.x)
    with _bar() as progress:
        found = inspect_model(
            target.model,
            plan,
            inputs,
            head=head,
            effort=Effort(samples=spectrum_samples, steps=steps),
            seed=seed,
            progress=progress,
        )
    advice = advise(target.model)
    lead = (
        f"Density {density:g}, distribution {distribution}, scheme {scheme}, compared with base and the dense start. "
        f"Inputs: {inputs.source}."
    )
    foot = foot_of(command_line(context, without=("out", "json")), f"{MODES[mode]}; dense start {dense_init}")
    path = out / f"{re.sub('[^a-zA-Z0-9]+', '-', model).strip('-')}.html"
    write_page(page_of(f"Inspection of {model}", lead, found, advice.text, foot), path)
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
    output: str | None,
) -> tuple[Any, Any, Any]:
    """Return the model, the inputs that were asked for, and where the logits are.

    Raises:
        ValueError: they do not fit each other.
    """
    from orthosparse.lab.data import load
    from orthosparse.lab.inspection.head import Head, picker
    from orthosparse.lab.inspection.inputs import from_data, gaussian, random_tokens
    from orthosparse.lab.inspection.targets import head_of, parse_input, resolve, shape_text
    from orthosparse.randomness import derive, derive_seed

    found = None if data is None else load(data, root)
    in_shape, tokens = (None, False) if shape is None else parse_input(shape)
    if found is not None and (tokens or in_shape not in (None, found.in_shape)):
        raise ValueError(f"input: expected {shape_text(found.in_shape)}, the shape of {data}; got {shape}")
    target = resolve(
        model,
        in_shape=in_shape if found is None else found.in_shape,
        tokens=tokens,
        classes=classes or (None if found is None else found.classes),
        activation=activation,
        generator=derive(seed, "inspect", "model"),
    )
    head, logits = head_of(target, Head(picker(output)))
    outputs, sides = head.classes_and_sides(logits)
    if classes is not None and classes != outputs:
        raise ValueError(f"classes: expected {outputs}, as {model} has; got {classes}")
    if found is not None:
        if outputs < found.classes:
            raise ValueError(f"classes: expected at least {found.classes}, as {data} has; got {outputs}")
        if sides:
            raise ValueError(
                f"data: expected none for a model that returns more than logits [batch, classes]; got {data}"
            )
        return target, from_data(found, samples, seed=derive_seed(seed, "inspect", "data")), head
    draw: dict[str, Any] = {"sides": sides, "generator": derive(seed, "inspect", "data")}
    if target.embedding is None:
        return target, gaussian(target.in_shape, outputs, samples, **draw), head
    draw["embedding"] = target.embedding
    return target, random_tokens(target.in_shape, target.vocabulary, outputs, samples, **draw), head


@contextmanager
def _bar() -> Iterator[Any]:
    """A bar that counts the parts of the work."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from orthosparse.lab.rendering.terminal import console

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    to = console(stderr=True)
    with Progress(*columns, console=to, disable=not to.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def _print_tables(lead: str, advice: Any, found: list[Any], path: Path) -> None:
    from orthosparse.lab.inspection.page import by_layer, remarks, summary
    from orthosparse.lab.rendering.terminal import console, print_table

    to = console()
    to.print(lead, soft_wrap=True)
    print_table(by_layer(found, most=_ROWS), to)
    print_table(summary(found), to)
    spectrum = found[-1].spectrum
    how = (
        "exact" if spectrum.exact else f"matrix-free, relative error {spectrum.error:.1g}, {spectrum.products} products"
    )
    to.print(f"Singular values: {how}.", soft_wrap=True)
    to.print(advice.text, soft_wrap=True)
    warnings = remarks(found)
    for line in warnings[:_REMARKS]:
        to.print(f"warning: {line}", soft_wrap=True)
    if len(warnings) > _REMARKS:
        to.print(f"warning: {len(warnings) - _REMARKS} more of this kind on the page")
    to.print(f"Page: {path}", soft_wrap=True)


def _print_json(model: str, source: str, advice: Any, found: list[Any], path: Path) -> None:
    from dataclasses import asdict

    from orthosparse.lab.inspection.measures import plain

    point = None if advice.point is None else asdict(advice.point)
    facts = {
        "model": model,
        "inputs": source,
        "page": str(path),
        "activation": advice.activation,
        "critical_point": point,
    }
    print_json(facts | {"starts": {each.name: plain(each) for each in found}})
