"""The networks of the paper, dense: plain modules that know nothing of masks and return logits.

A member of `MODELS` is a function ``(*, classes, in_shape, activation, **own) -> nn.Module``. `build` calls it by name;
``timm:NAME`` is any network of timm, ``path/to/file.py:function`` what that function returns.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from orthosparse.lab.models._parts import ACTIVATIONS, at_least, check_fits
from orthosparse.lab.models.dense import DENSE_INITS, dense_init
from orthosparse.lab.models.from_file import from_file
from orthosparse.lab.names import check_model, is_function
from orthosparse.lab.seeds import fenced
from orthosparse.lazy import LazyTable
from orthosparse.randomness import draw_seed

__all__ = ["ACTIVATIONS", "DENSE_INITS", "MODELS", "build", "check_fits", "dense_init"]

MODELS: LazyTable[Callable[..., nn.Module]] = LazyTable(
    {
        "cnn1000": "orthosparse.lab.models.cnn1000:cnn1000",
        "deit3_small": "orthosparse.lab.models.from_timm:deit3_small",
        "efficientnet_b0": "orthosparse.lab.models.from_timm:efficientnet_b0",
        "mlp": "orthosparse.lab.models.mlp:mlp",
        "mlp1000": "orthosparse.lab.models.mlp:mlp1000",
        "resnet110": "orthosparse.lab.models.resnet:resnet110",
        "resnet32": "orthosparse.lab.models.resnet:resnet32",
        "resnet50": "orthosparse.lab.models.from_timm:resnet50",
        "resnet56": "orthosparse.lab.models.resnet:resnet56",
        "vgg16c": "orthosparse.lab.models.vgg16c:vgg16c",
    }
)


def build(
    name: str,
    *,
    classes: int,
    in_shape: tuple[int, int, int],
    activation: str | None = None,
    generator: torch.Generator | None = None,
    **own: object,
) -> nn.Module:
    """Return the network `name` with torch's (or timm's) own initial weights, on the CPU in float32.

    The constructors of torch's modules draw from the global generator; they run inside a fence, seeded from
    `generator`, so that the weights follow from it alone and the global generator stays as it was.

    Args:
        in_shape: (channels, height, width) of an image.
        activation: one of `ACTIVATIONS`; None is the network's own (tanh for the 1000-layer ones, else relu).
        own: what the network itself takes (``depth``, ``width``, timm's options).

    Raises:
        ValueError: an unknown name, activation or size, or images that the network does not take.
        ImportError: the network comes from timm, which cannot be imported; the message says what to install.

    Example:
        >>> build("mlp", classes=10, in_shape=(1, 28, 28)).fc1
        Linear(in_features=784, out_features=100, bias=True)
    """
    make = _member(name)
    if len(in_shape) != 3 or min(in_shape) < 1:
        raise ValueError(f"in_shape: expected (channels, height, width), all positive; got {in_shape}")
    at_least("classes", classes, 1)
    if activation is not None:
        own["activation"] = activation
    with fenced(draw_seed(generator)), torch.device("cpu"):
        model = make(classes=classes, in_shape=tuple(in_shape), **own)
    check_fits(model, in_shape, classes)
    return model


def _member(name: str) -> Callable[..., nn.Module]:
    check_model(name)
    if name.startswith("timm:"):
        from orthosparse.lab.models.from_timm import from_timm

        return partial(from_timm, name.removeprefix("timm:"))
    return partial(from_file, name) if is_function(name) else MODELS[name]
