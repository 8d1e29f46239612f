"""The pairs of an item: its own trainings, or those with other epochs or another precision."""

import types

import pytest

from orthosparse.lab.commands._sweep import pairs_of
from orthosparse.lab.experiments.expected_density import ExpectedDensity
from orthosparse.lab.experiments.training import Training

PLAIN = Training("resnet32", "cifar10", 0.1)
DEEP = Training("cnn1000", "cifar10", 0.125, precision="bf16")
OTHER = ExpectedDensity(10, 5)


def changed(experiment, **changes):
    item = types.SimpleNamespace(SEEDS=[1], experiments=lambda *, smoke: [experiment])
    (pair,) = pairs_of(item, None, smoke=False, **changes)
    return pair.experiment


@pytest.mark.parametrize("experiment", [PLAIN, DEEP])
@pytest.mark.parametrize("changes", [{"epochs": 7}, {"precision": "fp64"}, {"epochs": 7, "precision": "fp64"}])
def test_a_training_gets_what_is_asked_for_and_keeps_the_rest(experiment, changes):
    assert changed(experiment, **changes).described() == {**experiment.described(), **changes}


@pytest.mark.parametrize("experiment", [PLAIN, DEEP, Training("mlp", "digits", epochs=9), OTHER])
def test_what_an_experiment_has_anyway_leaves_its_key_alone(experiment):
    own = {name: experiment.described().get(name) for name in ("epochs", "precision")}
    assert changed(experiment, **own).key() == experiment.key()
    assert changed(experiment, epochs=None, precision=None).key() == experiment.key()


@pytest.mark.parametrize(
    ("experiment", "changes", "plain"),
    [
        (DEEP, {"precision": "tf32"}, Training("cnn1000", "cifar10", 0.125)),
        (Training("mlp", "digits", epochs=9), {"epochs": 100}, Training("mlp", "digits")),
        (Training("mlp", "digits", epochs=100), {"epochs": 100}, Training("mlp", "digits", epochs=100)),
    ],
)
def test_what_the_recipe_says_is_not_spelled_out_unless_it_was(experiment, changes, plain):
    assert changed(experiment, **changes).key() == plain.key()


def test_what_is_no_training_is_left_alone():
    assert changed(OTHER, epochs=7, precision="bf16") is OTHER
