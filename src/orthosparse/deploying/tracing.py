"""Trace a model with torch.fx, without what does nothing in eval mode, or say why it cannot be traced."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from orthosparse.checks import named_on_error
from orthosparse.deploying.copies import Arguments, difference, outputs_of
from orthosparse.substitution import copied

_NO_OPS = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
# What Python code raises if it gets an fx.Proxy where it needs a value. NameError: a module in a list or a function.
_ERRORS = (
    fx.proxy.TraceError, TypeError, ValueError, RuntimeError, LookupError, AttributeError, AssertionError, NameError,
)  # fmt: skip


def traced(model: nn.Module, arguments: Arguments, tolerance: float) -> tuple[fx.GraphModule | None, str]:
    """Return the graph of `model` for these arguments, which shares its modules, or None and the reason."""
    try:
        nodes = _Tracer(arguments).trace(model)
    except _ERRORS as error:
        return None, f"cannot be traced by torch.fx: {first_line(error)}"
    plain = fx.Graph()  # without the tracer's class, which could not trace a pickled network again
    plain.output(plain.graph_copy(nodes, {}))
    graph = fx.GraphModule(model, plain, type(model).__name__)
    _make_inputs_positional(graph)
    _remove_no_ops(graph)
    _read_changes(graph)  # before code without readers is removed: changes in place are read by other names
    try:
        if _changes_views(graph, arguments):
            return None, "changes a tensor in place and reads it through a view"
        clean(graph)
        record_shapes(graph, arguments)
        same = difference(outputs_of(graph, arguments), outputs_of(model, arguments)) <= tolerance
    except ValueError as error:  # an argument that is None takes the branch for a tensor
        return None, f"its torch.fx trace fails: {first_line(error.__cause__ or error)}"
    return (graph, "") if same else (None, "its torch.fx trace computes something else")


class _Tracer(fx.Tracer):
    """Traces a model whose inputs are the arguments that it is given; the others keep their defaults for good."""

    def __init__(self, arguments: Arguments) -> None:
        super().__init__()
        self._arguments = arguments

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[[], Any], list[Any]]:
        """Return a function that runs the model, without arguments of its own; create its inputs."""
        del is_module, concrete_args
        args, kwargs = self._arguments
        bound = inspect.signature(self.root.forward).bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(self._input(f"{name}_{number}") for number in range(len(value)))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: self._input(key) for key in value}
            else:
                bound.arguments[name] = self._input(name)
        return lambda: root_fn(self.root, *bound.args, **bound.kwargs), []

    def _input(self, name: str) -> fx.Proxy:
        return self.create_proxy("placeholder", name, (), {})


def record_shapes(graph: fx.GraphModule, arguments: Arguments) -> None:
    """Store the output shape of every node in ``node.meta["shape"]``; None if the output is not a tensor."""
    _run(_Shapes(graph), arguments)


def _run(interpreter: fx.Interpreter, arguments: Arguments) -> None:
    args, kwargs = copied(arguments)
    bound = inspect.signature(interpreter.module.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    with torch.inference_mode(), named_on_error("example"):
        interpreter.run(*bound.arguments.values())


class _Shapes(fx.Interpreter):
    def run_node(self, node: fx.Node) -> Any:
        """Run a node and store the shape of its output."""
        result = super().run_node(node)
        node.meta["shape"] = tuple(result.shape) if isinstance(result, Tensor) else None
        return result


def shape_of(node: fx.Node) -> tuple[int, ...] | None:
    """Return the shape of the output of a node; None if it is not a tensor."""
    return node.meta.get("shape")


def calls_of(graph: fx.GraphModule) -> dict[str, list[fx.Node]]:
    """Return the nodes that call each module, by module name."""
    calls: dict[str, list[fx.Node]] = {}
    for node in graph.graph.nodes:
        if node.op == "call_module":
            calls.setdefault(str(node.target), []).append(node)
    return calls


def is_only_called(graph: fx.GraphModule, name: str) -> bool:
    """Whether a module has no hooks and no forward of its own, and only its calls read its tensors: it may change."""
    module = graph.get_submodule(name)
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        return False
    reads = graph.graph.find_nodes(op="get_attr", sort=False)
    return not any(str(node.target).rpartition(".")[0] == name for node in reads)


def clean(graph: fx.GraphModule) -> None:
    """Remove nodes and modules that nothing uses, and compile the graph to Python."""
    graph.graph.eliminate_dead_code()
    graph.delete_all_unused_submodules()
    graph.graph.lint()
    graph.recompile()


def _make_inputs_positional(graph: fx.GraphModule) -> None:
    """Turn calls ``f(input=x)`` of torch's modules and functions into ``f(x)``."""
    for node in graph.graph.nodes:
        if "input" in node.kwargs and not node.args and _is_of_torch(graph, node):
            kwargs = dict(node.kwargs)
            node.args, node.kwargs = (kwargs.pop("input"),), kwargs


