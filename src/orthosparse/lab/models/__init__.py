"""The networks of the paper, dense: built by name and initialized; plain modules without masks that return logits.

A member of `MODELS` is a function ``(*, classes, in_shape, activation, **own) -> nn.Module``. `build` calls it by name;
``timm:NAME`` is any network of timm, ``path/to/file.py:function`` what that function returns.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import nn

from orthosparse import Layer, find_layers, init
from orthosparse.lab.models._parts import ACTIVATIONS, at_least, check_fits
from orthosparse.lab.models.from_file import from_file
from orthosparse.lab.names import check_model, is_function
from orthosparse.lab.seeds import fenced
from orthosparse.lazy import LazyTable
from orthosparse.randomness import derive, draw_seed
from orthosparse.registry import did_you_mean, listed, lookup

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
        ValueError: an unknown name, activation, size or option, or images that the network does not take.
        ImportError: the network comes from timm, which cannot be imported; the message says what to install.

    Example:
        >>> build("mlp", classes=10, in_shape=(1, 28, 28)).fc1
        Linear(in_features=784, out_features=100, bias=True)
    """
    make = _member(name)
    if len(in_shape) != 3 or min(in_shape) < 1:
        raise ValueError(f"in_shape: expected (channels, height, width), all positive; got {in_shape}")
    at_least("classes", classes, 1)
    _check_options(name, make, own)
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


def _check_options(name: str, make: Callable[..., nn.Module], options: Iterable[str]) -> None:
    parameters = inspect.signature(make).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return  # timm and functions in files look at their own
    known = [each for each in parameters if each not in ("classes", "in_shape", "activation")]
    for option in options:
        if option not in known:
            meant = did_you_mean(option, known)
            raise ValueError(f"model_options: expected one that {name} takes: {listed(known)}; got {option!r}{meant}")


Fill = Callable[[Layer, torch.Tensor, float, torch.Generator], None]


def _by_matrix(layer: Layer, weight: torch.Tensor, gain: float, generator: torch.Generator) -> None:
    """Fill each matrix (group, fused block) as (out, in * taps)."""
    for (out, _), view in zip(layer.shapes, layer.views(weight), strict=True):
        flat = torch.empty(out, view.numel() // out, dtype=weight.dtype)
        view.copy_(init.orthogonal_(flat, gain=gain, generator=generator).view(view.shape))


def _delta(layer: Layer, weight: torch.Tensor, gain: float, generator: torch.Generator) -> None:
    init.delta_orthogonal_(weight, groups=layer.groups, gain=gain, transposed=layer.transposed, generator=generator)


def _all_taps(layer: Layer, weight: torch.Tensor, gain: float, generator: torch.Generator) -> None:
    init.conv_orthogonal_(weight, groups=layer.groups, gain=gain, transposed=layer.transposed, generator=generator)


# How convolutions are filled; other layers always by matrix. None: nothing is.
DENSE_INITS: dict[str, Fill | None] = {
    "conv_orthogonal": _all_taps,
    "default": None,
    "delta_orthogonal": _delta,
    "orthogonal": _by_matrix,
}


@torch.no_grad()
def dense_init(
    model: nn.Module,
    kind: str = "conv_orthogonal",
    *,
    gain: float = 1.0,
    bias_std: float = 0.0,
    generator: torch.Generator | None = None,
) -> None:
    """Fill the weights of every linear, convolution and recurrent layer, and their biases; leave all else as it is.

    Linear layers get orthogonal matrices, one for each fused block. Convolutions get a kernel for each group, of kind
    ``conv_orthogonal`` (all taps; Xiao et al. 2018, Algorithm 1), ``delta_orthogonal`` (the central tap) or
    ``orthogonal`` (the matrix of out x in * taps). ``default`` leaves the weights that `build` drew from its generator:
    torch's or timm's own. What a layer gets depends on the generator and the layer's name alone.

    Args:
        gain: sigma_w, a factor of the weights.
        bias_std: sigma_b, the deviation of the biases about 0.

    Raises:
        ValueError: an unknown kind; a gain or a bias_std with ``default``; a model that has masks.
    """
    fill = lookup(DENSE_INITS, kind, "kind")
    if fill is None:
        if gain != 1 or bias_std != 0:
            raise ValueError(f"kind: default takes no gain and no bias_std; got {gain} and {bias_std}")
        return
    layers = find_layers(model)
    for layer in layers.values():
        if layer.parameter() is not getattr(layer.module, layer.tensor):
            raise ValueError(f"model: expected a dense one; layer {layer.name} has a mask or another parametrization")
    seed = draw_seed(generator)
    for name, layer in layers.items():
        way = fill if layer.kind == "conv" else _by_matrix
        way(layer, layer.parameter(), gain, derive(seed, name, "weight"))
        for bias in layer.biases:
            _fill_bias(getattr(layer.module, bias), bias_std, derive(seed, name, bias))


def _fill_bias(bias: torch.Tensor, std: float, generator: torch.Generator) -> None:
    bias.copy_(torch.randn(bias.shape, generator=generator, dtype=torch.float64) * std)
