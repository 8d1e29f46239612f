"""Networks of the timm package: the paper's EfficientNet-B0, ResNet-50 and DeiT-III small, and any other by name."""

import difflib

from torch import nn

from orthosparse.lab.optional import import_timm


def efficientnet_b0(*, classes: int, in_shape: tuple[int, int, int], **own: object) -> nn.Module:
    """Return EfficientNet-B0 with dropout 0.2 and stochastic depth 0.2."""
    return from_timm(
        "efficientnet_b0", classes=classes, in_shape=in_shape, **{"drop_rate": 0.2, "drop_path_rate": 0.2, **own}
    )


def resnet50(*, classes: int, in_shape: tuple[int, int, int], **own: object) -> nn.Module:
    """Return the ImageNet ResNet-50."""
    return from_timm("resnet50", classes=classes, in_shape=in_shape, **own)


def deit3_small(*, classes: int, in_shape: tuple[int, int, int], **own: object) -> nn.Module:
    """Return DeiT-III small with patches of 16 for images of `in_shape`, stochastic depth 0.05."""
    own = {"img_size": tuple(in_shape[1:]), "drop_path_rate": 0.05, **own}
    return from_timm("deit3_small_patch16_224", classes=classes, in_shape=in_shape, **own)


def from_timm(name: str, *, classes: int, in_shape: tuple[int, int, int], **own: object) -> nn.Module:
    """Return timm's network `name`, untrained, with its own activations.

    Args:
        own: options of ``timm.create_model`` (``drop_rate``, ``img_size``, ...).
    """
    if "activation" in own:
        raise ValueError(f"activation: expected none for timm:{name}, which has its own; got {own['activation']!r}")
    timm = import_timm()
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), 3) or ["resnet50", "vit_small_patch16_224"]
        raise ValueError(
            f"model: expected timm: and a name of timm.list_models(), such as {', '.join(near)}; got {name!r}"
        )
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes, in_chans=in_shape[0], **own)
    return model
