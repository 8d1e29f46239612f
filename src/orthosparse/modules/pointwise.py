"""Convolutions of one tap as linear layers over channels."""

from typing import Any

from torch import Tensor, nn

from orthosparse.modules.compact_module import Compact

CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}  # by their number of dimensions


class Pointwise(Compact):
    """A convolution of one tap without padding: a linear layer over the channels of every stride-th pixel.

    Results of blocks lie channels last in memory, results of entries as the inputs do: channels last, or contiguous.

    Args:
        stride: one number for each of the 1 to 3 dimensions.
    """

    groups = 1
    padding_mode = "zeros"

    def __init__(self, in_channels: int, out_channels: int, *args: Any, stride: tuple[int, ...], **kwargs: Any) -> None:
        super().__init__(in_channels, out_channels, *args, **kwargs)
        self.stride = stride
        self.padding, self.dilation = (0,) * len(stride), (1,) * len(stride)

    @property
    def in_channels(self) -> int:
        """Channels of the inputs."""
        return self.in_features

    @property
    def out_channels(self) -> int:
        """Channels of the outputs."""
        return self.out_features

    @property
    def kernel_size(self) -> tuple[int, ...]:
        """One tap."""
        return (1,) * len(self.stride)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the whole weight, as a convolution has it."""
        return self.out_features, self.in_features, *self.kernel_size

    def plain(self) -> nn.Module:
        """Return the layer of torch that computes the same, on the meta device and without a bias."""
        kind = CONVOLUTIONS[len(self.stride)]
        return kind(self.in_channels, self.out_channels, 1, stride=self.stride, bias=False, device="meta")  # type: ignore[no-any-return]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as torch's layers call it
        """Return the convolution of ``[batch, channels, *spatial]``, or of ``[channels, *spatial]``."""
        channels, x = -1 - len(self.stride), input
        if max(self.stride) > 1:
            every: tuple[Any, ...] = (..., *(slice(None, None, step) for step in self.stride))
            x = x[every]
        x = x.movedim(channels, -1)
        y = super().forward(x)
        if x.is_contiguous():
            y = y.contiguous()
        # Entries return features first in memory, which is neither of the layouts that torch's convolutions use.
        return y.movedim(-1, channels) if y.is_contiguous() else y.movedim(-1, channels).contiguous()
