from dataclasses import replace
from pathlib import Path

import pytest
import torch

from orthosparse.lab.data import Loader, load
from orthosparse.lab.experiments.spectrum import Spectrum
from orthosparse.lab.models import build, dense_init
from orthosparse.lab.seeds import generators

FIXTURES = Path(__file__).parents[2] / "fixtures"


def small(**fields):
    given = {"activation": "tanh", "distribution": "snip", "scheme": "eoi", "density": 0.3}
    return Spectrum(**{**given, "data": "digits", **fields})


def measure(*fields, **more):
    """A point of the paper's figure, on a slice of the real MNIST."""
    return Spectrum(*fields, **more).run(1, root=FIXTURES, device="cpu")


def test_keys_are_what_they_were():
    """Rows of the past are found by them."""
    assert Spectrum("linear", "erk", "eoi", 0.03).key() == (
        '{"activation":"linear","density":0.03,"distribution":"erk","kind":"spectrum","scheme":"eoi"}'
    )
    assert Spectrum("relu", "snip", "ai", 1, 1000, {"compat": "paper-code"}).key() == (
        '{"activation":"relu","density":1.0,"distribution":"snip","iterations":1000,"kind":"spectrum",'
        '"options":{"compat":"paper-code"},"scheme":"ai"}'
    )


@pytest.mark.parametrize("density", [0.03, 0.5, 1.0])
def test_a_linear_network_has_singular_values_of_1_at_every_density_under_eoi(density):
    found = measure("linear", "erk", "eoi", density)
    assert (found["min"], found["max"]) == pytest.approx((1, 1), abs=1e-5)
    assert found["got"] == round(density * 129_400)


def test_base_falls_with_the_density_and_ai_lies_between():
    means = {
        scheme: [measure("linear", "uniform", scheme, density, 100)["mean"] for density in (0.05, 0.3, 1.0)]
        for scheme in ("base", "ai")
    }
    assert means["base"] == sorted(means["base"])
    assert means["base"][0] < 1e-3
    assert means["base"][0] < means["ai"][0] < 1
    assert means["base"][2] == pytest.approx(1, abs=1e-5)


def test_at_density_1_base_has_the_spectrum_of_the_dense_network_by_torchs_own_jacobian():
    draw = generators(1)
    images, _ = next(Loader(load("mnist", FIXTURES).train, batch=128, seed=generators(1).data.initial_seed()).epoch(0))
    model = build("mlp", classes=10, in_shape=(1, 28, 28), activation="relu", generator=draw.init)
    dense_init(model, "orthogonal", generator=draw.init)
    jacobians = torch.func.vmap(torch.func.jacrev(lambda x: model(x.unsqueeze(0))[0]))(images).detach()
    values = torch.linalg.svdvals(jacobians.flatten(2))
    found = measure("relu", "erk", "base", 1.0)
    statistics = (values.mean(), values.max(), values.min(), values.std(correction=0))
    expected = [float(value) for value in statistics]
    assert [found[name] for name in ("mean", "max", "min", "std")] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("distribution", ["snip", "grasp", "synflow"])
def test_compat_reaches_the_scores(distribution):
    ours = Spectrum("relu", distribution, "base", 0.5)
    theirs = replace(ours, options={"compat": "paper-code"})
    assert ours.run(1, root=FIXTURES)["mean"] != theirs.run(1, root=FIXTURES)["mean"]


def test_a_dense_linear_start_is_an_isometry_and_its_quantiles_say_so():
    metrics = small(activation="linear", distribution="uniform", density=1.0, model_options={"width": 32}).run(
        1, device="cpu"
    )
    assert metrics["curves"]["quantiles"] == pytest.approx([1.0] * 21, abs=1e-5)
    assert metrics["values"] == 128 * 10


def test_quantiles_rise_from_the_smallest_to_the_largest():
    metrics = small(scheme="base").run(1, device="cpu")
    quantiles = metrics["curves"]["quantiles"]
    assert quantiles == sorted(quantiles)
    assert (quantiles[0], quantiles[-1]) == pytest.approx((metrics["min"], metrics["max"]))


def test_seeds_see_other_images_and_draw_other_weights():
    first, second, again = (small().run(seed, device="cpu")["mean"] for seed in (1, 2, 1))
    assert first == again
    assert first != second
