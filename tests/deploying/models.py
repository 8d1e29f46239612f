"""Networks of every kind that deploy rewrites, with dead units in them, for tests."""

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """A stem, two residual blocks with batch norms, one of them with a projection and a gate, and a head."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12)
        self.conv1, self.norm1 = nn.Conv2d(12, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12)
        self.conv2, self.norm2 = nn.Conv2d(12, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12)
        self.wide, self.norm3 = nn.Conv2d(12, 20, 1, stride=2, bias=False), nn.BatchNorm2d(20)
        self.depthwise = nn.Conv2d(20, 20, 3, padding=1, groups=20)
        self.gate = nn.Conv2d(20, 20, 1)
        self.short = nn.Conv2d(12, 20, 1, stride=2)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(20, 5)

    def forward(self, x):
        x = self.norm(self.stem(x)).relu()
        x = functional.relu(x + self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x))))))
        y = self.depthwise(functional.silu(self.norm3(self.wide(x))))
        y = y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        y = y + self.short(x)
        return self.head(self.drop(y.mean((2, 3))))


class Plain(nn.Sequential):
    """Convolutions and linear layers in a row, with batch norms before and after them, pools and a flattening."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 10, 3), nn.BatchNorm2d(10), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(10, 14, 1), nn.Tanh(), nn.BatchNorm2d(14), nn.Conv2d(14, 16, 3, padding=1), nn.ReLU(),
            nn.AvgPool2d(2, padding=1), nn.Flatten(), nn.Linear(64, 24), nn.GELU(), nn.BatchNorm1d(24),
            nn.Linear(24, 5),
        )  # fmt: skip


class Tokens(nn.Module):
    """A small transformer block: layer norm, attention by hand, and a perceptron on the last side."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(192, 16)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.fc1, self.fc2, self.head = nn.Linear(16, 40), nn.Linear(40, 16), nn.Linear(16, 5)

    def forward(self, x):
        x = self.embed(x.reshape(x.shape[0], 1, 192).expand(-1, 3, -1))
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.proj(functional.scaled_dot_product_attention(q, k, v))
        x = x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))
        return self.head(x.mean(1))


class Branching(nn.Module):
    """What torch.fx cannot trace: the path depends on a value."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.norm = nn.Linear(192, 32), nn.Linear(32, 5), nn.BatchNorm1d(32)
        self.spare = nn.Linear(3, 3)

    def forward(self, x):
        x = self.norm(self.fc1(x.flatten(1)))
        return self.fc2(x.relu()) if x.sum() > -1e9 else x


NETWORKS = {"residual": Residual, "plain": Plain, "tokens": Tokens, "branching": Branching}


def network(kind, generator, *, density=0.15, dead=0.3, shift=1.0, dtype=torch.float64):
    """Return a network in training mode with zeros in its weights, dead rows and columns, and norms that do something.

    Args:
        dead: the share of rows, and of columns, that are zero.
        shift: scale of biases and means; without them dead units are zero and not just constant.
    """
    model = NETWORKS[kind]().to(dtype)

    def chance(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
            if not parameter.is_floating_point():
                continue
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.dim() > 1:
                values *= chance(*parameter.shape) < density
                values[chance(len(values)) < dead] = 0
                if values.shape[1] > 3:
                    values[:, chance(values.shape[1]) < dead] = 0
            elif "var" in name:
                values = values.abs() + 0.1
            elif "bias" in name or "mean" in name:
                values *= shift
            parameter.copy_(values)
    return model


def images(generator, *, batch=2, dtype=torch.float64):
    """Return inputs for every network."""
    return torch.randn(batch, 3, 8, 8, generator=generator, dtype=dtype)
