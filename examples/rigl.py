"""RigL from an EOI start, saved half-way and resumed, on scikit-learn's digits."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import orthosparse


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))


def main(steps: int = 600, grow: str = "gradient") -> dict[str, float]:
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    train, test = slice(0, 1400), slice(1400, None)

    model = network()
    orthosparse.sparsify(model, density=0.05, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=20, fraction=0.3, steps=steps)
    start, batches = orthosparse.masks_of(model), torch.Generator().manual_seed(1)
    for step in range(steps):
        if step == steps // 2:  # a run needs all three states to resume
            saved = [part.state_dict() for part in (model, optimizer, rewirer)]
            model = network()
            orthosparse.load_sparse(model, saved[0])
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            optimizer.load_state_dict(saved[1])
            rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=20, fraction=0.3, steps=steps)
            rewirer.load_state_dict(saved[2])
        rows = torch.randint(1400, (64,), generator=batches)
        optimizer.zero_grad()
        cross_entropy(model(x[train][rows]), y[train][rows]).backward()
        optimizer.step()
        rewirer.step()

    accuracy = (model(x[test]).argmax(1) == y[test]).float().mean().item()
    kept = orthosparse.overlap(start, orthosparse.masks_of(model))
    print(f"{rewirer.updates} updates, accuracy {accuracy:.3f}; overlap with the first masks, by layer: {kept}")
    return {"updates": rewirer.updates, "accuracy": accuracy, **kept}


if __name__ == "__main__":
    main()
