"""SNIP against finite differences of the loss in a multiplicative connection variable."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from contracts.models import MODELS, refilled
from contracts.states import assert_same
from distributions.scored import doubled
from orthosparse.counts import count_of
from orthosparse.distributions.snip import snip
from orthosparse.layers import find_layers
from orthosparse.masking import attach
from orthosparse.masks import counts_of

STEP = 1e-5


@torch.no_grad()
def sensitivities(model, loss_of):
    """|dL / dc| at c = 1, where theta is replaced by c * theta, weight by weight, by central differences."""
    model = copy.deepcopy(model)
    scores = {}
    for name, layer in find_layers(model).items():
        flat = layer.parameter().view(-1)
        scores[name] = torch.zeros_like(flat)
        for position, value in enumerate(flat.tolist()):
            losses = []
            for c in (1 + STEP, 1 - STEP):
                flat[position] = c * value
                losses.append(loss_of(model).item())
            flat[position] = value
            scores[name][position] = abs(losses[0] - losses[1]) / (2 * STEP)
        scores[name] = scores[name].view(layer.shape)
    return scores


def largest(scores, density):
    flat = torch.cat([score.flatten() for score in scores.values()])
    count = count_of(density, len(flat))
    ordered = flat.sort(descending=True).values
    assert ordered[count - 1] - ordered[count] > 1e-8, "choose a density whose threshold the step can resolve"
    return {name: score >= ordered[count - 1] for name, score in scores.items()}


@pytest.mark.parametrize("model_name", MODELS)
def test_scores_are_finite_differences_of_the_loss(model_name):
    model, (x, y) = doubled(model_name)
    scores = sensitivities(model, lambda m: F.cross_entropy(m(x), y))
    for density in (0.1, 0.5, 0.85):
        assert_same(snip(model, density, batch=(x, y)), largest(scores, density))


def test_many_batches_add_their_losses_and_any_iterable_will_do():
    model, (x, y) = doubled("tanh_mlp")
    batches = [(x[:3], y[:3]), (x[3:], y[3:])]
    scores = sensitivities(model, lambda m: sum(F.cross_entropy(m(a), b) for a, b in batches))
    expected = largest(scores, 0.3)
    assert_same(snip(model, 0.3, batch=batches), expected)
    assert_same(snip(model, 0.3, batch=iter(batches)), expected)
    assert_same(snip(model, 0.3, batch=[[a, b] for a, b in batches]), expected)


def test_the_loss_can_be_the_users():
    model, (x, y) = doubled("mlp")
    target = F.one_hot(y, 5).double()
    scores = sensitivities(model, lambda m: F.mse_loss(m(x), target))
    assert_same(snip(model, 0.3, batch=(x, target), loss=F.mse_loss), largest(scores, 0.3))


def test_the_released_code_takes_outputs_for_log_probabilities():
    model, (x, y) = doubled("tanh_mlp")
    scores = sensitivities(model, lambda m: -m(x)[torch.arange(len(y)), y].mean())
    released = snip(model, 0.3, batch=(x, y), compat="paper-code")
    assert_same(released, largest(scores, 0.3))
    right = snip(model, 0.3, batch=(x, y))
    assert any(not torch.equal(released[name], right[name]) for name in right)
    with pytest.raises(ValueError, match="loss: expected None beside compat"):
        snip(model, 0.3, batch=(x, y), loss=F.mse_loss, compat="paper-code")


def test_the_released_code_rounds_its_count_down():
    model, batch = doubled("tanh_mlp")
    numel = sum(mask.numel() for mask in snip(model, 1.0, batch=batch).values())
    density = (numel // 3 + 0.75) / numel
    kept = [
        sum(int(mask.sum()) for mask in snip(model, density, batch=batch, compat=compat).values())
        for compat in (None, "paper-code")
    ]
    assert kept == [numel // 3 + 1, numel // 3]


def test_on_log_probabilities_the_released_code_is_exact():
    logits, (x, y) = doubled("tanh_mlp")
    heads = nn.Sequential(*logits, nn.LogSoftmax(1))
    assert_same(snip(heads, 0.3, batch=(x, y), compat="paper-code"), snip(logits, 0.3, batch=(x, y)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = (nn.Linear(12, 12, bias=False) for _ in range(3))
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_a_tied_weight_is_scored_by_all_its_uses():
    model = refilled(Tied(), torch.Generator().manual_seed(0)).double()
    x, y = MODELS["mlp"].batch()
    batch = (x.double(), y)
    scores = sensitivities(model, lambda m: F.cross_entropy(m(batch[0]), y))
    assert [*scores] == ["first", "head"]
    assert_same(snip(model, 0.4, batch=batch), largest(scores, 0.4))


def test_a_frozen_layer_is_scored_like_any_other_when_it_is_named():
    model, batch = doubled("mlp")
    expected = snip(model, 0.3, batch=batch)
    layers = find_layers(model)
    model.requires_grad_(False)
    assert_same(snip(model, 0.3, batch=batch, layers=layers), expected)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_layer_that_the_data_do_not_reach_is_removed_first():
    model = nn.ModuleDict({"used": nn.Linear(12, 5), "unused": nn.Linear(12, 5)})
    model.forward = lambda x: model["used"](x)
    masks = snip(model, 0.5, batch=MODELS["mlp"].batch())
    assert counts_of(masks) == {"used": 60, "unused": 0}


def test_inputs_may_be_positional_or_keyword_arguments():
    model = nn.Bilinear(4, 3, 5)
    layers = find_layers(model, include=[nn.Bilinear])
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(6, 4, generator=generator), torch.randn(6, 3, generator=generator)
    y = torch.randint(5, (6,), generator=generator)
    positional = snip(model, 0.3, layers=layers, batch=[((a, b), y)])
    keywords = snip(model, 0.3, layers=layers, batch=({"input1": a, "input2": b}, y))
    assert_same(positional, keywords)


def test_dropout_is_drawn_from_the_generator():
    model, batch = MODELS["batch_norm"].make(), MODELS["batch_norm"].batch()
    masks = [snip(model, 0.3, batch=batch, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert_same(masks[0], masks[1])
    assert any(not torch.equal(masks[0][name], masks[2][name]) for name in masks[0])


def test_the_mode_the_model_is_in_does_not_matter():
    """Batch norm is scored with the batch's statistics, whatever its running ones."""
    model, batch = doubled("batch_norm")
    expected = snip(model, 0.3, batch=batch)
    model.eval()
    model[1].running_mean += 100
    assert_same(snip(model, 0.3, batch=batch), expected)


