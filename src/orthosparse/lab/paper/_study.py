"""What the paper trains: its methods, starts, networks and data, the names people read, and the trainings of each."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
# A training of a second or less, and what it keeps of the training that it stands for.
_TINY: dict[str, Any] = {"model": "mlp", "data": "digits", "model_options": {"depth": 3, "width": 16}, "epochs": 1}
_KEPT = ("activation", "dense_init", "distribution", "dynamic", "exclude", "options", "scheme")


def column(model: str, data: str, **fields: Any) -> Column:
    """Return the column of a network and its images.

    Example:
        >>> column("resnet32", "cifar10").label
        'ResNet32 (CIFAR-10)'
    """
    label = f"{MODELS[model]} ({DATA[data]})"
    return Column(f"{model}/{data}", label, MODELS[model], fields={"model": model, "data": data, **fields})


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
        Line(
            f"{method}/{init}",
            (label, start),
            block=method,
            method=both(label, init),
            fields={"distribution": method, "scheme": init},
        )
        for method, label in methods.items()
        for init, start in inits.items()
    ]


# The networks of the contemporary study and their images, in the paper's order.
CONTEMPORARY = [
    column("resnet32", "cifar10"),
    column("resnet56", "cifar10"),
    column("resnet110", "cifar10"),
    column("vgg16c", "cifar10"),
    column("efficientnet_b0", "tiny_imagenet"),
    column("resnet110", "cifar100"),
]
_DENSE: dict[str, Any] = {"block": "dense", "method": "Dense", "ranked": False}
DENSE = [
    Line("dense/base", ("Dense", "Base"), **_DENSE, fields={"density": 1.0, "dense_init": "default"}),
    Line("dense/orthogonal", ("Dense", "Orthogonal"), **_DENSE, fields={"density": 1.0}),
]


@dataclass(frozen=True)
class Accuracies:
    """A table of test accuracies: a cell is the training with the fields of the table, of its column and of its line.

    Attributes:
        tiny: the lines of the tiny version.
        small: its columns, and the fields that each of them has in it.
        own: further fields of single cells; None where there is no such cell.
        item, heads, better: see `table_of`.
        across: whether columns are compared with each other too, so that all should be trained in one setting.
        below: further tables of the same item.
    """

    title: str
    columns: Sequence[Column]
    lines: Sequence[Line]
    fields: Mapping[str, Any]
    tiny: Collection[str] = ()
    small: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    own: Mapping[Place, Mapping[str, Any] | None] = field(default_factory=dict)
    item: str | None = None
    heads: tuple[str, ...] = ("method", "init")
    better: Callable[..., Any] | None = max
    across: bool = False
    notes: Sequence[str] = ()
    below: "Sequence[Accuracies]" = ()

    def cells(self, *, smoke: bool = False) -> dict[Place, Experiment | None]:
        """Return the training of each cell, column after column."""
        return {
            (line.key, column.key): self._training(line, column, smoke)
            for column in self.columns
            for line in self.lines
        }

    def experiments(self, *, smoke: bool = False) -> list[Experiment]:
        """Return the trainings of this table and of those below, once each."""
        return unique(cell for table in (self, *self.below) for cell in table.cells(smoke=smoke).values())

    def render(self, rows: Iterable[dict[str, Any]], *, smoke: bool = False) -> Rendered:
        """Return the tables with the rows that there are, and the notes."""
        index = RowIndex(rows)
        return Rendered([table._table(index, smoke) for table in (self, *self.below)], notes=self.notes)

    def _training(self, line: Line, column: Column, smoke: bool) -> Experiment | None:
        own = self.own.get((line.key, column.key), {})
        if own is None or (smoke and (line.key not in self.tiny or column.key not in self.small)):
            return None
        parts = (self.fields, column.fields, line.fields, own)
        fields = {name: value for part in parts for name, value in part.items()}
        fields["options"] = {name: value for part in parts for name, value in part.get("options", {}).items()}
        return Training(**({**_small(fields), **self.small[column.key]} if smoke else fields))

    def _table(self, index: RowIndex, smoke: bool) -> Table:
        measured = index.accuracies(self.cells(smoke=smoke), across=self.across)
        return table_of(
            self.title, self.columns, self.lines, measured, item=self.item, heads=self.heads, better=self.better
        )


def _small(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a tiny training from the same kind of start."""
    kept = {name: value for name, value in fields.items() if name in _KEPT}
    if fields.get("scheme") == "ai":
        kept["options"] = {**kept["options"], "iterations": 20}
    return {**_TINY, "density": min(1.0, 4 * fields["density"]), **kept}


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


def drawn(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures without curves that have no point, and without figures that have no curve."""
    kept = [replace(each, series=tuple(series for series in each.series if len(series.xs))) for each in figures]
    return [figure for figure in kept if figure.series]
