"""The optimizers of the recipes, made so that a captured graph can hold their step."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from orthosparse.lab.optional import import_timm
from orthosparse.lab.training.recipe import Recipe


def make_optimizer(
    recipe: Recipe, parameters: Iterable[nn.Parameter], *, sharded: bool = False
) -> torch.optim.Optimizer:
    """Return the recipe's optimizer; its learning rate is a tensor on the device, so that it can change in a graph.

    Args:
        sharded: the parameters are DTensors, which the fused kernels do not take.

    Raises:
        ImportError: LAMB, without timm.
    """
    groups = _groups(recipe, list(parameters))
    device = groups[0]["params"][0].device
    if recipe.optimizer == "lamb":
        return _lamb(groups, recipe)
    rate: Any = recipe.lr if sharded else torch.tensor(recipe.lr, device=device)
    kind: dict[str, Any] = {"foreach": True} if sharded else {"fused": True}
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=rate, capturable=device.type == "cuda", **kind)
    return torch.optim.SGD(groups, lr=rate, momentum=recipe.momentum, nesterov=recipe.nesterov, **kind)


def is_fused(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether its step is one kernel, which a CUDA graph can hold and `found_inf` can leave without effect."""
    return all(isinstance(group["lr"], torch.Tensor) for group in optimizer.param_groups)


def _groups(recipe: Recipe, parameters: list[nn.Parameter]) -> list[dict[str, Any]]:
    if recipe.decay_vectors:
        return [{"params": parameters, "weight_decay": recipe.weight_decay}]
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _lamb(groups: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    made: torch.optim.Optimizer = import_timm("timm.optim.lamb").Lamb(groups, lr=recipe.lr)
    return made
