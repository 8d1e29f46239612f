"""FORCE against rounds of plain backward passes on copies."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from contracts.models import MODELS, Recomputed
from distributions.scored import flattened
from orthosparse.distributions.snip import snip
from orthosparse.distributions.snip_iterative import snip_iterative
from orthosparse.layers import find_layers


def force(model, density, rounds, batches):
    """The algorithm, round by round, with copies of the model: returns the flat mask after each round."""
    dense = torch.cat([layer.weight().flatten() for layer in find_layers(model).values()])
    kept, history = torch.ones_like(dense, dtype=torch.bool), []
    for number in range(1, rounds + 1):
        pruned = copy.deepcopy(model)
        layers = find_layers(pruned).values()
        with torch.no_grad():
            for layer, part in zip(layers, kept.split([layer.numel for layer in layers]), strict=True):
                layer.parameter().mul_(part.view(layer.shape))
        for x, y in batches:
            F.cross_entropy(pruned(x), y).backward()
        slope = torch.cat([layer.parameter().grad.flatten() for layer in layers])
        order = (dense * slope).abs().argsort(descending=True, stable=True)
        kept = torch.zeros_like(kept)
        kept[order[: round(len(dense) * density ** (number / rounds))]] = True
        history.append(kept)
    return history


@pytest.mark.parametrize("model_name", ["tanh_mlp", "cnn", "lstm"])
@pytest.mark.parametrize(("density", "rounds"), [(0.3, 1), (0.2, 6), (0.05, 10)])
def test_masks_are_those_of_rounds_on_copies(model_name, density, rounds):
    model = MODELS[model_name].make().double().train()
    x, y = MODELS[model_name].batch()
    batches = [(x[:4].double(), y[:4]), (x[4:].double(), y[4:])]
    masks = snip_iterative(model, density, batch=iter(batches), rounds=rounds)
    assert torch.equal(flattened(masks), force(model, density, rounds, batches)[-1])


def test_one_round_is_snip():
    model, batch = MODELS["batch_norm"].make(), MODELS["batch_norm"].batch()
    runs = [
        function(model, 0.2, batch=batch, generator=torch.Generator().manual_seed(0), **own)
        for function, own in ((snip, {}), (snip_iterative, {"rounds": 1}))
    ]
    assert torch.equal(flattened(runs[0]), flattened(runs[1]))


def test_a_weight_can_come_back():
    model, batch = MODELS["mlp"].make(), MODELS["mlp"].batch()
    seen = []
    for module in model:
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda module, *_: seen.append(module.weight.detach() != 0))
    snip_iterative(model, 0.05, batch=batch, rounds=10)
    rounds = [torch.cat([mask.flatten() for mask in seen[i : i + 4]]) for i in range(0, 40, 4)]
    assert rounds[0].all()
    assert [int(mask.sum()) for mask in rounds[1:3]] == [round(658 * 0.05 ** (t / 10)) for t in (1, 2)]
    assert any((later & ~earlier).any() for earlier, later in pairwise(rounds))


def test_layers_that_are_recomputed_in_the_backward_pass_see_the_masked_weights():
    model, batch = MODELS["mlp"].make(), MODELS["mlp"].batch()
    plain, recomputed = (snip_iterative(m, 0.1, batch=batch, rounds=5) for m in (model, Recomputed(model)))
    assert torch.equal(flattened(plain), flattened(recomputed))


@pytest.mark.parametrize(("rounds", "error"), [(0, ValueError), (-1, ValueError), (2.5, TypeError), (True, TypeError)])
def test_bad_rounds_are_refused(rounds, error):
    with pytest.raises(error, match=r"rounds: expected an integer.*; got"):
        snip_iterative(MODELS["mlp"].make(), 0.5, batch=MODELS["mlp"].batch(), rounds=rounds)
