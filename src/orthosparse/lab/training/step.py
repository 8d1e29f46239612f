"""One optimizer step: gradients of a batch, and the update they make."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.lab.training.mixing import mix
from orthosparse.lab.training.objective import hits
from orthosparse.lab.training.state import State


def gradients(
    state: State,
    images: Tensor,
    labels: Tensor,
    count: int,
    *,
    masks: AbstractContextManager[Any] | None = None,
    compiled: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Fill the gradients of the mean loss over a batch of `count`, of which this rank holds `images`; tally it.

    Args:
        masks: entered for the passes through the network; see `LateMasks`.
        compiled: called in the network's place.
    """
    for parameter in _parameters(state):
        parameter.grad = None  # what zero_grad does, without its notes for a profiler
    world = state.fabric.world_size
    images = state.laid_out(images)
    parts = _cut(images, labels, state.recipe.accumulate)
    losses, right = [], []
    forward, backward = _passes(state, compiled)
    with masks or nullcontext():
        for index, (x, y) in enumerate(parts):
            waiting = world > 1 and index < len(parts) - 1
            with state.fabric.no_backward_sync(state.model, enabled=waiting):  # type: ignore[arg-type]
                logits = forward(x)
                share = state.objective(logits, y) / count
                # Ranks average their gradients; the shares of the loss are meant to add up.
                backward(share * world if world > 1 else share)
            losses.append(share.detach())
            right.append(hits(logits.detach(), y))
    state.tally.add(_total(losses), gradient_norm(state), _total(right))


def _passes(state: State, compiled: Callable[[Tensor], Tensor] | None) -> tuple[Callable[..., Tensor], Any]:
    """Return what takes a batch to logits, and what takes a loss back."""
    if compiled is not None:
        network = compiled

        def forward(images: Tensor) -> Tensor:  # casts as Fabric's wrapper does
            with state.fabric.autocast():
                logits = network(images.double() if state.recipe.precision == "fp64" else images)
            return logits.float() if state.recipe.precision == "bf16" else logits

        return forward, Tensor.backward
    return (state.network, Tensor.backward) if state.is_plain else (state.model, state.fabric.backward)


def gradient_norm(state: State) -> Tensor:
    """Return the norm of all gradients together, and clip them to the recipe's limit where it has one."""
    parameters = [p for p in _parameters(state) if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if state.recipe.clip:
        torch.nn.utils.clip_grads_with_norm_(parameters, state.recipe.clip, norm)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # sharded: each rank knows its part


def mixed(state: State, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the batch, mixed with itself where the recipe says so."""
    recipe = state.recipe
    if recipe.mixup or recipe.cutmix:
        shares = {"mixup": recipe.mixup, "cutmix": recipe.cutmix}
        place = (state.epoch, state.step, state.fabric.global_rank)
        images, labels = mix(images, labels, state.classes, **shares, seed=state.seed, place=place)
    return images, labels


def _parameters(state: State) -> Iterator[nn.Parameter]:
    return (parameter for group in state.optimizer.param_groups for parameter in group["params"])


def _cut(images: Tensor, labels: Tensor, parts: int) -> Sequence[tuple[Tensor, Tensor]]:
    if parts == 1:
        return [(images, labels)]
    return list(zip(images.chunk(parts), labels.chunk(parts), strict=True))


def _total(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()
