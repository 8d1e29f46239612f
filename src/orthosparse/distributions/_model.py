"""The model that is scored: its weights, and how it runs on other tensors and in another mode and is then as it was."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from orthosparse.distributed import is_sharded
from orthosparse.layers import Layer
from orthosparse.mappings import Scores
from orthosparse.substitution import substituted


@contextmanager
def preserve(model: nn.Module) -> Iterator[None]:
    """Put back, however the block ends: every submodule's mode, attributes and buffers, and the global generators.

    Parameters are not put back: inside, a model is to be run by `with_tensors` alone, which substitutes others.
    """
    modules = list(model.modules())
    attributes = [dict(vars(module)) for module in modules]
    buffers = [dict(module._buffers) for module in modules]
    devices = _accelerators(model)
    kind = {"device_type": devices[0].type} if devices else {}
    try:
        with torch.random.fork_rng([device.index for device in devices], **kind), torch.enable_grad():
            for module in modules:
                vars(module).pop("_compiled_call_impl", None)  # compiled graphs cannot be differentiated twice
            yield
    finally:
        for module, before, held in zip(modules, attributes, buffers, strict=True):
            vars(module).clear()
            vars(module).update(before)
            module._buffers.clear()
            module._buffers.update(held)


def seed_generators(model: nn.Module, seed: int) -> None:
    """Seed the global generators that dropout on the model's devices draws from; only inside `preserve`."""
    torch.default_generator.manual_seed(seed)
    for device in _accelerators(model):
        with torch.accelerator.device_index(device.index):
            torch.get_device_module(device).manual_seed(seed)


@contextmanager
def with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Let `model` hold these tensors, by parameter or buffer name, in place of its own while the block runs.

    The backward pass belongs inside the block, for layers that are recomputed there. cuDNN is off for recurrent
    models: it would move substituted weights into memory of its own, and has no second derivative for them.
    """
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    with _without_cudnn() if recurrent else nullcontext(), substituted(model, tensors):
        yield


@contextmanager
def _without_cudnn() -> Iterator[None]:
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def _accelerators(model: nn.Module) -> list[torch.device]:
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return sorted((device for device in devices if device.type not in ("cpu", "meta")), key=str)


def weights_of(layers: Mapping[str, Layer]) -> Scores:
    """Return the weights, detached, not copied.

    Raises:
        ValueError: a layer has weights that are not finite.
    """
    weights = {name: layer.parameter().detach() for name, layer in layers.items()}
    for name, weight in weights.items():
        least, most = weight.aminmax()  # NaN where there is one; twenty times faster than isfinite over all of them
        if not (least.isfinite() and most.isfinite()):
            raise ValueError(f"model: expected finite weights; layer {name!r} has NaN or infinite ones")
    return weights


def keys_of(model: nn.Module, layers: Mapping[str, Layer]) -> dict[str, str]:
    """Return the name of each layer's parameter in `model`.

    Raises:
        ValueError: the parameters are sharded: a forward pass would gather them over those it is lent.
    """
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise ValueError(f"model: expected whole parameters to score; {name!r} is sharded: score before sharding")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {name: names[id(layer.parameter())] for name, layer in layers.items()}


def precise(tensor: Tensor) -> Tensor:
    """Return `tensor` in float32, or float64 where it is that: products of half-precision numbers would tie."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
