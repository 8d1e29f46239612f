"""How good a network is on data that it is not trained on."""

import torch
from torch.nn import functional

from orthosparse.lab.data import Loader
from orthosparse.lab.training.objective import hits
from orthosparse.lab.training.state import State


@torch.no_grad()
def evaluate(state: State, loader: Loader) -> dict[str, float]:
    """Return the mean cross-entropy and the accuracy over a split, all ranks together; the mode is left as it was."""
    training = state.model.training
    state.model.eval()
    total = torch.zeros(2, dtype=torch.float64, device=state.fabric.device)
    for images, labels in loader.epoch(0):
        logits = state.model(state.laid_out(images))
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        total += torch.stack([loss.double(), hits(logits, labels).double()])
    state.model.train(training)
    loss_sum, right = state.summed(total).tolist()
    return {"loss": loss_sum / len(loader.split), "accuracy": right / len(loader.split)}
