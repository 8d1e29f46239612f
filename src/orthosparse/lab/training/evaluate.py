"""How good networks are on data that they are not trained on."""

import torch

from orthosparse.lab.data import Loader
from orthosparse.lab.training.objective import cross_entropy, hits
from orthosparse.lab.training.state import State


@torch.no_grad()
def evaluate(state: State, loader: Loader) -> list[dict[str, float]]:
    """Return the mean cross-entropy and the accuracy of each network over a split, all ranks together."""
    networks = state.networks
    networks.train(False)
    total = torch.zeros(2, networks.count, dtype=torch.float64, device=state.fabric.device)
    for images, labels in loader.epoch(0):
        logits, target = networks(images), labels.expand(networks.count, -1)
        losses = cross_entropy(logits.to(networks.dtype), target)
        total += torch.stack([losses.double(), hits(logits, target).double()])
    networks.train()
    figures = (state.summed(total) / len(loader.split)).T.tolist()
    return [{"loss": loss, "accuracy": accuracy} for loss, accuracy in figures]
