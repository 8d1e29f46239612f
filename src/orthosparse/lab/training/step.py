"""One optimizer step of one network or of many: the gradients of a batch, and the update that they make."""

from collections.abc import Sequence

import torch
from torch import Tensor

from orthosparse.lab.training.mixing import mix
from orthosparse.lab.training.objective import hits
from orthosparse.lab.training.state import State
from orthosparse.randomness import derive_seed


def take_step(state: State, images: Tensor, labels: Tensor, count: int) -> None:
    """Update the networks by the mean loss over a batch of `count`, of which this rank holds `images`; record it.

    A network whose loss or gradient is not finite is not updated, neither at this step nor later.

    Args:
        labels: classes ``[networks, batch]``, or probabilities of them.
    """
    losses, right = gradients(state, images, labels, count)
    state.records.add(losses, state.networks.gradient_norms(), right)
    state.networks.update(state.records.alive)


def gradients(state: State, images: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Fill the gradients, and return the mean loss and the hits of each network, of all ranks together."""
    networks, world = state.networks, state.fabric.world_size
    networks.zero_grad()
    parts = _split(images, labels, state.recipe.accumulate)
    losses, right = [], []
    with networks.passes():
        for place, (x, y) in enumerate(parts):
            with networks.accumulating(place < len(parts) - 1):
                logits = networks(x)
                share = state.objective(logits.to(networks.dtype), y) / count
                # Ranks average their gradients; the shares of the loss are meant to add up.
                networks.backward(share.sum() * world if world > 1 else share.sum())
            losses.append(share.detach())
            right.append(hits(logits.detach(), y))
    return state.summed(_total(losses)), state.summed(_total(right))


def targets(state: State, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the batch, mixed with itself where the recipe says so, and its labels, ``[networks, batch, ...]``."""
    recipe = state.recipe
    if recipe.mixup or recipe.cutmix:
        shares = {"mixup": recipe.mixup, "cutmix": recipe.cutmix}
        place = (state.epoch, state.step, state.fabric.global_rank)
        images, labels = mix(images, labels, state.classes, **shares, seed=state.seed, place=place)
    return images, labels if images.dim() == 5 else labels.unsqueeze(0)


def seed_step(state: State) -> None:
    """Seed what layers draw from while training (dropout), which can only be torch's global generators.

    `fit` fences them. A seed for every step, so that a resumed run draws what the first one would have drawn.
    """
    seed = derive_seed(state.seed, "step", state.epoch, state.step, state.fabric.global_rank)
    torch.default_generator.manual_seed(seed)
    if state.fabric.device.type == "cuda":
        torch.cuda.default_generators[state.fabric.device.index].manual_seed(seed)


def _split(images: Tensor, labels: Tensor, parts: int) -> Sequence[tuple[Tensor, Tensor]]:
    if parts == 1:
        return [(images, labels)]
    return list(zip(images.chunk(parts), labels.chunk(parts, dim=1), strict=True))


def _total(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
