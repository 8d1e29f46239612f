"""One network for the training loop: wrapped by Fabric, with the recipe's optimizer and with masks that may move."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from orthosparse import masks_of
from orthosparse.lab.optional import import_timm
from orthosparse.lab.training.checkpoint import copied
from orthosparse.lab.training.recipe import Recipe
from orthosparse.masking.deferred import DeferredMasks

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from orthosparse import Rewirer
    from orthosparse.lab.training.state import State


class Single:
    """A network, its optimizer, and the rewirer of its masks; see `Networks`.

    On one CPU in float32 Fabric's wrapper does nothing, and the network itself is called: for a small network, the
    wrapper takes as long as some of its layers.

    Args:
        layout: the memory format of images (that of its convolutions).
        parameters: their number before the network is sharded.
    """

    count = 1
    moves_eagerly = True  # the rewirer reads gradients of masked weights
    parts: Mapping[str, type | tuple[type, ...]] = {"model": dict, "optimizer": dict}

    def __init__(
        self, network: nn.Module, fabric: "Fabric", recipe: Recipe, layout: torch.memory_format, parameters: int
    ) -> None:
        from lightning_fabric.strategies.single_device import SingleDeviceStrategy

        self.network, self.fabric, self.recipe = network, fabric, recipe
        self.layout, self.parameters = layout, parameters
        self.model: Any = fabric.setup_module(network)
        self.dtype = torch.float64 if recipe.precision == "fp64" else torch.float32
        sharded = any(hasattr(parameter, "device_mesh") for parameter in network.parameters())
        self.optimizer = make_optimizer(recipe, network.parameters(), sharded=sharded)
        self.rewirer: Rewirer | None = None
        one = isinstance(fabric.strategy, SingleDeviceStrategy)
        self._is_plain = one and fabric.device.type == "cpu" and recipe.precision in ("fp32", "tf32")
        self.capturable = fabric.device.type == "cuda" and fabric.world_size == 1 and is_fused(self.optimizer)
        self._deferred = DeferredMasks(network, self.optimizer) if _may_defer(fabric, recipe) else None
        self._dead = torch.zeros((), device=fabric.device)
        self._compiled: Any = None
        self._is_moving, self._is_whole = False, True

    def compile(self) -> None:
        """Compile the network for whole batches, in one process: faster steps on a GPU, with different rounding.

        Raises:
            ValueError: there are several processes.
        """
        if self.fabric.world_size > 1:
            raise ValueError(f"compiled: expected one process; got {self.fabric.world_size}")
        self._compiled = torch.compile(self.network, dynamic=False)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits, ``[1, batch, classes]``."""
        images = images.contiguous(memory_format=self.layout) if images.dim() == 4 else images
        if self._goes_by_compiled() and self.model.training:
            return self._by_compiled(images).unsqueeze(0)
        logits: Tensor = (self.network if self._is_plain else self.model)(images)
        return logits.unsqueeze(0)

    def _goes_by_compiled(self) -> bool:
        return self._compiled is not None and self._is_whole and not self._is_moving

    def _by_compiled(self, images: Tensor) -> Tensor:
        """Return the logits of the compiled network, cast as Fabric's wrapper does."""
        with self.fabric.autocast():
            logits: Tensor = self._compiled(images.double() if self.recipe.precision == "fp64" else images)
        return logits.float() if self.recipe.precision == "bf16" else logits

    def train(self, mode: bool = True) -> None:
        """Set training or evaluation mode."""
        self.model.train(mode)

    def passes(self) -> AbstractContextManager[Any]:
        """Return a context in which gradients are masked once a step, unless the masks move at this step."""
        return nullcontext() if self._deferred is None or self._is_moving else self._deferred

    def accumulating(self, more: bool) -> AbstractContextManager[Any]:
        """Return a context in which ranks do not exchange gradients, while `more` parts of a batch follow."""
        context: AbstractContextManager[Any] = self.fabric.no_backward_sync(
            self.model, enabled=self.fabric.world_size > 1 and more
        )
        return context

    def zero_grad(self) -> None:
        """Reset the gradients, as the optimizer's method does, but without its profiler hooks."""
        for parameter in self._trained():
            parameter.grad = None

    def backward(self, loss: Tensor) -> None:
        """Fill the gradients."""
        if self._is_plain or self._goes_by_compiled():
            loss.backward()
        else:
            self.fabric.backward(loss)

    def gradient_norms(self) -> Tensor:
        """Return the norm of all gradients, and clip them to the recipe's limit if it has one."""
        parameters = [parameter for parameter in self._trained() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if self.recipe.clip:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.recipe.clip, norm)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # if sharded
        return norm.view(1)

    def update(self, alive: Tensor) -> None:
        """Take the optimizer's step if the network is alive."""
        if is_fused(self.optimizer):
            self._dead.copy_(~alive[0])
            self.optimizer.found_inf = self._dead  # type: ignore[attr-defined]  # fused kernels then skip the step
            self.optimizer.step()
        elif bool(alive):
            self.optimizer.step()

    def set_rate(self, rate: float) -> None:
        """Set the learning rate, in place: a captured graph reads the tensor, not the group."""
        for group in self.optimizer.param_groups:
            group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else group.update(lr=rate)

    def before_step(self, steps_done: int, *, whole: bool) -> bool:
        """Return whether the masks move at this step."""
        del steps_done  # the rewirer counts steps
        self._is_moving = self.rewirer is not None and self.rewirer.due
        self._is_whole = whole
        if self._deferred is not None and not self._is_moving:
            self._deferred.prepare()
        return self._is_moving

    def after_step(self, moving: bool, images: Tensor, labels: Tensor, alive: Tensor) -> None:
        """Count the step, and move the masks if they are due."""
        del images, labels  # the gradients are computed
        if self._deferred is not None and not moving:
            self._deferred.trust()
        if self.rewirer is not None and not (moving and not bool(alive)):
            self.rewirer.step()

    def densities(self) -> list[float]:
        """Return the density of the layers that have masks; 1 without masks."""
        masks = list(masks_of(self.network).values())
        return [sum(int(m.sum()) for m in masks) / sum(m.numel() for m in masks) if masks else 1.0]

    def as_single(self, state: "State", index: int) -> "State":
        """Return the state itself."""
        del index  # there is one network
        return state

    def state_dict(self) -> dict[str, Any]:
        """Return copies of weights, masks, and the states of optimizer and rewirer, unsharded; every rank must call it.

        Random draws of the training depend only on the seed and the position.
        """
        optimizer = self.optimizer.state_dict()
        for group in optimizer["param_groups"]:
            group["lr"] = float(group["lr"])
        rewirer = None if self.rewirer is None else self.rewirer.state_dict()
        tree = {"model": dict(self.network.state_dict()), "optimizer": optimizer, "rewirer": rewirer}
        whole: dict[str, Any] = copied(tree, "cpu")
        return whole

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; the network was built with its weights and masks."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        parameters = self._trained()
        placed = {
            index: {name: placed_like(value, parameters[index]) for name, value in entry.items()}
            for index, entry in tree["optimizer"]["state"].items()
        }
        self.optimizer.load_state_dict({"state": placed, "param_groups": tree["optimizer"]["param_groups"]})
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            # In place, as a captured graph reads this tensor.
            group["lr"] = rate.fill_(group["lr"]) if isinstance(rate, Tensor) else group["lr"]
        if self.rewirer is not None:
            self.rewirer.load_state_dict(copied(tree["rewirer"], self.fabric.device))

    def _trained(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


def placed_like(value: Any, parameter: Tensor | None) -> Any:
    """Return a tensor in the layout of a parameter (sharding, memory format) if it has its shape; else unchanged."""
    if parameter is None or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    mesh, placements = getattr(parameter, "device_mesh", None), getattr(parameter, "placements", None)
    if mesh is not None:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value.to(parameter.device), mesh, placements)
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def _may_defer(fabric: "Fabric", recipe: Recipe) -> bool:
    """Return whether gradients may be masked once a step, after the backward pass.

    Not with DDP, which reads each gradient as soon as it is computed; nor under autocast on a CPU, where runs are
    reproducible to the bit: it caches the cast of a parameter but not that of a computed weight, so that sums of
    gradients would be rounded differently.
    """
    exact = fabric.device.type == "cpu"
    return fabric.world_size == 1 and not (exact and recipe.precision == "bf16")


