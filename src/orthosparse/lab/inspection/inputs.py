"""What the model is shown: samples of a data set, or noise or random tokens with random labels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from orthosparse.lab.data import Dataset, Loader
from orthosparse.randomness import derive, draw_seed


@dataclass(frozen=True, eq=False)
class Inputs:
    """A batch, and a sentence that says where it comes from.

    Attributes:
        embedding: the name of the module that reads `x`, where that are tokens.
    """

    x: Tensor
    labels: Tensor
    source: str
    embedding: str | None = None


def gaussian(
    in_shape: tuple[int, ...],
    classes: int,
    samples: int,
    *,
    sides: tuple[int, ...] = (),
    generator: torch.Generator | None = None,
) -> Inputs:
    """Return independent N(0, 1) entries, and labels that are drawn too.

    Args:
        sides: of the labels of one sample, where a model answers for every pixel.

    Example:
        >>> gaussian((3, 8, 8), 10, 4).x.shape
        torch.Size([4, 3, 8, 8])
    """
    seed = draw_seed(generator)
    images = torch.randn(samples, *in_shape, generator=derive(seed, "images"))
    labels = _labels(classes, samples, sides, seed)
    return Inputs(images, labels, f"{samples} Gaussian inputs and random labels (no data set was given)")


def random_tokens(
    in_shape: tuple[int, ...],
    vocabulary: int,
    classes: int,
    samples: int,
    *,
    embedding: str,
    sides: tuple[int, ...] = (),
    generator: torch.Generator | None = None,
) -> Inputs:
    """Return tokens that are drawn from the whole vocabulary, and labels that are drawn too.

    Example:
        >>> random_tokens((16,), 50, 10, 4, embedding="wte").x.shape
        torch.Size([4, 16])
    """
    seed = draw_seed(generator)
    tokens = torch.randint(vocabulary, (samples, *in_shape), generator=derive(seed, "tokens"))
    source = f"{samples} inputs of random tokens out of {vocabulary:,}, and random labels (no data set was given)"
    source += "; singular values are those of the Jacobian from the embeddings on"
    return Inputs(tokens, _labels(classes, samples, sides, seed), source, embedding)


def from_data(data: Dataset, samples: int, *, seed: int) -> Inputs:
    """Return the first training batch of a set, normalised and not augmented."""
    images, labels = next(Loader(data.train, batch=samples, seed=seed).epoch(0))
    return Inputs(images, labels, f"{len(labels)} training samples of {data.name}")


def _labels(classes: int, samples: int, sides: tuple[int, ...], seed: int) -> Tensor:
    return torch.randint(classes, (samples, *sides), generator=derive(seed, "labels"))