def test_a_model_with_masks_is_scored_as_it_stands():
    model, batch = doubled("cnn")
    masks = snip(model, 0.5, batch=batch)
    attach(model, masks)
    again = snip(model, 0.25, batch=batch)
    assert all(not (mask & ~masks[name]).any() for name, mask in again.items())
    assert sum(counts_of(again).values()) == count_of(0.25, sum(mask.numel() for mask in masks.values()))


def test_a_wrapped_model_is_the_model_inside():
    model, batch = MODELS["mlp"].make(), MODELS["mlp"].batch()
    wrapped = nn.DataParallel(model)
    device = next(model.parameters()).device  # it moves the model to a GPU where there is one
    batch = tuple(tensor.to(device) for tensor in batch)
    assert_same(snip(wrapped, 0.3, batch=batch), snip(model, 0.3, batch=batch))


def test_bad_losses_are_named():
    model, (x, y) = MODELS["mlp"].make(), MODELS["mlp"].batch()
    with pytest.raises(ValueError, match=r"loss: expected one number; got shape \(8,\)"):
        snip(model, 0.3, batch=(x, y), loss=lambda a, b: F.cross_entropy(a, b, reduction="none"))
    with pytest.raises(ValueError, match=r"loss: expected one number; got tuple of shape \(\) and torch.float32"):
        snip(model, 0.3, batch=(x, y), loss=lambda a, b: (F.cross_entropy(a, b), a))
    with pytest.raises(ValueError, match="loss: expected one number; got type float"):
        snip(model, 0.3, batch=(x, y), loss=lambda a, b: 1.0)
    with pytest.raises(ValueError, match="loss: expected a function of the layers' weights"):
        snip(model, 0.3, batch=(x, y), loss=lambda a, b: a.detach().sum())
    with pytest.raises(ValueError, match=r"loss: cannot be computed from outputs of shape \(8, 5\)"):
        snip(model, 0.3, batch=(x, y[:3]))
