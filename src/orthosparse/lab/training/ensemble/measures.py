"""How good the members are on data that they are not trained on, and why one of them has stopped."""

import torch
from lightning_fabric import Fabric
from torch.nn import functional

from orthosparse.lab.data import Dataset, Loader
from orthosparse.lab.training.assembly import assemble
from orthosparse.lab.training.ensemble.state import Ensemble
from orthosparse.lab.training.nonfinite import NonFiniteError, diagnose
from orthosparse.lab.training.snapshot import put_back, take


@torch.no_grad()
def evaluate(ensemble: Ensemble, loader: Loader) -> list[dict[str, float]]:
    """Return the mean cross-entropy and the accuracy of every member over a split."""
    network, members = ensemble.network, len(ensemble.configs)
    total = torch.zeros(2, members, dtype=torch.float64, device=ensemble.device)
    for images, labels in loader.epoch(0):
        rows = network.rows(images).to(network.dtype).expand(members, -1, -1)
        logits = network.logits(rows.contiguous()).to(ensemble.dtype)
        targets = labels.expand(members, -1)
        losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        right = (logits.argmax(2) == targets).sum(1)
        total += torch.stack([losses.view(targets.shape).sum(1).double(), right.double()])
    figures = (total / len(loader.split)).T.tolist()
    return [{"loss": loss, "accuracy": accuracy} for loss, accuracy in figures]


def error_of(ensemble: Ensemble, member: int, seed: int, data: Dataset, fabric: Fabric) -> NonFiniteError:
    """Return what a run alone would have raised where a member has stopped: its weights are those before that step."""
    steps = len(ensemble.feed)
    epoch, step = divmod(int(ensemble.records.stopped[member]), steps)
    state = ensemble.state_of(member)
    alone = assemble(ensemble.configs[member], seed, fabric, data=data, saved=state).state
    put_back(alone, {**take(alone), "model": state, "epoch": epoch, "step": step})
    images, labels = alone.loader.gather(alone.loader.share(epoch, step))
    return diagnose(alone, images, labels, alone.loader.count(step))
