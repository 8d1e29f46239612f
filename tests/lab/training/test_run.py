import hashlib
import inspect
from pathlib import Path

import pytest
import torch

from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.lab.data import load
from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.training.assembly import started
from orthosparse.lab.training.run import PAPER_OPTIONS, check_stackable, stack_key, why_not_stacked, with_paper_options
from orthosparse.schemes import SCHEMES


def test_starts_densities_and_schemes_do_not_set_runs_apart(deep):
    first = stack_key(deep())
    others = [
        deep(density=0.1, distribution="snip", scheme="ai", options={"iterations": 3}),
        deep(density=0.1, floor="partial", exclude=("fc1",), score_batches=2),
        deep(dense_init="default", gain=1.0, bias_std=0.0),
        deep(density=0.1, dynamic="rigl", every=7, fraction=0.3, until=0.5),
    ]
    assert all(stack_key(other) == first for other in others)


@pytest.mark.parametrize(
    "change",
    [
        {"depth": 9},
        {"activation": "relu"},
        {"lr": 0.1},
        {"epochs": 3},
        {"validation": False},
        {"batch": 10},
        {"precision": "tf32"},
    ],
)
def test_shapes_data_and_recipes_do(deep, change):
    assert stack_key(deep(**change)) != stack_key(deep())
    with pytest.raises(ValueError, match="pairs: expected one shape, data set and recipe; number 1 differs in"):
        check_stackable([deep(), deep(**change)])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"optimizer": "adamw"}, "optimizer: expected sgd"),
        ({"mixup": 0.2}, "mixup: expected 0"),
        ({"clip": 1.0}, "clip: expected 0"),
        ({"accumulate": 2}, "accumulate: expected 1"),
        ({"loss": "bce"}, "loss: expected cross_entropy"),
    ],
)
def test_what_a_stack_cannot_do_is_said(deep, change, reason):
    assert why_not_stacked(deep(**change)).startswith(reason)
    with pytest.raises(ValueError, match=reason):
        stack_key(deep(**change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"floor": "lift"}, "floor: expected one of .*; got 'lift'"),
        ({"every": 0}, "every: expected a positive integer; got 0"),
        ({"every": 2.5}, "every: expected a positive integer; got 2.5"),
        ({"fraction": 1.5}, "fraction: expected a number in"),
        ({"until": -0.1}, "until: expected a number in"),
        ({"density": "0.1"}, "density: expected a number in .*; got '0.1'"),
    ],
)
def test_what_no_run_can_have_is_refused_before_anything_is_read(deep, change, message):
    with pytest.raises(ValueError, match=message):
        deep(**{"density": 0.1, "dynamic": "rigl", **change})


FIXTURES = Path(__file__).parents[2] / "fixtures"
# Every member is handed these; where AI descends is said for each machine, and memory and progress change no result.
FAMILY = {"model", "density", "masks", "layers", "batch", "loss", "gain", "bias_std", "generator", "floor"}
FAMILY |= {"device", "consume", "progress"}


@pytest.mark.parametrize("name", [*DISTRIBUTIONS, *SCHEMES])
def test_every_option_of_the_library_has_the_paper_s_value(name):
    member = {**DISTRIBUTIONS, **SCHEMES}[name]
    assert set(PAPER_OPTIONS[name]) == set(inspect.signature(member).parameters) - FAMILY


def test_what_a_description_names_stands():
    assert with_paper_options("snip", "eoi", {"align": "mask"})["align"] == "mask"
    assert with_paper_options("snip", "eoi", {"align": "mask"})["tap"] == "center"


@pytest.mark.parametrize(
    ("key", "seed", "expected"),
    [  # of the commit that made the first rows; these starts depend on no data, and on no product of matrices
        ('{"data":"cifar10","density":0.1,"kind":"training","model":"resnet32"}', 1, "b1170cf311bec4cb"),
        (
            '{"data":"cifar10","density":0.1,"distribution":"uniform","kind":"training","model":"resnet32"}',
            2,
            "b5b25acae89a3930",
        ),
        (
            '{"data":"mnist","density":0.05,"distribution":"uniform","kind":"training","model":"mlp"}',
            3,
            "b32b36a0f848a68d",
        ),
        (  # scores that alignment could follow, and layers below their floors
            '{"data":"cifar10","dense_init":"default","density":0.05,"distribution":"magnitude","kind":"training",'
            '"model":"resnet32"}',
            1,
            "46dd932f14e92aa5",
        ),
    ],
)
def test_a_committed_key_means_the_same_start_for_ever(key, seed, expected):
    run = experiment_of(key)
    network = started(run, seed, load(run.data, FIXTURES), torch.device("cpu"))
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.contiguous().numpy().tobytes())
    assert digest.hexdigest()[:16] == expected


@pytest.mark.parametrize("name", ["density", "gain", "exclude", "batch"])
def test_an_option_that_the_run_or_its_recipe_has_itself_is_refused(deep, name):
    with pytest.raises(ValueError, match=f"options: expected those of the distribution or the scheme; got {name!r}"):
        deep(density=0.5, options={name: 3})
