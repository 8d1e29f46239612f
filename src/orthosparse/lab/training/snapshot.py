"""The state of a run as a tree of tensors and plain values, and back."""

from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.training.state import State
from orthosparse.lab.training.trees import copied

# What the tree of a run has, and its types; the settings are added by those who save it.
PARTS: dict[str, type | tuple[type, ...]] = {
    "settings": dict,
    "model": dict,
    "optimizer": dict,
    "epoch": int,
    "step": int,
    "tally": Tensor,
    "history": list,
    "seconds": (int, float),
}


def take(state: State) -> dict[str, Any]:
    """Return everything that is needed to go on from here; tensors are the run's own, not copies.

    Every rank must call it. What is drawn while training follows from the seed and the position; the rewirer's
    generator is part of its state.
    """
    optimizer = state.optimizer.state_dict()
    for group in optimizer["param_groups"]:
        group["lr"] = float(group["lr"])
    return {
        "model": dict(state.network.state_dict()),
        "optimizer": optimizer,
        "rewirer": None if state.rewirer is None else state.rewirer.state_dict(),
        "epoch": state.epoch,
        "step": state.step,
        "tally": state.tallied(),
        "history": list(state.history),
        "seconds": state.seconds,
    }


def put_back(state: State, tree: dict[str, Any]) -> None:
    """Give the run the state that `take` returned.

    Raises:
        ValueError: it is that of no such run.
    """
    try:
        _put_back(state, tree)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"checkpoint: expected the state of this run; got another ({error!r})") from error


def _put_back(state: State, tree: dict[str, Any]) -> None:
    own = state.network.state_dict()
    state.network.load_state_dict({name: _placed(value, own.get(name)) for name, value in tree["model"].items()})
    _put_back_optimizer(state.optimizer, tree["optimizer"])
    if state.rewirer is not None:
        state.rewirer.load_state_dict(copied(tree["rewirer"], state.fabric.device))
    state.epoch, state.step = tree["epoch"], tree["step"]
    state.history, state.seconds = list(tree["history"]), tree["seconds"]
    done = tree["tally"].to(state.fabric.device)
    # The tally holds the sum over all ranks: one of them goes on with it, the others with nothing.
    share = done if state.fabric.is_global_zero else torch.stack([done[0] * 0, done[1], done[2] * 0])
    state.tally.reset(share)


def _put_back_optimizer(optimizer: torch.optim.Optimizer, tree: dict[str, Any]) -> None:
    rates = [group["lr"] for group in optimizer.param_groups]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    placed = {
        index: {name: _placed(value, parameters[index]) for name, value in entry.items()}
        for index, entry in tree["state"].items()
    }
    optimizer.load_state_dict({"state": placed, "param_groups": tree["param_groups"]})
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        # The tensor that a graph reads stays where it is.
        group["lr"] = rate.fill_(group["lr"]) if isinstance(rate, Tensor) else group["lr"]


def _placed(value: Any, own: Tensor | None) -> Any:
    """Return a tensor in the layout of `own` (sharding, memory format) where it has its shape; else as it is."""
    if own is None or not isinstance(value, Tensor) or value.shape != own.shape:
        return value
    mesh, placements = getattr(own, "device_mesh", None), getattr(own, "placements", None)
    if mesh is not None:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value.to(own.device), mesh, placements)
    return torch.empty_like(own, dtype=value.dtype, requires_grad=False).copy_(value)
