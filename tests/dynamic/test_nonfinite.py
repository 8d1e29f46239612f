"""Updates that fall on a step whose gradients are not finite."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import orthosparse
from contracts.ranks import on_two_ranks, same_on_all
from contracts.states import assert_same

BOTH = ("gradient", "momentum")


def make():
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 5))
    orthosparse.sparsify(model, 0.3, generator=torch.Generator().manual_seed(0))
    return model


def batch(step, rank=0):
    g = torch.Generator().manual_seed(100 + step + 1000 * rank)
    return torch.randn(6, 12, generator=g), torch.randint(5, (6,), generator=g)


def rewired(model, grow="gradient", every=3, steps=40):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return optimizer, orthosparse.Rewirer(model, optimizer, grow=grow, every=every, steps=steps)


def step(model, optimizer, rewirer, number, *, factor=1.0, rank=0):
    """One step that is skipped, as a GradScaler does, where a gradient is not finite."""
    x, y = batch(number, rank)
    optimizer.zero_grad()
    (F.cross_entropy(model(x), y) * factor).backward()
    if all(bool(p.grad.isfinite().all()) for p in model.parameters()):
        optimizer.step()
    rewirer.step()


@pytest.mark.parametrize("grow", BOTH)
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_an_update_waits_for_the_next_step_with_finite_gradients(grow, bad):
    model = make()
    optimizer, rewirer = rewired(model, grow)
    before = orthosparse.masks_of(model)
    for number, factor in enumerate([1.0, 1.0, bad]):
        step(model, optimizer, rewirer, number, factor=factor)
    assert_same(orthosparse.masks_of(model), before)
    assert rewirer.updates == 0
    due = [rewirer.due]
    for number in range(3, 6):
        step(model, optimizer, rewirer, number)
        due.append(rewirer.due)
    assert due == [True, False, True, False]  # the sixth step is an update again, as if nothing had happened
    assert rewirer.updates == 2
    assert all(bool(mean.isfinite().all()) for mean in rewirer.momentum.values())
    assert not all(torch.equal(mask, before[name]) for name, mask in orthosparse.masks_of(model).items())


@pytest.mark.parametrize("grow", BOTH)
def test_the_late_update_moves_what_an_update_on_that_step_would(grow):
    late, prompt = make(), make()
    optimizer, rewirer = rewired(late, grow, every=3, steps=40)
    step(late, optimizer, rewirer, 0)
    step(late, optimizer, rewirer, 1)
    step(late, optimizer, rewirer, 99, factor=float("inf"))
    step(late, optimizer, rewirer, 2)
    optimizer, rewirer = rewired(prompt, grow, every=4, steps=40)
    step(prompt, optimizer, rewirer, 0)
    step(prompt, optimizer, rewirer, 1)
    step(prompt, optimizer, rewirer, 99, factor=float("inf"))
    step(prompt, optimizer, rewirer, 2)
    assert rewirer.updates == 1
    assert_same(orthosparse.masks_of(late), orthosparse.masks_of(prompt))


def test_one_bad_entry_in_one_layer_is_enough():
    model = make()
    optimizer, rewirer = rewired(model, every=1)
    before = orthosparse.masks_of(model)
    x, y = batch(0)
    x[0, 3] = float("inf")  # tanh is saturated: finite outputs, and weights of the first layer without a gradient
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    rewirer.step()
    assert_same(orthosparse.masks_of(model), before)
    assert rewirer.updates == 0


def test_an_update_that_waits_until_the_masks_rest_is_dropped():
    model = make()
    optimizer, rewirer = rewired(model, every=3, steps=8)  # they rest from the sixth step on
    for number in range(5):
        step(model, optimizer, rewirer, number, factor=1.0 if number < 2 else float("inf"))
    step(model, optimizer, rewirer, 5)
    step(model, optimizer, rewirer, 6)
    assert rewirer.updates == 0
    assert not rewirer.postponed


def test_a_resumed_run_makes_up_for_the_update_that_waited():
    model = make()
    optimizer, rewirer = rewired(model)
    for number in range(3):
        step(model, optimizer, rewirer, number, factor=float("inf") if number == 2 else 1.0)
    _, resumed = rewired(model)
    resumed.load_state_dict(rewirer.state_dict())
    assert resumed.due


@pytest.mark.parametrize("grow", BOTH)
def test_a_step_that_a_grad_scaler_skips_does_not_rewire(grow):
    model = make()
    optimizer, rewirer = rewired(model, grow, every=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-100)
    before = orthosparse.masks_of(model)
    seen = []
    for number in range(4):
        x, y = batch(number)
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y) * (1e3 if number == 1 else 1e-3)).backward()
        weight = model[0].weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        rewirer.step()
        seen.append(rewirer.updates)
        if number == 1:
            assert torch.equal(model[0].weight, weight)
            assert_same(orthosparse.masks_of(model), before)
    assert seen == [0, 0, 1, 2]


@pytest.mark.parametrize("grow", BOTH)
def test_loss_scales_that_change_between_updates_do_not_matter(grow):
    models = {scaled: make() for scaled in (False, True)}
    for scaled, model in models.items():
        optimizer, rewirer = rewired(model, grow, every=1, steps=20)
        scaler = torch.amp.GradScaler("cpu", 1.0, growth_factor=16.0, growth_interval=1, enabled=scaled)
        for number in range(10):
            x, y = batch(number)
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
            rewirer.step()
        assert rewirer.updates == 10
    assert_same(*(orthosparse.masks_of(model) for model in models.values()))


def test_half_precision_gradients_are_averaged_in_single_precision():
    model = nn.Linear(4, 4, bias=False).half()
    orthosparse.sparsify(model, 0.5, scheme="base", generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rewirer = orthosparse.Rewirer(model, optimizer, grow="momentum", every=1, steps=100)
    for _ in range(3):  # the norm of the gradients leaves the range of float16, the gradients do not
        model(torch.full((1, 4), 4.0e4, dtype=torch.float16)).sum().backward()
        rewirer.step()
    assert rewirer.updates == 3
    (mean,) = rewirer.momentum.values()
    torch.testing.assert_close(mean, torch.full((4, 4), 0.25 * 2.71), rtol=1e-6, atol=0)


def _ranks_agree(rank):
    model = make()
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer, rewirer = rewired(model, "momentum", every=2)
    before = orthosparse.masks_of(model)
    for number in range(5):
        bad = number == 1 and rank == 1  # one rank alone sees it before gradients are averaged
        step(wrapped, optimizer, rewirer, number, factor=float("inf") if bad else 1.0, rank=rank)
        if number == 1:
            assert rewirer.postponed
            assert_same(orthosparse.masks_of(model), before)
    assert rewirer.updates == 2
    for key, value in model.state_dict().items():
        assert same_on_all(value), key


def test_ranks_wait_together(tmp_path):
    on_two_ranks(_ranks_agree, tmp_path)
