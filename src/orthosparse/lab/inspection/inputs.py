"""What the model is shown: samples of a data set, or Gaussian noise with random labels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from orthosparse.lab.data import Dataset, Loader
from orthosparse.randomness import derive, draw_seed


@dataclass(frozen=True, eq=False)
class Inputs:
    """A batch, and a sentence that says where it comes from."""

    images: Tensor
    labels: Tensor
    source: str


def gaussian(
    in_shape: tuple[int, ...], classes: int, samples: int, *, generator: torch.Generator | None = None
) -> Inputs:
    """Return independent N(0, 1) entries, and labels that are drawn too.

    Example:
        >>> gaussian((3, 8, 8), 10, 4).images.shape
        torch.Size([4, 3, 8, 8])
    """
    seed = draw_seed(generator)
    images = torch.randn(samples, *in_shape, generator=derive(seed, "images"))
    labels = torch.randint(classes, (samples,), generator=derive(seed, "labels"))
    return Inputs(images, labels, f"{samples} Gaussian inputs and random labels (no data set was given)")


def from_data(data: Dataset, samples: int, *, seed: int) -> Inputs:
    """Return the first training batch of a set, normalised and not augmented."""
    images, labels = next(Loader(data.train, batch=samples, seed=seed).epoch(0))
    return Inputs(images, labels, f"{len(labels)} training samples of {data.name}")
