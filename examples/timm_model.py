"""A timm network, sparsified at its published shape, then trained for a few steps."""

from pathlib import Path

import timm
import torch
from torch.nn.functional import cross_entropy

import orthosparse


def main(
    name: str = "resnet50", size: int = 224, steps: int = 10, density: float = 0.1
) -> tuple[torch.nn.Module, orthosparse.Report]:
    g = torch.Generator().manual_seed(0)
    model = timm.create_model(name, num_classes=10)  # pretrained=True would be thrown away: EOI draws new weights
    head = model.default_cfg["classifier"]
    report = orthosparse.sparsify(model, density, distribution="erk", scheme="eoi", exclude=[head], generator=g)
    print(report)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(8, 3, size, size, generator=g), torch.randint(10, (8,), generator=g)
    for step in range(steps):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3f}")

    Path("runs").mkdir(exist_ok=True)
    torch.save(model.state_dict(), "runs/sparse.pt")  # weight and weight_mask
    again = timm.create_model(name, num_classes=10)
    orthosparse.load_sparse(again, torch.load("runs/sparse.pt"))
    orthosparse.bake(again)  # plain timm modules, zeros where the masks were
    return again, report


if __name__ == "__main__":
    main()
