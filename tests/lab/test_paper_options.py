import hashlib
import inspect
from pathlib import Path

import pytest
import torch

from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.lab.data import load
from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.paper_options import PAPER_OPTIONS, resolved
from orthosparse.lab.training.assembly import started
from orthosparse.schemes import SCHEMES

FIXTURES = Path(__file__).parents[1] / "fixtures"
# Every member is handed these; where AI descends is said for each machine, and memory and progress change no result.
FAMILY = {"model", "density", "masks", "layers", "batch", "loss", "gain", "bias_std", "generator", "floor"}
FAMILY |= {"device", "consume", "progress"}


@pytest.mark.parametrize("name", [*DISTRIBUTIONS, *SCHEMES])
def test_every_option_of_the_library_has_the_paper_s_value(name):
    member = {**DISTRIBUTIONS, **SCHEMES}[name]
    assert set(PAPER_OPTIONS[name]) == set(inspect.signature(member).parameters) - FAMILY


def test_what_a_description_names_stands():
    assert resolved("snip", "eoi", {"align": "mask"})["align"] == "mask"
    assert resolved("snip", "eoi", {"align": "mask"})["tap"] == "center"


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
