"""Masks and parameters kept equal on all processes."""

import torch.distributed as dist
from torch import nn

from orthosparse.layers import unwrapped
from orthosparse.masking.attach import masked_layers
from orthosparse.sharding import broadcast_, is_sharded, reshard


def synchronize(model: nn.Module, group: "dist.ProcessGroup | None" = None) -> None:
    """Give every process the masks and parameters of the group's first one; all of them must call.

    Does nothing without an initialised process group. A sharded parameter exists once: its parts stay, and become
    zero off the mask.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    model = unwrapped(model)
    reshard(model)
    masked = masked_layers(model).values()
    broadcast_((tensor.holder.mask for tensor in masked), group)
    broadcast_((parameter for parameter in model.parameters() if not is_sharded(parameter)), group)
    for tensor in masked:
        tensor.zero_off_mask()
