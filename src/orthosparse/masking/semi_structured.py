"""Linear layers with 2:4 masks as torch's semi-structured sparse tensors, for inference on a GPU."""

import warnings

import torch
from torch import Tensor, nn

from orthosparse.checks import check_model
from orthosparse.layers import unwrapped
from orthosparse.masking.attach import masked_owners_of
from orthosparse.masking.masked_tensor import masked_tensors
from orthosparse.masking.replace import bake
from orthosparse.structures import TWO_OF_FOUR, structure_of


def to_semi_structured(model: nn.Module) -> list[str]:
    """Take the masks off and give linear layers that had 2:4 masks semi-structured weights; return their names.

    The weights are those of ``torch.sparse.to_sparse_semi_structured``: half the size, multiplied by the GPU's own 2:4
    units, not trainable. 1 x 1 convolutions, tied weights and other modules become dense, with the zeros in them.

    Raises:
        ValueError: no linear layer has a 2:4 mask, or torch has no semi-structured tensor for one that has (device,
            dtype or sides; the layer is named); the model is unchanged.

    Example:
        >>> import orthosparse
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        >>> _ = orthosparse.sparsify(model, 0.5, structure="2:4")
        >>> if torch.cuda.is_available():
        ...     names = to_semi_structured(model.half().cuda())
    """
    model = unwrapped(check_model(model))
    converted = {name: (module, _converted(name, weight)) for name, module, weight in _linear_layers(model)}
    if not converted:
        raise ValueError("model: expected a linear layer with a mask of two of any four (structure '2:4'); found none")
    bake(model)
    for module, weight in converted.values():
        module.weight = nn.Parameter(weight, requires_grad=False)
    return list(converted)


def _linear_layers(model: nn.Module) -> list[tuple[str, nn.Linear, Tensor]]:
    """The name, module and weight of each linear layer that has a 2:4 mask to itself."""
    found = []
    for name, ((module, tensor), *tied) in masked_owners_of(model).items():
        masked = dict(masked_tensors(module))[tensor]
        if isinstance(module, nn.Linear) and not tied and structure_of(masked.holder.mask) == TWO_OF_FOUR:
            found.append((name, module, masked().detach()))
    return found


def semi_structured(weight: Tensor) -> Tensor:
    """Return a 2:4 matrix as torch's semi-structured tensor; torch says each time that those are a prototype."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*SparseSemiStructuredTensor.*prototype", category=UserWarning)
        return torch.sparse.to_sparse_semi_structured(weight.contiguous())


def _converted(name: str, weight: Tensor) -> Tensor:
    try:
        return semi_structured(weight)
    except RuntimeError as error:
        raise ValueError(f"model: torch has no semi-structured tensor for {name!r}: {error}") from error
