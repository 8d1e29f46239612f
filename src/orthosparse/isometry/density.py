"""The fraction of a sparse model's weights that lie on a path from its input to its output."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from orthosparse.aliases import Masks
from orthosparse.checks import check_mapping, check_model
from orthosparse.isometry._functional import Output, layers_of, picked, untraced
from orthosparse.isometry._reachability import live_weights
from orthosparse.layers import Layer, unwrapped
from orthosparse.masking import masks_of, on_masked_forms
from orthosparse.tables import html_table


@dataclass(frozen=True, eq=False)
class LayerPaths:
    """The paths through one layer.

    Attributes:
        density: fraction of its weights that are active.
        effective: fraction of its weights that are active and on a path from the input to the output.
        live: mask of the weights on such a path.
        dead_inputs: number of inputs without such a weight, summed over groups.
        dead_outputs: number of outputs without such a weight.
    """

    density: float
    effective: float
    live: Tensor
    dead_inputs: int
    dead_outputs: int


@dataclass(frozen=True, eq=False)
class EffectiveDensity:
    """How much of a sparse model is connected.

    Attributes:
        total: fraction of all weights that are active and on a path from the input to the output.
        density: fraction of all weights that are active.
        layers: the same for each layer, with its dead units.
    """

    total: float
    density: float
    layers: dict[str, LayerPaths]

    def __float__(self) -> float:
        return self.total

    def __repr__(self) -> str:
        dead = {name: (paths.dead_inputs, paths.dead_outputs) for name, paths in self.layers.items()}
        dead_units = ", ".join(f"{name} {i} in, {o} out" for name, (i, o) in dead.items() if i or o)
        return f"EffectiveDensity({self.total:.6g} of {self.density:.6g} active; dead units: {dead_units or 'none'})"

    def _repr_html_(self) -> str:
        rows = [
            (name, f"{paths.density:.4g}", f"{paths.effective:.4g}", str(paths.dead_inputs), str(paths.dead_outputs))
            for name, paths in self.layers.items()
        ]
        headings = ["layer", "density", "effective", "dead inputs", "dead outputs"]
        return html_table(headings, rows, [f"{self.total:.6g} on a path of {self.density:.6g} active"])


@on_masked_forms
def effective_density(
    model: nn.Module,
    x: Tensor,
    *,
    output: Output | None = None,
    masks: Masks | None = None,
    layers: Mapping[str, Layer] | None = None,
) -> EffectiveDensity:
    """Return the fraction of weights on a path from the input to the output, per layer and in total.

    Paths follow the graph of the model: residual sums, concatenations, pooling, attention, recurrence, convolutions
    with their strides and padding. A weight is a connection if its mask is True, even if its value is zero (an EOI
    convolution has such weights). Activations and normalizations connect each unit only to itself: statistics that a
    normalization shares between units do not count as paths.

    Args:
        x: an input of the right shape and dtype; its values do not matter, and one sample is enough.
        output: which tensor to use if the model does not return a single one: a callable, a key or attribute, or an
            index.
        masks: which weights are active, by layer name. By default, the attached masks; layers without one are fully
            active. After `bake`, pass ``{name: layer.weight() != 0 for name, layer in find_layers(model).items()}``.
        layers: which layers count; by default, all that `find_layers` finds.

    Raises:
        TypeError: `x` is not a tensor.
        ValueError: the batch is empty, `masks` has unknown names, the output does not depend on the input, or the model
            uses activation checkpointing.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> masks = {"0": torch.tensor([[1, 1], [0, 0]]).bool(), "2": torch.tensor([[1, 1]]).bool()}
        >>> effective_density(model, torch.ones(1, 2), masks=masks)
        EffectiveDensity(0.5 of 0.666667 active; dead units: 0 0 in, 1 out, 2 1 in, 0 out)
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x: expected a tensor; got {type(x).__name__}")
    if x.dim() == 0 or x.numel() == 0:
        raise ValueError(f"x: expected a batch of at least one sample; got shape {tuple(x.shape)}")
    model = unwrapped(check_model(model))
    counted = layers_of(model, layers)
    if not counted:
        raise ValueError("model: expected at least one layer whose weights can be counted; found none")
    active = _active(model, counted, masks)
    names = {id(value): name for name, value in model.named_parameters()}
    keys = {name: names[id(layer.parameter())] for name, layer in counted.items()}
    wanted = {keys[name]: mask for name, mask in active.items()}
    try:
        with untraced(model, x.device):
            for module in model.modules():
                module.training = False
            live = live_weights(model, x, wanted, pick=lambda result: picked(result, output))
    except CheckpointError as error:
        raise ValueError(
            "model: recomputes layers in the backward pass (activation checkpointing), where effective_density does "
            "not see them; switch that off for this call"
        ) from error
    paths = {name: _paths(layer, active[name], live[keys[name]]) for name, layer in counted.items()}
    size = sum(layer.numel for layer in counted.values())
    return EffectiveDensity(
        total=sum(int(part.live.sum()) for part in paths.values()) / size,
        density=sum(int(mask.sum()) for mask in active.values()) / size,
        layers=paths,
    )


def _active(model: nn.Module, layers: Mapping[str, Layer], masks: Masks | None) -> Masks:
    if masks is not None:
        check_mapping("masks", masks)
    known = masks_of(model) if masks is None else masks
    if masks is not None and (unknown := sorted(set(masks) - set(layers))):
        raise ValueError(f"masks: expected names of layers of this model; got {', '.join(unknown)}")
    active = {
        name: known[name].bool() if name in known else torch.ones(layer.shape, dtype=torch.bool, device="cpu")
        for name, layer in layers.items()
    }
    for name, mask in active.items():
        if mask.shape != layers[name].shape:
            raise ValueError(f"masks: expected shape {tuple(layers[name].shape)} for {name!r}; got {tuple(mask.shape)}")
    return active


def _paths(layer: Layer, active: Tensor, live: Tensor) -> LayerPaths:
    stacks = layer.matrices(live.contiguous())  # [how_many, out, in, taps]
    return LayerPaths(
        density=int(active.sum()) / layer.numel,
        effective=int(live.sum()) / layer.numel,
        live=live,
        dead_inputs=_dead_inputs(layer, live),
        dead_outputs=sum(int((~stack.flatten(2).any(2)).sum()) for stack in stacks),
    )


def _dead_inputs(layer: Layer, live: Tensor) -> int:
    # Each group has its own inputs; fused blocks share theirs.
    (stack,) = replace(layer, parts=(sum(layer.parts),), repeats=1).matrices(live.contiguous())
    return int((~stack.any(3).any(1)).sum())
