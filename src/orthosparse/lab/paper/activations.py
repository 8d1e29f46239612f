"""ResNet32 and VGG-16 with four activations at density 0.10; the trainings with ReLU are the contemporary study's."""

from itertools import product

from orthosparse.lab.paper._study import ACTIVATIONS, MODELS, SEEDS, Accuracies, lines
from orthosparse.lab.paper._tables import Column
from orthosparse.lab.paper.contemporary import NOTES

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Test accuracy on CIFAR-10 by activation, density 10 %"
_COLUMNS = [
    Column(
        f"{model}/{name}",
        f"{MODELS[model]} {ACTIVATIONS[name]}",
        MODELS[model],
        fields={"model": model, "activation": None if name == "relu" else name},  # ReLU is these networks' own
    )
    for model, name in product(("resnet32", "vgg16c"), ("relu", "leaky_relu", "selu", "tanh"))
]
_NOTES = [
    "SynFlow does not work with tanh: its flow is not proportional to the input. LReLU has a slope of 0.01.",
    "Marks follow the means. The paper marks GraSP AI for VGG-16 LReLU (Base is higher), SNIP EOI for ResNet32 tanh "
    "(Base is higher), and does not underline its best of VGG-16 SELU, SynFlow Base.",
]
_TABLE = Accuracies(
    TITLE,
    _COLUMNS,
    lines(),
    {"data": "cifar10", "density": 0.1},
    tiny=["snip/base", "synflow/eoi", "uniform/eoi"],
    small={"resnet32/selu": {}, "resnet32/tanh": {}},
    own=dict.fromkeys(product(["synflow/base", "synflow/ai", "synflow/eoi"], ["resnet32/tanh", "vgg16c/tanh"])),
    item="activations",
    notes=[*_NOTES, *NOTES],
)
experiments, render = _TABLE.experiments, _TABLE.render