def make_optimizer(
    recipe: Recipe, parameters: Iterable[nn.Parameter], *, sharded: bool = False
) -> torch.optim.Optimizer:
    """Return the recipe's optimizer; its learning rate is a tensor on the device, so that a graph can read it.

    Args:
        sharded: whether the parameters are DTensors, which the fused kernels do not support.

    Raises:
        ImportError: LAMB, without timm.
    """
    groups = _groups(recipe, list(parameters))
    device = groups[0]["params"][0].device
    if recipe.optimizer == "lamb":
        lamb: torch.optim.Optimizer = import_timm("timm.optim.lamb").Lamb(groups, lr=recipe.lr)
        return lamb
    rate: Any = recipe.lr if sharded else torch.tensor(recipe.lr, device=device)
    kind: dict[str, Any] = {"foreach": True} if sharded else {"fused": True}
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=rate, capturable=device.type == "cuda", **kind)
    return torch.optim.SGD(groups, lr=rate, momentum=recipe.momentum, nesterov=recipe.nesterov, **kind)


def is_fused(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether its step is one kernel, which a CUDA graph can capture and `found_inf` can skip."""
    return all(isinstance(group["lr"], torch.Tensor) for group in optimizer.param_groups)


def _groups(recipe: Recipe, parameters: list[nn.Parameter]) -> list[dict[str, Any]]:
    if recipe.decay_vectors:
        return [{"params": parameters, "weight_decay": recipe.weight_decay}]
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
