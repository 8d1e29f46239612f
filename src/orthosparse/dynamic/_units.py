"""One interface to the layers that a Rewirer changes: masked layers, and modules of active weights."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.distributed import full_tensor
from orthosparse.layers import layer_name, unwrapped
from orthosparse.masking import compact_modules, masked_layers
from orthosparse.modules.compact_module import Compact
from orthosparse.structures import block_of, structure_of


@dataclass(frozen=True)
class Units:
    """The units of one layer: entries, or blocks where its mask has whole ones.

    Attributes:
        layer: a masked tensor (a ``MaskedTensor``), or a module of active weights.
    """

    layer: Any

    @property
    def parameter(self) -> Tensor:
        """The parameter that an optimizer holds."""
        return self.layer.values if self._is_compact else self.layer.original  # type: ignore[no-any-return]

    @property
    def host(self) -> Any:
        """The module that has the attribute for a listener to the dense gradient."""
        return self.layer if self._is_compact else self.layer.holder

    @property
    def like(self) -> Tensor:
        """A tensor with the shape and the device of the dense gradient."""
        if not self._is_compact:
            return self.layer.holder.mask  # type: ignore[no-any-return]
        entry = torch.empty((), device=self.parameter.device)
        return entry.expand(self.layer.out_features, self.layer.in_features)

    @property
    def shape(self) -> torch.Size:
        """The shape of the whole weight, in either form."""
        return torch.Size(self.layer.weight_shape) if self._is_compact else self.like.shape

    @property
    def block(self) -> int:
        """Rows and columns of a unit."""
        return self.layer.unit if self._is_compact else block_of(structure_of(self.like))

    def weight(self) -> Tensor:
        """Return the whole weight."""
        return self.layer.weight if self._is_compact else full_tensor(self.parameter)

    @property
    def _is_compact(self) -> bool:
        return isinstance(self.layer, Compact)


def units_of(model: nn.Module) -> dict[str, Units]:
    """Return the units of every sparse layer of `model`, by layer name."""
    masked = {name: Units(tensor) for name, tensor in masked_layers(model).items()}
    compact = compact_modules(unwrapped(model)).items()
    return masked | {layer_name(name, "weight"): Units(module) for name, module in compact}
