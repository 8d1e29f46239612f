"""An inspection from beginning to end."""

from collections.abc import Callable

from torch import nn

from orthosparse.lab.inspection.head import Head
from orthosparse.lab.inspection.inputs import Inputs
from orthosparse.lab.inspection.measures import PARTS, Effort, Measured, measure
from orthosparse.lab.inspection.starts import Plan, names_of_starts, starts


def inspect_model(
    model: nn.Module,
    plan: Plan,
    inputs: Inputs,
    *,
    head: Head | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Measured]:
    """Return the measures of the dense start, of base and of the asked scheme; the model is left as it was.

    Args:
        head: where the logits are in what the model returns.
        progress: called as ``progress(what, done, total)`` before each part of the work and at its end.
    """
    head, effort, names = head or Head(), effort or Effort(), names_of_starts(plan)
    total, done = len(names) * (1 + len(PARTS)), 0

    def tell(what: str) -> None:
        nonlocal done
        if progress is not None:
            progress(what, done, total)
        done += 1

    made, found = starts(model, plan, (inputs.x, inputs.labels), loss=head.loss, seed=seed), []
    for name in names:
        tell(f"{name}: start")
        announce = lambda part, name=name: tell(f"{name}: {part}")  # noqa: E731
        found.append(
            measure(next(made), inputs, gain=plan.gain, head=head, effort=effort, seed=seed, announce=announce)
        )
    if progress is not None:
        progress("done", total, total)
    return found[::-1]
