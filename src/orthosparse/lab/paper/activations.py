"""ResNet32 and VGG-16 with four activations at density 0.10."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._contents import Column, Line, Place, Rendered
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import ACTIVATIONS, MODELS, SEEDS, lines, start_of, tiny, unique
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.paper.contemporary import NOTES

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Test accuracy on CIFAR-10 by activation, density 10 %"
_COLUMNS = [
    Column(f"{model}/{name}", f"{MODELS[model]} {ACTIVATIONS[name]}", MODELS[model])
    for model in ("resnet32", "vgg16c")
    for name in ("relu", "leaky_relu", "selu", "tanh")
]
_LINES = lines()
_NOTES = [
    "SynFlow does not work with tanh: its flow is not proportional to the input. LReLU has a slope of 0.01.",
    "Marks follow the means. The paper marks GraSP AI for VGG-16 LReLU (Base is higher), SNIP EOI for ResNet32 tanh "
    "(Base is higher), and does not underline its best of VGG-16 SELU, SynFlow Base.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings; those with ReLU are the contemporary study's own."""
    return unique([*_cells(smoke).values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies."""
    table = table_of(TITLE, _COLUMNS, _LINES, RowIndex(rows).accuracies(_cells(smoke)), item="activations")
    return Rendered(tables=[table], notes=[*_NOTES, *NOTES])


def _cells(smoke: bool) -> dict[Place, Experiment | None]:
    return {(line.key, column.key): _training(line, column, smoke) for column in _COLUMNS for line in _LINES}


def _training(line: Line, column: Column, smoke: bool) -> Experiment | None:
    model, activation = column.key.split("/")
    if line.block == "synflow" and activation == "tanh":
        return None
    own = None if activation == "relu" else activation  # ReLU is these networks' own
    if smoke:
        wanted = line.key in ("snip/base", "synflow/eoi", "uniform/eoi") and model == "resnet32"
        return tiny(line.key, activation=own) if wanted and activation in ("selu", "tanh") else None
    return start_of(line.key, model, "cifar10", 0.1, activation=own)
