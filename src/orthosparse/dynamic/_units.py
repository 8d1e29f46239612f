"""The layers whose units move, masked ones and modules of active weights alone, as the Rewirer sees them."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from orthosparse.distributed import full_tensor
from orthosparse.layers import layer_name, unwrapped
from orthosparse.masking import compact_modules, masked_layers
from orthosparse.modules.compact_module import Compact
from orthosparse.structures import block_of, structure_of


class Units(Protocol):
    """The units of one layer: entries, or blocks."""

    @property
    def parameter(self) -> Tensor:
        """What an optimizer sees."""

    @property
    def host(self) -> Any:
        """What a listener to the dense gradient is set on."""

    @property
    def like(self) -> Tensor:
        """A tensor of the shape, and on the device, of the dense gradient."""

    @property
    def block(self) -> int:
        """Rows and columns of a unit."""

    def weight(self) -> Tensor:
        """Return the whole weight."""


def units_of(model: nn.Module) -> dict[str, Units]:
    """Return the units of every layer of `model` that has some, by layer name."""
    masked: dict[str, Units] = {name: _MaskedUnits(held) for name, held in masked_layers(model).items()}
    compact = compact_modules(unwrapped(model)).items()
    return masked | {layer_name(name, "weight"): _CompactUnits(module) for name, module in compact}


@dataclass(frozen=True)
class _MaskedUnits:
    """Those of a masked tensor (a ``MaskedTensor``): blocks where its mask has whole ones."""

    masked: Any

    @property
    def parameter(self) -> Tensor:
        return self.masked.original  # type: ignore[no-any-return]

    @property
    def host(self) -> Any:
        return self.masked.holder

    @property
    def like(self) -> Tensor:
        return self.masked.holder.mask  # type: ignore[no-any-return]

    @property
    def block(self) -> int:
        return block_of(structure_of(self.like))

    def weight(self) -> Tensor:
        return full_tensor(self.parameter)


@dataclass(frozen=True)
class _CompactUnits:
    """Those of a module of active weights alone."""

    module: Compact

    @property
    def parameter(self) -> Tensor:
        return self.module.values

    @property
    def host(self) -> Any:
        return self.module

    @property
    def like(self) -> Tensor:
        entry = torch.empty((), device=self.module.values.device)
        return entry.expand(self.module.out_features, self.module.in_features)

    @property
    def block(self) -> int:
        return self.module.unit

    def weight(self) -> Tensor:
        return self.module.weight
