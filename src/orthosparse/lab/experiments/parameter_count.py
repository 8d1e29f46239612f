"""ParameterCount: how many weights a network has, may lose, and keeps."""

from dataclasses import dataclass
from typing import Any, ClassVar

from orthosparse.lab.experiments._experiment import Experiment
from orthosparse.registry import lookup

# Classes and shape of an image, as the data sets have them: nothing is read from a disk to count.
_SETS: dict[str, tuple[int, tuple[int, int, int]]] = {
    "cifar10": (10, (3, 32, 32)),
    "cifar100": (100, (3, 32, 32)),
    "digits": (10, (1, 8, 8)),
    "fashion_mnist": (10, (1, 28, 28)),
    "imagenet": (1000, (3, 224, 224)),
    "mnist": (10, (1, 28, 28)),
    "tiny_imagenet": (200, (3, 64, 64)),
}


@dataclass(frozen=True, eq=False)
class ParameterCount(Experiment):
    """The parameters of `model` built for the images of `data`, at a density."""

    kind: ClassVar[str] = "parameter_count"

    model: str
    data: str
    density: float = 0.1

    def __post_init__(self) -> None:
        """Check the name of the data.

        Raises:
            ValueError: an unknown one.
        """
        lookup(_SETS, self.data, "data")

    def reads(self) -> None:
        """Read no data: shapes alone are counted."""

    def run(self, seed: int, **where: Any) -> dict[str, Any]:
        """Return all parameters, those that a mask can reach, and how many of these are kept."""
        del seed, where  # nothing is drawn, read or kept
        import torch

        from orthosparse import find_layers
        from orthosparse.lab.models import MODELS

        classes, in_shape = _SETS[self.data]
        with torch.device("meta"):  # shapes alone: no memory, nothing drawn
            network = lookup(MODELS, self.model, "model")(classes=classes, in_shape=in_shape)
        prunable = sum(layer.numel for layer in find_layers(network).values())
        parameters = sum(parameter.numel() for parameter in network.parameters())
        return {"parameters": parameters, "prunable": prunable, "kept": round(self.density * prunable)}
