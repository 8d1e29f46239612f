"""GraSP: the largest theta * H g of the whole model, which keep the gradient's norm highest."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from orthosparse.aliases import Density, Masks, Scores
from orthosparse.checks import check_density, check_positive
from orthosparse.distributions._inputs import batches_of, weights_of
from orthosparse.distributions._masks import budget_of, check_entries, follows_paper_code, top_scored
from orthosparse.distributions._objective import objective_of
from orthosparse.hardware import precise
from orthosparse.layers import Layer
from orthosparse.masks import ScoredMasks
from orthosparse.twice import twice_differentiable


def grasp(
    model: nn.Module,
    density: Density,
    *,
    layers: Mapping[str, Layer] | None = None,
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
    temperature: float = 200.0,
    compat: str | None = None,
) -> Masks:
    """Return masks of the weights with the largest theta * H g, where g is the gradient and H the Hessian of the loss.

    Removing theta changes ||g||^2 by -2 theta * H g to first order, so the weights that are removed are those whose
    removal lowers it least (section 3.3; Wang et al. 2020). A single batch takes one double backward pass; several
    batches are kept in memory and take another pass for g first. They are passed through the model as in `snip`.

    Args:
        temperature: the outputs of the model are divided by it before the loss.
        compat: ``"paper-code"`` keeps the smallest scores instead: those strictly smaller than all that it removes, and
            it removes at least one.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> x, y = torch.randn(8, 6, generator=g), torch.randint(3, (8,), generator=g)
        >>> masks = grasp(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), 0.5, batch=(x, y))
        >>> sum(int(mask.sum()) for mask in masks.values())
        36
    """
    check_positive("temperature", temperature)
    layers, count = budget_of(model, density, layers)
    wrong_end = check_density(density) if follows_paper_code(compat) else None
    batches = list(batches_of(batch, model, "grasp"))
    weights = weights_of(layers)
    with (
        objective_of(model, layers, loss, generator, temperature=temperature) as objective,
        twice_differentiable(),
    ):
        gradient = None if len(batches) == 1 else objective.gradient(weights, batches)
        product = objective.hessian_times(weights, batches, gradient)
    scores = {name: precise(weights[name]) * product[name] for name in layers}
    return top_scored(layers, scores, count) if wrong_end is None else _strictly_smallest(layers, scores, wrong_end)


def _strictly_smallest(layers: Mapping[str, Layer], scores: Scores, density: float) -> Masks:
    """Drop the largest scores, at least one, and all that equal the smallest of them."""
    check_entries(layers)
    flat = torch.cat([score.flatten() for score in scores.values()])
    dropped = flat.topk(max(int(len(flat) * (1 - density)), 1)).values
    masks = {name: scores[name] < dropped.min() for name in layers}
    return ScoredMasks(masks, {name: -score for name, score in scores.items()})