def _is_of_torch(graph: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return type(graph.get_submodule(str(node.target))).__module__.startswith("torch.nn.")
    name = getattr(node.target, "__name__", "")
    return any(getattr(module, name, None) is node.target for module in (torch, nn.functional))


def _remove_no_ops(graph: fx.GraphModule) -> None:
    """Remove modules that return their input in eval mode, and shape checks, which the example has passed."""
    for node in list(graph.graph.nodes):
        if node.target is torch._assert:
            graph.graph.erase_node(node)
        elif node.op == "call_module" and type(graph.get_submodule(node.target)) in _NO_OPS:
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)


def _read_changes(graph: fx.GraphModule) -> None:
    """Make nodes that read a tensor after it was changed in place read the node that changed it."""
    earlier: set[fx.Node] = set()
    for node in graph.graph.nodes:
        earlier.add(node)
        if is_in_place(graph, node) and node.args and isinstance(node.args[0], fx.Node):
            node.args[0].replace_all_uses_with(node, lambda user: user not in earlier)


def _changes_views(graph: fx.GraphModule, arguments: Arguments) -> bool:
    """Whether a tensor that is changed in place is read afterwards through a view, not from the node that changes it.

    Nothing in the graph says that such readers depend on the change: it may be removed, or taken for no change.
    """
    views = _Views(graph)
    _run(views, arguments)
    return views.changed


class _Views(fx.Interpreter):
    """Finds changes in place of tensors that are read afterwards through other tensors in the same memory."""

    changed = False

    def run_node(self, node: fx.Node) -> Any:
        """Run a node, and compare the memory that it changes with that of all tensors that are read later."""
        result = super().run_node(node)
        if is_in_place(self.module, node) or "out" in node.kwargs:
            last_read = self.user_to_last_uses.get(node, [])
            later = [value for other, value in self.env.items() if other.users and other not in last_read]
            self.changed |= any(_overlap(result, value) for value in tree_leaves(later))
        return result


def _overlap(a: Any, b: Any) -> bool:
    """Whether two values are tensors with an element in common."""
    if not all(isinstance(each, Tensor) and each.layout == torch.strided for each in (a, b)):
        return False
    memory = a.untyped_storage()
    if memory.data_ptr() != b.untyped_storage().data_ptr():
        return False
    if a.element_size() != b.element_size():
        return True
    elements = torch.zeros(memory.nbytes() // a.element_size(), dtype=torch.bool, device=a.device)
    elements.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
    return bool(elements.as_strided(b.shape, b.stride(), b.storage_offset()).any())


def is_in_place(graph: nn.Module, node: fx.Node) -> bool:
    """Whether a node changes its first argument, and returns it."""
    if node.op == "call_module":
        return bool(getattr(graph.get_submodule(str(node.target)), "inplace", False))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    by_name = node.op in ("call_function", "call_method") and name.endswith("_") and not name.endswith("__")
    return by_name or bool(node.kwargs.get("inplace", False))


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
