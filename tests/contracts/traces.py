"""Everything about a model, and about the world's generators, that a function which leaves no trace must not change."""

import random
from typing import Any

import numpy as np
import torch
from torch import nn


def prepared(model: nn.Module) -> nn.Module:
    """Give `model` what a careless function would lose: gradients, hooks, a frozen tensor, and mixed modes."""
    generator = torch.Generator().manual_seed(99)
    for number, parameter in enumerate(model.parameters()):
        if number % 2:
            parameter.grad = torch.rand(parameter.shape, generator=generator).to(parameter)
    children = list(model.modules())
    children[-1].eval()
    children[len(children) // 2].eval()
    children[-1].register_forward_hook(lambda *_: None)
    model.register_forward_pre_hook(lambda *_: None)
    next(parameter for parameter in model.parameters() if parameter.dim() == 1).requires_grad_(False)
    return model


def trace_of(model: nn.Module) -> dict[str, Any]:
    """Return values, identities, versions, gradients, modes, hooks, attributes and generator states, by name."""
    trace: dict[str, Any] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        trace[f"{name}: value"] = tensor.detach().clone()
        trace[f"{name}: itself"] = (id(tensor), tensor.data_ptr(), tensor._version, tensor.requires_grad)
        trace[f"{name}: gradient"] = None if tensor.grad is None else (id(tensor.grad), tensor.grad.clone())
    for name, module in model.named_modules():
        trace[f"{name}: mode"] = module.training
        trace[f"{name}: attributes"] = {key: id(value) for key, value in vars(module).items()}
        inner = {key: value for key, value in vars(module).items() if isinstance(value, dict)}
        trace[f"{name}: hooks and children"] = {key: [(k, id(v)) for k, v in d.items()] for key, d in inner.items()}
    trace["torch"] = torch.get_rng_state()
    if torch.cuda.is_available():
        trace["cuda"] = torch.cuda.get_rng_state()
    trace["numpy"] = np.random.get_state()[1].tobytes()  # noqa: NPY002
    trace["random"] = random.getstate()
    trace["grad mode"] = torch.is_grad_enabled()
    return trace


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names under which two traces differ."""
    return [name for name in before.keys() | after.keys() if not _equal(before.get(name), after.get(name))]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
