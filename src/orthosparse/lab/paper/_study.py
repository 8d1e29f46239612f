"""What the paper trains: its methods, starts, networks and data, the names people read, and the trainings of each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._tables import Column, Line, Place, Rendered, Table, table_of
from orthosparse.lab.paper.statistics import Number
from orthosparse.lab.rendering.contents import Figure, Series

SEEDS = (1, 2, 3, 4, 5)
METHODS = {"erk": "ERK", "grasp": "GraSP", "snip": "SNIP", "synflow": "SynFlow", "uniform": "Uniform"}
INITS = {"base": "Base", "ai": "AI", "eoi": "EOI"}
STYLES = {"base": "dotted", "ai": "dashed", "eoi": "solid"}
ACTIVATIONS = {
    "linear": "linear",
    "tanh": "tanh",
    "hardtanh": "hard tanh",
    "relu": "ReLU",
    "leaky_relu": "LReLU",
    "selu": "SELU",
}
MODELS = {
    "mlp": "MLP",
    "mlp1000": "1000-layer MLP",
    "cnn1000": "1000-layer CNN",
    "resnet32": "ResNet32",
    "resnet56": "ResNet56",
    "resnet110": "ResNet110",
    "vgg16c": "VGG-16",
    "efficientnet_b0": "EfficientNet",
    "resnet50": "ResNet50",
    "deit3_small": "DeiT III small",
}
DATA = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny_imagenet": "Tiny ImageNet",
    "imagenet": "ImageNet",
    "digits": "digits",
}
# The networks of the contemporary study and their images, in the paper's order.
CONTEMPORARY = (
    ("resnet32", "cifar10"),
    ("resnet56", "cifar10"),
    ("resnet110", "cifar10"),
    ("vgg16c", "cifar10"),
    ("efficientnet_b0", "tiny_imagenet"),
    ("resnet110", "cifar100"),
)
_TINY: dict[str, Any] = {"model_options": {"depth": 3, "width": 16}, "epochs": 1}


def column(model: str, data: str) -> Column:
    """Return the column of a network and its images.

    Example:
        >>> column("resnet32", "cifar10")
        Column(key='resnet32/cifar10', label='ResNet32 (CIFAR-10)', model='ResNet32', digits=None)
    """
    return Column(f"{model}/{data}", f"{MODELS[model]} ({DATA[data]})", MODELS[model])


def both(method: str, init: str) -> str:
    """Return the tag of what belongs to a method and to a start: it is found by either.

    Example:
        >>> both("ERK", "eoi")
        'ERK|EOI'
    """
    return f"{method}|{INITS[init]}"


def lines(methods: Mapping[str, str] = METHODS, inits: Mapping[str, str] = INITS) -> list[Line]:
    """Return a block for each method, a line for each start."""
    return [
        Line(f"{method}/{init}", (label, start), block=method, method=both(label, init))
        for method, label in methods.items()
        for init, start in inits.items()
    ]


DENSE = [
    Line("dense/base", ("Dense", "Base"), block="dense", method="Dense", ranked=False),
    Line("dense/orthogonal", ("Dense", "Orthogonal"), block="dense", method="Dense", ranked=False),
]


def start_of(line: str, model: str, data: str, density: float, **changes: Any) -> Training:
    """Return the training of a line ``distribution/scheme``; ``dense/base`` has the framework's own weights.

    Example:
        >>> start_of("snip/ai", "resnet32", "cifar10", 0.1).key()
        '{"data":"cifar10","density":0.1,"distribution":"snip","kind":"training","model":"resnet32","scheme":"ai"}'
        >>> start_of("dense/base", "resnet32", "cifar10", 0.1).key()
        '{"data":"cifar10","dense_init":"default","kind":"training","model":"resnet32"}'
    """
    distribution, scheme = line.split("/")
    if distribution == "dense":
        changes = {name: value for name, value in changes.items() if name != "options"}
        changes |= {"dense_init": "default"} if scheme == "base" else {}
        return Training(model, data, **changes)
    return Training(model, data, density, distribution, scheme, **changes)


def tiny(line: str, density: float = 0.3, **changes: Any) -> Training:
    """Return a training of a second or less, from the same kind of start."""
    options = dict(changes.pop("options", {}))
    if line.endswith("/ai"):
        options["iterations"] = 20
    return start_of(line, "mlp", "digits", density, **{**_TINY, "options": options, **changes})


@dataclass(frozen=True)
class Accuracies:
    """A table of test accuracies, with a training for each of its cells.

    Attributes:
        training: returns the training of a cell from the keys of its line and column and whether the tiny version is
            asked for; None where there is no such cell.
        item, heads, better: see `table_of`.
        across: whether columns are compared with each other too, so that all should be trained in one setting.
    """

    title: str
    columns: Sequence[Column]
    lines: Sequence[Line]
    training: Callable[[str, str, bool], Experiment | None]
    item: str | None = None
    heads: tuple[str, ...] = ("method", "init")
    better: Callable[..., Any] | None = max
    across: bool = False
    notes: Sequence[str] = ()

    def cells(self, *, smoke: bool = False) -> dict[Place, Experiment | None]:
        """Return the training of each cell, column after column."""
        return {
            (line.key, column.key): self.training(line.key, column.key, smoke)
            for column in self.columns
            for line in self.lines
        }

    def experiments(self, *, smoke: bool = False) -> list[Experiment]:
        """Return the trainings, once each."""
        return unique(self.cells(smoke=smoke).values())

    def table(self, index: RowIndex, *, smoke: bool = False) -> Table:
        """Return the table of the rows that there are."""
        measured = index.accuracies(self.cells(smoke=smoke), across=self.across)
        return table_of(
            self.title, self.columns, self.lines, measured, item=self.item, heads=self.heads, better=self.better
        )

    def render(self, rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
        """Return the table and the notes of an item that shows nothing else."""
        return Rendered(tables=[self.table(RowIndex(rows), smoke=smoke)], notes=self.notes)


def unique(experiments: Iterable[Experiment | None]) -> list[Experiment]:
    """Return the experiments once each, in their order, without the cells that have none."""
    return list(dict.fromkeys(experiment for experiment in experiments if experiment is not None))


def counted(label: str, ys: Sequence[float | None], role: str, *, method: str) -> Series:
    """Return a curve over 1, 2, 3 ... (epochs)."""
    return Series(label, list(range(1, len(ys) + 1)), ys, role, method=method)


def pointed(
    label: str, means: Mapping[float, Number | None], role: str, *, method: str = "", points: str = "full"
) -> Series:
    """Return means and their deviations by x, those that there are, as points that nothing joins."""
    found = {x: mean for x, mean in means.items() if mean is not None}
    ys, deviations = [mean for mean, _ in found.values()], [deviation for _, deviation in found.values()]
    return Series(label, list(found), ys, role, method=method or label, points=points, deviations=deviations)


def drawn(figures: Iterable[Figure]) -> list[Figure]:
    """Return the figures without curves that have no point, and without figures that have no curve."""
    kept = [replace(each, series=tuple(series for series in each.series if len(series.xs))) for each in figures]
    return [figure for figure in kept if figure.series]
