"""One optimizer step of one network or of many: loss, gradients and update, from a captured CUDA graph if possible."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.training.mixing import mix
from orthosparse.lab.training.recipe import Recipe
from orthosparse.lab.training.state import State
from orthosparse.randomness import derive_seed


def losses_of(recipe: Recipe, logits: Tensor, target: Tensor) -> Tensor:
    """Return the loss of each network, summed over the batch, of logits ``[networks, batch, classes]``.

    Targets are classes ``[networks, batch]``, or probabilities of the shape of the logits. A sum, so that parts of a
    batch (accumulated, or on other ranks) add up to the whole batch's loss whatever their sizes.
    """
    if recipe.loss == "bce":
        return binary_cross_entropy(logits, target)
    return cross_entropy(logits, target, recipe.label_smoothing)


def cross_entropy(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy, summed over the batch."""
    each = functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(0, 1), reduction="none", label_smoothing=smoothing
    )
    return each.view(logits.shape[:2]).sum(1)


def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the binary cross-entropy, averaged over the classes, of every class present in the target against 1."""
    if target.dim() == 2:
        target = functional.one_hot(target, logits.shape[2])
    # DeiT III: a mixed image is an image of both classes, not a fraction of each.
    present = (target > 0).to(logits.dtype)
    each = functional.binary_cross_entropy_with_logits(logits, present, reduction="none")
    return each.sum((1, 2)) / logits.shape[2]


def hits(logits: Tensor, target: Tensor) -> Tensor:
    """Return how many samples of each network have their largest logit at the target (at its largest probability)."""
    label = target if target.dim() == 2 else target.argmax(2)
    return (logits.argmax(2) == label).sum(1, dtype=torch.int64)


def take_step(state: State, images: Tensor, labels: Tensor, count: int) -> None:
    """Update the networks by the mean loss over a batch of `count`, of which this rank holds `images`; record it.

    A network whose loss or gradient is not finite is not updated, neither at this step nor later.

    Args:
        labels: classes ``[networks, batch]``, or probabilities of them.
    """
    losses, right = gradients(state, images, labels, count)
    state.records.add(losses, state.networks.gradient_norms(), right)
    state.networks.update(state.records.alive)


def gradients(state: State, images: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Fill the gradients, and return the mean loss and the hits of each network, of all ranks together."""
    networks, world = state.networks, state.fabric.world_size
    networks.zero_grad()
    parts = _split(images, labels, state.recipe.accumulate)
    losses, right = [], []
    with networks.passes():
        for index, (x, y) in enumerate(parts):
            with networks.accumulating(index < len(parts) - 1):
                logits = networks(x)
                share = losses_of(state.recipe, logits.to(networks.dtype), y) / count
                # Ranks average their gradients, but the shares of the loss add up.
                networks.backward(share.sum() * world if world > 1 else share.sum())
            losses.append(share.detach())
            right.append(hits(logits.detach(), y))
    return state.summed(_total(losses)), state.summed(_total(right))


def targets(state: State, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the batch, mixed with itself where the recipe says so, and its labels, ``[networks, batch, ...]``."""
    recipe = state.recipe
    if recipe.mixup or recipe.cutmix:
        shares = {"mixup": recipe.mixup, "cutmix": recipe.cutmix}
        position = (state.epoch, state.step, state.fabric.global_rank)
        images, labels = mix(images, labels, state.classes, **shares, seed=state.seed, position=position)
    return images, labels if images.dim() == 5 else labels.unsqueeze(0)


def seed_step(state: State) -> None:
    """Seed torch's global generators, from which layers such as dropout draw; `fit` restores them afterwards.

    Every step has a seed, so that a resumed run draws the same numbers.
    """
    seed = derive_seed(state.seed, "step", state.epoch, state.step, state.fabric.global_rank)
    torch.default_generator.manual_seed(seed)
    if state.fabric.device.type == "cuda":
        torch.cuda.default_generators[state.fabric.device.index].manual_seed(seed)


def _split(images: Tensor, labels: Tensor, parts: int) -> Sequence[tuple[Tensor, Tensor]]:
    if parts == 1:
        return [(images, labels)]
    return list(zip(images.chunk(parts), labels.chunk(parts, dim=1), strict=True))


def _total(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


class Stepper:
    """Trains a state on batch after batch.

    Args:
        graph: capture whole batches as a CUDA graph; None does so on a single GPU when the optimizer can be captured.
    """

    def __init__(self, state: State, *, graph: bool | None = None) -> None:
        possible = state.networks.capturable
        if graph and not possible:
            device, optimizer = state.fabric.device, state.recipe.optimizer
            raise ValueError(f"graph: expected a single GPU and sgd or adamw; got {device}, {optimizer}")
        self.state = state
        self._graphed = Graphed(self._captured) if (possible if graph is None else graph) else None
        self._images = self._labels = torch.empty(0)

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        """Take the next step of the state, whose batch this is (this rank's part of it)."""
        state, networks = self.state, self.state.networks
        seed_step(state)
        images, labels = targets(state, images, labels)
        whole = labels.shape[1] == state.loader.batch
        moving = networks.before_step(state.steps_done, whole=whole)
        if self._graphed is None or not whole or (moving and networks.moves_eagerly):
            take_step(state, images, labels, state.loader.count(state.step))
        else:
            self._fill(images, labels)
            self._graphed()
        networks.after_step(moving, images, labels, state.records.alive)
        state.step += 1

    def _captured(self) -> None:
        take_step(self.state, self._images, self._labels, self.state.loader.batch)

    def _fill(self, images: Tensor, labels: Tensor) -> None:
        if self._images.shape != images.shape:
            self._images, self._labels = torch.empty_like(images), torch.empty_like(labels)
        self._images.copy_(images)
        self._labels.copy_(labels)


class Graphed:
    """Calls `work` eagerly a few times, then captures it in a CUDA graph and replays that.

    `work` must read and write tensors of fixed address: its inputs are filled in place before each call. The first
    calls are eager, on the stream of the capture: libraries choose their algorithms and optimizers allocate their
    buffers.
    """

    def __init__(self, work: Callable[[], None], *, warmup: int = 3) -> None:
        self._work = work
        self._warmup = warmup
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Do the work once."""
        if self._graph is None and self._warmup > 0:
            self._warmup -= 1
            self._run_eagerly()
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # thread_local: another thread, of a loader, may copy images to the device meanwhile.
            with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
                self._work()  # recorded, not done
        self._graph.replay()

    def _run_eagerly(self) -> None:
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._work()
        current.wait_stream(self._stream)
