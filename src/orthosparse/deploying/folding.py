"""Fold batch norms into the linear layer or convolution before or after them, where that is exact in eval mode."""

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from orthosparse.compacting.forms import why_special
from orthosparse.deploying.tracing import calls_of, clean, is_in_place, is_only_called, shape_of
from orthosparse.hardware import to_float64

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (nn.Linear, *CONVOLUTIONS)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
_ARGUMENTS = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")


@torch.no_grad()
def fold_norms(graph: fx.GraphModule) -> int:
    """Fold batch norms into layers that are called only once; return the number of batch norms that were folded.

    A batch norm after a layer scales its rows. One before a layer scales its columns, which is exact unless the layer
    pads with zeros, to which the shift was not applied, or reads its input after something was changed in place.
    """
    folded = 0
    for node in list(graph.graph.nodes):
        affine = _affine(graph, node)
        if affine is None:
            continue
        before, after = node.args[0], next(iter(node.users)) if len(node.users) == 1 else None
        layer = own_layer(graph, before)
        if layer is not None and len(before.users) == 1 and _channels_in_dim_one(before, layer):
            _fold_rows(layer, *affine)
        elif (layer := _foldable(graph, node, after)) is not None:
            _fold_columns(layer, *affine)
        else:
            continue
        node.replace_all_uses_with(before)
        graph.graph.erase_node(node)
        folded += 1
    clean(graph)
    return folded


def pads(module: nn.Module) -> bool:
    """Whether a layer pads its input with zeros."""
    if not isinstance(module, CONVOLUTIONS) or module.padding_mode != "zeros":
        return False
    if isinstance(module.padding, str):
        return module.padding == "same" and max(module.kernel_size) > 1
    return any(module.padding)


def own_layer(graph: fx.GraphModule, node: object) -> Layer | None:
    """Return the torch linear layer or convolution that a node calls, if nothing else uses it or its tensors."""
    if not isinstance(node, fx.Node) or node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return None
    name = str(node.target)
    module = graph.get_submodule(name)
    if not isinstance(module, LAYERS) or type(module) not in LAYERS or len(calls_of(graph)[name]) > 1:
        return None
    if why_special(module) or not is_only_called(graph, name):
        return None
    own = set(module.parameters())
    shared = any(other is not module and own & set(other.parameters(recurse=False)) for other in graph.modules())
    return None if shared else module


def set_tensors(module: Layer, weight: Tensor, bias: Tensor | None) -> None:
    """Set the weight and bias of a layer, in the dtype and on the device of its weight, and update its sizes."""
    before = module.weight
    module.weight = nn.Parameter(weight.to(before).contiguous(), requires_grad=False)
    parameter = None if bias is None else nn.Parameter(bias.to(before).contiguous(), requires_grad=False)
    module.register_parameter("bias", parameter)
    outputs, inputs = weight.shape[:2]
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = outputs, inputs
    else:
        module.out_channels, module.in_channels = outputs, inputs * module.groups


def _foldable(graph: fx.GraphModule, norm: fx.Node, after: fx.Node | None) -> Layer | None:
    """Return the layer that a node after a batch norm calls, if the batch norm can be folded into its columns."""
    layer = own_layer(graph, after)
    if layer is None or pads(layer) or not _channels_in_dim_one(norm, layer):
        return None
    between = norm.next
    while between is not after:
        if is_in_place(graph, between):  # perhaps what the batch norm reads
            return None
        between = between.next
    return layer


def _channels_in_dim_one(node: fx.Node, layer: nn.Module) -> bool:
    """Whether the channels of a layer are in dimension 1, as in a batch norm; in sequences they are in the last one."""
    shape = shape_of(node)
    return shape is not None and (isinstance(layer, CONVOLUTIONS) or len(shape) == 2)


def _affine(graph: fx.GraphModule, node: fx.Node) -> tuple[Tensor, Tensor] | None:
    """Return scale and shift of a batch norm with running statistics, in float64; None for any other node."""
    if node.op == "call_module" and type(norm := graph.get_submodule(str(node.target))) in NORMS:
        fixed = not norm.training and norm.running_mean is not None
        return scale_and_shift(norm) if fixed and is_only_called(graph, str(node.target)) else None
    if node.op != "call_function" or node.target is not functional.batch_norm or not node.args:
        return None
    arguments: dict[str, Any] = dict(zip(_ARGUMENTS, node.args, strict=False)) | dict(node.kwargs)
    tensors = {name: _attribute(graph, arguments.get(name)) for name in _ARGUMENTS[1:5]}
    computed = any(arguments.get(name) is not None and tensor is None for name, tensor in tensors.items())
    mean, variance, weight, bias = tensors.values()
    if computed or mean is None or variance is None or arguments.get("training", False) is not False:
        return None
    return _computed(mean, variance, weight, bias, arguments.get("eps", 1e-5))


def scale_and_shift(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return scale and shift of a batch norm in eval mode, in float64."""
    assert isinstance(norm, NORMS)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return _computed(norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.eps)


def _attribute(graph: fx.GraphModule, node: object) -> Tensor | None:
    """Return the tensor of the model that a node reads; None if it reads none."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    owner, _, name = str(node.target).rpartition(".")
    return getattr(graph.get_submodule(owner), name)  # type: ignore[no-any-return]


def _computed(
    mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    scale = (to_float64(variance) + eps).rsqrt()
    scale = scale if weight is None else scale * to_float64(weight)
    shift = -to_float64(mean) * scale
    return scale, shift if bias is None else to_float64(bias) + shift


def _tensors(layer: Layer) -> tuple[Tensor, Tensor | None]:
    return to_float64(layer.weight), None if layer.bias is None else to_float64(layer.bias)


def _fold_rows(layer: Layer, scale: Tensor, shift: Tensor) -> None:
    weight, bias = _tensors(layer)
    rows = scale.view(-1, *[1] * (weight.dim() - 1))
    set_tensors(layer, weight * rows, shift if bias is None else bias * scale + shift)


def _fold_columns(layer: Layer, scale: Tensor, shift: Tensor) -> None:
    weight, bias = _tensors(layer)
    groups = getattr(layer, "groups", 1)
    by_group = weight.view(groups, -1, *weight.shape[1:])  # [groups, outputs, inputs, *taps]
    added = (by_group.flatten(3).sum(3) if weight.dim() > 2 else by_group) @ shift.view(groups, -1, 1)
    columns = scale.view(groups, 1, -1, *[1] * (weight.dim() - 2))
    shift = added.flatten()
    set_tensors(layer, (by_group * columns).view(weight.shape), shift if bias is None else bias + shift)
