"""An inspection from beginning to end."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from orthosparse.lab.inspection.inputs import Inputs
from orthosparse.lab.inspection.measures import Effort, Measured, Pick, loss_of, measure
from orthosparse.lab.inspection.starts import Plan, starts


def inspect_model(
    model: nn.Module,
    plan: Plan,
    inputs: Inputs,
    *,
    output: Pick | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    announce: Callable[[str], None] | None = None,
) -> list[Measured]:
    """Return the measures of the dense start, of base and of the asked scheme; the model is left as it was.

    Args:
        output: picks the logits out of what the model returns; None where it returns them.
        announce: told the name of each start before it is measured.
    """
    batch, found = (inputs.images, inputs.labels), []
    for start in starts(model, plan, batch, loss=loss_of(output), seed=seed):
        if announce is not None:
            announce(start.name)
        found.append(measure(start, batch, gain=plan.gain, output=output, effort=effort or Effort(), seed=seed))
    return found


def picker(text: str | None) -> Pick | None:
    """Return a function that takes an entry of the model's output: an index, a key or an attribute.

    Example:
        >>> picker("1")(("features", "logits"))
        'logits'
    """
    if text is None:
        return None

    def pick(result: Any) -> Any:
        try:
            if isinstance(result, Mapping):
                return result[text]
            return result[int(text)] if text.lstrip("-").isdigit() else getattr(result, text)
        except (KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"output: {text!r} is not in what the model returns, a {type(result).__name__}") from error

    return pick
