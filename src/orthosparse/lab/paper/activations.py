"""ResNet32 and VGG-16 with four activations at density 0.10; the trainings with ReLU are the contemporary study's."""

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._study import ACTIVATIONS, MODELS, SEEDS, Accuracies, lines, start_of, tiny
from orthosparse.lab.paper._tables import Column
from orthosparse.lab.paper.contemporary import NOTES

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Test accuracy on CIFAR-10 by activation, density 10 %"
_COLUMNS = [
    Column(f"{model}/{name}", f"{MODELS[model]} {ACTIVATIONS[name]}", MODELS[model])
    for model in ("resnet32", "vgg16c")
    for name in ("relu", "leaky_relu", "selu", "tanh")
]
_NOTES = [
    "SynFlow does not work with tanh: its flow is not proportional to the input. LReLU has a slope of 0.01.",
    "Marks follow the means. The paper marks GraSP AI for VGG-16 LReLU (Base is higher), SNIP EOI for ResNet32 tanh "
    "(Base is higher), and does not underline its best of VGG-16 SELU, SynFlow Base.",
]


def _training(line: str, column: str, smoke: bool) -> Experiment | None:
    model, activation = column.split("/")
    if line.startswith("synflow") and activation == "tanh":
        return None
    own = None if activation == "relu" else activation  # ReLU is these networks' own
    if smoke:
        wanted = line in ("snip/base", "synflow/eoi", "uniform/eoi") and model == "resnet32"
        return tiny(line, activation=own) if wanted and activation in ("selu", "tanh") else None
    return start_of(line, model, "cifar10", 0.1, activation=own)


_TABLE = Accuracies(TITLE, _COLUMNS, lines(), _training, item="activations", notes=[*_NOTES, *NOTES])
experiments, render = _TABLE.experiments, _TABLE.render
