"""The saved state of a Rewirer, checked before any of it is used."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from orthosparse.aliases import Counts, Scores
from orthosparse.checks import check_at_least, check_mapping, describe
from orthosparse.state_checks import check_state


class RewirerState(NamedTuple):
    """The state of a Rewirer: steps and updates so far, whether an update waits, seed, running means, moves."""

    taken: int
    updates: int
    postponed: bool
    seed: int
    momentum: Scores
    moved_in_all: Counts


def read_state(state: Mapping[str, Any], shapes: Mapping[str, torch.Size]) -> RewirerState:
    """Return the contents of a saved state, for layers of these shapes.

    Raises:
        TypeError, ValueError: it is not the state of a Rewirer, or belongs to another model.
    """
    check_state(state)
    for key in ("taken", "updates", "postponed", "seed", "momentum", "moved_in_all"):
        if key not in state:
            raise ValueError(f"state: expected one of a Rewirer; it has no {key!r}")
    taken, updates, seed = (check_at_least(state[key], 0, f"state: {key!r}") for key in ("taken", "updates", "seed"))
    momentum, moved = state["momentum"], state["moved_in_all"]
    if not isinstance(momentum, Mapping):
        raise TypeError(f"state: expected a mapping for 'momentum'; got {describe(momentum)}")
    for name, score in momentum.items():
        if name not in shapes:
            raise ValueError(f"state: expected momentum of layers among {', '.join(shapes)}; got {name!r}")
        if not isinstance(score, torch.Tensor) or not score.is_floating_point():
            raise TypeError(f"state: expected real numbers for the momentum of {name!r}; got {describe(score)}")
        if score.shape != shapes[name]:
            raise ValueError(f"state: expected shape {tuple(shapes[name])} for {name!r}; got {tuple(score.shape)}")
    check_mapping("state: 'moved_in_all'", moved, int)
    if unknown := sorted(moved.keys() - shapes.keys()):
        raise ValueError(f"state: expected moves of layers among {', '.join(shapes)}; got {', '.join(unknown)}")
    return RewirerState(taken, updates, bool(state["postponed"]), seed, dict(momentum), dict(moved))
