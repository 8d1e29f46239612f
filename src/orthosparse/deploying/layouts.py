"""Results that lie features first between layers of single entries, so that nothing is transposed there."""

from torch import fx, nn

from orthosparse.deploying.modules import EntriesLinear
from orthosparse.deploying.rules import is_pointwise
from orthosparse.deploying.tracing import calls_of


def keep_features_first(model: nn.Module) -> None:
    """Let linear layers of entries leave their results as they compute them where only such layers read them."""
    if not isinstance(model, fx.GraphModule):
        return
    for name, calls in calls_of(model).items():
        module = model.get_submodule(name)
        if isinstance(module, EntriesLinear):
            module.features_first = all(_is_read_by_entries(model, call) for call in calls)


def _is_read_by_entries(model: fx.GraphModule, node: fx.Node) -> bool:
    return bool(node.users) and all(_reads_features_first(model, user) for user in node.users)


def _reads_features_first(model: fx.GraphModule, node: fx.Node) -> bool:
    module = model.get_submodule(str(node.target)) if node.op == "call_module" else None
    if isinstance(module, EntriesLinear):
        return True
    return is_pointwise(node, module) and _is_read_by_entries(model, node)
