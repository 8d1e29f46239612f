"""The study of contemporary networks at one density: experiments and table, for the items that show it."""

from functools import partial

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._names import DENSE, column, lines
from orthosparse.lab.paper._rendered import Column, Line, Table
from orthosparse.lab.paper._tables import accuracies, table_of
from orthosparse.lab.paper._trainings import grid, start_of, tiny

LINES = [*lines(), *DENSE]
_SMOKE = ("erk/base", "erk/ai", "erk/eoi", "dense/base")

NOTES = [
    "Masks are exact counts, one budget for all starts of a seed; the released code tosses a coin for each weight.",
    "GraSP keeps the largest theta * Hg, as its authors define it, on one batch of 128 images; the released code keeps "
    "the smallest (its VGG-16 Base and AI of 33 % may come from that), summed over the whole training set twice. "
    "Both forms stand side by side for the 1000-layer networks.",
    "SynFlow scores the logits; the released code scores log-probabilities.",
    "Validation images are not augmented; CIFAR-100 holds out a tenth of its training images (the released code trains "
    "on all of them).",
    "Layers too small for an orthogonal matrix at their density are raised to the least that works; the others pay.",
    "TF32 products on a GPU; test accuracy after the last epoch, as in the paper.",
]


def experiments(columns: list[Column], density: float, *, smoke: bool) -> list[Experiment]:
    """Return the 15 sparse starts and two dense ones of every network."""
    return grid(LINES, columns, partial(choose, density=density, smoke=smoke))


def table(book: Book, title: str, columns: list[Column], density: float, *, item: str, smoke: bool) -> Table:
    """Return the accuracies next to the paper's."""
    measure = accuracies(book, columns, LINES, partial(choose, density=density, smoke=smoke))
    return table_of(title, columns, LINES, measure, item=item)


def choose(line: Line, place: Column, *, density: float, smoke: bool) -> Experiment | None:
    """Return the training of a cell."""
    if smoke:
        return tiny(line.key, density=2 * density) if line.key in _SMOKE and place.model == "ResNet32" else None
    model, data = place.key.split("/")
    return start_of(line.key, model, data, density)


def columns_of(networks: tuple[tuple[str, str], ...]) -> list[Column]:
    """Return the columns of networks and their images."""
    return [column(model, data) for model, data in networks]
