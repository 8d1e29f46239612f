"""A model of your own: tied weights, a layer with two weight tensors, a frozen backbone."""

import torch
from torch import nn

import orthosparse


class Gated(nn.Module):
    """x + (a * sigmoid(b)) w_out with (a, b) = x w_in: matrices that are stored as (in, out)."""

    __orthosparse__ = {"w_in": "in out", "w_out": "in out"}  # noqa: RUF012

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w_in = nn.Parameter(nn.init.orthogonal_(torch.empty(width, 2 * hidden)))
        self.w_out = nn.Parameter(nn.init.orthogonal_(torch.empty(hidden, width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = (x @ self.w_in).chunk(2, -1)
        return x + (a * b.sigmoid()) @ self.w_out


class Model(nn.Module):
    """Words in, words out: the head is tied to the embedding, and the backbone is frozen."""

    def __init__(self, words: int = 64, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.backbone = nn.Sequential(nn.Linear(width, width), nn.Tanh()).requires_grad_(False)
        self.units = nn.Sequential(Gated(width, 48), nn.Linear(width, width), Gated(width, 48))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.units(self.backbone(self.embed(x))))


def main(steps: int = 200) -> tuple[Model, orthosparse.Report, list[float]]:
    g = torch.Generator().manual_seed(0)
    model = Model()
    report = orthosparse.sparsify(model, density=0.2, split={"units.*.w_in": 2}, generator=g)
    print(report)

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for _ in range(steps):
        x = torch.randint(64, (128,), generator=g)
        loss = nn.functional.cross_entropy(model(x), (x + 1) % 64)  # the next word
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}; {orthosparse.densities_of(orthosparse.masks_of(model))}")
    return model, report, losses


if __name__ == "__main__":
    main()
