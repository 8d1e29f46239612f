import dataclasses

import pytest
import torch

from orthosparse.lab.models import DENSE_INITS, MODELS
from orthosparse.lab.training.recipe import RECIPES, Recipe, learning_rate


def test_every_model_of_the_paper_has_a_recipe():
    assert set(RECIPES) == set(MODELS)
    assert all(recipe.dense_init in DENSE_INITS for recipe in RECIPES.values())


@pytest.mark.parametrize(
    ("name", "epochs", "lr", "decay", "milestones"),
    [
        ("mlp", 100, 1e-2, 1e-4, (50, 75)),
        ("mlp1000", 100, 1e-4, 1e-4, (50, 75)),
        ("cnn1000", 100, 1e-4, 1e-4, (50, 75)),
        ("resnet32", 200, 0.1, 1e-4, (100, 150)),
        ("vgg16c", 200, 0.1, 1e-4, (100, 150)),
        ("efficientnet_b0", 120, 1e-2, 1e-3, (60, 90)),
        ("resnet50", 90, 0.1, 1e-4, (45, 67)),
    ],
)
def test_recipes_are_those_of_the_paper(name, epochs, lr, decay, milestones):
    recipe = RECIPES[name]
    assert (recipe.epochs, recipe.lr, recipe.weight_decay, recipe.milestones) == (epochs, lr, decay, milestones)
    assert (recipe.batch, recipe.momentum, recipe.nesterov, recipe.decay_vectors) == (128, 0.9, True, True)
    assert (recipe.optimizer, recipe.gamma, recipe.warmup, recipe.label_smoothing) == ("sgd", 0.1, 0, 0.0)
    assert (recipe.mixup, recipe.cutmix) == (0.0, 0.0)


def test_the_thousand_layer_networks_start_at_criticality():
    for name in ("mlp1000", "cnn1000"):
        assert (RECIPES[name].gain, RECIPES[name].bias_std) == (1.0247, 0.00448)


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 10, 90])
def test_steps_agree_with_torch(epochs):
    recipe = Recipe(epochs=epochs, lr=0.1)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, recipe.milestones, gamma=0.1)
    for epoch in range(epochs):
        assert learning_rate(recipe, epoch) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("schedule", ["steps", "cosine", "constant"])
@pytest.mark.parametrize("epochs", [1, 2, 3, 100])
def test_the_first_epoch_has_the_whole_rate(schedule, epochs):
    assert learning_rate(Recipe(epochs=epochs, lr=0.1, schedule=schedule), 0) == 0.1


def test_cosine_agrees_with_torch():
    recipe = Recipe(epochs=10, lr=0.5, schedule="cosine", min_lr=0.01)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10, eta_min=0.01)
    for epoch in range(10):
        assert learning_rate(recipe, epoch) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        optimizer.step()
        scheduler.step()


def test_warm_up_rises_evenly_and_then_the_schedule_goes_on():
    recipe = Recipe(epochs=10, lr=1.0, schedule="constant", warmup=4, warmup_lr=0.2)
    assert [round(learning_rate(recipe, epoch), 6) for epoch in range(6)] == [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("schedule", "step", "constant, cosine, steps"),
        ("optimizer", "adam", "adamw, lamb, sgd"),
        ("loss", "mse", "bce, cross_entropy"),
        ("precision", "fp16", "bf16, fp32, fp64, tf32"),
        ("epochs", 0, "positive integer"),
        ("batch", 1.5, "positive integer"),
        ("epochs", True, "positive integer"),
        ("warmup", -1, "an integer, 0 or more"),
        ("warmup", 0.5, "an integer, 0 or more"),
        ("accumulate", 200, "at most the batch"),
        ("lr", float("nan"), "finite"),
        ("lr", -1.0, "0 or more"),
        ("label_smoothing", 2.0, "a number in [0, 1]"),
        ("momentum", 0, "nesterov"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(field, value, expected):
    with pytest.raises(ValueError, match=field) as caught:
        dataclasses.replace(RECIPES["resnet32"], **{field: value})
    assert expected in str(caught.value)
