"""`orthosparse demo`: see on a laptop what an exactly orthogonal start is worth."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from orthosparse.lab.commands._options import Seed, check_results, command_line

_DATA = "Data: the 1797 digits of 8 x 8 pixels that come with scikit-learn, the last 360 for the test."
_QUICK = "Use small sizes that take seconds, to try the command; the numbers are meaningless."


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder for the page and the figure.")] = Path("demo-out"),
    seed: Seed = 0,
    density: Annotated[float, typer.Option(help="Density of the sparse networks.")] = 0.125,
    epochs: Annotated[int | None, typer.Option(help="Epochs of training; by default 30, or 2 with --quick.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help=_QUICK)] = False,
) -> None:
    """Train a 100-layer network from four starts in a minute.

    Shows what an exactly orthogonal start is worth: samples a sparse orthogonal matrix, then trains the network on
    handwritten digits from dense, base, AI and EOI starts. Needs no data and no GPU; writes one self-contained page.

    \b
    Examples:
      orthosparse demo
      orthosparse demo --quick --out trial --seed 3
    """
    from orthosparse.hardware import on_threads
    from orthosparse.lab.demo.charts import mask_and_spectra
    from orthosparse.lab.demo.isometries import measure
    from orthosparse.lab.demo.networks import Shape, build_starts, density_of, scaled_digits
    from orthosparse.lab.demo.page import Demo, page_of
    from orthosparse.lab.demo.sampler import compare
    from orthosparse.lab.demo.tables import network_table, sampler_table
    from orthosparse.lab.demo.training import train
    from orthosparse.lab.rendering.charts import save
    from orthosparse.lab.rendering.foot import foot_of
    from orthosparse.lab.rendering.html import write_page
    from orthosparse.lab.rendering.terminal import console, print_table
    from orthosparse.lab.training import Recipe
    from orthosparse.randomness import derive

    check_results(out)
    shape = Shape(depth=8, width=32, density=density, ai_iterations=100) if quick else Shape(density=density)
    recipe, to = Recipe(epochs=(2 if quick else 30) if epochs is None else epochs, lr=0.003, batch=64), console()
    with on_threads(1):
        with to.status("Drawing the starts"):
            data = scaled_digits()
            networks = build_starts(shape, data.in_shape, data.classes, seed)
        samples = compare(64 if quick else 512, 0.1, generator=derive(seed, "demo", "sampler"))
        print_table(sampler_table(samples), to)
        out.mkdir(parents=True, exist_ok=True)
        save(mask_and_spectra(samples), out / "sampler.png")
        with to.status("Measuring the singular values of the starts"):
            isometries = measure(networks, _images(data), shape.depth)
        with _bars(networks, recipe.epochs) as announce:
            history = train(networks, shape, recipe, data, seed, announce)
    title = f"tanh network of {shape.depth} layers of width {shape.width} on digits, {recipe.epochs} epochs"
    densities = {name: density_of(network) for name, network in networks.items()}
    print_table(network_table(isometries, densities, history, title=title), to)
    found = Demo(shape, recipe, samples, networks, densities, isometries, history)
    write_page(page_of(found, foot_of(command_line(context, without=("out",)), _DATA)), out / "index.html")
    to.print(f"Page: {out / 'index.html'}  Picture of the sampler: {out / 'sampler.png'}", soft_wrap=True)


def _images(data: Any) -> Any:
    from orthosparse.lab.data import Loader

    return next(Loader(data.test, batch=8, train=False).epoch(0))[0]


@contextmanager
def _bars(networks: dict[str, Any], epochs: int) -> Iterator[Any]:
    """A bar for each network, with its loss and accuracy."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from orthosparse.lab.rendering.terminal import console
    from orthosparse.lab.rendering.theme import LABELS

    columns = TextColumn("{task.description:>5}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}")
    to = console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=to, disable=not to.is_terminal) as progress:
        tasks = [progress.add_task(LABELS[name], total=epochs, state="") for name in networks]

        def announce(epoch: int, losses: list[float], accuracies: list[float]) -> None:
            for task, loss, accuracy in zip(tasks, losses, accuracies, strict=True):
                progress.update(task, completed=epoch + 1, state=f"loss {loss:.3f}, {100 * accuracy:.1f} % right")

        yield announce
