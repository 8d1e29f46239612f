"""SynFlow: the weights that carry most of the flow of the model made positive, found in rounds, without data."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from orthosparse.aliases import Density, Masks
from orthosparse.distributions._flow import flow_of
from orthosparse.distributions._inputs import batches_of, describe, weights_of
from orthosparse.distributions._masks import budget_of, falling, follows_paper_code, top_scored
from orthosparse.layers import Layer
from orthosparse.progress import Progress, counted, reporter
from orthosparse.randomness import draw_seed


def synflow(
    model: nn.Module,
    density: Density,
    *,
    layers: Mapping[str, Layer] | None = None,
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
    rounds: int = 100,
    input_shape: Sequence[int] | None = None,
    compat: str | None = None,
    progress: Progress = False,
) -> Masks:
    """Return masks of the weights with the largest theta * dR/dtheta, where R sums the logits of a positive model.

    The positive model has |theta| for every parameter, running means of 0 and an input of ones, in float64 and eval
    mode. After round t the density is ``density ** (t / rounds)``; removed weights do not return (section 3.3; Tanaka
    et al. 2020).

    Args:
        rounds: number of rounds in which the density falls.
        batch: only the shape of its first sample is used.
        input_shape: shape of a sample, instead of a batch.
        compat: ``"paper-code"`` scores the sum of log-softmax(logits), checks nothing, and keeps
            ``N - int((1 - density ** (t / rounds)) * N)`` of N weights in round t.
        progress: as in `sparsify`; counts rounds.

    Raises:
        ValueError: an activation, norm or attention makes the flow not proportional to the input (tanh, layer norm; the
            message names the module), or there is no flow at all.

    Example:
        >>> model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> sum(int(mask.sum()) for mask in synflow(model, 0.5, input_shape=[6]).values())
        36
    """
    del loss  # R is used instead
    report = reporter(progress)
    layers, _ = budget_of(model, density, layers)
    as_released = follows_paper_code(compat)
    counts = falling(density, layers, rounds, as_released=as_released)
    head = partial(log_softmax, dim=-1) if as_released else nn.Identity()
    masks = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in weights_of(layers).items()}
    with flow_of(model, layers, _sample(batch, input_shape, model), head, draw_seed(generator)) as flow:
        if not as_released:
            flow.check()
        for count in counted(counts, "synflow", report):
            scores = {
                name: score.abs().masked_fill(~masks[name].to(score.device), -1)
                for name, score in flow.scores(masks).items()
            }
            masks = top_scored(layers, scores, count, within=masks)
    return masks


def _sample(batch: Any, input_shape: Sequence[int] | None, model: nn.Module) -> Sequence[int]:
    if input_shape is not None:
        return _checked(input_shape)
    if batch is None:
        raise ValueError("batch: synflow needs the shape of a sample; expected a batch, or input_shape; got neither")
    inputs, _ = next(batches_of(batch, model, "synflow"))
    if not isinstance(inputs, Tensor):
        raise ValueError(f"batch: synflow takes models of one input tensor; got {describe(inputs)}")
    return inputs.shape[1:]


def _checked(input_shape: object) -> list[int]:
    wanted = "input_shape: expected the sides of one sample, integers of at least 1"
    sides = list(input_shape) if isinstance(input_shape, Sequence) and not isinstance(input_shape, str) else None
    if sides is None or any(isinstance(side, bool) or not isinstance(side, Integral) for side in sides):
        raise TypeError(f"{wanted}; got {input_shape!r} ({type(input_shape).__name__})")
    if any(side < 1 for side in sides):
        raise ValueError(f"{wanted}; got {input_shape!r}")
    return sides
