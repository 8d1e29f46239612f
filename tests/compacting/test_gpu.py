"""Compact models on a GPU against masked ones."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from orthosparse import BlockLinear, Rewirer, compact, expand, masks_of, sparsify

pytestmark = pytest.mark.gpu


def masked_mlp(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 128))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    sparsify(model, 0.3, structure="block:32", distribution="uniform", generator=generator)
    return model.to("cuda", dtype)


def batches(steps, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(300, 256, generator=generator).to("cuda", dtype),
            torch.randint(128, (300,), generator=generator).cuda(),
        )
        for _ in range(steps)
    ]


def train(model, optimizer, data):
    for x, y in data:
        optimizer.zero_grad()
        functional.cross_entropy(model(x).float(), y).backward()
        optimizer.step()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
def test_training_agrees_with_the_masked_model(dtype, tolerance):
    masked = masked_mlp(dtype)
    twin = copy.deepcopy(masked)
    assert compact(twin).exchanged == dict.fromkeys("024", "block:32")
    data = batches(50, dtype)
    for model in (masked, twin):
        train(model, adamw(model), data)
    expand(twin)
    for key, value in masked.state_dict().items():
        torch.testing.assert_close(twin.state_dict()[key], value, rtol=0, atol=tolerance)


# torch 2.11 captures an empty graph of its own, to have a memory pool, and warns of it.
empty_graph = pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")


@empty_graph
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_under_autocast_it_gives_what_it_gives_eagerly(mode):
    model = masked_mlp()
    compact(model)
    (x, y), *_ = batches(1)
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    gradients = []
    for call in (model, compiled, compiled, compiled):
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(call(x), y)
        loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for other in gradients[1:]:
        for found, expected in zip(other, gradients[0], strict=True):
            torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)


@empty_graph
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # inductor recommends them; the comparison is exact
def test_blocks_move_under_a_compiled_model():
    model = masked_mlp()
    compact(model)
    assert isinstance(model[0], BlockLinear)
    counts = {name: int(mask.sum()) for name, mask in masks_of(model).items()}
    before = masks_of(model)
    compiled, optimizer = torch.compile(model, mode="reduce-overhead"), adamw(model)
    rewirer = Rewirer(compiled, optimizer, every=3, steps=100)
    for x, y in batches(7):
        optimizer.zero_grad()
        functional.cross_entropy(compiled(x), y).backward()
        optimizer.step()
        rewirer.step()
    assert rewirer.updates == 2
    assert {name: int(mask.sum()) for name, mask in masks_of(model).items()} == counts
    assert any(not torch.equal(mask, before[name]) for name, mask in masks_of(model).items())
    (x, _), *_ = batches(1)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-3, atol=1e-3)


def test_parameters_gradients_and_memory_are_of_the_active_weights():
    model = masked_mlp()
    active = sum(int(mask.sum()) for mask in masks_of(model).values())
    compact(model)
    assert sum(p.numel() for p in model.parameters() if p.dim() > 1) == active
