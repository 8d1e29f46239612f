"""Remove dead units from a graph: channels that nothing reads, and constant ones, which go into the next bias."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx, nn

from orthosparse.deploying.folding import Layer, set_tensors
from orthosparse.deploying.rules import rules_of
from orthosparse.deploying.tracing import clean, shape_of
from orthosparse.deploying.units import ChannelwiseRule, Constants, LayerRule, Rule, SumRule, bias_of, matrix_of


@torch.no_grad()
def shrink(graph: fx.GraphModule, *, split: bool) -> dict[str, int]:
    """Remove dead units in place; return how many output units each layer lost.

    Args:
        split: also remove channels that only some of the layers around a sum, a product or a shared tensor need.
            Channels are then selected and scattered, which takes time.
    """
    liveness = _Liveness(graph, rules_of(graph), split)
    liveness.trace()
    removed = {}
    for node, rule in liveness.rules.items():
        if isinstance(rule, LayerRule) and (lost := int((~liveness.need[node]).sum())):
            removed[str(node.target)] = lost
    for rule in list(liveness.rules.values()):
        _rewrite(liveness, rule)
    clean(graph)
    return removed


@dataclass
class _Liveness:
    """Which channels of each node are constant, and which are needed; only the needed ones are kept.

    Attributes:
        varying: the nodes that depend on the input.
        replaced: the new node for each node that was replaced.
    """

    graph: fx.GraphModule
    rules: dict[fx.Node, Rule]
    split: bool
    constants: dict[fx.Node, Constants] = field(default_factory=dict)
    need: dict[fx.Node, Tensor] = field(default_factory=dict)
    varying: set[fx.Node] = field(default_factory=set)
    replaced: dict[fx.Node, fx.Node] = field(default_factory=dict)

    def trace(self) -> None:
        """Compute constants forward from the input, then needed channels backward from the output."""
        for node in self.graph.graph.nodes:
            if node.op == "placeholder" or not self.varying.isdisjoint(node.all_input_nodes):
                self.varying.add(node)
        for node, rule in self.rules.items():
            self.constants[node] = rule.constants(self.inputs(rule))
        least = {node: torch.zeros_like(constants.known) for node, constants in self.constants.items()}
        self._trace_needs(least)
        while not self.split and self._couple(least):
            self._trace_needs(least)

    def _trace_needs(self, least: Mapping[fx.Node, Tensor]) -> None:
        """Compute which channels are needed; those of `least` always are."""
        self.need = {node: channels.clone() for node, channels in least.items()}
        for node in reversed(self.graph.graph.nodes):
            if node not in self.rules:
                for source in node.all_input_nodes:
                    if source in self.rules:
                        self.need[source][:] = True
                continue
            rule = self.rules[node]
            need = rule.needed(self.need[node])
            self.need[node] = need if bool(need.any()) else rule.needed(_first(need))
            for source, reads in zip(rule.inputs, self.reads(rule), strict=True):
                if self._is_aligned(source, rule):
                    self.need[source] |= reads
                elif source in self.rules:
                    self.need[source][:] = True

    def _couple(self, least: dict[fx.Node, Tensor]) -> bool:
        """Mark as needed, in nodes that are not layers, all channels that their inputs keep; return whether any is new.

        Nodes then read all channels of their inputs, and none have to be selected.
        """
        changed = False
        for node, rule in self.rules.items():
            if isinstance(rule, LayerRule):
                continue
            for source in rule.inputs:
                present = rule.spread(self.present(source, rule))
                changed |= bool((present & ~self.need[node]).any())
                least[node] |= present
        return changed

    def inputs(self, rule: Rule) -> list[Constants]:
        """Return the constant channels of each input."""
        return [
            self.constants[source] if self._is_aligned(source, rule) else _nothing_known(source, rule)
            for source in rule.inputs
        ]

    def reads(self, rule: Rule) -> list[Tensor]:
        """Return which channels of each input a node reads."""
        need, inputs = self.need[rule.node], self.inputs(rule)
        if self._splits(rule):
            first, second = (need & ~each.known for each in inputs)
            return [first if bool((first | second).any()) else need & (need.cumsum(0) == 1), second]
        reads = rule.reads(need, self.constants[rule.node], inputs)
        return [each if bool(each.any()) else _first(each) for each in reads]

    def _splits(self, rule: Rule) -> bool:
        """Whether a node is a sum that adds only the varying channels of its inputs: none of them may be broadcast.

        An input that is the same for all samples is broadcast along the batch, even if the example is one sample.
        """
        same = len({shape_of(source) for source in rule.inputs}) == 1
        return self.split and isinstance(rule, SumRule) and same and self.varying.issuperset(rule.inputs)

    def present(self, source: fx.Node, rule: Rule) -> Tensor:
        """Return which channels of an input are kept."""
        if self._is_aligned(source, rule):
            return self.need[source]
        return ~_nothing_known(source, rule).known

    def _is_aligned(self, source: fx.Node, rule: Rule) -> bool:
        """Whether an input has its channels in the dimension in which the node reads them."""
        return source in self.rules and self.rules[source].axis == rule.axis


def _rewrite(liveness: _Liveness, rule: Rule) -> None:
    """Make a node compute only the needed channels, from the kept channels of its inputs."""
    graph, node = liveness.graph, rule.node
    reads = liveness.reads(rule)
    if isinstance(rule, LayerRule):
        columns = reads[0] if liveness.split else liveness.present(rule.inputs[0], rule)
        _slice_layer(rule.module, liveness.inputs(rule)[0], liveness.need[node], columns)
        reads = [columns]
    elif isinstance(rule, ChannelwiseRule):
        _slice_channels(rule.module, liveness.need[node])
    selected = [
        _select(graph, node, liveness.replaced.get(source, source), rule.axis, liveness.present(source, rule), wanted)
        for source, wanted in zip(rule.inputs, reads, strict=True)
    ]
    node.args = (*selected, *node.args[len(selected) :])
    if isinstance(rule, SumRule) and not all(torch.equal(each, liveness.need[node]) for each in reads):
        _scatter(liveness, rule, reads)


def _slice_layer(module: Layer, inputs: Constants, rows: Tensor, columns: Tensor) -> None:
    """Keep some rows and columns of a layer; the constant contribution of the other columns goes into the bias."""
    if bool(rows.all()) and bool(columns.all()):
        return
    bias = bias_of(module) + matrix_of(module).sum(2) @ torch.where(columns, 0.0, inputs.value)
    device = module.weight.device
    weight = module.weight[rows.to(device)][:, columns.to(device)]
    set_tensors(module, weight, None if module.bias is None and not bool(bias.any()) else bias[rows])


def _slice_channels(module: nn.Module, kept: Tensor) -> None:
    """Keep some channels of a batch norm or a depthwise convolution."""
    for name, tensor in module._parameters.items():
        if tensor is not None:
            module._parameters[name] = nn.Parameter(tensor[kept.to(tensor.device)], requires_grad=False)
    for name, buffer in module._buffers.items():
        if buffer is not None and buffer.dim():
            module._buffers[name] = buffer[kept.to(buffer.device)]
    for name in ("num_features", "in_channels", "out_channels", "groups"):
        if hasattr(module, name):
            setattr(module, name, int(kept.sum()))


def _select(
    graph: fx.GraphModule, node: fx.Node, source: fx.Node, axis: int, present: Tensor, wanted: Tensor
) -> fx.Node:
    """Return a node with the wanted channels out of those that are present."""
    if torch.equal(present, wanted) or not bool(wanted.any()):
        return source
    with graph.graph.inserting_before(node):
        channels = _constant(graph, (present.cumsum(0) - 1)[wanted])
        return graph.graph.call_function(torch.index_select, (source, axis, channels))


def _scatter(liveness: _Liveness, rule: Rule, reads: list[Tensor]) -> None:
    """Make a sum add inputs that have only some of its channels, and the constants of the others."""
    graph, node, need = liveness.graph, rule.node, liveness.need[rule.node]
    part = 1 if int(reads[0].sum()) >= int(reads[1].sum()) else 0
    total, other = node.args[1 - part], node.args[part]
    channels = [(need.cumsum(0) - 1)[each] for each in (reads[1 - part], reads[part])]
    terms = [
        torch.where(each, 0.0, known.value)[need] for each, known in zip(reads, liveness.inputs(rule), strict=True)
    ]
    constant = terms[0] + terms[1]
    shape = [1] * len(shape_of(node) or ())
    shape[rule.axis] = -1
    with graph.graph.inserting_before(node):
        if len(channels[0]) < int(need.sum()):
            name = f"spread_{len(liveness.replaced)}"
            graph.add_submodule(name, Spread(rule.axis, channels[0].to(_any_parameter(graph).device), int(need.sum())))
            total = graph.graph.call_module(name, (total,))
        if bool(constant.any()):
            added = _constant(graph, constant.to(_any_parameter(graph).dtype).view(shape))
            total = graph.graph.call_function(torch.add, (total, added))
        if len(channels[1]):
            total = graph.graph.call_function(torch.index_add, (total, rule.axis, _constant(graph, channels[1]), other))
    assert isinstance(total, fx.Node)
    liveness.replaced[node] = total
    node.replace_all_uses_with(total)


class Spread(nn.Module):
    """Scatters its input into some channels of a larger tensor, whose other channels are zero."""

    channels: Tensor

    def __init__(self, axis: int, channels: Tensor, size: int) -> None:
        super().__init__()
        self.axis, self.size = axis, size
        self.register_buffer("channels", channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the tensor with all channels."""
        whole = x.new_zeros(*x.shape[: self.axis], self.size, *x.shape[self.axis + 1 :])
        return whole.index_copy(self.axis, self.channels, x)

    def extra_repr(self) -> str:
        """Return the numbers of input and output channels."""
        return f"{len(self.channels)} of {self.size}"


def _any_parameter(graph: fx.GraphModule) -> Tensor:
    """Return a parameter, which has the device and the dtype of the network."""
    return next(graph.parameters())


def _constant(graph: fx.GraphModule, tensor: Tensor) -> fx.Node:
    """Register a buffer and return a node that reads it."""
    number = sum(name.startswith("channels_") for name, _ in graph.named_buffers())
    graph.register_buffer(f"channels_{number}", tensor.to(_any_parameter(graph).device))
    return graph.graph.get_attr(f"channels_{number}")


def _first(like: Tensor) -> Tensor:
    first = torch.zeros_like(like)
    first[:1] = True
    return first


def _nothing_known(source: fx.Node, rule: Rule) -> Constants:
    shape = shape_of(source)
    assert shape is not None
    return Constants.none(shape[rule.axis])
