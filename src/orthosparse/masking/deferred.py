"""Masks applied once a step, to its gradients: weights that are zero off the mask need no masking to be used."""

from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.masking.masked_tensor import MaskedTensor, masked_tensors

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # of as many bytes as a float


class DeferredMasks:
    """Sets the masks of a network aside inside a ``with`` block, and masks the gradients at its end.

    The network computes the same numbers, to the last bit, without a forward and a backward pass over every weight.
    That holds as long as parameters are zero off their masks, and an update by masked gradients leaves them so: `trust`
    is called after it. If anything else has written to a parameter or a mask since, or the optimizer holds gradients
    from off the mask, entering the block makes the parameter zero off its mask again.

    A captured graph cannot check for such writes: `prepare` does so before each replay, and nothing that the graph
    reads moves to another address.

    Args:
        optimizer: the optimizer of the network; a zero gradient, with a state of zeros, must not move a zero weight.
    """

    def __init__(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        tensors = [masked for module in network.modules() for _, masked in masked_tensors(module)]
        # Not those that another parametrization follows; a tied parameter once.
        masks = {id(masked.original): masked for masked in tensors if len(masked) == 1}
        self._layers = [_Layer(masked, optimizer) for masked in masks.values()]

    def prepare(self) -> None:
        """Make the parameters zero off their masks where they may not be."""
        for layer in self._layers:
            layer.mask_parameter()

    def __enter__(self) -> None:
        self.prepare()
        for layer in self._layers:
            layer.bypass(True)

    def __exit__(self, kind: type[BaseException] | None, *args: object) -> None:
        for layer in self._layers:
            layer.bypass(False)
        if kind is None:
            for layer in self._layers:
                layer.mask_gradient()

    def trust(self) -> None:
        """Take note that nothing has changed the parameters but a step of the optimizer by these gradients."""
        for layer in self._layers:
            layer.trust()


class _Layer:
    """One parameter, and its mask as the bits of floats: all ones where it is true, all zeros elsewhere."""

    def __init__(self, masked: MaskedTensor, optimizer: torch.optim.Optimizer) -> None:
        self._holder, self._optimizer = masked.holder, optimizer
        # The dictionaries themselves: looking names up in modules takes as long as masking a small layer.
        self._parameters: dict[str, Any] = masked.home._parameters
        self._tensor = masked.tensor
        self._buffers: dict[str, Any] = self._holder._buffers
        self._bits = torch.empty(0)
        self._made_of: tuple[Tensor | None, int] = (None, 0)
        self._trusted: tuple[Tensor | None, int] = (None, 0)
        self._is_remembered = False  # by the optimizer: gradients from off the mask

    def bypass(self, value: bool) -> None:
        object.__setattr__(self._holder, "bypassed", value)  # not a module's own: that looks for parameters first

    def mask_parameter(self) -> None:
        parameter, mask = self._parameters[self._tensor], self._buffers["mask"]
        if not _is_unchanged(mask, self._made_of):
            self._take(mask, parameter)
        elif _is_unchanged(parameter, self._trusted) and not self._is_remembered:
            return
        self._zero_off(parameter.data)
        self.trust()

    def mask_gradient(self) -> None:
        gradient = self._parameters[self._tensor].grad
        if gradient is not None:
            self._zero_off(gradient)

    def trust(self) -> None:
        parameter = self._parameters[self._tensor]
        self._trusted = parameter, parameter._version

    def _take(self, mask: Tensor, parameter: Tensor) -> None:
        bits = -mask.to(_BITS[parameter.element_size()])
        if (bits.shape, bits.dtype, bits.device) == (self._bits.shape, self._bits.dtype, self._bits.device):
            self._bits.copy_(bits)  # where a captured graph reads it
        else:
            self._bits = bits
        self._made_of = mask, mask._version
        memory = self._optimizer.state.get(parameter, {}).values()
        elementwise = [value for value in memory if isinstance(value, Tensor) and value.shape == mask.shape]
        self._is_remembered = any(bool(value[~mask].any()) for value in elementwise)

    def _zero_off(self, values: Tensor) -> None:
        # Not a product: what lies off the mask may be infinite.
        values.view(self._bits.dtype).bitwise_and_(self._bits)


def _is_unchanged(tensor: Tensor, noted: tuple[Tensor | None, int]) -> bool:
    return tensor is noted[0] and tensor._version == noted[1]
