"""The settings of the paper's experiments, where they differ from the defaults."""

import math

import pytest

from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import ITEMS


def trainings(name):
    return [each for each in ITEMS[name].experiments() if isinstance(each, Training)]


def test_deep_networks_have_the_critical_point_and_a_thousand_iterations():
    for each in trainings("deep_networks"):
        recipe = each.recipe
        assert (recipe.gain, recipe.bias_std, recipe.epochs, recipe.lr) == (1.0247, 0.00448, 100, 1e-4)
        if each.density < 1:
            assert each.density == 0.125
            assert each.options.get("iterations") == (1000 if each.scheme == "ai" else None)
            in_kernel = "density" if (each.model, each.scheme) == ("cnn1000", "eoi") else None
            assert each.options.get("center_density") == in_kernel


def test_deep_networks_have_grasp_and_snip_by_definition_and_as_released():
    released = [each for each in trainings("deep_networks") if each.options.get("compat") == "paper-code"]
    plain = [each for each in trainings("deep_networks") if each.distribution in ("grasp", "snip")]
    assert len(released) == 12
    assert len(plain) == 24
    batches = {(each.distribution, each.data): each.score_batches for each in released}
    assert batches == {("grasp", "mnist"): 422, ("grasp", "cifar10"): 352, ("snip", "mnist"): 1, ("snip", "cifar10"): 1}


def test_the_dense_deep_cnn_is_delta_orthogonal():
    dense = {each.model: each.recipe.dense_init for each in trainings("deep_networks") if each.density == 1}
    assert dense == {"mlp1000": "orthogonal", "cnn1000": "delta_orthogonal"}


def test_sao_has_dense_ends():
    pairs = {
        (each.distribution, each.scheme) for each in trainings("deep_networks") if each.distribution == "dense_ends"
    }
    assert pairs == {("dense_ends", "sao"), ("dense_ends", "eoi")}


def test_contemporary_networks_have_the_papers_recipes():
    expected = {"resnet32": (200, 0.1, 1e-4), "efficientnet_b0": (120, 0.01, 1e-3)}
    for each in trainings("contemporary"):
        recipe = each.recipe
        if each.model in expected:
            assert (recipe.epochs, recipe.lr, recipe.weight_decay) == expected[each.model]
        assert recipe.dense_init in ("conv_orthogonal", "default")


def test_items_share_runs():
    contemporary = set(ITEMS["contemporary"].experiments())
    assert set(ITEMS["ranks"].experiments()) < contemporary
    assert len(contemporary & set(ITEMS["activations"].experiments())) == 30
    assert len(contemporary & set(ITEMS["dynamic"].experiments())) == 6
    assert len(contemporary & set(ITEMS["density_sweep"].experiments())) == 3
    assert len(contemporary & set(ITEMS["angles"].experiments())) == 1


def test_angles_are_one_and_eighty_degrees():
    angles = [each.options.get("angle") for each in trainings("angles")]
    assert angles == [None, pytest.approx(math.radians(1)), pytest.approx(math.radians(80))]


@pytest.mark.torchvision
def test_the_transformer_is_sparse_in_its_mlp_blocks_alone():
    pytest.importorskip("timm")
    import torch

    from orthosparse import find_layers
    from orthosparse.lab.models import MODELS
    from orthosparse.lab.paper.imagenet import NOT_MLP

    with torch.device("meta"):
        model = MODELS["deit3_small"](classes=1000, in_shape=(3, 224, 224))
    found = list(find_layers(model, exclude=NOT_MLP))
    assert found == [f"blocks.{block}.mlp.{name}" for block in range(12) for name in ("fc1", "fc2")]


@pytest.mark.parametrize(
    ("name", "index", "key"),
    [
        ("contemporary", 0, '{"data":"cifar10","density":0.1,"kind":"training","model":"resnet32","scheme":"base"}'),
        ("contemporary", 2, '{"data":"cifar10","density":0.1,"kind":"training","model":"resnet32"}'),
        ("contemporary", 16, '{"data":"cifar10","kind":"training","model":"resnet32"}'),
        ("efficiency", 0, '{"density":0.0625,"kind":"efficiency","method":"eoi","size":16}'),
        (
            "singular_values",
            1,
            '{"activation":"linear","density":0.03,"distribution":"uniform","kind":"spectrum","scheme":"ai"}',
        ),
        (
            "deep_networks",
            1,
            '{"data":"mnist","density":0.125,"kind":"training","model":"mlp1000","options":{"iterations":1000},'
            '"scheme":"ai"}',
        ),
    ],
)
def test_keys_of_committed_rows_stay(name, index, key):
    assert ITEMS[name].experiments()[index].key() == key
