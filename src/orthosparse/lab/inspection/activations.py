"""What mean-field theory says of the model's activation."""

from collections import Counter
from dataclasses import dataclass

from torch import nn

from orthosparse import isometry

# They lie among the activations, and mix entries or draw.
_OTHERS = (nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Softmin, nn.GLU, nn.RReLU, nn.Threshold)


@dataclass(frozen=True)
class Advice:
    """The activation that the model has most of, and its critical point; `point` is None where there is neither."""

    activation: str
    point: isometry.MeanField | None
    text: str


def advise(model: nn.Module) -> Advice:
    """Return the critical point of the commonest elementwise activation among the model's modules.

    Example:
        >>> advise(nn.Sequential(nn.Linear(2, 2), nn.Tanh())).text[:37]
        'Tanh: critical at gain 1.0247 and bia'
    """
    found = [module for module in model.modules() if _is_activation(module)]
    if not found:
        return Advice("", None, "No activation module found: functional ones cannot be seen.")
    name, _ = Counter(type(module).__name__ for module in found).most_common(1)[0]
    module = next(module for module in found if type(module).__name__ == name)
    try:
        point = isometry.critical_point(module)
    except ValueError as error:
        return Advice(name, None, f"{name}: no critical point ({error}).")
    facts = [f"{name}: critical at gain {point.sigma_w:.4f} and bias std {point.sigma_b:.5f} (variance {point.q:.4g})"]
    facts += ["orthogonal weights can give dynamical isometry"] * point.isometry + [point.note] * bool(point.note)
    return Advice(name, point, f"{'; '.join(facts)}. The density does not change this.")


def _is_activation(module: nn.Module) -> bool:
    """Whether a module is an activation of torch's or timm's that treats each entry alone and learns nothing."""
    home = type(module).__module__.rpartition(".")[2]
    return (
        home.startswith("activation")
        and not isinstance(module, _OTHERS)
        and next(module.parameters(), None) is None
        and next(module.children(), None) is None
    )
