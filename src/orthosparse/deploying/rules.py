"""Find the rule for constant and unread channels of each node of a graph."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from orthosparse.deploying.folding import NORMS, own_layer
from orthosparse.deploying.tracing import calls_of, is_only_called, shape_of
from orthosparse.deploying.units import ChannelwiseRule, FlattenRule, LayerRule, ProductRule, Rule, SumRule

_SUMS = {operator.add, operator.iadd, torch.add, "add", "add_"}
_PRODUCTS = {operator.mul, operator.imul, torch.mul, "mul", "mul_"}
_POINTWISE_FUNCTIONS = {
    functional.relu, functional.relu6, functional.gelu, functional.silu, functional.mish, functional.sigmoid,
    functional.tanh, functional.hardswish, functional.hardsigmoid, functional.hardtanh, functional.leaky_relu,
    functional.elu, functional.selu, functional.celu, functional.softplus, functional.softsign, functional.logsigmoid,
    functional.hardshrink, functional.softshrink, functional.tanhshrink, torch.relu, torch.relu_, torch.sigmoid,
    torch.tanh, torch.clamp, torch.abs, torch.square,
}  # fmt: skip
_POINTWISE_METHODS = {"relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_", "clamp", "clamp_", "contiguous", "clone"}
_POINTWISE_MODULES = (
    nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh,
    nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.Softplus, nn.Softsign, nn.LogSigmoid, nn.Hardshrink, nn.Softshrink,
    nn.Tanhshrink,
)  # fmt: skip
# Pools by the number of dimensions, the last ones, that they pool over.
_POOLS = {
    nn.MaxPool1d: 1, nn.AdaptiveAvgPool1d: 1, nn.AdaptiveMaxPool1d: 1, functional.adaptive_avg_pool1d: 1,
    nn.MaxPool2d: 2, nn.AdaptiveAvgPool2d: 2, nn.AdaptiveMaxPool2d: 2, functional.adaptive_avg_pool2d: 2,
    nn.MaxPool3d: 3, nn.AdaptiveAvgPool3d: 3, nn.AdaptiveMaxPool3d: 3, functional.adaptive_avg_pool3d: 3,
}  # fmt: skip
_PADDED_POOLS = {nn.AvgPool1d: 1, nn.AvgPool2d: 2, nn.AvgPool3d: 3}
_FLATTENED = {torch.flatten, "flatten", "view", "reshape"}


def rules_of(graph: fx.GraphModule) -> dict[fx.Node, Rule]:
    """Return the rule of each node that has one."""
    rules: dict[fx.Node, Rule] = {}
    calls = calls_of(graph)
    for node in graph.graph.nodes:
        shape = shape_of(node)
        if shape is None or node.op not in ("call_module", "call_function", "call_method"):
            continue
        module = graph.get_submodule(name := str(node.target)) if node.op == "call_module" else None
        if module is not None and not is_only_called(graph, name):
            continue
        if module is not None and len(calls[name]) > 1 and [*module.parameters(), *module.buffers()]:
            continue
        rule = _layer_rule(graph, node) or _rule(node, module, rules)
        if rule is not None:
            rules[node] = rule
    return rules


def is_pointwise(node: fx.Node, module: nn.Module | None) -> bool:
    """Whether a node, or the module that it calls, is an elementwise function of one tensor."""
    if module is not None:
        return isinstance(module, _POINTWISE_MODULES)
    return node.target in (_POINTWISE_METHODS if node.op == "call_method" else _POINTWISE_FUNCTIONS)


def _layer_rule(graph: fx.GraphModule, node: fx.Node) -> Rule | None:
    module, shape = own_layer(graph, node), shape_of(node)
    if module is None or shape is None:
        return None
    source = node.args[0]
    assert isinstance(source, fx.Node)
    axis = len(shape) - 1 if isinstance(module, nn.Linear) else len(shape) + 1 - module.weight.dim()
    if getattr(module, "groups", 1) == 1:
        return LayerRule(node, axis, shape[axis], (source,), module=module)
    assert not isinstance(module, nn.Linear)
    depthwise = module.groups == module.in_channels == module.out_channels
    return ChannelwiseRule(node, axis, shape[axis], (source,), module=module) if depthwise else None


def _rule(node: fx.Node, module: nn.Module | None, rules: Mapping[fx.Node, Rule]) -> Rule | None:
    """Return the rule of a node that is not a layer, if its inputs have rules."""
    sources = [arg for arg in node.args if isinstance(arg, fx.Node)]
    known = [rules[source] for source in sources if source in rules]
    if not known or node.args[0] is not sources[0]:
        return None
    axis, size = known[0].axis, known[0].size
    if node.target in _SUMS | _PRODUCTS:
        kind = SumRule if node.target in _SUMS else ProductRule
        fits = len(node.args) == 2 and not node.kwargs and _aligned(sources, rules, axis, size)
        return kind(node, axis, size, tuple(sources)) if fits and len(sources) == 2 else None
    if sources[0] not in rules or any(isinstance(each, fx.Node) for each in node.kwargs.values()):
        return None
    if _is_flat(node, module, known[0]):
        width = (shape_of(node) or ())[axis]
        return FlattenRule(node, axis, width, (sources[0],), repeats=width // size)
    if len(sources) > 1:
        return None
    rule = Rule(node, axis, size, (sources[0],))
    if type(module) in NORMS and module.running_mean is not None and axis == 1:  # type: ignore[union-attr]
        return ChannelwiseRule(node, axis, size, (sources[0],), module=module)  # type: ignore[arg-type]
    if is_pointwise(node, module):
        return replace(rule, function=_function(node, module))
    if _is_pool(node, module, known[0], _POOLS) or _is_mean(node, known[0]):
        return replace(rule, function=torch.Tensor.clone)
    return rule if _is_pool(node, module, known[0], _PADDED_POOLS) else None


def _aligned(sources: Sequence[fx.Node], rules: Mapping[fx.Node, Rule], axis: int, size: int) -> bool:
    shapes = [shape_of(source) or () for source in sources]
    return all(len(shape) == len(shapes[0]) > axis and shape[axis] == size for shape in shapes) and all(
        rules[source].axis == axis for source in sources if source in rules
    )


def _is_flat(node: fx.Node, module: nn.Module | None, source: Rule) -> bool:
    """Whether a node flattens the channels and all dimensions after them into one."""
    before, after = shape_of(source.node) or (), shape_of(node)
    if not isinstance(module, nn.Flatten) and node.target not in _FLATTENED:
        return False
    if node.target in ("view", "reshape") and node.args[-1] != -1:
        return False  # a size that would have to change
    return after == (*before[: source.axis], math.prod(before[source.axis :])) and after != before


def _is_pool(node: fx.Node, module: nn.Module | None, source: Rule, pools: Mapping[Any, int]) -> bool:
    """Whether a node is one of the `pools`, over dimensions after the channels."""
    kind = node.target if module is None else type(module)
    return kind in pools and source.axis < len(shape_of(source.node) or ()) - pools[kind]


def _is_mean(node: fx.Node, source: Rule) -> bool:
    """Whether a node is the mean over dimensions after the channels."""
    if node.target not in (torch.mean, "mean") or set(node.kwargs) - {"dim", "keepdim"}:
        return False
    dims = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
    rank = len(shape_of(source.node) or ())
    reduced = [dims] if isinstance(dims, int) else list(dims) if isinstance(dims, tuple | list) else []
    return bool(reduced) and all(isinstance(dim, int) and dim % rank > source.axis for dim in reduced)


def _function(node: fx.Node, module: nn.Module | None) -> Callable[[Tensor], Tensor]:
    """Return what a node computes from its first argument, as a function that does not change its argument."""
    args, kwargs = node.args[1:], dict(node.kwargs)
    if module is not None:
        return lambda values: module(values.clone())
    call: Any = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
    return lambda values: call(values.clone(), *args, **kwargs)
